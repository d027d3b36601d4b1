//! Attention of many tokens on sm90: `wgmma`, as a pipeline between warps. 128 query rows of one KV
//! head per block, as in [`prefill`](super::prefill); tiles of 128 tokens, eight pages.
//!
//! # Who does what
//!
//! - **A group of four warps brings** pages to two rings of stages, one of keys and one of values,
//!   by `cp.async`, and does nothing else ([`produce`]). Before that, one of them lists the walks:
//!   the sequences of the block's tokens, and the pages they see ([`list`](mod@super::list)).
//! - **Two groups of four warps multiply**, 64 rows each ([`consume`]): `S = Q·Kᵀ` with both
//!   operands in shared memory, the softmax in registers ([`softmax`](mod@softmax)), `O += P·V`
//!   with the probabilities as the left operand in registers, where the first product has left its
//!   results in the right places ([`products`]). Both products of a turn start together, the scores
//!   of a tile and the values of the tile before: while the values are multiplied, the scores
//!   become probabilities. And the groups take turns in starting them ([`order`]), so that the
//!   tensor cores have the other group's products meanwhile.
//! - **`mbarrier`s** per stage say that keys (values) are there and that they are free again; what
//!   they order is recorded and verified. Copies are announced as in matrix products: waited for,
//!   fenced for the asynchronous proxy, then announced, a turn or two after they were started.
//!
//! Queries and results pass through shared memory, to be accessed in whole lines ([`inout`]). Tiles
//! that a row does not see change nothing in its registers, and tiles begin at multiples of 128
//! tokens: a row's bits depend on nothing else in the block.
//!
//! # How pages lie in shared memory
//!
//! Keys are `[D][16 tokens]` in the cache, values `[16 tokens][D]`: both are right operands whose
//! columns are adjacent (N-major), which 16-bit types may be, so nothing is transposed. A copy in
//! bulk would leave a page of keys as it is stored. `wgmma` without a swizzle wants the eight lines
//! of a block 16 bytes apart, and these are 32; with the swizzle of 32 bytes the distance is right,
//! but the halves of every other four lines must be exchanged, which copies in bulk do not do
//! without tensor maps (and maps would have to be made at run time, for every pool). So lanes copy
//! pieces of 16 bytes: keys of four pages side by side in lines of 64 tokens, values in lines of 64
//! columns, both with the 128-byte swizzle; values of heads that are no multiple of 64 in lines of
//! 32 or 16 with that of 64 or 32 bytes. Accesses to shared memory do not collide in the banks
//! (heads of 64 and 128; tests).
//!
//! # What bounds it
//!
//! Per turn, 128 rows by 128 tokens, of both groups together; cycles of a multiprocessor:
//!
//! | | heads of 64 | of 128 |
//! |---|---|---|
//! | tensor cores: `4·128·128·D` flop, 4096 per cycle | 1024 | 2048 |
//! | exponentials: 16384, 16 per cycle | 1024 | 1024 |
//! | issue slots of a scheduler: two multiplying warps (432, 492 each by count), a bringing one (158, 204) | 1022 | 1188 |
//! | shared memory: `wgmma` reads keys and queries, 2 × (128 + 64) lines of `D` | 384 | 768 |
//! | it reads values | 256 | 512 |
//! | pages are written | 256 | 512 |
//! | sum of shared memory, 128 bytes per cycle | 896 | 1792 |
//! | second-level cache: bytes per cycle at full rate | 32 | 32 |
//!
//! So heads of 128 are bound by the tensor cores, if the second-level cache gives its 32 bytes:
//! kernels of others with this tile take the same. Where it gives 22, 70 % of the peak remain.
//! Heads of 64 have four bounds at once, and will stay well below each. A masked tile costs 162
//! slots more per warp; a prompt has one or two per block. A block begins with about 2000 cycles in
//! which nothing is multiplied (the list, beside which the queries come; the first keys) and ends
//! with about 1500. For a prompt of 2048 tokens a block has eight turns on average, so that a tenth
//! to a fifth is lost; for 8192, a quarter of that. Expected on an H200: 50 to 60 % of the tensor
//! cores' peak with heads of 128, 35 to 45 % with heads of 64. None of this has been measured.
//!
//! Registers of a lane: 64 scores, which become the probabilities in place; 32 words of
//! probabilities that are being multiplied; `D/2` weighted values. By `ptxas` 161 in all with heads
//! of 64 and 195 with 128, of the 216 that there are since the bringing warps have given up theirs.
//! To start the next tile's scores before the probabilities have become words would take 64 more.
//!
//! First questions on a machine: whether fences of the bringing warps wait for newer copies too, as
//! with matrix products; and whether keys as an N-major operand run at the full rate, as values do
//! in kernels of others.
//!
//! To switch it off: `WARPGROUPS` in [`llmcc_ir::gpu::attention`].

mod consume;
mod inout;
mod order;
mod produce;
mod products;
mod softmax;

use super::list::{self, List};
use super::lone::{Grid, Lone};
use super::rows::Block;
use super::shape::Shape;
use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, Memory, V, WARP};
use crate::ring::{self, Ring};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::gpu::attention::{self, ROWS, TILE};
use llmcc_ir::gpu::layout::Swizzle;

/// Warps that multiply.
const WARPS: usize = ROWS / 16;
/// Warps that bring pages: a group of four, so that they can give registers to the others.
const PRODUCERS: usize = 4;
/// Pages of a tile.
const PAGES: usize = TILE / PAGE_TOKENS;
/// Bytes of a line of shared memory with the widest swizzle.
const LINE: usize = 128;
/// Registers of the warps that bring, and of those that multiply; 384 threads have 168 each to
/// begin with.
const REGISTERS: (usize, usize) = (72, 216);
/// Shared memory starts with the `mbarrier`s; the rest is aligned to 1024 bytes, as the swizzle
/// wants.
const QUERIES_AT: usize = 1024;

/// How it is done.
pub(super) struct Plan {
    elem: Elem,
    /// Head size, a multiple of 16.
    d: usize,
    /// Tokens of a block.
    tokens: usize,
    /// Stages of the ring of keys, and of that of values: a power of two.
    stages: usize,
}

/// The `mbarrier`s of a stage.
#[derive(Clone, Copy)]
enum Event {
    /// Its keys are there.
    Keys,
    /// Its values are there.
    Values,
    /// All have read its keys.
    KeysFree,
    /// All have read its values.
    ValuesFree,
}

impl Plan {
    /// `None` if another kernel will do, or must.
    pub(super) fn new(cx: &Cx<'_>, shape: &Shape, tile_m: usize) -> Option<Plan> {
        let schedule = attention::warpgroups(&shape.spec, shape.group, tile_m, cx.gpu)?;
        // Maxima are over scores that are not scaled yet.
        let (elem, _) = shape.multiplied().filter(|_| shape.scores.factor() > 0.0)?;
        let plan = |stages| Plan { elem, d: shape.spec.key_dim, tokens: schedule.tokens, stages };
        [4, 2].into_iter().map(plan).find(|p| p.shared() <= cx.shared_limit())
    }

    /// Turns of the pipeline from the start of a copy to its announcement, at least 1. With more,
    /// the bringing warps could wait for room that is made only with tiles they have not announced.
    fn late(&self) -> usize {
        self.stages / 2
    }

    fn ring(&self) -> Ring {
        Ring { at: 0, stages: self.stages }
    }

    /// Bytes of the queries of a group of warps: lines of 64 columns.
    fn query_bytes(&self) -> usize {
        self.d.div_ceil(64) * 64 * LINE
    }

    /// Bytes of a tile of keys, and of one of values.
    fn tile_bytes(&self) -> usize {
        TILE * self.d * 2
    }

    /// Swizzle of the values: as wide as the head allows.
    fn values(&self) -> Swizzle {
        match self.d {
            d if d.is_multiple_of(64) => Swizzle::B128,
            d if d.is_multiple_of(32) => Swizzle::B64,
            _ => Swizzle::B32,
        }
    }

    fn keys_at(&self) -> usize {
        QUERIES_AT + 2 * self.query_bytes()
    }

    fn values_at(&self) -> usize {
        self.keys_at() + self.stages * self.tile_bytes()
    }

    fn list(&self) -> List {
        List { at: self.values_at() + self.stages * self.tile_bytes(), tokens: self.tokens }
    }

    fn shared(&self) -> usize {
        self.list().at + self.list().bytes()
    }

    /// Bytes of an element of the output.
    fn out_bytes(&self, shape: &Shape) -> usize {
        shape.out.storage().bytes()
    }

    /// Bytes from one row of results to the next in shared memory: shifted, so that a warp's
    /// simultaneous stores go to different banks.
    fn out_stride(&self, shape: &Shape) -> usize {
        (self.d + 8) * self.out_bytes(shape)
    }

    /// Declares the layout of shared memory.
    fn declare(&self, b: &mut Builder, shape: &Shape) {
        let of = |name, at, bytes, stages| Memory { name, at, bytes, stages, conflict_free: false, over: &[] };
        b.buffer(of("queries", QUERIES_AT, 2 * self.query_bytes(), 1));
        b.buffer(of("keys", self.keys_at(), self.tile_bytes(), self.stages));
        b.buffer(of("values", self.values_at(), self.tile_bytes(), self.stages));
        self.list().declare(b);
        // A warp's results are its own, in place of data that all have read.
        let results = 16 * self.out_stride(shape);
        b.buffer(Memory { over: &["keys", "values"], ..of("results", self.keys_at(), results, WARPS) });
    }
}

/// A walk, in tiles.
struct Walk {
    pages: list::Walk,
    /// Their number, at least 1.
    tiles: V,
}

/// A block while it is emitted.
struct Attend<'a> {
    plan: &'a Plan,
    block: Block<'a>,
    tid: V,
    lane: V,
}

/// Emits the kernel.
pub(super) fn emit(cx: &Cx<'_>, shape: &Shape, plan: &Plan) -> Source {
    let threads = ((WARPS + PRODUCERS) * WARP) as u32;
    let lone = Lone::new(cx, shape, (WARPS, 1), cx.shared_limit());
    let grid = Grid { kv_heads: shape.spec.kv_heads, tokens: plan.tokens, lone: lone.as_ref() };
    let (mlir, program) = cx.function(threads, 1, |b, args| {
        grid.layers(
            b,
            |b| prompts(b, (cx, shape, args), &grid, plan),
            |b, lone| {
                // The warps that would bring give their registers to the others here too.
                let multiplies = multiplies(b);
                b.either(
                    multiplies,
                    |b| {
                        b.more_registers(REGISTERS.1);
                        lone.serve(b, cx, shape, args);
                    },
                    |b| b.fewer_registers(REGISTERS.0),
                );
            },
        );
    });
    let (shared, scratch) = grid.bytes(shape, plan.shared());
    Source { shared, scratch, ..Source::new(cx.entry(), (mlir, program), threads, grid.dims()) }
}

/// Whether the thread is of a warp that multiplies.
fn multiplies(b: &mut Builder) -> V {
    let tid = b.sreg("tid.x");
    b.cmpc(Cmp::Slt, tid, WARPS as i64 * WARP as i64)
}

/// Emits a block's work on its tokens.
fn prompts(b: &mut Builder, (cx, shape, args): (&Cx<'_>, &Shape, Args<'_>), grid: &Grid<'_>, plan: &Plan) {
    Block::take(b, (cx, shape, args), grid, |b, block| {
        plan.declare(b, shape);
        let tid = b.sreg("tid.x");
        let lane = b.lane_of(tid);
        let attend = Attend { plan, block, tid, lane };
        let multiplies = multiplies(b);
        b.either(
            multiplies,
            |b| attend.take(b),
            |b| {
                let first = b.cmpc(Cmp::Slt, tid, (WARPS * WARP + WARP) as i64);
                b.if_(first, |b| plan.list().write(b, &attend.block, lane));
            },
        );
        let (bringing, multiplying) = (PRODUCERS as i64, WARPS as i64);
        // In the order of the events.
        let events = [
            ("keys there", bringing),
            ("values there", bringing),
            ("keys free", multiplying),
            ("values free", multiplying),
        ];
        ring::initialize(b, &[(plan.ring(), &events)]);
        b.either(
            multiplies,
            |b| {
                b.more_registers(REGISTERS.1);
                b.team(WARPS as u32 * WARP as u32, |b| attend.consume(b));
            },
            |b| {
                b.fewer_registers(REGISTERS.0);
                attend.produce(b);
            },
        );
    });
}

impl Walk {
    /// Position of the first token of a tile.
    fn start(&self, b: &mut Builder, tile: V) -> V {
        let (start, skip) = (b.mulc(self.pages.page, PAGE_TOKENS as i64), b.mulc(tile, TILE as i64));
        b.add(start, skip)
    }
}

impl Attend<'_> {
    /// Walk `number`.
    fn walk(&self, b: &mut Builder, number: V) -> Walk {
        let walk = self.plan.list().walk(b, number, PAGES);
        let pages = b.sub(walk.end, walk.page);
        let up = b.addc(pages, PAGES as i64 - 1);
        Walk { pages: walk, tiles: b.divc(up, PAGES as i64) }
    }

    /// Stage and parity of tile `number`, counted from the start of the kernel.
    fn turn(&self, b: &mut Builder, number: V) -> (V, V) {
        let stages = self.plan.stages as i64;
        let (stage, turn) = (b.andc(number, stages - 1), b.divc(number, stages));
        (stage, b.andc(turn, 1))
    }

    /// Waits for an event of the stage of tile `number`; returns the stage.
    fn wait(&self, b: &mut Builder, event: Event, number: V) -> V {
        let (stage, parity) = self.turn(b, number);
        let barrier = self.plan.ring().barrier(b, event as usize, stage);
        // The first turn of the ring has no room to wait for.
        let parity = if matches!(event, Event::KeysFree | Event::ValuesFree) { b.xorc(parity, 1) } else { parity };
        b.mbarrier_wait(&barrier, parity);
        stage
    }

    /// A lane of the warp arrives for it.
    fn arrive(&self, b: &mut Builder, event: Event, stage: V) {
        let first = b.cmpc(Cmp::Eq, self.lane, 0);
        b.if_(first, |b| {
            let barrier = self.plan.ring().barrier(b, event as usize, stage);
            b.mbarrier_arrive(&barrier);
        });
    }

    /// A stage of keys or values that begin at `at`.
    fn stage(&self, b: &mut Builder, at: usize, stage: V) -> V {
        let base = b.shared_at(at);
        let skip = b.mulc(stage, self.plan.tile_bytes() as i64);
        b.at(base, skip)
    }
}
