//! Facts about a product before it is scheduled, and the schedules that fit.

use super::parts::{
    GEMV_ROWS, Input, MatmulSchedule, Phase, Variant, WGMMA_PRODUCERS, norm_words, sums_bytes, unit_bytes,
    wgmma_strip_bytes,
};
use crate::gpu::weights::{TILE_K, has_f32_factors, is_fp8, on_tensor_cores};
use crate::gpu::wish::InputPlace;
use crate::kernel::{Body, Kernel, Matmul, ParamKind, RowElem, Segment, Store, lcm};
use crate::quant::{BLOCK, Format};
use crate::target::{GpuArch, TargetSpec};
use llmcc_abi::layout::round_up;

/// The choices that decide a schedule with streamed weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streamed {
    pub(super) resident: usize,
    pub(super) warps: usize,
    pub(super) rows: usize,
    pub(super) place: InputPlace,
    /// Units in a ring, of the phase with the most.
    pub(super) stages: usize,
    /// Whether output tiles are cut where they may be.
    pub(super) cut: bool,
}

/// The choices that decide a schedule of tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiled {
    pub(super) resident: usize,
    pub(super) stages: usize,
    pub(super) depth: usize,
    pub(super) apart: bool,
    /// Whether output tiles are cut where they may be.
    pub(super) cut: bool,
}

/// Facts about a product before it is scheduled.
pub(super) struct Facts<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) body: &'a Matmul,
    pub(super) gpu: &'a GpuArch,
    pub(super) target: &'a TargetSpec,
    /// Columns of the input.
    pub(super) k: usize,
    /// Storage of what is multiplied.
    pub(super) elem: RowElem,
}

impl<'a> Facts<'a> {
    pub(super) fn new(kernel: &'a Kernel, target: &'a TargetSpec) -> Option<Facts<'a>> {
        let (Body::Matmul(body), Some(gpu)) = (&kernel.body, target.gpu()) else { return None };
        let ParamKind::Rows { cols: k, elem, .. } = kernel.params.get(body.x)?.kind else { return None };
        let elem = body.prologue.map_or(elem, |p| p.elem);
        if elem.is_quantized() && elem != RowElem::Fp8 || body.segments.is_empty() || k == 0 {
            return None;
        }
        let facts = Facts { kernel, body, gpu, target, k, elem };
        let whole = |s: &Segment| !s.weights.is_empty() && s.n > 0 && s.tile_n > 0 && s.tile_n.is_multiple_of(BLOCK);
        let fp8 = |s: &Segment| s.weights.iter().all(|w| facts.format(*w).is_some_and(is_fp8));
        if elem == RowElem::Fp8
            && (body.prologue.is_some() || !target.multiplies(elem) || !body.segments.iter().all(fp8))
        {
            return None;
        }
        let fits = body.segments.iter().all(|s| whole(s) && s.weights.iter().all(|w| facts.format(*w).is_some()));
        fits.then_some(facts)
    }

    pub(super) fn format(&self, p: usize) -> Option<Format> {
        match self.kernel.params.get(p)?.kind {
            ParamKind::Matrix { format, .. } => Some(format),
            _ => None,
        }
    }

    pub(super) fn formats(&self, s: &Segment) -> Vec<Option<Format>> {
        s.weights.iter().map(|w| self.format(*w)).collect()
    }

    /// Whether weights are decoded number by number, as they are for multiply-adds.
    pub(super) fn is_decoded(&self) -> bool {
        let mut weights = self.body.segments.iter().flat_map(|s| &s.weights).filter_map(|w| self.format(*w));
        self.variant() == Variant::Fma && weights.any(has_f32_factors)
    }

    pub(super) fn variant(&self) -> Variant {
        let all = |f: &dyn Fn(Format) -> bool| {
            self.body.segments.iter().flat_map(|s| &s.weights).all(|w| self.format(*w).is_some_and(f))
        };
        if self.elem == RowElem::Fp8 {
            let whole = self.k.is_multiple_of(TILE_K * Variant::WgmmaFp8.stage_units());
            return if whole && self.wgmma() { Variant::WgmmaFp8 } else { Variant::Mma };
        }
        if !all(&|f| on_tensor_cores(f, self.elem)) {
            Variant::Fma
        } else if self.body.tile_m <= GEMV_ROWS
            || self.body.prologue.is_some()
            || !self.k.is_multiple_of(TILE_K)
            || !self.tileable()
        {
            Variant::Gemv
        } else if self.wgmma() {
            Variant::Wgmma
        } else if self.body.tile_m <= 128 {
            Variant::Mma
        } else {
            Variant::Gemv
        }
    }

    /// Whether the tiles suit the kernels with input tiles in shared memory.
    pub(super) fn tileable(&self) -> bool {
        let fits =
            |s: &Segment| tile_warps(s).is_some() && s.tile_n * s.weights.len() * self.body.tile_m <= MAX_ACCUMULATORS;
        self.body.tile_m.is_multiple_of(16) && self.body.tile_m <= 256 && self.body.segments.iter().all(fits)
    }

    /// Whether `wgmma` computes the tiles: 128 columns of lanes of one format by 64, 128 or 256 rows.
    pub(super) fn wgmma(&self) -> bool {
        let fits =
            |s: &Segment| s.tile_n * s.weights.len() == 128 && self.formats(s).iter().all(|f| *f == self.formats(s)[0]);
        let rows = [64, 128, 256].contains(&self.body.tile_m);
        self.gpu.processor == "sm_90a" && rows && self.body.segments.iter().all(fits)
    }

    /// Rows of a block of tiles: the kernel's, of which `wgmma` takes 128 at a time if they are fp8.
    /// Its sums are then added to others every 128 columns, because the tensor cores keep about 14
    /// bits of them, and the registers hold two sets of sums of 128 rows, not of 256.
    pub(super) fn tile_rows(&self) -> usize {
        if self.variant() == Variant::WgmmaFp8 { self.body.tile_m.min(128) } else { self.body.tile_m }
    }

    pub(super) fn kt(&self) -> usize {
        self.k.div_ceil(TILE_K)
    }

    /// Bytes of a unit of one strip: codes and the scales of its columns.
    pub(super) fn unit_bytes(&self, s: &Segment) -> usize {
        s.weights.iter().filter_map(|w| self.format(*w)).map(unit_bytes).sum()
    }

    /// Adjacent segments of equal shape: `(first, count)`.
    pub(super) fn groups(&self) -> Vec<(usize, usize)> {
        let segments = &self.body.segments;
        let mut out: Vec<(usize, usize)> = vec![];
        for (i, s) in segments.iter().enumerate() {
            match out.last_mut() {
                Some((first, count))
                    if segments[*first].tile_n == s.tile_n && self.formats(&segments[*first]) == self.formats(s) =>
                {
                    *count += 1
                }
                _ => out.push((i, 1)),
            }
        }
        out
    }

    /// Whether `tiles` output tiles may be cut between `slots` blocks: where there are more units
    /// than blocks, and some blocks would have a tile more than others.
    pub(super) fn may_cut(&self, tiles: usize, slots: usize) -> bool {
        tiles * self.kt() > slots && !tiles.is_multiple_of(slots)
    }

    /// At most 8 rows at a time, weights streamed: a schedule by its parts, if there is room for it.
    pub(super) fn streamed(&self, how: &Streamed) -> Option<MatmulSchedule> {
        let variant = if self.variant() == Variant::Fma { Variant::Fma } else { Variant::Gemv };
        let Streamed { resident, warps, rows, .. } = *how;
        // Decoded weights and the f32 input of 8 rows need more than the 128 registers that 512
        // threads leave each.
        if variant == Variant::Fma && resident * warps > 8 {
            return None;
        }
        let k = round_up(self.k, TILE_K);
        let bytes = if variant == Variant::Fma { 4 } else { 2 };
        // A row of input, shifted by 16 bytes from the one before, which keeps reads of 8 rows free
        // of bank conflicts.
        let row = k * bytes + 16;
        let norm = self.body.prologue.and_then(|p| p.norm);
        let shared = self.shared_of_block(resident);
        // With the factors of the normalization and a word for all threads.
        let staged = rows * (row + norm.map_or(0, |norm| norm_words(norm, k, warps) * 4)) + 32;
        let (input, phases) = match how.place {
            InputPlace::Whole => (Input::Whole, self.streamed_phases(how, shared.checked_sub(staged)?)?),
            InputPlace::Global => (Input::Global, self.streamed_phases(how, shared)?),
            InputPlace::Fitting => self.partly_staged(variant, how, shared, row)?,
        };
        let blocks = self.streaming_blocks(&phases, resident)?;
        let decoded = self.is_decoded().then_some("weights decoded number by number, for multiply-adds in f32");
        Some(MatmulSchedule {
            variant,
            rows,
            warps,
            producers: 0,
            resident,
            blocks,
            input,
            apart: true,
            k,
            depth: 1,
            direct: false,
            phases,
            slow: decoded.or(self.many_rows()),
        })
    }

    /// Bytes of shared memory that a block may have where `resident` blocks share a multiprocessor.
    /// The system takes 1 KiB of each block.
    pub(super) fn shared_of_block(&self, resident: usize) -> usize {
        (self.gpu.shared_per_sm as usize / resident - 1024).min(self.gpu.shared_per_block as usize)
    }

    /// Blocks that stream the weights of all phases; `None` without phases.
    pub(super) fn streaming_blocks(&self, phases: &[Phase], resident: usize) -> Option<usize> {
        let slots = self.gpu.sms as usize * resident;
        phases.iter().map(|p| if p.cut { slots } else { p.tiles.min(slots) }).max()
    }

    /// The reason why streaming is slow for a product of many rows.
    pub(super) fn many_rows(&self) -> Option<&'static str> {
        (self.body.tile_m > GEMV_ROWS).then_some("a product of many rows that tensor cores would do faster in tiles")
    }

    /// Whether the input must be staged whole: it is computed, or no whole number of column tiles.
    pub(super) fn must_stage(&self) -> bool {
        self.body.prologue.is_some() || !self.k.is_multiple_of(TILE_K)
    }

    /// Input of which not all rows fit beside the weights on their way: as many as take at most
    /// half of the shared memory. A token alone is one row.
    pub(super) fn partly_staged(
        &self,
        variant: Variant,
        how: &Streamed,
        shared: usize,
        row: usize,
    ) -> Option<(Input, Vec<Phase>)> {
        // f32 input is converted on its way to shared memory.
        let most = if variant == Variant::Gemv { ((shared / 2).saturating_sub(32) / row).min(how.rows - 1) } else { 0 };
        (1..=most).rev().find_map(|n| Some((Input::Fitting(n), self.streamed_phases(how, shared - n * row - 32)?)))
    }

    /// The phases of a schedule that streams weights, whose rings and sums fit in `shared` bytes.
    pub(super) fn streamed_phases(&self, how: &Streamed, shared: usize) -> Option<Vec<Phase>> {
        let Streamed { resident, warps, rows, .. } = *how;
        let phase = |(first, segments): (usize, usize)| {
            let group = &self.body.segments[first..first + segments];
            let s = &group[0];
            let (lanes, wide) = (s.weights.len(), s.tile_n / BLOCK);
            // Strips of a warp share what it reads of the input: up to four, more only where there
            // are not enough warps.
            let divisors = || (1..=wide).filter(|d| wide.is_multiple_of(*d) && wide / d <= warps);
            let small = |d: &usize| lanes * d <= 4 && d * self.unit_bytes(s) <= 4096;
            let strips = divisors().filter(small).max().or_else(|| divisors().min())?;
            let columns = wide / strips;
            let parts = (warps / columns).min(self.kt());
            let tiles = group.iter().map(Segment::tiles).sum();
            let cut = how.cut && self.may_cut(tiles, self.gpu.sms as usize * resident);
            Some(Phase { first, segments, tiles, strips, columns, parts, cut, stages: how.stages })
        };
        let mut phases: Vec<Phase> = self.groups().into_iter().map(phase).collect::<Option<_>>()?;
        // Phases follow each other in the same memory: sums, what epilogues need, rings.
        let group = |p: &Phase| &self.body.segments[p.first..p.first + p.segments];
        let most = |f: &dyn Fn(&Phase) -> usize| phases.iter().map(f).max().unwrap_or(0);
        let sums = most(&|p| sums_bytes(p.parts, rows, &group(p)[0]));
        let left = shared.checked_sub(sums + most(&|p| self.epilogue_bytes(group(p), rows)) + 64)?;
        let fits = |p: &Phase| left / (warps * self.unit_bytes(&group(p)[0]) * p.strips);
        let stages: Vec<usize> = phases.iter().map(|p| how.stages.min(fits(p))).collect();
        phases.iter_mut().zip(&stages).for_each(|(p, n)| p.stages = *n);
        // Less in all of them is another schedule.
        (stages.contains(&how.stages) && stages.iter().all(|n| *n >= 2)).then_some(phases)
    }

    /// Shared memory of the epilogue of any of the segments: a bound (normalized values and int8
    /// cache entries are kept per tile).
    pub(super) fn epilogue_bytes(&self, segments: &[Segment], rows: usize) -> usize {
        let with_runs = |s: &Segment, run: usize| rows * (s.tile_n + s.tile_n.div_ceil(run.max(1))) * 4;
        let of = |s: &Segment| {
            let mut bytes = 0;
            s.expr.visit(&mut |e| {
                if let crate::kernel::Expr::Normalize(n, _) = e {
                    bytes += with_runs(s, n.width);
                }
            });
            bytes + self.int8_run(s).map_or(0, |run| with_runs(s, run))
        };
        segments.iter().map(of).max().unwrap_or(0)
    }

    /// Columns of a run of int8 cache entries.
    pub(super) fn int8_run(&self, s: &Segment) -> Option<usize> {
        let (Store::KvKey(p) | Store::KvValue(p)) = s.store else { return None };
        let kv = self.kernel.params.get(p)?.kind.state()?.paged()?;
        kv.dtype.encoding().is_quantized().then(|| kv.stored_dim(matches!(s.store, Store::KvKey(_))))
    }

    /// Many rows: tiles of weights times tiles of input; a schedule by its parts, if there is room.
    pub(super) fn tiled(&self, how: &Tiled) -> Option<MatmulSchedule> {
        let s = self.tiles(how)?;
        (self.tiles_bytes(&s) <= self.shared_of_block(how.resident)).then_some(s)
    }

    /// How many warps of a block of few rows have the same strips: more than one, the same in all
    /// segments, and such that the column tiles of an output tile can be shared out among them.
    /// Each strip is then fetched and decoded once.
    pub(super) fn warps_of_strip(&self) -> Option<usize> {
        let of = |s: &Segment| tile_warps(s).map(|(_, columns)| TILE_WARPS / columns);
        let warps = of(self.body.segments.first()?)?;
        let all = self.body.segments.iter().all(|s| of(s) == Some(warps));
        (self.variant() == Variant::Mma
            && self.body.tile_m <= DEEP_ROWS
            && warps > 1
            && all
            && self.kt().is_multiple_of(warps))
        .then_some(warps)
    }

    pub(super) fn tiles(&self, how: &Tiled) -> Option<MatmulSchedule> {
        let Tiled { resident, stages, depth, apart, .. } = *how;
        let rows = self.tile_rows();
        let slots = self.gpu.sms as usize * resident;
        let variant = self.variant();
        if variant.is_wgmma() && !self.may_part() {
            return None;
        }
        let k_parts = self.body.k_parts;
        let phase = |(first, segments): (usize, usize)| {
            let group = &self.body.segments[first..first + segments];
            let tiles = group.iter().map(Segment::tiles).sum();
            if variant.is_wgmma() {
                let (strips, columns, parts, cut) = (1, TILE_WARPS, 1, k_parts > 1);
                return Some(Phase { first, segments, tiles, strips, columns, parts, cut, stages });
            }
            let (strips, columns) = tile_warps(&group[0])?;
            // A power of two, so that groups of 8 rows are shared out evenly.
            let parts = if depth > 1 { depth } else { (TILE_WARPS / columns).min(rows / 8) };
            // Blocks over the rows fill the machine when there are many; few rows are one tile.
            let units = tiles * (self.kt() / depth);
            let cut = how.cut && rows <= FEW_ROWS && units > slots && self.may_cut(tiles, slots);
            Some(Phase { first, segments, tiles, strips, columns, parts, cut, stages })
        };
        let phases: Vec<Phase> = self.groups().into_iter().map(phase).collect::<Option<_>>()?;
        if depth == 1 && phases.iter().any(|p| !(rows / 8).is_multiple_of(p.parts)) {
            return None;
        }
        let blocks = phases.iter().map(|p| match p.cut {
            true if variant.is_wgmma() => p.tiles * k_parts,
            true => slots,
            false => p.tiles,
        });
        let blocks = blocks.max()?;
        Some(MatmulSchedule {
            variant,
            rows,
            warps: TILE_WARPS,
            producers: if variant.is_wgmma() { WGMMA_PRODUCERS } else { 0 },
            resident,
            blocks,
            input: Input::Tiles,
            apart,
            // fp8 rows are stored in whole units.
            k: round_up(self.k, TILE_K),
            depth,
            direct: false,
            phases,
            slow: None,
        })
    }

    /// Whether `wgmma` can cut output tiles in the parts of the kernel: a loop of two stages a turn, of
    /// which a part has two and more, and one numbering of all output tiles.
    pub(super) fn may_part(&self) -> bool {
        let (parts, stages) = (self.body.k_parts, self.kt() / self.variant().stage_units());
        parts == 1 || parts > 1 && stages.is_multiple_of(2 * parts) && stages >= 4 * parts && self.groups().len() == 1
    }

    /// Shared memory of a block that computes tiles: a bound.
    pub(super) fn tiles_bytes(&self, s: &MatmulSchedule) -> usize {
        let most = |f: &dyn Fn(&Phase, &[Segment]) -> usize| {
            s.phases.iter().map(|p| f(p, &self.body.segments[p.first..p.first + p.segments])).max().unwrap_or(0)
        };
        let units = s.variant.stage_units();
        // With `wgmma`, a warp has a strip of one lane only.
        let strip =
            |g: &Segment| g.weights.first().and_then(|w| self.format(*w)).map_or(0, |f| wgmma_strip_bytes(f, units));
        let unit = |g: &Segment| if s.variant.is_wgmma() { strip(g) } else { self.unit_bytes(g) };
        let rings = most(&|p, g| s.warps * p.stages * p.strips * unit(&g[0]));
        let bytes = if self.elem.is_quantized() { self.elem.encoding().bits() as usize / 8 } else { 2 };
        let stages = most(&|p, _| p.stages) * s.rows * TILE_K * units * s.depth * bytes + rings;
        let sums = most(&|_, g| sums_bytes(s.depth, s.rows, &g[0])) + most(&|_, g| self.epilogue_bytes(g, s.rows));
        1040 + if s.apart { stages + sums } else { stages.max(sums) }
    }

    /// Columns that must stay together in a segment.
    pub(super) fn run(&self, s: &Segment) -> usize {
        lcm(lcm(BLOCK, s.expr.column_run()), self.int8_run(s).unwrap_or(1))
    }
}

/// Warps of a block that computes tiles.
pub(super) const TILE_WARPS: usize = 8;

/// Accumulators of a block that computes tiles: 128 for each of 256 threads.
pub(super) const MAX_ACCUMULATORS: usize = 128 * 256;

/// `(strips of a lane per warp, warps over the columns)` in kernels of tiles.
pub(super) fn tile_warps(s: &Segment) -> Option<(usize, usize)> {
    let wide = s.tile_n / BLOCK;
    let columns =
        [8, 4, 2, 1].into_iter().find(|c| wide.is_multiple_of(*c) && (wide / c * s.weights.len() >= 2 || *c == 1))?;
    (wide / columns * s.weights.len() <= 4).then_some((wide / columns, columns))
}

/// Rows up to which products in tiles are bound by reading the weights.
pub(super) const FEW_ROWS: usize = 64;

/// Rows up to which warps with the same strips share out the columns of the input and not its rows:
/// each then has the sums of all rows, 32 registers of 32 rows and two strips; the 64 of 64 rows
/// would leave one block on a multiprocessor, and there `mma.sync` is the bound.
pub(super) const DEEP_ROWS: usize = 32;
