//! Products of many rows by `wgmma` (sm_90a): 128 columns (of all lanes) by 64, 128 or 256 rows of
//! input per block, as a pipeline between warps. Rows are of 16 bits, weights of any kind that
//! becomes 16 bits; or both are fp8, then 128 rows.
//!
//! # Who does what
//!
//! - **A group of four warps brings** weights and input to a ring of stages, one unit of 64 columns
//!   of input each (128 columns of fp8: two units, in as many bytes), and does nothing else
//!   ([`produce`]). A strip's weights of a stage are adjacent in fragment order, so a lane starts a
//!   copy in bulk of them (and one of their scales), which the hardware completes. Input is copied
//!   in pieces of 16 bytes (`cp.async`), which go where the 128-byte swizzle wants them.
//! - **Two groups of four warps multiply**, 64 columns each ([`consume`]): weights are the A
//!   operand, in registers, decoded as everywhere ([`operand`]); input is the B operand. While the
//!   products of a stage run, the next stage's weights are decoded, to the other of two sets of
//!   registers; so the tensor cores always have the products of the next stage waiting.
//! - **`mbarrier`s** per stage say that weights are there (the bytes of the bulk copies), that
//!   input is there (each bringing warp arrives), and that the stage is free again (each
//!   multiplying warp arrives). Nobody meets anybody else until the output tile is complete.
//!
//! The bringing warps give most of their registers to the others: 88 and 208 instead of 168 each.
//!
//! # Why input comes by `cp.async`
//!
//! Tensor maps would do it with less instructions, but they hold addresses and sizes, which the
//! runtime would have to encode for each operand of each launch; and how many rows there are is
//! known from the step only. Bulk copies without maps cannot swizzle, so whoever stores the input
//! would have to: a layout of rows that every kernel and evaluator had to know. Sixteen `cp.async`
//! per thread and unit of 256 rows cost 5 % of the issue slots of a scheduler (beside the address
//! arithmetic), and move the same bytes over the same paths. They write as ordinary stores do, so
//! their warps wait for them, fence, and only then arrive: for a unit whose copies they started two
//! or three units before.
//!
//! Fragment order has permuted the columns of a unit so that a lane has 16 adjacent ones; `wgmma`
//! wants the columns `16s + 2t…` of step `s` in lane `t` of a quad. Not the input is permuted (that
//! took as many bytes of shared memory again as the input has) but the weights: 16-bit ones are
//! read from shared memory as the lane needs them, codes are exchanged in the quad before they are
//! decoded.
//!
//! # fp8 rows with fp8 weights
//!
//! Nothing is decoded, and nothing exchanged: a lane's piece of 16 bytes of weights is its A
//! operand of a step of 32 columns, and [fp8 rows](llmcc_abi::layout::Fp8Row) lie in the order of
//! the weights. The scales of both operands are the epilogue's. A piece has words of two rows of
//! weights, so weights are no operand in shared memory as they are stored; nothing is lost by that:
//! `wgmma` would read 16 KB of them per stage from there, as much as the warps read now, in four
//! loads of a lane.
//!
//! **Precision.** Hopper keeps less of a sum of fp8 products than f32 has: it aligns the 32
//! products of a step to the largest and adds about 14 bits of each; chains of 4096 random products
//! were measured to be off by up to 2 % (DeepSeek-V3 Technical Report, 2024, sections 3.3.2 and
//! 3.5.2, on an H800). So a chain has four steps only, the 128 columns of a stage. It starts afresh
//! (the first step does not read the accumulators), is waited for, and is added to other registers
//! in f32, as that report does and DeepGEMM after it. While a group of warps waits and adds, the
//! tensor cores have the products of the other group. This takes a second set of sums: 64 and 64
//! registers at 128 rows; 128 and 128 at 256 rows are more than there are, so [fp8 tiles have 128
//! rows](schedule::matmul). The emulator adds exactly or, where a test asks for it, as is reported;
//! how large the error is has not been measured here.
//!
//! # What bounds it
//!
//! Per unit of 128 × 256: 2·128·256·64 = 4.2 Mflop, 1024 cycles of the tensor cores (4096 flop per
//! cycle); of fp8 per stage of two units by 128 rows, at twice the rate, 512. Beside that, of 128
//! bytes of shared memory per cycle, for bf16 and 4-bit weights, and for fp8:
//!
//! | | bf16 | w4g32 | fp8 |
//! |---|---|---|---|
//! | `wgmma` reads input, each group for itself: 2 × 32 KB, fp8 2 × 16 KB | 512 cycles | 512 | 256 |
//! | input is written: 32 KB, fp8 16 KB | 256 | 256 | 128 |
//! | weights are written: 16 KB, 4.5 KB, 16 KB | 128 | 36 | 128 |
//! | weights are read (16-bit ones in two ways) | 256 | 36 + 16 | 128 |
//! | quads exchange words | 0 | 32 | 0 |
//! | sum | 1152 | 888 | 640 |
//!
//! so that 4-bit weights are bound by the tensor cores, bf16 by shared memory at 89 % of them, and
//! fp8 by it at 80 %. (With both operands in shared memory bf16 would read its weights by 128
//! cycles quicker, but that wants another order of weights than all other products read.) Issue
//! slots: a multiplying warp takes 136 per unit for 4 bits, 56 for bf16, 109 per stage of fp8
//! (counted in the machine code; 64 of them add), two of them on each of four schedulers; a
//! bringing warp about 110, of fp8 60, and 9 for each bulk copy it starts (8 for bf16): less than
//! four tenths of 1024, of fp8 seven tenths of 512. Registers: 128 sums, 32 of weights, 184 in all
//! by `ptxas`, which spills nothing.
//!
//! From the second-level cache come 48 KB (36.5 KB for 4 bits) per stage: at full rate 47 (36)
//! bytes per cycle and multiprocessor. Kernels of others with this tile and without clusters are
//! reported at seven tenths of the peak, so it gives 33 at least; it may well be the first bound of
//! bf16, and more so of fp8, whose stages of 32 KB in 640 cycles need 51 bytes. Sharing input in
//! clusters of two blocks would halve the 32 KB, and is to be tried first on a machine. Blocks are
//! taken in columns of tiles of rows, so that simultaneous blocks find both operands in the cache.
//!
//! Filling the ring takes about 2000 cycles, the epilogue, for which the sums take the place of the
//! stages, about 6000; 8192 columns of input take 131000, of fp8 (128 rows) 41000. So 8192³ in bf16
//! is expected at 60 to 70 % of the peak, four fifths to all of cuBLAS's rate, and in fp8 at 35 to
//! 55 % of twice the peak, depending on the second-level cache. None of this has been measured; on
//! a machine, see first whether the fences of the bringing warps wait for their newer copies too
//! (then input should be announced by `cp.async.mbarrier.arrive`).

mod consume;
mod operand;
mod parts;
mod produce;

use super::tiles::ROW;
use super::work::{self, Block, Share};
use super::{PhaseCx, Plan};
use crate::Source;
use crate::cx::Args;
use crate::mlir::{Builder, Cmp, Mbarrier, Memory, V, WARP};
use crate::ring::{self, Ring, Turn};
use llmcc_abi::layout::round_up;
use llmcc_ir::gpu::schedule::{self, Variant};

/// Shared memory starts with the `mbarrier`s; stages are aligned to 1024 bytes, as the swizzle
/// wants.
const STAGES_AT: usize = 1024;
/// Registers of the warps that bring, and of those that multiply; 384 threads have 168 each to
/// begin with.
pub(super) const REGISTERS: (usize, usize) = (88, 208);

/// Units whose copies of input are under way before the oldest is waited for, at least 1. If these
/// were all stages, the bringing warps would wait for room that is made only with a unit they have
/// not announced; with two less, a unit is announced while the one before it is multiplied.
pub(super) fn ahead(stages: usize) -> usize {
    stages.saturating_sub(2).clamp(1, 3)
}

/// Offsets in shared memory: `mbarrier`s, stages of input, stages of weights; the sums take the
/// place of the stages.
struct Map {
    stages: usize,
    weights: usize,
    /// Bytes of a stage of weights: of the strips of eight warps.
    weight_bytes: usize,
    spare: usize,
    bytes: usize,
}

/// The `mbarrier`s of a stage.
#[derive(Clone, Copy)]
enum Event {
    /// Its weights are there.
    Weights,
    /// Its input is there.
    Input,
    /// All have read it.
    Free,
}

impl Map {
    fn new(plan: &Plan<'_>, phases: &[PhaseCx<'_>]) -> Map {
        let s = &plan.schedule;
        let most = |f: &dyn Fn(&PhaseCx<'_>) -> usize| work::most(phases, f);
        // The same in all phases: the ring goes on from one to the next.
        let stages = most(&|p| p.phase.stages);
        let weights = STAGES_AT + stages * s.rows * ROW;
        let weight_bytes = s.warps * most(&|p| schedule::wgmma_strip_bytes(p.formats[0], s.variant.stage_units()));
        let end = weights + stages * weight_bytes;
        let spare_at = round_up(STAGES_AT + most(&|p| schedule::sums_bytes(1, s.rows, &p.segments[0])), 16);
        Map {
            stages,
            weights,
            weight_bytes,
            spare: spare_at,
            bytes: end.max(spare_at + work::spare_bytes(plan, phases)),
        }
    }

    fn ring(&self) -> Ring {
        Ring { at: 0, stages: self.stages }
    }

    /// Declares the layout of shared memory.
    fn declare(&self, b: &mut Builder, plan: &Plan<'_>, phases: &[PhaseCx<'_>]) {
        let of = |name, at, bytes, stages| Memory { name, at, bytes, stages, conflict_free: false, over: &[] };
        b.buffer(of("flag", STAGES_AT - 16, 16, 1));
        b.buffer(of("input", STAGES_AT, plan.schedule.rows * ROW, self.stages));
        // Pieces and scales of codes are read without conflicts, 16-bit weights in two ways.
        let conflict_free = phases.iter().all(|p| p.formats[0].is_quantized());
        b.buffer(Memory { conflict_free, ..of("weights", self.weights, self.weight_bytes, self.stages) });
        let over = &["input", "weights"];
        b.buffer(Memory { over, ..of("sums", STAGES_AT, self.spare - STAGES_AT, 1) });
        b.buffer(Memory { over, ..of("spare", self.spare, work::spare_bytes(plan, phases), 1) });
    }
}

/// Bytes of shared memory of a block.
pub fn shared_bytes(plan: &Plan<'_>) -> usize {
    Map::new(plan, &plan.phases()).bytes
}

/// Emits the kernel.
pub fn emit(plan: &Plan<'_>) -> Source {
    let phases = plan.phases();
    let map = Map::new(plan, &phases);
    work::block_kernel(plan, map.bytes, |b, args, block| {
        let product = |p| Product { plan, p, args, block, map: &map };
        map.declare(b, plan, &phases);
        initialize(b, plan, &map);
        let tid = b.sreg("tid.x");
        let multiplies = b.cmpc(Cmp::Slt, tid, plan.schedule.warps as i64 * WARP as i64);
        b.either(
            multiplies,
            |b| {
                b.more_registers(REGISTERS.1);
                let mut at = Turn::start(b);
                b.team(plan.threads(), |b| {
                    phases.iter().for_each(|p| product(p).consume(b, &mut at));
                });
            },
            |b| {
                b.fewer_registers(REGISTERS.0);
                let mut at = Turn::start(b);
                phases.iter().for_each(|p| product(p).produce(b, &mut at));
            },
        );
    })
}

/// The `mbarrier`s of the ring.
fn initialize(b: &mut Builder, plan: &Plan<'_>, map: &Map) {
    let (one, bringing, multiplying) = (1, plan.schedule.producers as i64, plan.schedule.warps as i64);
    // In the order of the events.
    ring::initialize(b, &[(map.ring(), &[("weights there", one), ("input there", bringing), ("free", multiplying)])]);
}

impl Event {
    /// Its `mbarrier` of a stage.
    fn barrier(self, b: &mut Builder, map: &Map, stage: V) -> Mbarrier {
        map.ring().barrier(b, self as usize, stage)
    }
}

/// A part of an output tile.
#[derive(Clone, Copy)]
struct Part {
    /// Its number among those of all tiles.
    piece: V,
    /// Number of its first stage.
    first: V,
    /// Stages.
    count: usize,
}

/// A phase while it is emitted.
struct Product<'a> {
    plan: &'a Plan<'a>,
    p: &'a PhaseCx<'a>,
    args: Args<'a>,
    block: Block,
    map: &'a Map,
}

impl Product<'_> {
    fn rows(&self) -> usize {
        self.plan.schedule.rows
    }

    /// Units of a stage.
    fn units(&self) -> usize {
        self.plan.schedule.variant.stage_units()
    }

    /// Whether the products of each stage start afresh and are added to others: see above, on
    /// precision.
    fn promotes(&self) -> bool {
        self.plan.schedule.variant == Variant::WgmmaFp8
    }

    /// Stages of an output tile.
    fn turns(&self) -> usize {
        self.plan.kt() / self.units()
    }

    /// Bytes of a strip's weights in a stage.
    fn strip_bytes(&self) -> usize {
        schedule::wgmma_strip_bytes(self.p.formats[0], self.units())
    }

    /// Where the input of a stage starts, and its weights.
    fn input_at(&self, b: &mut Builder, stage: V) -> V {
        let skip = b.mulc(stage, (self.rows() * ROW) as i64);
        let base = b.shared_in("input", STAGES_AT);
        b.at(base, skip)
    }

    fn weights_at(&self, b: &mut Builder, stage: V) -> V {
        let skip = b.mulc(stage, self.map.weight_bytes as i64);
        let base = b.shared_in("weights", self.map.weights);
        b.at(base, skip)
    }

    /// Runs `body` for the output tiles of the block's `share`, or the parts of them, with the turn of the
    /// ring going round.
    fn each_tile(
        &self,
        b: &mut Builder,
        (share, at): (Share, &mut Turn),
        body: impl FnOnce(&mut Builder, V, Option<Part>, Turn) -> Turn,
    ) {
        let parts = if self.p.phase.cut { self.plan.body.k_parts } else { 1 };
        let units = (self.plan.kt() / parts) as i64;
        let (first, end, one) = (b.divc(share.lo, units), b.divc(share.hi, units), b.i32(1));
        let out = b.for_((first, end, one), &at.values(), |b, piece, carried| {
            let (tile, part) = match self.p.phase.cut {
                true => self.part(b, piece),
                false => (piece, None),
            };
            body(b, tile, part, Turn::of(carried)).values().to_vec()
        });
        *at = Turn::of(&out);
    }
}
