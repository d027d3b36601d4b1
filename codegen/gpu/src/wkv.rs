//! Means with weights that decay: a thread per channel, for as long as a sequence has tokens in the
//! step. Sequences and channels are side by side, tokens of a sequence one after the other.

use crate::Source;
use crate::cx::{Args, Cx};
use crate::expr::unary;
use crate::mlir::{Builder, Cmp, Elem, F32, V, WARP};
use crate::piece::{col_at, row_at};
use crate::tokens::{Tokens, each_sequence, sequence_grid};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{ParamId, RowElem, Wkv};

/// Warps of a block.
const WARPS: i32 = 2;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Wkv) -> Source {
    let threads = (WARPS * WARP) as usize;
    let plan = Channels::new(cx, k);
    let (mlir, program) = cx.function(threads as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let t = plan.thread(b, args, (m, threads));
        each_sequence(b, args, |b, seq| plan.sequence(b, &t, seq));
    });
    let of_sequence = plan.channels.div_ceil(threads);
    Source {
        entry: cx.entry(),
        mlir,
        program,
        threads: threads as u32,
        shared: 0,
        grid: sequence_grid(of_sequence),
        scratch: 0,
        scratch_per_m: 0,
        generic: None,
    }
}

struct Channels<'k> {
    k: &'k Wkv,
    channels: usize,
    /// Columns of the rows of keys and of values.
    cols: [usize; 2],
    /// Bytes of the state.
    bytes: usize,
}

/// What a thread knows of itself.
struct Owner<'a> {
    args: Args<'a>,
    m: V,
    lane: V,
    /// Whether it has a channel, and which; else the last that there is.
    inside: V,
    channel: V,
    decay: V,
    bonus: V,
}

impl<'k> Channels<'k> {
    fn new(cx: &Cx<'_>, k: &'k Wkv) -> Channels<'k> {
        let cols = [k.k, k.v].map(|p| cx.cols(p));
        Channels { k, channels: cx.cols(k.out), cols, bytes: cx.kernel.fixed(k.state).bytes() }
    }

    fn thread<'a>(&self, b: &mut Builder, args: Args<'a>, (m, threads): (V, usize)) -> Owner<'a> {
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let lane = b.andc(tid, i64::from(WARP) - 1);
        let first = b.mulc(block, threads as i64);
        let channel = b.add(first, tid);
        let inside = b.cmpc(Cmp::Slt, channel, self.channels as i64);
        let last = b.i32(self.channels as i64 - 1);
        let channel = b.min(channel, last);
        let [decay, bonus] = [self.k.decay, self.k.bonus].map(|p| {
            let p = col_at(b, args.operand(p), Elem::F32, channel);
            b.load(p, F32)
        });
        Owner { args, m, lane, inside, channel, decay, bonus }
    }

    /// The tokens of a sequence, and its state before and after.
    fn sequence(&self, b: &mut Builder, t: &Owner<'_>, seq: V) {
        let tokens = Tokens { args: t.args, lane: t.lane, seq, m: t.m };
        let slot = t.args.slot(b, t.args.operand(self.k.state), self.bytes, seq);
        let state = col_at(b, slot, Elem::F32, t.channel);
        let row = |i: usize| (i * self.channels * 4) as i64;
        let load = |b: &mut Builder| {
            let kept = [0, 1, 2].map(|i| {
                let p = b.atc(state, row(i));
                b.load(p, F32)
            });
            loaded(b, kept).to_vec()
        };
        let (some, kept) = tokens.fold(b, 3, load, |b, token, kept| self.token(b, t, token, kept).to_vec());
        let stores = b.and(some, t.inside);
        b.if_(stores, |b| {
            for (i, x) in kept.iter().enumerate() {
                let p = b.atc(state, row(i));
                b.store(*x, p);
            }
        });
    }

    /// Stores the mean of a token; what is kept after it.
    fn token(&self, b: &mut Builder, t: &Owner<'_>, token: V, kept: &[V]) -> [V; 3] {
        let [sum, weights, most] = [kept[0], kept[1], kept[2]];
        let at = |b: &mut Builder, p: ParamId, cols: usize, start: usize| {
            let line = row_at(b, t.args.operand(p), cols, RowElem::F32, token);
            let line = b.atc(line, (start * 4) as i64);
            col_at(b, line, Elem::F32, t.channel)
        };
        let (k, v) = (at(b, self.k.k, self.cols[0], self.k.k_start), at(b, self.k.v, self.cols[1], self.k.v_start));
        let (k, v) = (b.load(k, F32), b.load(v, F32));
        let own = b.fadd(k, t.bonus);
        let [value, weight, _] = joined(b, [sum, weights, most], [own, v]);
        let y = b.fdiv(value, weight);
        b.if_(t.inside, |b| {
            let p = at(b, self.k.out, self.channels, 0);
            b.store(y, p);
        });
        let most = b.fadd(most, t.decay);
        joined(b, [sum, weights, most], [k, v])
    }
}

/// A state as it was stored: where there are no weights, what they are over counts for nothing.
pub fn loaded(b: &mut Builder, [sum, weights, most]: [V; 3]) -> [V; 3] {
    let zero = b.f32(0.0);
    let some = b.flt(zero, weights);
    let none = b.f32(-1e38);
    let most = b.select(some, most, none);
    [sum, weights, most]
}

/// Weighted values, weights and the logarithm that they are over, with one more value.
pub fn joined(b: &mut Builder, [sum, weights, most]: [V; 3], [key, value]: [V; 2]) -> [V; 3] {
    let new = b.fmax(most, key);
    let [old, weight] = [most, key].map(|x| {
        let less = b.fsub(x, new);
        unary(b, UnaryOp::Exp, less)
    });
    let added = b.fmul(weight, value);
    [b.fma(old, sum, added), b.fma(old, weights, weight), new]
}
