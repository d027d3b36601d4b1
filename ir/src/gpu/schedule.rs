//! How matrix products are spread over a GPU: a pure function of the kernel and the target, which
//! the emitter follows and the cost model asks.
//!
//! Weights lie in strips of 16 rows and tiles of 64 columns
//! ([`Packing::Fragment`](crate::quant::Packing::Fragment)). A **unit** is a column tile of 64 of
//! one output tile (all its strips and lanes), or several adjacent ones
//! ([`MatmulSchedule::depth`]). Units are numbered output tile by output tile, and the blocks of a
//! launch take equal, contiguous shares of them: whole output tiles, or, where that would leave
//! multiprocessors idle, cut ones, whose partial sums the last of the blocks that share a tile adds
//! in a fixed order.

use crate::kernel::{Body, Kernel, Matmul, Norm, ParamKind, RowElem, Segment, Store, lcm};
use crate::quant::{BLOCK, Format};
use crate::target::{GpuArch, TargetSpec};
use llmcc_abi::layout::{FRAGMENT_K, fragment_bits, round_up};

pub use super::weights::{FactorRun, factor_runs, has_f32_factors, has_operands, is_fp8, on_tensor_cores};

/// Columns of a unit.
pub const TILE_K: usize = FRAGMENT_K;

/// How products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Tensor cores, weights streamed past the block, at most 8 rows: bound by memory.
    Gemv,
    /// f32 multiply-adds, at most 8 rows at a time: f32 weights or f32 input.
    Fma,
    /// Tensor cores (`mma.sync`), input tiles in shared memory.
    Mma,
    /// Tensor cores of sm90 (`wgmma`): weights in registers, input tiles in shared memory, both
    /// brought there by warps that do nothing else.
    Wgmma,
    /// The same for fp8 weights and fp8 rows.
    WgmmaFp8,
}

impl Variant {
    /// Whether it is a pipeline of warps that bring and warps that multiply (sm90).
    pub const fn is_wgmma(self) -> bool {
        matches!(self, Variant::Wgmma | Variant::WgmmaFp8)
    }

    /// Units of a stage: with `wgmma`, lines of 128 bytes of input.
    pub const fn stage_units(self) -> usize {
        match self {
            Variant::WgmmaFp8 => 2,
            _ => 1,
        }
    }
}

/// Where a block finds its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// All columns of its rows in shared memory, copied or computed once.
    Whole,
    /// The same in blocks of at most so many rows, which is fewer than a block may have; in others
    /// as with [`Input::Global`].
    Fitting(usize),
    /// In global memory, through the first-level cache.
    Global,
    /// Column tiles in shared memory, copied as they are needed.
    Tiles,
}

/// Adjacent segments of equal shape, whose output tiles are numbered through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// First segment.
    pub first: usize,
    /// Segments.
    pub segments: usize,
    /// Output tiles of all of them.
    pub tiles: usize,
    /// Strips of one lane that a warp holds.
    pub strips: usize,
    /// Warps side by side over the columns of an output tile.
    pub columns: usize,
    /// Warps that share a column: each with every `parts`-th unit, or, with `Mma`, with its column
    /// tile of every unit where there are several, else with its rows.
    pub parts: usize,
    /// Whether output tiles may be cut between blocks.
    pub cut: bool,
    /// Units in a warp's ring of weights.
    pub stages: usize,
}

/// The schedule of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatmulSchedule {
    /// How it is computed.
    pub variant: Variant,
    /// Rows of a block.
    pub rows: usize,
    /// Warps of a block that compute.
    pub warps: usize,
    /// Further warps, which bring weights and input to shared memory ([`Variant::is_wgmma`]).
    pub producers: usize,
    /// Blocks that should fit on a multiprocessor.
    pub resident: usize,
    /// Blocks that share the units, for each tile of rows.
    pub blocks: usize,
    /// Where the input is.
    pub input: Input,
    /// Whether the sums have shared memory of their own, so that the next output tile's copies go
    /// on while one is finished; else they take the place of the input and weights.
    pub apart: bool,
    /// Columns of the input, padded to whole column tiles.
    pub k: usize,
    /// Column tiles of a unit: with `Mma` and few rows, one for each warp of a column; with `Gemv`, all
    /// of one warp.
    pub depth: usize,
    /// Whether streamed weights come by copies in bulk (sm90), which need no registers and no lanes.
    pub bulk: bool,
    /// With [`MatmulSchedule::bulk`], bytes of shared memory for rings of weights and the rows of input
    /// at their end: fewer rows leave more stages to the rings.
    pub room: usize,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// Set when another shape of kernel would be much faster: the reason.
    pub slow: Option<&'static str>,
}

/// What is known of a product before it is scheduled.
struct Facts<'a> {
    kernel: &'a Kernel,
    body: &'a Matmul,
    gpu: &'a GpuArch,
    target: &'a TargetSpec,
    /// Columns of the input.
    k: usize,
    /// Storage of what is multiplied.
    elem: RowElem,
}

/// The schedule of a product on a GPU; `None` if the kernel is not a well-formed product or the
/// target no GPU.
pub fn matmul(kernel: &Kernel, target: &TargetSpec) -> Option<MatmulSchedule> {
    let facts = Facts::new(kernel, target)?;
    match facts.variant() {
        Variant::Gemv | Variant::Fma => facts.streamed(),
        // What does not fit in shared memory is streamed, eight rows at a time.
        Variant::Mma | Variant::Wgmma if facts.elem != RowElem::Fp8 => facts.tiled().or_else(|| facts.streamed()),
        // fp8 rows are multiplied in tiles only.
        Variant::Mma | Variant::Wgmma | Variant::WgmmaFp8 => facts.tileable().then(|| facts.tiled())?,
    }
}

impl<'a> Facts<'a> {
    fn new(kernel: &'a Kernel, target: &'a TargetSpec) -> Option<Facts<'a>> {
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

    fn format(&self, p: usize) -> Option<Format> {
        match self.kernel.params.get(p)?.kind {
            ParamKind::Matrix { format, .. } => Some(format),
            _ => None,
        }
    }

    fn formats(&self, s: &Segment) -> Vec<Option<Format>> {
        s.weights.iter().map(|w| self.format(*w)).collect()
    }

    /// Whether weights are decoded number by number, as they are for multiply-adds.
    fn is_decoded(&self) -> bool {
        let mut weights = self.body.segments.iter().flat_map(|s| &s.weights).filter_map(|w| self.format(*w));
        self.variant() == Variant::Fma && weights.any(has_f32_factors)
    }

    fn variant(&self) -> Variant {
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
    fn tileable(&self) -> bool {
        self.body.tile_m.is_multiple_of(16)
            && self.body.tile_m <= 256
            && self
                .body
                .segments
                .iter()
                .all(|s| tile_warps(s).is_some() && s.tile_n * s.weights.len() * self.body.tile_m <= MAX_ACCUMULATORS)
    }

    /// Whether `wgmma` computes the tiles: 128 columns of lanes of one format by 128 or 256 rows.
    /// Of fp8 by 128: its sums are added to others every 128 columns, because the tensor cores keep
    /// about 14 bits of them, and the registers hold two sets of sums of 128 rows, not of 256.
    fn wgmma(&self) -> bool {
        let fits =
            |s: &Segment| s.tile_n * s.weights.len() == 128 && self.formats(s).iter().all(|f| *f == self.formats(s)[0]);
        let rows: &[usize] = if self.elem == RowElem::Fp8 { &[128] } else { &[128, 256] };
        self.gpu.processor == "sm_90a" && rows.contains(&self.body.tile_m) && self.body.segments.iter().all(fits)
    }

    fn kt(&self) -> usize {
        self.k.div_ceil(TILE_K)
    }

    /// Bytes of a unit of one strip: codes and the scales of its columns.
    fn unit_bytes(&self, s: &Segment) -> usize {
        s.weights.iter().filter_map(|w| self.format(*w)).map(unit_bytes).sum()
    }

    /// Adjacent segments of equal shape: `(first, count)`.
    fn groups(&self) -> Vec<(usize, usize)> {
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

    /// Seconds to read the weights of some segments.
    fn seconds(&self, segments: &[Segment]) -> f64 {
        let bytes = |s: &Segment| s.n.div_ceil(BLOCK) * self.kt() * self.unit_bytes(s);
        segments.iter().map(bytes).sum::<usize>() as f64 / self.target.memory
    }

    /// Whether cutting `tiles` output tiles between `slots` blocks is worth what joining them
    /// costs: about a launch.
    fn cut(&self, segments: &[Segment], tiles: usize, slots: usize) -> bool {
        let whole = tiles.div_ceil(slots) * slots;
        let seconds = self.seconds(segments);
        tiles * self.kt() > slots && seconds * whole as f64 / tiles as f64 > seconds + JOIN * self.target.launch
    }

    /// At most 8 rows at a time, weights streamed.
    fn streamed(&self) -> Option<MatmulSchedule> {
        if self.gpu.overlaps_launches() && self.variant() != Variant::Fma {
            return self.streamed_in_bulk();
        }
        let variant = if self.variant() == Variant::Fma { Variant::Fma } else { Variant::Gemv };
        let k = round_up(self.k, TILE_K);
        let bytes = if variant == Variant::Fma { 4 } else { 2 };
        // A row of input, shifted by 16 bytes from the one before, which keeps reads of 8 rows free
        // of bank conflicts.
        let row = k * bytes + 16;
        let norm = self.body.prologue.and_then(|p| p.norm);
        let must = self.body.prologue.is_some() || !self.k.is_multiple_of(TILE_K);
        let shapes = [8, 4, 2, 1].into_iter().flat_map(|rows| [(1, 16, rows), (1, 8, rows), (1, 4, rows)]);
        // Decoded weights and the f32 input of 8 rows need more than the 128 registers that 512
        // threads leave each.
        let fits = |(resident, warps, _): &(usize, usize, usize)| variant != Variant::Fma || resident * warps <= 8;
        let wish = self.gpu.wish;
        // A wish for one of the two leaves the other as it would be.
        let wished = |(resident, warps, rows)| (wish.resident.unwrap_or(resident), wish.warps.unwrap_or(warps), rows);
        for (resident, warps, rows) in std::iter::once((2, 8, 8)).chain(shapes).map(wished).filter(fits) {
            let shared = (self.gpu.shared_per_sm as usize / resident - 1024).min(self.gpu.shared_per_block as usize);
            // With the factors of the normalization and a word for all threads.
            let staged = rows * (row + norm.map_or(0, |norm| norm_words(norm, k, warps) * 4)) + 32;
            let (input, phases) = match shared.checked_sub(staged) {
                Some(left) if must || wish.whole.unwrap_or(staged <= shared / 2) => {
                    (Input::Whole, self.streamed_phases(warps, rows, resident, left))
                }
                _ if must => continue,
                _ if wish.whole == Some(false) => (Input::Global, self.streamed_phases(warps, rows, resident, shared)),
                _ => self.partly_staged(variant, (warps, rows, resident), shared, row),
            };
            let Some(phases) = phases else { continue };
            let slots = self.gpu.sms as usize * resident;
            let blocks = phases.iter().map(|p| if p.cut { slots } else { p.tiles.min(slots) }).max()?;
            let slow = (self.body.tile_m > GEMV_ROWS)
                .then_some("a product of many rows that tensor cores would do faster in tiles");
            let slow = if self.is_decoded() {
                Some("weights decoded number by number, for multiply-adds in f32")
            } else {
                slow
            };
            return Some(MatmulSchedule {
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
                bulk: false,
                room: 0,
                phases,
                slow,
            });
        }
        None
    }

    /// The same on sm90, where copies in bulk bring the weights: see [`MatmulSchedule::bulk`].
    ///
    /// A kernel takes at most half of a multiprocessor's shared memory and registers where that is
    /// enough for two stages, so that the next kernel begins beside it and has its first weights under
    /// way before this one has ended.
    fn streamed_in_bulk(&self) -> Option<MatmulSchedule> {
        let wish = self.gpu.wish;
        let (half, all) = (self.gpu.shared_per_sm as usize / 2, self.gpu.shared_per_sm as usize);
        let few = [4, 2, 1].into_iter().flat_map(|rows| [(all, 8, rows), (all, 4, rows)]);
        let shapes = [(half, 8, GEMV_ROWS), (all, 8, GEMV_ROWS)].into_iter().chain(few);
        let resident = wish.resident.unwrap_or(1);
        shapes.map(|(bytes, warps, rows)| (bytes, wish.warps.unwrap_or(warps), rows)).find_map(
            |(bytes, warps, rows)| {
                let most = (bytes / resident - 1024).min(self.gpu.shared_per_block as usize);
                [4, 2, 1].into_iter().find_map(|depth| self.bulk_stream(most, (resident, warps, rows), depth))
            },
        )
    }

    /// The schedule with at most `most` bytes of shared memory, so many blocks and warps, rows of a
    /// block, and column tiles of a unit; `None` where that does not fit.
    fn bulk_stream(
        &self,
        most: usize,
        (resident, warps, rows): (usize, usize, usize),
        depth: usize,
    ) -> Option<MatmulSchedule> {
        let must = self.body.prologue.is_some() || !self.k.is_multiple_of(TILE_K);
        let (kt, wish) = (self.kt(), self.gpu.wish);
        if !kt.is_multiple_of(depth) {
            return None;
        }
        let k = kt * TILE_K;
        let row = 2 * k + 16;
        let mut phases: Vec<Phase> =
            self.groups().into_iter().map(|g| self.bulk_phase(g, warps, depth)).collect::<Option<_>>()?;
        let segments = |p: &Phase| &self.body.segments[p.first..p.first + p.segments];
        // Warps without units wait for the others.
        if depth > 1 && phases.iter().any(|p| !(kt / depth).is_multiple_of(p.parts)) {
            return None;
        }
        let of = |f: &dyn Fn(&Phase) -> usize| phases.iter().map(f).max().unwrap_or(0);
        let unit = |p: &Phase| {
            let formats = segments(p)[0].weights.iter().filter_map(|w| self.format(*w));
            warps * p.strips * formats.map(|f| chunk_bytes(f, depth)).sum::<usize>()
        };
        let norm = self.body.prologue.and_then(|p| p.norm).map_or(0, |norm| rows * norm_words(norm, k, warps) * 4);
        let joined = of(&|p| sums_bytes(p.parts, rows, &segments(p)[0]) + self.epilogue_bytes(segments(p), rows));
        let fixed = 256 + phases.len() * warps * MOST_STAGES * 8 + norm + joined;
        let left = most.checked_sub(fixed)?;
        let largest = of(&unit);
        let stages = |staged: usize| left.saturating_sub(staged * row) / largest;
        let (input, staged) = if must || wish.whole.unwrap_or(stages(rows) >= 2) {
            (Input::Whole, rows)
        } else if wish.whole == Some(false) {
            (Input::Global, 0)
        } else {
            let fitting = (1..rows).rev().find(|n| stages(*n) >= 2).unwrap_or(0);
            (if fitting == 0 { Input::Global } else { Input::Fitting(fitting) }, fitting)
        };
        let count = wish.stages.unwrap_or(MOST_STAGES).min(stages(staged));
        if count < 2 {
            return None;
        }
        phases.iter_mut().for_each(|p| p.stages = count);
        let room = if wish.stages.is_some() { count * largest + staged * row } else { left };
        let slots = self.gpu.sms as usize * resident;
        let blocks = phases.iter().map(|p| if p.cut { slots } else { p.tiles.min(slots) }).max()?;
        let slow = (self.body.tile_m > GEMV_ROWS)
            .then_some("a product of many rows that tensor cores would do faster in tiles");
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
            bulk: true,
            room: room / 128 * 128,
            phases,
            slow,
        })
    }

    fn bulk_phase(&self, (first, segments): (usize, usize), warps: usize, depth: usize) -> Option<Phase> {
        let group = &self.body.segments[first..first + segments];
        let s = &group[0];
        let (lanes, wide) = (s.weights.len(), s.tile_n / BLOCK);
        let divisors = || (1..=wide).filter(|d| wide.is_multiple_of(*d) && wide / d <= warps);
        // Strips of a warp share what it reads of the input: up to four.
        let strips = divisors().filter(|d| lanes * d <= 4).max().or_else(|| divisors().min())?;
        let columns = wide / strips;
        let parts = (warps / columns).min(self.kt() / depth);
        let tiles = group.iter().map(Segment::tiles).sum();
        let cut = self.cut(group, tiles, self.gpu.sms as usize);
        Some(Phase { first, segments, tiles, strips, columns, parts, cut, stages: 0 })
    }

    /// Input of which not all rows fit beside the weights on their way: as many as take at most
    /// half of the shared memory and leave the rings as they are. A token alone is one row.
    fn partly_staged(
        &self,
        variant: Variant,
        (warps, rows, resident): (usize, usize, usize),
        shared: usize,
        row: usize,
    ) -> (Input, Option<Vec<Phase>>) {
        let free = self.streamed_phases(warps, rows, resident, shared);
        // f32 input is converted on its way to shared memory.
        let most = if variant == Variant::Gemv { ((shared / 2).saturating_sub(32) / row).min(rows - 1) } else { 0 };
        let fits =
            |n: &usize| free.is_some() && self.streamed_phases(warps, rows, resident, shared - n * row - 32) == free;
        let input = (1..=most).rev().find(fits).map_or(Input::Global, Input::Fitting);
        (input, free)
    }

    fn streamed_phases(&self, warps: usize, rows: usize, resident: usize, shared: usize) -> Option<Vec<Phase>> {
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
            let joined = sums_bytes(parts, rows, s) + self.epilogue_bytes(group, rows);
            let left = shared.checked_sub(joined + 64)?;
            let unit = self.unit_bytes(s) * strips;
            let want = self.gpu.wish.stages.unwrap_or_else(|| (IN_FLIGHT / (resident * warps * unit)).clamp(2, 11) + 1);
            let stages = want.min(left / (warps * unit));
            let cut = self.cut(group, tiles, self.gpu.sms as usize * resident);
            (stages >= 2).then_some(Phase { first, segments, tiles, strips, columns, parts, cut, stages })
        };
        self.groups().into_iter().map(phase).collect()
    }

    /// Shared memory of the epilogue of any of the segments: a bound (normalized values and int8
    /// cache entries are kept per tile).
    fn epilogue_bytes(&self, segments: &[Segment], rows: usize) -> usize {
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
    fn int8_run(&self, s: &Segment) -> Option<usize> {
        let (Store::KvKey(p) | Store::KvValue(p)) = s.store else { return None };
        let kv = self.kernel.params.get(p)?.kind.state()?.paged()?;
        kv.dtype.encoding().is_quantized().then(|| kv.stored_dim(matches!(s.store, Store::KvKey(_))))
    }

    /// Many rows: tiles of weights times tiles of input.
    fn tiled(&self) -> Option<MatmulSchedule> {
        // With `wgmma` as many as there is room for: copies then have more than a microsecond to
        // arrive.
        let deep = [(1, 6, false), (1, 5, false)];
        let deep = if self.variant().is_wgmma() { &deep[..] } else { &[] };
        let shared = [(1, 4, false), (1, 3, false), (1, 2, false)];
        let apart = [(2, 4, true), (2, 3, true), (1, 4, true), (1, 3, true)];
        let few = if self.body.tile_m <= FEW_ROWS { &apart[..] } else { &[] };
        let wish = self.gpu.wish;
        let wished = |(resident, stages, _): &&(usize, usize, bool)| {
            wish.resident.is_none_or(|w| w == *resident) && wish.stages.is_none_or(|w| w == *stages)
        };
        let shape = |depth: usize, (resident, stages, apart): &(usize, usize, bool)| {
            let most = (self.gpu.shared_per_sm as usize / resident - 1024).min(self.gpu.shared_per_block as usize);
            let s = MatmulSchedule { apart: *apart, ..self.tiles(*resident, *stages, depth)? };
            (self.tiles_bytes(&s) <= most).then_some(s)
        };
        let once =
            self.warps_of_strip().and_then(|depth| apart.iter().filter(wished).find_map(|how| shape(depth, how)));
        once.or_else(|| few.iter().chain(deep).chain(&shared).filter(wished).find_map(|how| shape(1, how)))
    }

    /// How many warps of a block of few rows have the same strips: more than one, the same in all
    /// segments, and such that the column tiles of an output tile can be shared out among them.
    /// Each strip is then fetched and decoded once.
    fn warps_of_strip(&self) -> Option<usize> {
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

    fn tiles(&self, resident: usize, stages: usize, depth: usize) -> Option<MatmulSchedule> {
        let rows = self.body.tile_m;
        let slots = self.gpu.sms as usize * resident;
        let variant = self.variant();
        let phase = |(first, segments): (usize, usize)| {
            let group = &self.body.segments[first..first + segments];
            let tiles = group.iter().map(Segment::tiles).sum();
            if variant.is_wgmma() {
                return Some(Phase {
                    first,
                    segments,
                    tiles,
                    strips: 1,
                    columns: TILE_WARPS,
                    parts: 1,
                    cut: false,
                    stages,
                });
            }
            let (strips, columns) = tile_warps(&group[0])?;
            // A power of two, so that groups of 8 rows are shared out evenly.
            let parts = if depth > 1 { depth } else { (TILE_WARPS / columns).min(rows / 8) };
            // Blocks over the rows fill the machine when there are many; few rows are one tile.
            let cut = rows <= FEW_ROWS && tiles * (self.kt() / depth) > slots && self.cut(group, tiles, slots);
            Some(Phase { first, segments, tiles, strips, columns, parts, cut, stages })
        };
        let phases: Vec<Phase> = self.groups().into_iter().map(phase).collect::<Option<_>>()?;
        if depth == 1 && phases.iter().any(|p| !(rows / 8).is_multiple_of(p.parts)) {
            return None;
        }
        let blocks = phases.iter().map(|p| if p.cut { slots } else { p.tiles }).max()?;
        Some(MatmulSchedule {
            variant,
            rows,
            warps: TILE_WARPS,
            producers: if variant.is_wgmma() { WGMMA_PRODUCERS } else { 0 },
            resident,
            blocks,
            input: Input::Tiles,
            apart: false,
            // fp8 rows are stored in whole units.
            k: round_up(self.k, TILE_K),
            depth,
            bulk: false,
            room: 0,
            phases,
            slow: None,
        })
    }

    /// Shared memory of a block that computes tiles: a bound.
    fn tiles_bytes(&self, s: &MatmulSchedule) -> usize {
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
    fn run(&self, s: &Segment) -> usize {
        lcm(lcm(BLOCK, s.expr.column_run()), self.int8_run(s).unwrap_or(1))
    }
}

/// Rows of a product whose weights are streamed: the columns of an `mma` of 16×8.
pub const GEMV_ROWS: usize = 8;
/// Stages of a ring of copies in bulk at most: beyond, they would be of no use.
pub const MOST_STAGES: usize = 16;
/// Bytes of weights that should be on their way to each multiprocessor: 4.8 TB/s for 1 µs are 36 KB
/// on each of 132, and as much again for uneven arrival.
const IN_FLIGHT: usize = 72 << 10;
/// Warps of a `wgmma` kernel that bring weights and input: a group of four, so that they can give
/// registers to the others.
pub const WGMMA_PRODUCERS: usize = 4;
/// Bytes from one 512-byte piece of a strip's 16-bit weights to the next in a stage of a `wgmma`
/// kernel: shifted, so that lanes which read from two of them do not meet in the banks.
pub const WGMMA_PIECE: usize = 512 + 32;
/// Launches that joining cut tiles is reckoned as.
const JOIN: f64 = 1.0;
/// Warps of a block that computes tiles.
const TILE_WARPS: usize = 8;
/// Accumulators of a block that computes tiles: 128 for each of 256 threads.
const MAX_ACCUMULATORS: usize = 128 * 256;

/// `(strips of a lane per warp, warps over the columns)` in kernels of tiles.
fn tile_warps(s: &Segment) -> Option<(usize, usize)> {
    let wide = s.tile_n / BLOCK;
    let columns =
        [8, 4, 2, 1].into_iter().find(|c| wide.is_multiple_of(*c) && (wide / c * s.weights.len() >= 2 || *c == 1))?;
    (wide / columns * s.weights.len() <= 4).then_some((wide / columns, columns))
}

/// Rows up to which products in tiles are bound by reading the weights.
const FEW_ROWS: usize = 64;
/// Rows up to which warps with the same strips share out the columns of the input and not its rows:
/// each then has the sums of all rows, 32 registers of 32 rows and two strips; the 64 of 64 rows
/// would leave one block on a multiprocessor, and there `mma.sync` is the bound.
const DEEP_ROWS: usize = 32;

/// Bytes of a unit of one strip of a format in shared memory: codes, and scales and minima of the
/// groups in it.
pub fn unit_bytes(format: Format) -> usize {
    format.tile_bytes() + factor_runs(format).iter().map(FactorRun::bytes).sum::<usize>()
}

/// Bytes of `tiles` adjacent units of one strip of a format, brought at once: the codes of all, then
/// run by run the factors of all. One or a power of two.
pub fn chunk_bytes(format: Format, tiles: usize) -> usize {
    tiles * format.tile_bytes() + factor_runs(format).iter().map(|r| r.lines_of(tiles) * r.line_bytes()).sum::<usize>()
}

/// Bytes of so many units of one strip of a format in a stage of a `wgmma` kernel: [`unit_bytes`]
/// each, pieces of 16-bit weights [`WGMMA_PIECE`] apart.
pub fn wgmma_strip_bytes(format: Format, units: usize) -> usize {
    let shifts = if fragment_bits(&format.encoding()) == 16 { 3 * (WGMMA_PIECE - 512) } else { 0 };
    units * (unit_bytes(format) + shifts)
}

/// Lines of 32 bytes of scales and minima in a unit of weights whose factors enter as f16 (not
/// [`has_f32_factors`]): of scales of groups as f16, as many as there are groups, and as many again
/// of minima.
pub fn unit_scales(format: Format) -> usize {
    factor_runs(format).iter().map(|run| run.lines).sum()
}

/// f32 words of shared memory that a prologue's normalization of `k` columns takes per row: a
/// factor (and a mean, if that is subtracted) per run, and for single runs a sum per warp.
pub fn norm_words(norm: Norm, k: usize, warps: usize) -> usize {
    let runs = k / norm.width.max(1);
    runs.max(1 + warps) + if norm.center { runs } else { 0 }
}

/// Bytes of the partial sums of a block: `[parts][rows][columns + 4]` f32; the padding keeps stores
/// free of bank conflicts.
pub fn sums_bytes(parts: usize, rows: usize, s: &Segment) -> usize {
    parts * rows.max(GEMV_ROWS) * sums_stride(s) * 4
}

/// Elements from one row of partial sums to the next.
pub fn sums_stride(s: &Segment) -> usize {
    s.tile_n * s.weights.len() + 4
}

/// Tiles for steps of up to `rows` rows: `(tile_m, tile_n of each segment)`; `None` if the kernel
/// is no product or the target no GPU.
///
/// The largest tiles that have a schedule for up to 64 rows, which read the weights once; beyond,
/// those that keep the machine busiest.
pub fn matmul_tiles(kernel: &Kernel, target: &TargetSpec, rows: usize) -> Option<(usize, Vec<usize>)> {
    let facts = Facts::new(kernel, target)?;
    let whole = facts.elem == RowElem::Fp8 || facts.k.is_multiple_of(TILE_K);
    let streamed = facts.variant() == Variant::Fma || facts.body.prologue.is_some() || !whole;
    let most = match rows {
        _ if streamed => GEMV_ROWS,
        // 64 rows of fp8 leave no register over for an epilogue that reads rows: it spilled on
        // sm100.
        0..=64 if facts.elem == RowElem::Fp8 => rows.next_power_of_two().clamp(2 * GEMV_ROWS, 32),
        0..=64 => rows.next_power_of_two().max(GEMV_ROWS),
        65..=255 => 128,
        _ => 256,
    };
    let mut tried = kernel.clone();
    let mut best: Option<(f64, usize, Vec<usize>)> = None;
    for tile_m in [256, 128, 64, 32, 16, GEMV_ROWS].into_iter().filter(|m| *m <= most) {
        let widths = facts.widths(tile_m)?;
        let Body::Matmul(body) = &mut tried.body else { return None };
        body.tile_m = tile_m;
        body.segments.iter_mut().zip(&widths).for_each(|(s, n)| s.tile_n = *n);
        let Some(s) = matmul(&tried, target) else { continue };
        let suits = tile_m == GEMV_ROWS || s.slow.is_none() && (tile_m < 256 || s.variant != Variant::Mma);
        if !suits {
            continue;
        }
        if rows <= 64 {
            return Some((tile_m, widths));
        }
        let cost = s.cost(rows, facts.gpu.sms as usize);
        if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, tile_m, widths));
        }
    }
    best.map(|(_, tile_m, widths)| (tile_m, widths))
}

impl MatmulSchedule {
    /// What many rows cost, to compare tiles by: turns of the multiprocessors times rows, over the
    /// part of the peak that such tiles reach.
    fn cost(&self, rows: usize, sms: usize) -> f64 {
        let turns = (self.blocks * rows.div_ceil(self.rows)).div_ceil(sms * self.resident) * self.resident;
        let reaches = match (self.variant, self.rows) {
            (v, 256) if v.is_wgmma() => 1.0,
            (v, _) if v.is_wgmma() => 0.8,
            (Variant::Mma, 128) => 0.55,
            (Variant::Mma, 64) => 0.45,
            _ => 0.2,
        };
        (turns * self.rows) as f64 / reaches
    }
}

impl Facts<'_> {
    /// Columns of a lane in an output tile of a streamed product: as many as leave all multiprocessors
    /// busy.
    fn streamed_width(&self, lanes: usize) -> usize {
        let columns: usize = self.body.segments.iter().map(|s| s.n).sum();
        let sms = self.gpu.sms as usize;
        if !self.gpu.overlaps_launches() {
            let wide = [64, 32].into_iter().map(|c| c / lanes);
            return wide.into_iter().find(|c| *c > 0 && columns / c >= 4 * sms).unwrap_or(BLOCK);
        }
        // The part of the last turn of the multiprocessors that has work, over all turns.
        let busy = |c: &usize| {
            let tiles = columns.div_ceil(*c);
            tiles as f64 / tiles.next_multiple_of(sms) as f64
        };
        let wide = [32, BLOCK].map(|c| (c / lanes).max(BLOCK));
        let best = wide.iter().map(busy).fold(0.0, f64::max);
        wide.into_iter().find(|c| busy(c) >= 0.98 * best).unwrap_or(BLOCK)
    }

    /// Widths of the output tiles of all segments: one width where runs allow it, so that their
    /// tiles are shared out as one.
    fn widths(&self, tile_m: usize) -> Option<Vec<usize>> {
        let segments = &self.body.segments;
        let run = segments.iter().map(|s| self.run(s)).fold(BLOCK, lcm);
        let lanes = segments.iter().map(|s| s.weights.len()).max()?;
        let wanted = if tile_m > GEMV_ROWS { 128 / lanes } else { self.streamed_width(lanes) };
        let width = |run: usize| run * (wanted / run).max(1);
        let own = |s: &Segment| if s.n.is_multiple_of(run) { width(run) } else { width(self.run(s)) };
        Some(segments.iter().map(own).collect())
    }
}
