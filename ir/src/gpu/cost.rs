//! Seconds of a product by a schedule, from counts.
//!
//! A launch is its start, the staging before the loop, the turns of the loop, the ends of output
//! tiles and, where tiles are cut between blocks, joining them. A turn of the loop is a turn of all
//! warps of a multiprocessor, and takes about as long as the slowest of:
//!
//! - **work**: the instructions of a turn one after the other as they depend on each other, while
//!   each scheduler issues its warps' instructions, and shared memory delivers the bytes;
//! - **tensor cores**: the operations of `wgmma`;
//! - **latency**: copies are asked for some turns ahead, and arrive so many turns later (Little's
//!   law: bytes in flight are warps times stages);
//! - **data**: bytes from memory and from the second-level cache.
//!
//! Where two of them are alike, both show: they are joined by a norm (`SHARPNESS`). Counts come
//! from the schedule; rates from [`super::rates`].

use super::WARP;
use super::rates::Rates;
use super::schedule::{Input, MatmulSchedule, PART_ROWS, Phase, Variant, unit_bytes};
use super::weights::{TILE_K, factor_runs, has_f32_factors, is_fp8};
use crate::kernel::{Kernel, Matmul, ParamKind, RowElem};
use crate::quant::{BLOCK, Code, Float, Format};
use crate::target::{GpuArch, RowKind, TargetSpec};

/// Exponent of the norm that joins times of simultaneous work. (Fitted.)
const SHARPNESS: i32 = 3;
/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;
/// Instructions of a turn beside the units': addresses, places in rings, waits. Counted in the
/// machine code of sm90, as in [`decoding`].
const TURN: f64 = 45.0;
/// The same where weights go straight to registers: a pointer is moved on.
const TURN_DIRECT: f64 = 2.0;
/// Instructions of a multiplying warp's turn of `wgmma` beside the units'.
const TURN_WGMMA: f64 = 39.0;
/// Instructions to exchange the codes of a unit in a quad, for `wgmma`.
const EXCHANGE: f64 = 34.0;
/// Instructions of a turn of `wgmma` with fp8 operands: 64 of them add sums in f32.
const TURN_FP8: f64 = 109.0;
/// Instructions to make f16 of eight rows of fp8 input, where `mma.sync` does not multiply fp8.
const WIDEN: f64 = 40.0;

/// The constants of this model by name, for tools that fit them: `tools/gpu-check/costs.py` has the
/// same model.
#[must_use]
pub fn constants(r: &Rates) -> Vec<(&'static str, f64)> {
    vec![
        ("sharpness", f64::from(SHARPNESS)),
        ("turn", TURN),
        ("turn_direct", TURN_DIRECT),
        ("turn_wgmma", TURN_WGMMA),
        ("exchange", EXCHANGE),
        ("turn_fp8", TURN_FP8),
        ("widen", WIDEN),
        ("clock", r.clock),
        ("memory_share", r.memory),
        ("memory_direct", r.memory_direct),
        ("tensor", r.tensor),
        ("tensor_fp8", r.tensor_fp8),
        ("mma_cycles", r.mma_cycles),
        ("shared", r.shared),
        ("start", r.start),
        ("stage", r.stage),
        ("prologue", r.prologue),
        ("copy_latency", r.latency),
        ("latency_byte", r.latency_byte),
        ("fetch", r.fetch),
        ("chain", r.chain),
        ("chain_strip", r.chain_strip),
        ("chain_global", r.chain_global),
        ("chain_mma", r.chain_mma),
        ("chain_wgmma", r.chain_wgmma),
        ("part", r.part),
        ("join", r.join),
        ("join_sum", r.join_sum),
    ]
}

/// Seconds of a product of `m` rows, without the gap before its launch. Infinite if an operand is
/// none of a product's.
pub fn product(kernel: &Kernel, body: &Matmul, s: &MatmulSchedule, target: &TargetSpec, m: usize) -> f64 {
    let x = kernel.params.get(body.x).map(|p| &p.kind);
    let (Some(gpu), Some(&ParamKind::Rows { elem, .. })) = (target.gpu(), x) else { return f64::INFINITY };
    let m = m.max(1);
    let launch = Timed {
        kernel,
        body,
        s,
        gpu,
        target,
        m,
        elem: body.prologue.map_or(elem, |p| p.elem),
        row_tiles: m.div_ceil(s.rows),
    };
    launch.seconds()
}

/// A product, its schedule and the rows of a step.
struct Timed<'a> {
    kernel: &'a Kernel,
    body: &'a Matmul,
    s: &'a MatmulSchedule,
    gpu: &'a GpuArch,
    target: &'a TargetSpec,
    m: usize,
    elem: RowElem,
    row_tiles: usize,
}

/// Costs of a turn of all warps of a multiprocessor.
struct TurnCosts {
    /// Cycles of instructions that depend on each other.
    chain: f64,
    /// Instructions of a warp.
    instructions: f64,
    /// `mma.sync` of a warp.
    mma: f64,
    /// Operations of `wgmma` by all warps.
    operations: f64,
    /// Bytes of weights, of input.
    weights: f64,
    input: f64,
}

impl Timed<'_> {
    fn rates(&self) -> &Rates {
        self.gpu.rates
    }

    fn is_streamed(&self) -> bool {
        matches!(self.s.variant, Variant::Gemv | Variant::Fma)
    }

    /// Blocks of the launch, and how many a multiprocessor holds at once.
    fn blocks(&self) -> (usize, usize) {
        let blocks = self.s.blocks * self.row_tiles;
        (blocks, blocks.div_ceil(self.gpu.sms as usize).clamp(1, self.s.resident))
    }

    /// Rows of a block.
    fn rows(&self) -> usize {
        self.m.min(self.s.rows)
    }

    /// Whether blocks read their input from shared memory, where they put it before they start.
    fn is_staged(&self) -> bool {
        match self.s.input {
            Input::Whole => true,
            Input::Fitting(rows) => self.rows() <= rows,
            Input::Global | Input::Tiles => false,
        }
    }

    fn seconds(&self) -> f64 {
        let (r, (_, held)) = (self.rates(), self.blocks());
        let width = if self.s.variant == Variant::Fma { 4 } else { 2 };
        let staged = if self.is_staged() { self.rows() * self.s.k * width * held } else { 0 };
        let prologue = if self.body.prologue.is_some() { r.prologue } else { 0.0 };
        let loops: f64 = self.s.phases.iter().map(|p| self.phase(p)).sum();
        r.start + staged as f64 / r.stage + prologue + loops
    }

    /// Turns of the loop of a block, and the output tiles that it finishes.
    fn turns(&self, p: &Phase) -> (f64, f64) {
        let units = self.s.k.div_ceil(TILE_K).div_ceil(self.s.depth * self.s.variant.stage_units());
        // Warps that share a strip of streamed weights take turns with its units.
        let sharing = if self.is_streamed() { p.parts } else { 1 };
        if !p.cut {
            let tiles = p.tiles.div_ceil(self.s.blocks);
            return ((tiles * units.div_ceil(sharing)) as f64, tiles as f64);
        }
        let share = (p.tiles * units) as f64 / self.s.blocks as f64;
        let tiles = share / units as f64 + 1.0;
        // At a border between tiles half of the warps have nothing to do.
        let idle = if sharing > 1 { 0.5 * (tiles - 1.0) } else { 0.0 };
        (share / sharing as f64 + idle, tiles)
    }

    fn phase(&self, p: &Phase) -> f64 {
        let (r, s) = (self.rates(), self.s);
        let (blocks, held) = self.blocks();
        let waves = blocks.div_ceil(self.gpu.sms as usize * s.resident) as f64;
        let (turns, tiles) = self.turns(p);
        let turn = self.turn(p);
        let fills = if self.is_streamed() { turns.min(p.stages as f64 - 1.0) } else { 0.0 };
        let fill = fills * (held * s.warps) as f64 / SCHEDULERS * r.fetch / r.clock;
        let ends = if self.is_streamed() { tiles * p.parts as f64 * r.part } else { 0.0 };
        let join = match p.cut {
            false => 0.0,
            true if s.variant.is_wgmma() => self.parts_joined(p),
            true => {
                let sums = self.rows() * self.columns(p) / (s.warps * WARP);
                r.join + sums as f64 * r.join_sum
            }
        };
        fill + waves * (turns * self.turn_seconds(&turn, p, held) + ends) + join
    }

    /// Seconds of adding the parts of an output tile of `wgmma`: a block writes one and reads all, from
    /// the second-level cache, 64 rows of each at once.
    fn parts_joined(&self, p: &Phase) -> f64 {
        let (r, s) = (self.rates(), self.s);
        let parts = s.blocks / p.tiles.max(1);
        let bytes = (parts + 1) * s.rows * self.columns(p) * size_of::<f32>();
        let trips = self.rows().div_ceil(PART_ROWS) as f64;
        r.join + trips * r.latency + bytes as f64 / (self.gpu.l2_bandwidth / f64::from(self.gpu.sms))
    }

    fn columns(&self, p: &Phase) -> usize {
        let segment = &self.body.segments[p.first];
        segment.tile_n * segment.weights.len()
    }

    fn formats(&self, p: &Phase) -> impl Iterator<Item = Format> + '_ {
        self.body.segments[p.first].weights.iter().filter_map(|w| {
            let ParamKind::Matrix { format, .. } = self.kernel.params[*w].kind else { return None };
            Some(format)
        })
    }

    /// The costs of a turn of one block.
    fn turn(&self, p: &Phase) -> TurnCosts {
        let (r, s) = (self.rates(), self.s);
        let together = s.depth * s.variant.stage_units();
        let wide = self.body.segments[p.first].tile_n / BLOCK;
        let bytes: usize = self.formats(p).map(unit_bytes).sum();
        let sharing = if self.is_streamed() { p.parts } else { 1 };
        let weights = (bytes * wide * sharing * together) as f64;
        let strips = (p.strips * self.formats(p).count()) as f64;
        let decoded: f64 = self.formats(p).map(|f| p.strips as f64 * decoding(f)).sum();
        let width = self.elem.encoding().bits() as usize / 8;
        let input = (s.rows * TILE_K * together * width) as f64;
        match s.variant {
            Variant::Gemv | Variant::Fma => {
                let global = if self.is_staged() { 0.0 } else { r.chain_global };
                // An f32 product of a strip's 16 rows and 64 columns by a row of input.
                let f32 =
                    if s.variant == Variant::Fma { (BLOCK * TILE_K / WARP * s.rows) as f64 * strips } else { 0.0 };
                let depth = s.depth as f64;
                let chain = r.chain + r.chain_strip * strips + global;
                let own = if s.direct { TURN_DIRECT } else { TURN };
                let instructions = own + depth * (decoded + f32);
                TurnCosts { chain, instructions, mma: 0.0, operations: 0.0, weights, input: 0.0 }
            }
            Variant::Mma => {
                let groups = (s.rows / 8 / if s.depth > 1 { 1 } else { p.parts }) as f64;
                let widened = if self.elem == RowElem::Fp8 && !self.gpu.has_fp8_mma() { groups * WIDEN } else { 0.0 };
                let mma = 4.0 * groups * strips;
                // One group's are with decoding.
                let instructions = TURN + decoded + mma - 4.0 * strips + widened;
                TurnCosts { chain: r.chain_mma, instructions, mma, operations: 0.0, weights, input }
            }
            Variant::Wgmma | Variant::WgmmaFp8 => {
                let exchanged = |f: Format| if f.is_quantized() { EXCHANGE } else { 0.0 };
                let unit: f64 = self.formats(p).take(1).map(|f| decoding(f) + exchanged(f)).sum();
                let instructions = if s.variant == Variant::WgmmaFp8 { TURN_FP8 } else { TURN_WGMMA + unit };
                let operations = (2 * s.rows * self.columns(p) * TILE_K * together) as f64;
                TurnCosts { chain: r.chain_wgmma, instructions, mma: 0.0, operations, weights, input }
            }
        }
    }

    /// Seconds of a turn of all warps of a multiprocessor that holds so many blocks.
    fn turn_seconds(&self, turn: &TurnCosts, p: &Phase, held: usize) -> f64 {
        let (r, s, sms) = (self.rates(), self.s, f64::from(self.gpu.sms));
        let warps = if self.is_streamed() { p.columns * p.parts } else { s.warps };
        let warps = (held * warps) as f64 / SCHEDULERS;
        let (weights, input) = (turn.weights * held as f64, turn.input * held as f64);
        // Written and read.
        let through = !s.variant.is_wgmma() && !s.direct;
        let shared = if through { 2.0 * (weights + input) / r.shared } else { 0.0 };
        let work = (turn.chain + warps * (turn.instructions + turn.mma * r.mma_cycles) + shared) / r.clock;
        let peak = match s.variant {
            Variant::WgmmaFp8 => self.gpu.flops(RowKind::Fp8) * r.tensor_fp8,
            Variant::Gemv | Variant::Fma | Variant::Mma | Variant::Wgmma => self.gpu.flops(RowKind::F16) * r.tensor,
        };
        let tensor = turn.operations * held as f64 / (peak / sms);
        let asked = if s.variant.is_wgmma() { r.latency_byte * (weights + input) } else { 0.0 };
        let latency = (r.latency + asked) / (p.stages.max(2) - 1) as f64;
        // Weights come from memory once, however many tiles of rows read them.
        let first = weights / self.row_tiles as f64;
        let cached = self.gpu.l2_bandwidth / sms;
        let busy = sms.min(self.blocks().0 as f64);
        let reached = if s.direct { r.memory_direct } else { r.memory };
        let memory = first / (self.target.memory * reached / busy).min(cached);
        let cache = (weights - first + input) / cached;
        joined(&[work, tensor, latency, memory + cache])
    }
}

/// Seconds of things that go on side by side.
fn joined(all: &[f64]) -> f64 {
    all.iter().map(|x| x.powi(SHARPNESS)).sum::<f64>().powf(1.0 / f64::from(SHARPNESS))
}

/// Instructions of a warp to make operands of a unit of weights and multiply them by eight rows;
/// counted in the machine code of sm90 for unquantized weights, fp8, and codes of 4 and 8 bits with
/// f16 factors of groups of 64 columns and more, estimated for others.
#[must_use]
pub fn decoding(format: Format) -> f64 {
    let e = format.encoding().by_itself();
    if is_fp8(format) {
        return 80.0;
    }
    let codes = match e.code {
        Code::Float(Float::F32) => 8.0,
        Code::Float(Float::E4m3) => 80.0,
        Code::Float(_) => return 17.0,
        Code::Int { bits, .. } if bits <= 4 => 62.0,
        Code::Int { .. } | Code::Signed { .. } => 100.0,
        Code::Table { .. } | Code::Trellis(_) | Code::Pairs => 110.0,
    };
    let runs = factor_runs(format);
    // Smaller groups have other factors for the columns of a lane.
    let groups = if runs.iter().any(|run| run.lines > 1) { 14.0 } else { 0.0 };
    codes + groups + if has_f32_factors(format) { 16.0 * runs.len() as f64 } else { 0.0 }
}
