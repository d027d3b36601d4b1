//! Which schedule, and which tiles: of all that fit, those that are predicted to be the fastest.

use super::facts::{DEEP_ROWS, FEW_ROWS, Facts, Streamed, Tiled};
use super::parts::{GEMV_ROWS, Input, MatmulSchedule, Variant};
use crate::gpu::cost;
use crate::gpu::weights::TILE_K;
use crate::gpu::wish::{InputPlace, Wish};
use crate::kernel::{Body, Kernel, Matmul, RowElem, Segment, lcm};
use crate::quant::BLOCK;
use crate::target::TargetSpec;

/// `(blocks on a multiprocessor, warps of a block)` that stream weights: 8 warps or 16 on a
/// multiprocessor, whose 64 K registers leave 128 to each thread of 16.
const SHAPES: [(usize, usize); 5] = [(2, 8), (1, 16), (4, 4), (1, 8), (2, 4)];
/// Units in a ring that are tried where none is wished.
const STAGES: [usize; 7] = [2, 3, 4, 5, 6, 8, 12];
/// The most that may be wished.
const MOST_STAGES: usize = 16;
/// Stages of tiles: more bring nothing.
const TILE_STAGES: std::ops::RangeInclusive<usize> = 2..=6;

/// The fastest schedule, by prediction, of those that fit and are wished.
pub(super) fn matmul(facts: &Facts<'_>) -> Option<MatmulSchedule> {
    let wish = facts.target.wish;
    fastest(facts, candidates(facts, wish).into_iter().filter(|s| is_wished(s, wish)))
}

/// All schedules that fit, whatever is wished of the target: how a wish for another can be answered.
pub fn fitting(kernel: &Kernel, target: &TargetSpec) -> Vec<MatmulSchedule> {
    let Some(facts) = Facts::new(kernel, target) else { return vec![] };
    let direct = facts.variant() == Variant::Gemv && facts.is_direct(Wish::NONE);
    let direct = direct.then(|| facts.direct(Wish::NONE)).flatten();
    (2..=MOST_STAGES)
        .flat_map(|stages| candidates(&facts, Wish { stages: Some(stages), cut: facts.target.wish.cut, ..Wish::NONE }))
        .chain(direct)
        .collect()
}

/// Whether a schedule satisfies a wish.
fn is_wished(s: &MatmulSchedule, wish: Wish) -> bool {
    let stages = s.phases.iter().map(|p| p.stages).max();
    wish.resident.is_none_or(|w| w == s.resident)
        && wish.warps.is_none_or(|w| w == s.warps)
        && wish.stages.is_none_or(|w| Some(w) == stages)
        && wish.place.is_none_or(|w| Some(w) == place(s))
}

/// Where a schedule with streamed weights has its input.
fn place(s: &MatmulSchedule) -> Option<InputPlace> {
    match s.input {
        Input::Whole => Some(InputPlace::Whole),
        Input::Fitting(_) => Some(InputPlace::Fitting),
        Input::Global => Some(InputPlace::Global),
        Input::Tiles => None,
    }
}

fn fastest(facts: &Facts<'_>, all: impl Iterator<Item = MatmulSchedule>) -> Option<MatmulSchedule> {
    // Products of a few rows are of one row as a rule; tiles are full.
    let rows = if facts.body.tile_m <= GEMV_ROWS { 1 } else { facts.body.tile_m };
    let timed = all.map(|s| (cost::product(facts.kernel, facts.body, &s, facts.target, rows), s));
    timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, s)| s)
}

/// The schedules that there is room for. A wish adds schedules that are not tried without it.
fn candidates(facts: &Facts<'_>, wish: Wish) -> Vec<MatmulSchedule> {
    match facts.variant() {
        // Only `wgmma` has parts; others than the kernel's are none.
        variant if facts.body.k_parts != 1 => match variant.is_wgmma() {
            true if facts.tileable() => tiled(facts, wish),
            _ => vec![],
        },
        Variant::Gemv | Variant::Fma => streamed(facts, wish),
        Variant::Mma | Variant::Wgmma if facts.elem != RowElem::Fp8 => {
            // Weights that fit in shared memory in no way are streamed, eight rows at a time. A
            // wish for a schedule that does not fit does not change that.
            match tiled(facts, wish) {
                tiles if !tiles.is_empty() || !tiled(facts, Wish { cut: wish.cut, ..Wish::NONE }).is_empty() => tiles,
                _ => streamed(facts, wish),
            }
        }
        // fp8 rows are multiplied in tiles only.
        Variant::Mma | Variant::Wgmma | Variant::WgmmaFp8 if facts.tileable() => tiled(facts, wish),
        Variant::Mma | Variant::Wgmma | Variant::WgmmaFp8 => vec![],
    }
}

/// Whether tiles are cut where they may be: both ways, or as wished. (There are counters for the first tiles
/// of rows only, so that others would be summed in another order.)
fn cuts(wish: Wish) -> &'static [bool] {
    match wish.cut {
        _ if wish.invariant => &[false],
        None => &[false, true],
        Some(true) => &[true],
        Some(false) => &[false],
    }
}

fn streamed(facts: &Facts<'_>, wish: Wish) -> Vec<MatmulSchedule> {
    if facts.is_direct(wish) {
        return facts.direct(wish).into_iter().collect();
    }
    let places: &[InputPlace] = if facts.must_stage() {
        &[InputPlace::Whole]
    } else {
        &[InputPlace::Whole, InputPlace::Fitting, InputPlace::Global]
    };
    let mut shapes: Vec<(usize, usize)> = vec![];
    for (resident, warps) in SHAPES {
        let shape = (wish.resident.unwrap_or(resident), wish.warps.unwrap_or(warps));
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    let stages = wish.stages.map_or(STAGES.to_vec(), |stages| vec![stages]);
    // Fewer rows at a time only where more do not fit.
    let of = |rows: usize| {
        let mut out = vec![];
        for (resident, warps) in &shapes {
            for (place, stages) in places.iter().flat_map(|place| stages.iter().map(move |s| (*place, *s))) {
                let how = |cut| Streamed { resident: *resident, warps: *warps, rows, place, stages, cut };
                let found = cuts(wish).iter().filter_map(|cut| facts.streamed(&how(*cut)));
                found.for_each(|s| push(&mut out, s));
            }
        }
        out
    };
    [8, 4, 2, 1].into_iter().map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

fn tiled(facts: &Facts<'_>, wish: Wish) -> Vec<MatmulSchedule> {
    let wgmma = facts.variant().is_wgmma();
    // Two blocks leave 128 registers to a thread, which the sums of more rows take.
    let residents = if !wgmma && facts.body.tile_m <= FEW_ROWS { 1..=2 } else { 1..=1 };
    let stages = wish.stages.map_or(TILE_STAGES, |stages| stages..=stages);
    let few = !wgmma && facts.body.tile_m <= FEW_ROWS;
    // Sums of column tiles are added beside the stages.
    let deep = facts.warps_of_strip().map(|depth| (depth, true));
    let shapes: Vec<(usize, bool)> = deep.into_iter().chain(few.then_some((1, true))).chain([(1, false)]).collect();
    let mut out = vec![];
    for resident in residents {
        for stages in stages.clone().rev() {
            for (depth, apart) in &shapes {
                let how = |cut| Tiled { resident, stages, depth: *depth, apart: *apart, cut };
                let found = cuts(wish).iter().filter_map(|cut| facts.tiled(&how(*cut)));
                found.for_each(|s| push(&mut out, s));
            }
        }
    }
    out
}

/// Adds a schedule that is not there: where nothing may be cut, both ways are one.
fn push(all: &mut Vec<MatmulSchedule>, s: MatmulSchedule) {
    if all.last() != Some(&s) {
        all.push(s);
    }
}

/// Rows of tiles of `wgmma`.
const PIPED_HEIGHTS: [usize; 3] = [64, 128, 256];
/// The most parts of an output tile of `wgmma`.
const MOST_PARTS: usize = 8;
/// The most rows of steps whose output tiles are taken in parts. Those of more have no bound, and each of
/// their tiles of rows would need a workspace for the parts.
const PARTED_ROWS: usize = 256;

/// Tiles of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Rows of a tile.
    pub rows: usize,
    /// [`Matmul::k_parts`](crate::kernel::Matmul::k_parts).
    pub k_parts: usize,
    /// Columns of a tile of each segment.
    pub columns: Vec<usize>,
}

impl Tiles {
    /// Gives them to a product.
    pub fn set(&self, body: &mut Matmul) {
        (body.tile_m, body.k_parts) = (self.rows, self.k_parts);
        body.segments.iter_mut().zip(&self.columns).for_each(|(s, n)| s.tile_n = *n);
    }
}

/// Tiles for steps of up to `rows` rows; `None` if the kernel is no product or the target no GPU. Those
/// that are predicted to be the fastest; where it is [wished](Wish::invariant), of those with which a row
/// has the same bits in steps of any size.
pub fn matmul_tiles(kernel: &Kernel, target: &TargetSpec, rows: usize) -> Option<Tiles> {
    let facts = Facts::new(kernel, target)?;
    if target.wish.invariant {
        return invariant_tiles(&facts, rows);
    }
    let best = fastest_tiles(&facts, rows, facts.tried(rows), |_| true);
    if best.is_none() && !facts.is_streamed() && facts.elem != RowElem::Fp8 && rows > GEMV_ROWS {
        // Nothing suits: eight rows at a time.
        return matmul_tiles(kernel, target, GEMV_ROWS);
    }
    best
}

/// The tiles that are predicted to be the fastest for steps of `rows` rows, of those whose schedules may be
/// taken.
fn fastest_tiles(
    facts: &Facts<'_>,
    rows: usize,
    tried: impl IntoIterator<Item = Tiles>,
    may_be: impl Fn(&MatmulSchedule) -> bool,
) -> Option<Tiles> {
    let (kernel, target) = (facts.kernel, facts.target);
    let mut best: Option<(f64, Tiles)> = None;
    let mut changed = kernel.clone();
    for tiles in tried {
        let Body::Matmul(body) = &mut changed.body else { return None };
        tiles.set(body);
        let Some(s) = Facts::new(&changed, target).and_then(|facts| matmul(&facts)) else { continue };
        let Body::Matmul(body) = &changed.body else { return None };
        let seconds = cost::product(&changed, body, &s, target, rows);
        if may_be(&s) && facts.suits(&tiles, &s) && best.as_ref().is_none_or(|(least, _)| seconds < *least) {
            best = Some((seconds, tiles));
        }
    }
    best.map(|(_, tiles)| tiles)
}

/// Tiles with which a row has the same bits in steps of any size.
///
/// `wgmma` sums the columns of a part in their order and then the parts, whatever the rows of a tile: so all
/// steps take as many parts as is best for [`FEW_ROWS`] rows, and tiles that suit them. Without `wgmma`, all
/// steps take the same tiles.
fn invariant_tiles(facts: &Facts<'_>, rows: usize) -> Option<Tiles> {
    let piped = |s: &MatmulSchedule| s.variant.is_wgmma();
    let few = |heights: &[usize]| facts.tried_of(heights, FEW_ROWS);
    if let Some(first) = fastest_tiles(facts, FEW_ROWS, few(&PIPED_HEIGHTS), piped) {
        let same_parts = facts.tried_of(&PIPED_HEIGHTS, rows).into_iter().filter(|t| t.k_parts == 1);
        let same_parts = same_parts.map(|t| Tiles { k_parts: first.k_parts, ..t });
        return fastest_tiles(facts, rows, same_parts, piped).or(Some(first));
    }
    let others: &[usize] = if facts.is_streamed() { &[GEMV_ROWS] } else { &[FEW_ROWS, 32, 16] };
    let tiles = fastest_tiles(facts, FEW_ROWS, few(others), |s| !piped(s));
    let streams = facts.elem != RowElem::Fp8;
    tiles.or_else(|| fastest_tiles(facts, FEW_ROWS, few(&[GEMV_ROWS]), |_| streams))
}

impl Facts<'_> {
    /// Whether the weights are streamed for any number of rows.
    fn is_streamed(&self) -> bool {
        let whole = self.elem == RowElem::Fp8 || self.k.is_multiple_of(TILE_K);
        self.variant() == Variant::Fma || self.body.prologue.is_some() || !whole
    }

    /// The tiles that are tried for steps of so many rows.
    fn tried(&self, rows: usize) -> Vec<Tiles> {
        let fp8 = self.elem == RowElem::Fp8;
        let heights: &[usize] = match rows {
            _ if self.is_streamed() => &[GEMV_ROWS],
            _ if fp8 => &[128, 64, 32, 16],
            0..=GEMV_ROWS => &[GEMV_ROWS],
            _ => &[256, 128, 64, 32, 16],
        };
        self.tried_of(heights, rows)
    }

    /// The same, of tiles of some heights.
    fn tried_of(&self, heights: &[usize], rows: usize) -> Vec<Tiles> {
        let mut out = vec![];
        for height in heights {
            for columns in self.widths(*height) {
                let wide = self.body.segments.iter().zip(&columns).map(|(s, n)| s.n.div_ceil(*n)).sum();
                let tiles = |k_parts| Tiles { rows: *height, k_parts, columns: columns.clone() };
                out.extend(self.parts_tried(wide, (*height, rows)).map(tiles));
            }
        }
        out
    }

    /// The parts that `wide` output tiles of `height` rows are tried in, for steps of so many rows: such that
    /// one turn of the multiprocessors has all.
    fn parts_tried(&self, wide: usize, (height, rows): (usize, usize)) -> impl Iterator<Item = usize> + use<> {
        let tiles = (wide * rows.div_ceil(height)).max(1);
        let most = if rows > PARTED_ROWS { 1 } else { self.gpu.sms as usize / tiles };
        (1..=MOST_PARTS).filter(move |parts| *parts == 1 || *parts <= most)
    }

    /// Whether a schedule may be taken for tiles.
    fn suits(&self, tiles: &Tiles, s: &MatmulSchedule) -> bool {
        // 64 rows of fp8 leave no register over for an epilogue that reads rows, by `mma.sync`: it
        // spilled on sm100.
        let spills = self.elem == RowElem::Fp8 && tiles.rows == FEW_ROWS;
        let mma = s.variant == Variant::Mma;
        tiles.rows == GEMV_ROWS || s.slow.is_none() && !(mma && (tiles.rows >= 256 || spills))
    }

    /// Widths of the output tiles of all segments that are tried, the widest first: one width where
    /// runs allow it, so that their tiles are shared out as one.
    fn widths(&self, tile_m: usize) -> Vec<Vec<usize>> {
        let segments = &self.body.segments;
        if tile_m == GEMV_ROWS && self.gpu.overlaps_launches() && self.variant() != Variant::Fma {
            return vec![self.direct_widths()];
        }
        let run = segments.iter().map(|s| self.run(s)).fold(BLOCK, lcm);
        let lanes = segments.iter().map(|s| s.weights.len()).max().unwrap_or(1);
        let wanted: &[usize] = match tile_m {
            GEMV_ROWS => &[64, 32, 16],
            // Narrower tiles are more blocks, each reading all of its rows.
            16..=DEEP_ROWS | FEW_ROWS => &[128, 64, 32],
            _ => &[128, 64],
        };
        let mut out: Vec<Vec<usize>> = vec![];
        for wanted in wanted.iter().map(|w| w / lanes) {
            let width = |run: usize| run * (wanted / run).max(1);
            let own = |s: &Segment| if s.n.is_multiple_of(run) { width(run) } else { width(self.run(s)) };
            let widths: Vec<usize> = segments.iter().map(own).collect();
            if !out.contains(&widths) {
                out.push(widths);
            }
        }
        out
    }
}
