//! Convolutions over time: a warp takes 32 pieces of adjacent channels.
//!
//! Tokens with as many predecessors in the step as they see need no state, so they are shared out
//! as in any other kernel, a few per warp. One warp does all work on the state of a sequence, in
//! this order: the results of its first tokens, then the new state. So no warp waits for another.
//!
//! A result is a product and multiply-adds from the oldest input on, as on CPUs, bit for bit.

use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, F32, V, WARP};
use crate::piece::{self, col_at, row_at};
use crate::tokens::Tokens;
use crate::{Source, blocks, per_rows};
use llmcc_ir::kernel::{CausalConv, RowElem};

/// Warps of a block: each has other tokens, and all the same channels.
const WARPS: usize = 4;
/// Tokens that a warp takes one after the other.
const TOKENS: i64 = 8;
/// Most tokens that a result sees: inputs are in registers. (Models have 3 and 4.)
pub const MOST: usize = 16;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &CausalConv) -> Source {
    let plan = Depthwise::new(cx, k);
    let (mlir, program) = cx.function((WARPS * WARP) as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let t = plan.thread(b, args, m);
        let (count, rows) = (b.sreg("nctaid.y"), b.sreg("ctaid.y"));
        b.assume(count, &[1]);
        let (unit, units) = (b.mulc(rows, WARPS as i64), b.mulc(count, WARPS as i64));
        let unit = b.add(unit, t.warp);
        let sequences = args.sequences(b);
        b.for_((unit, sequences, units), &[], |b, seq, _| {
            plan.sequence(b, &t, seq);
            vec![]
        });
        let (from, step) = (b.mulc(unit, TOKENS), b.mulc(units, TOKENS));
        b.for_((from, m, step), &[], |b, from, _| {
            let to = b.addc(from, TOKENS);
            let to = b.min(to, m);
            b.for_range(from, to, 1, |b, token| plan.token(b, &t, token));
            vec![]
        });
    });
    Source::new(
        cx.entry(),
        (mlir, program),
        (WARPS * WARP) as u32,
        [blocks((plan.channels / plan.step).div_ceil(WARP)), per_rows(WARPS), blocks(1)],
    )
}

struct Depthwise<'k> {
    k: &'k CausalConv,
    channels: usize,
    /// Columns of the input rows.
    cols: usize,
    /// Bytes of the state.
    bytes: usize,
    /// Channels of a thread.
    step: usize,
}

/// A thread's place.
struct Channels<'a> {
    args: Args<'a>,
    m: V,
    warp: V,
    lane: V,
    /// Whether it has channels, and the first of them; else of the last that there are.
    inside: V,
    channel: V,
    /// The taps of these channels, a piece for each token seen.
    taps: Vec<Vec<V>>,
}

impl<'k> Depthwise<'k> {
    fn new(cx: &Cx<'_>, k: &'k CausalConv) -> Depthwise<'k> {
        let (cols, channels, state) = (cx.cols(k.x), cx.cols(k.out), cx.kernel.fixed(k.state));
        let step = piece::widest(4, [channels, cols, k.start]);
        Depthwise { k, channels, cols, bytes: state.bytes(), step }
    }

    /// Tokens before the one at hand that its result sees.
    fn kept(&self) -> usize {
        self.k.width - 1
    }

    fn thread<'a>(&self, b: &mut Builder, args: Args<'a>, m: V) -> Channels<'a> {
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let (warp, lane) = b.warp_and_lane(tid);
        let first = b.mulc(block, WARP as i64);
        let number = b.add(first, lane);
        let channel = b.mulc(number, self.step as i64);
        let inside = b.cmpc(Cmp::Slt, channel, self.channels as i64);
        let last = b.i32((self.channels - self.step) as i64);
        let channel = b.min(channel, last);
        let taps = args.operand(self.k.taps);
        let tap = |i: usize| {
            let line = b.atc(taps, (i * self.channels * 4) as i64);
            let p = col_at(b, line, Elem::F32, channel);
            piece::load(b, p, Elem::F32, self.step)
        };
        let taps = (0..self.k.width).map(tap).collect();
        Channels { args, m, warp, lane, inside, channel, taps }
    }

    fn tokens<'a>(t: &Channels<'a>, seq: V) -> Tokens<'a> {
        Tokens { args: t.args, lane: t.lane, seq, m: t.m }
    }

    /// The input of a token.
    fn input(&self, b: &mut Builder, t: &Channels<'_>, token: V) -> Vec<V> {
        let line = row_at(b, t.args.operand(self.k.x), self.cols, RowElem::F32, token);
        let line = b.atc(line, (self.k.start * 4) as i64);
        let p = col_at(b, line, Elem::F32, t.channel);
        piece::load(b, p, Elem::F32, self.step)
    }

    /// Stores the result of a token that sees `inputs`, the oldest first.
    fn result(&self, b: &mut Builder, t: &Channels<'_>, token: V, inputs: &[Vec<V>]) {
        let mut sum: Vec<V> = inputs[0].iter().zip(&t.taps[0]).map(|(x, w)| b.fmul(*x, *w)).collect();
        for (x, taps) in inputs.iter().zip(&t.taps).skip(1) {
            sum = sum.iter().zip(x.iter().zip(taps)).map(|(sum, (x, w))| b.fma(*x, *w, *sum)).collect();
        }
        let line = row_at(b, t.args.operand(self.k.out), self.channels, RowElem::F32, token);
        let p = col_at(b, line, Elem::F32, t.channel);
        piece::store(b, &sum, p, Elem::F32);
    }

    /// The result of a token that sees no further back than this step.
    fn token(&self, b: &mut Builder, t: &Channels<'_>, token: V) {
        let seq = t.args.seq(b, token);
        let seen = Depthwise::tokens(t, seq).last(b, token, self.kept());
        let all = b.cmpc(Cmp::Sge, seen[self.kept() - 1], 0);
        let has = b.and(all, t.inside);
        b.if_(has, |b| {
            let mut inputs: Vec<Vec<V>> = seen.iter().rev().map(|i| self.input(b, t, *i)).collect();
            inputs.push(self.input(b, t, token));
            self.result(b, t, token, &inputs);
        });
    }

    /// The work on the state of a sequence.
    fn sequence(&self, b: &mut Builder, t: &Channels<'_>, seq: V) {
        let (tokens, n) = (Depthwise::tokens(t, seq), self.kept());
        let (first, last) = (tokens.first(b, n), tokens.last(b, t.m, n));
        let some = b.cmpc(Cmp::Sge, first[0], 0);
        let has = b.and(some, t.inside);
        b.if_(has, |b| {
            let slot = t.args.slot(b, t.args.operand(self.k.state), self.bytes, seq);
            let state = col_at(b, slot, Elem::F32, t.channel);
            let row = |i: usize| (i * self.channels * 4) as i64;
            let mut kept: Vec<V> = vec![];
            for i in 0..n {
                let p = b.atc(state, row(i));
                kept.extend(piece::load(b, p, Elem::F32, self.step));
            }
            let types = vec![F32; kept.len()];
            for token in first {
                let there = b.cmpc(Cmp::Sge, token, 0);
                kept = b.if_else(
                    there,
                    &types,
                    |b| {
                        let mut inputs: Vec<Vec<V>> = kept.chunks(self.step).map(<[V]>::to_vec).collect();
                        inputs.push(self.input(b, t, token));
                        self.result(b, t, token, &inputs);
                        inputs.concat().split_off(self.step)
                    },
                    |_| kept.clone(),
                );
            }
            // More tokens than the state keeps: it is the last of them.
            let many = b.cmpc(Cmp::Sge, last[n - 1], 0);
            let latest = |b: &mut Builder| last.iter().rev().flat_map(|i| self.input(b, t, *i)).collect();
            kept = b.if_else(many, &types, latest, |_| kept.clone());
            for (i, x) in kept.chunks(self.step).enumerate() {
                let p = b.atc(state, row(i));
                piece::store(b, x, p, Elem::F32);
            }
        });
    }
}
