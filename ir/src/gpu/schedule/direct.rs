//! Products of at most 8 rows on sm90, whose weights go to registers without a stop in shared memory:
//! [`MatmulSchedule::direct`].
//!
//! The cost model predicts their times, but does not choose among them: what was measured of others
//! than these are whole models, in which launches overlap (docs/gpu-results.md). Rules that held there do.

use super::facts::Facts;
use super::parts::{GEMV_ROWS, Input, MatmulSchedule, Phase, Variant, norm_words, sums_bytes};
use crate::gpu::weights::{TILE_K, lane_words};
use crate::gpu::wish::{InputPlace, Wish};
use crate::kernel::{Segment, lcm};
use crate::quant::BLOCK;
use llmcc_abi::layout::round_up;

/// Words of weights that a lane holds at most of a unit on its way.
const HELD_WORDS: usize = 32;
/// Units of a warp: one that is multiplied, one on its way.
const STAGES: usize = 2;

impl Facts<'_> {
    /// Whether the product is streamed to registers, where no ring is wished.
    pub(super) fn is_direct(&self, wish: Wish) -> bool {
        self.gpu.overlaps_launches() && self.variant() != Variant::Fma && wish.stages.is_none() && wish.cut.is_none()
    }

    /// The schedule; `None` if there is none that is wished and fits.
    ///
    /// Blocks of 8 warps were the fastest with 4-bit weights, blocks of 16 with bf16, whose
    /// products take less than half of the instructions for the same bytes.
    pub(super) fn direct(&self, wish: Wish) -> Option<MatmulSchedule> {
        let resident = wish.resident.unwrap_or(1);
        let mut formats = self.body.segments.iter().flat_map(|s| &s.weights).filter_map(|w| self.format(*w));
        let first = if formats.any(|f| f.is_quantized()) { 8 } else { 16 };
        let shapes = [GEMV_ROWS, 4, 2, 1].into_iter().flat_map(|rows| [(first, rows), (8, rows), (4, rows)]);
        shapes.map(|(warps, rows)| (resident, wish.warps.unwrap_or(warps), rows)).find_map(|shape| {
            [8, 4, 2, 1].into_iter().find_map(|depth| self.streamed_to_registers(shape, depth, wish.place))
        })
    }

    /// The schedule with so many blocks on a multiprocessor, warps and rows of a block, and column
    /// tiles of a unit; `None` where that does not fit.
    fn streamed_to_registers(
        &self,
        (resident, warps, rows): (usize, usize, usize),
        depth: usize,
        place: Option<InputPlace>,
    ) -> Option<MatmulSchedule> {
        let kt = self.kt();
        let group = |p: &Phase| &self.body.segments[p.first..p.first + p.segments];
        let phases: Vec<Phase> =
            self.groups().into_iter().map(|g| self.direct_phase(g, warps, depth)).collect::<Option<_>>()?;
        // Every warp has as many units as any other, and registers for them.
        let uneven = |p: &Phase| !(kt / depth).is_multiple_of(p.parts) || p.parts * p.columns < warps;
        let words = |p: &Phase| {
            let formats = group(p)[0].weights.iter().filter_map(|w| self.format(*w));
            depth * p.strips * formats.map(lane_words).sum::<usize>()
        };
        if depth > 1 && (!kt.is_multiple_of(depth) || phases.iter().any(|p| uneven(p) || words(p) > HELD_WORDS)) {
            return None;
        }
        let k = round_up(self.k, TILE_K);
        let row = 2 * k + 16;
        let norm = self.body.prologue.and_then(|p| p.norm).map_or(0, |norm| rows * norm_words(norm, k, warps) * 4);
        let most = |f: &dyn Fn(&Phase) -> usize| phases.iter().map(f).max().unwrap_or(0);
        let sums = most(&|p| sums_bytes(p.parts, rows, &group(p)[0]) + self.epilogue_bytes(group(p), rows));
        let fitting = (self.shared_of_block(resident).checked_sub(384 + norm + sums)? / row).min(rows);
        let input = match place {
            _ if self.must_stage() => {
                (fitting == rows && place.is_none_or(|p| p == InputPlace::Whole)).then_some(Input::Whole)?
            }
            Some(InputPlace::Global) => Input::Global,
            Some(InputPlace::Whole) => (fitting == rows).then_some(Input::Whole)?,
            Some(InputPlace::Fitting) => (1..rows).contains(&fitting).then_some(Input::Fitting(fitting))?,
            None if fitting == rows => Input::Whole,
            None if fitting == 0 => Input::Global,
            None => Input::Fitting(fitting),
        };
        let blocks = self.streaming_blocks(&phases, resident)?;
        Some(MatmulSchedule {
            variant: Variant::Gemv,
            rows,
            warps,
            producers: 0,
            resident,
            blocks,
            input,
            apart: true,
            k,
            depth,
            direct: true,
            phases,
            slow: self.many_rows(),
        })
    }

    fn direct_phase(&self, (first, segments): (usize, usize), warps: usize, depth: usize) -> Option<Phase> {
        let group = &self.body.segments[first..first + segments];
        let s = &group[0];
        let (lanes, wide) = (s.weights.len(), s.tile_n / BLOCK);
        let divisors = || (1..=wide).filter(|d| wide.is_multiple_of(*d) && wide / d <= warps);
        // Strips of a warp share its reads of the input: two; the sums of four spill.
        let strips = divisors().filter(|d| lanes * d <= 2).max().or_else(|| divisors().min())?;
        let columns = wide / strips;
        let parts = (warps / columns).min(self.kt() / depth).max(1);
        let tiles = group.iter().map(Segment::tiles).sum();
        let cut = !self.target.wish.invariant && self.is_worth_cutting(group, tiles);
        Some(Phase { first, segments, tiles, strips, columns, parts, cut, stages: STAGES })
    }

    /// Whether cutting `tiles` output tiles between the multiprocessors is worth the cost of
    /// joining them.
    fn is_worth_cutting(&self, segments: &[Segment], tiles: usize) -> bool {
        let sms = self.gpu.sms as usize;
        let bytes = |s: &Segment| s.n.div_ceil(BLOCK) * self.kt() * self.unit_bytes(s);
        let seconds = segments.iter().map(bytes).sum::<usize>() as f64 / self.target.memory;
        let whole = tiles.next_multiple_of(sms) as f64 / tiles as f64;
        tiles * self.kt() > sms && seconds * whole > seconds + self.gpu.rates.join
    }

    /// Widths of the output tiles of all segments: one width where runs allow it, so that their tiles
    /// are shared out as one; as wide as leaves all multiprocessors busy.
    pub(super) fn direct_widths(&self) -> Vec<usize> {
        let segments = &self.body.segments;
        let lanes = segments.iter().map(|s| s.weights.len()).max().unwrap_or(1);
        let columns: usize = segments.iter().map(|s| s.n).sum();
        // The part of the turns of the multiprocessors that has work.
        let busy = |c: &usize| {
            let tiles = columns.div_ceil(*c);
            tiles as f64 / tiles.next_multiple_of(self.gpu.sms as usize) as f64
        };
        let wide = [2 * BLOCK, BLOCK].map(|c| (c / lanes).max(BLOCK));
        let best = wide.iter().map(busy).fold(0.0, f64::max);
        let wanted = wide.into_iter().find(|c| busy(c) >= 0.98 * best).unwrap_or(BLOCK);
        let run = segments.iter().map(|s| self.run(s)).fold(BLOCK, lcm);
        let width = |run: usize| run * (wanted / run).max(1);
        let own = |s: &Segment| if s.n.is_multiple_of(run) { width(run) } else { width(self.run(s)) };
        segments.iter().map(own).collect()
    }
}
