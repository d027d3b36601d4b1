//! Products with the matrices of each token's experts.
//!
//! A block computes 16 columns of one expert (of each lane of the segment), its four warps a
//! quarter of the inner columns each, at most eight rows at a time. Weights go from memory to
//! registers, and are multiplied by tensor cores, or by f32 multiply-adds where these do not know
//! them.
//!
//! - Few tokens (`tile_m` = 1): a block per token, slot and tile, which finds its expert in the
//!   routes. Experts that no token chose are not read.
//! - Many: a block per expert and tile. It collects the pairs of a token and a slot that chose its
//!   expert in shared memory, in whatever order, and takes them eight by eight; the weights that it
//!   reads again are in its caches.
//!
//! Without routes a slot's expert is that of its number: nothing is looked up or collected.
//!
//! A pair is a column of a product of its own: its bits do not depend on those beside it.

mod sums;

use crate::cx::{Args, Cx, share_out, when_below};
use crate::epilogue::{self, Tile};
use crate::expr::{SharedTile, Slots};
use crate::mlir::{Builder, Cmp, Elem, F32, I32, Memory, V};
use crate::piece::{self, col_at, row_at};
use crate::{Source, blocks, per_rows};
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{ExpertMatmul, ParamId, RowElem};
use llmcc_ir::quant::{BLOCK, Format};

/// Threads of a block.
const THREADS: u32 = 128;
const WARPS: usize = 4;
/// Rows taken at once.
pub const ROWS: usize = 8;
/// Pairs looked through before those found are multiplied.
const PAIRS: usize = 4096;

/// The kernel while it is emitted.
struct Plan<'a> {
    cx: &'a Cx<'a>,
    k: &'a ExpertMatmul,
    /// Columns of a row, all slots included, and of a slot.
    cols: usize,
    inner: usize,
    elem: Elem,
    lanes: Vec<(ParamId, Format)>,
    /// Multiplied by tensor cores.
    tensor: bool,
}

/// Offsets in shared memory.
struct Map {
    /// Pairs found, and how many.
    count: usize,
    pairs: usize,
    sums: usize,
    spare: usize,
    bytes: usize,
}

/// A thread's place.
#[derive(Clone, Copy)]
struct Thread {
    warp: V,
    lane: V,
    /// Quad of the warp, and thread of the quad.
    g: V,
    t: V,
}

/// Bytes of shared memory.
pub fn shared_bytes(cx: &Cx<'_>, k: &ExpertMatmul) -> usize {
    Plan::new(cx, k).map().bytes
}

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &ExpertMatmul) -> Source {
    let plan = Plan::new(cx, k);
    let map = plan.map();
    let tiles = k.rows() / BLOCK;
    let few = k.tile_m == 1;
    let (mlir, program) = cx.function(THREADS, 4, |b, args| {
        plan.declare(b, &map);
        let m = cx.row_count(b, args);
        let index = b.sreg("ctaid.x");
        let (of, tile) = (b.divc(index, tiles as i64), b.remc(index, tiles as i64));
        if few {
            let token = b.sreg("ctaid.y");
            when_below(b, token, m, |b| plan.one(b, args, &map, (token, of), tile));
        } else {
            plan.many(b, args, &map, m, of, tile);
        }
    });
    Source {
        shared: map.bytes as u32,
        ..Source::new(
            cx.entry(),
            (mlir, program),
            THREADS,
            [blocks(tiles * if few { k.top } else { k.experts }), if few { per_rows(1) } else { blocks(1) }, blocks(1)],
        )
    }
}

impl<'a> Plan<'a> {
    fn new(cx: &'a Cx<'a>, k: &'a ExpertMatmul) -> Plan<'a> {
        let (cols, elem) = cx.rows(k.x);
        let inner = cx.kernel.matrix(k.segment.weights[0]).k;
        let lanes: Vec<_> = k.segment.weights.iter().map(|w| (*w, cx.kernel.matrix(*w).format)).collect();
        let tensor = inner.is_multiple_of(16) && lanes.iter().all(|(_, f)| schedule::on_tensor_cores(*f, elem));
        Plan { cx, k, cols, inner, elem: piece::storage(elem), lanes, tensor }
    }

    /// Address of row `row` of the input.
    fn row(&self, b: &mut Builder, args: Args<'_>, row: V) -> V {
        let (cols, elem) = self.cx.rows(self.k.x);
        row_at(b, args.operand(self.k.x), cols, elem, row)
    }

    /// Elements from one row of partial sums to the next.
    fn stride(&self) -> usize {
        BLOCK * self.lanes.len() + 4
    }

    fn map(&self) -> Map {
        let pairs = 16;
        let sums = pairs + 4 * if self.k.tile_m == 1 { 4 } else { PAIRS };
        let spare = sums + WARPS * ROWS * self.stride() * 4;
        let bytes = spare + epilogue::shared_bytes(self.cx, &self.k.segment, ROWS, BLOCK);
        Map { count: 0, pairs, sums, spare, bytes }
    }

    fn declare(&self, b: &mut Builder, map: &Map) {
        let of = |name, at, bytes| Memory { name, at, bytes, stages: 1, conflict_free: false, over: &[] };
        b.buffer(of("count", map.count, 16));
        b.buffer(of("pairs", map.pairs, map.sums - map.pairs));
        b.buffer(of("sums", map.sums, map.spare - map.sums));
    }

    /// One token's slot.
    fn one(&self, b: &mut Builder, args: Args<'_>, map: &Map, (token, slot): (V, V), tile: V) {
        let expert = match self.k.routes {
            Some(routes) => self.routed(b, args.operand(routes), (token, slot)),
            None => slot,
        };
        let first = b.mulc(token, self.k.top as i64);
        let pair = b.add(first, slot);
        let one = b.i32(1);
        self.group(b, args, map, (expert, tile), one, &|_, _| pair);
    }

    /// All pairs that chose an expert.
    fn many(&self, b: &mut Builder, args: Args<'_>, map: &Map, m: V, expert: V, tile: V) {
        let Some(routes) = self.k.routes else { return self.tokens(b, args, map, m, (expert, tile)) };
        let routes = args.operand(routes);
        let (all, zero, step) = (b.mulc(m, self.k.top as i64), b.i32(0), b.i32(PAIRS as i64));
        b.for_((zero, all, step), &[], |b, from, _| {
            let found = self.collect(b, routes, map, (from, all), expert);
            let rows = b.i32(ROWS as i64);
            b.for_((zero, found, rows), &[], |b, first, _| {
                let rest = b.sub(found, first);
                let most = b.i32(ROWS as i64);
                let rows = b.min(rest, most);
                let pairs = b.shared_in("pairs", map.pairs);
                let pair = |b: &mut Builder, i: V| {
                    let at = b.add(first, i);
                    let p = col_at(b, pairs, Elem::F32, at);
                    b.load(p, I32)
                };
                self.group(b, args, map, (expert, tile), rows, &pair);
                vec![]
            });
            b.barrier();
            vec![]
        });
    }

    /// All tokens of a slot, which is that of the expert.
    fn tokens(&self, b: &mut Builder, args: Args<'_>, map: &Map, m: V, (expert, tile): (V, V)) {
        let (zero, step) = (b.i32(0), b.i32(ROWS as i64));
        b.for_((zero, m, step), &[], |b, first, _| {
            let rest = b.sub(m, first);
            let rows = b.min(rest, step);
            let pair = |b: &mut Builder, i: V| {
                let token = b.add(first, i);
                let start = b.mulc(token, self.k.top as i64);
                b.add(start, expert)
            };
            self.group(b, args, map, (expert, tile), rows, &pair);
            vec![]
        });
    }

    /// The expert that routes name for a token's slot.
    fn routed(&self, b: &mut Builder, routes: V, (token, slot): (V, V)) -> V {
        let line = row_at(b, routes, 2 * self.k.top, RowElem::F32, token);
        let p = col_at(b, line, Elem::F32, slot);
        let number = b.load(p, F32);
        self.expert(b, number)
    }

    /// Collects the pairs `from..` that chose the expert; gives how many.
    fn collect(&self, b: &mut Builder, routes: V, map: &Map, (from, all): (V, V), expert: V) -> V {
        let (count, pairs) = (b.shared_in("count", map.count), b.shared_in("pairs", map.pairs));
        let tid = b.sreg("tid.x");
        let first = b.cmpc(Cmp::Eq, tid, 0);
        let zero = b.i32(0);
        b.if_(first, |b| b.store(zero, count));
        let end = b.addc(from, PAIRS as i64);
        let end = b.min(end, all);
        let n = b.sub(end, from);
        // Nothing is read that was not written, whatever the routes.
        share_out(b, n, THREADS, |b, i| {
            let p = col_at(b, pairs, Elem::F32, i);
            b.store(zero, p);
        });
        b.barrier();
        let top = self.k.top as i64;
        share_out(b, n, THREADS, |b, i| {
            let pair = b.add(from, i);
            let (token, slot) = (b.divc(pair, top), b.remc(pair, top));
            let chosen = self.routed(b, routes, (token, slot));
            let mine = b.cmp(Cmp::Eq, chosen, expert);
            b.if_(mine, |b| {
                let one = b.i32(1);
                // Threads take places of their own.
                let at = b.atomic_add_shared(count, one);
                let p = col_at(b, pairs, Elem::F32, at);
                b.apart(|b| b.store(pair, p));
            });
        });
        b.barrier();
        let found = b.load(count, I32);
        b.assume(found, &[0, 1, 9]);
        found
    }

    /// An expert that there is: routes name no others.
    fn expert(&self, b: &mut Builder, number: V) -> V {
        let number = b.fptosi(number, I32);
        let last = b.i32(self.k.experts as i64 - 1);
        b.min(number, last)
    }

    /// At most eight pairs of one expert.
    fn group(
        &self,
        b: &mut Builder,
        args: Args<'_>,
        map: &Map,
        (expert, tile): (V, V),
        rows: V,
        pair: &dyn Fn(&mut Builder, V) -> V,
    ) {
        let tid = b.sreg("tid.x");
        let (warp, lane) = b.warp_and_lane(tid);
        let th = Thread { warp, lane, g: b.shrc(lane, 2), t: b.andc(lane, 3) };
        let sums = if self.tensor {
            self.tensor_sums(b, args, th, (expert, tile), rows, pair)
        } else {
            self.plain_sums(b, args, th, (expert, tile), rows, pair)
        };
        self.store_sums(b, map, th, &sums);
        b.barrier();
        self.join(b, map);
        b.barrier();
        let base = b.shared_in("sums", map.sums);
        let tile_of = |b: &mut Builder, lane: usize| {
            let base = b.atc(base, (lane * BLOCK * 4) as i64);
            SharedTile { base, stride: self.stride(), scale: None, row_scale: None }
        };
        let acc: Vec<SharedTile> = (0..self.lanes.len()).map(|lane| tile_of(b, lane)).collect();
        let place = |b: &mut Builder, row: V| {
            let pair = pair(b, row);
            let (token, slot) = (b.divc(pair, self.k.top as i64), b.remc(pair, self.k.top as i64));
            (token, b.mulc(slot, self.k.segment.n as i64))
        };
        let (row0, col0) = (b.i32(0), b.mulc(tile, BLOCK as i64));
        let mut cols = b.i32(BLOCK as i64);
        if !self.k.segment.n.is_multiple_of(BLOCK) {
            let n = b.i32(self.k.segment.n as i64);
            let rest = b.sub(n, col0);
            cols = b.min(rest, cols);
        }
        let tile = Tile {
            acc: &acc,
            row0,
            rows,
            max_rows: ROWS,
            col0,
            cols,
            max_cols: BLOCK,
            spare: b.shared_in("spare", map.spare),
            threads: THREADS,
            slots: Some(Slots { place: &place, expert }),
        };
        epilogue::run(self.cx, b, args, &self.k.segment, &tile);
        b.barrier();
    }
}
