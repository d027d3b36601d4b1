//! A thread per channel, for as long as a sequence has tokens in the step: sequences and channels are side by
//! side, tokens of a sequence one after the other.

use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, F32, V, WARP};
use crate::piece::{col_at, row_at};
use crate::tokens::{Tokens, each_sequence, sequence_grid};
use llmcc_ir::kernel::{ParamId, RowElem};

/// Warps of a block.
const WARPS: usize = 2;

/// A thread's place.
pub struct Channel<'a> {
    pub args: Args<'a>,
    m: V,
    lane: V,
    /// Whether it has a channel, and which; else the last that there is.
    pub inside: V,
    pub channel: V,
    /// All of them.
    channels: usize,
}

/// Emits a kernel of so many channels.
pub fn emit(cx: &Cx<'_>, channels: usize, body: impl FnOnce(&mut Builder, &Channel<'_>)) -> Source {
    let threads = WARPS * WARP;
    let (mlir, program) = cx.function(threads as u32, 1, |b, args| {
        let m = cx.row_count(b, args);
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let lane = b.lane_of(tid);
        let first = b.mulc(block, threads as i64);
        let channel = b.add(first, tid);
        let inside = b.cmpc(Cmp::Slt, channel, channels as i64);
        let last = b.i32(channels as i64 - 1);
        let channel = b.min(channel, last);
        body(b, &Channel { args, m, lane, inside, channel, channels });
    });
    Source::new(cx.entry(), (mlir, program), threads as u32, sequence_grid(channels.div_ceil(threads)))
}

impl Channel<'_> {
    /// For each sequence runs `token` for its tokens in order, with the channel's numbers in the
    /// rows of a state of `bytes` (decoded by `loaded`), and stores the numbers kept in the end.
    pub fn each(
        &self,
        b: &mut Builder,
        (state, bytes, rows): (ParamId, usize, usize),
        loaded: impl FnOnce(&mut Builder, Vec<V>) -> Vec<V>,
        token: impl FnOnce(&mut Builder, V, &[V]) -> Vec<V>,
    ) {
        let row = |i: usize| (i * self.channels * 4) as i64;
        each_sequence(b, self.args, |b, seq| {
            let tokens = Tokens { args: self.args, lane: self.lane, seq, m: self.m };
            let slot = self.args.slot(b, self.args.operand(state), bytes, seq);
            let state = col_at(b, slot, Elem::F32, self.channel);
            let load = |b: &mut Builder| {
                let kept = (0..rows).map(|i| {
                    let p = b.atc(state, row(i));
                    b.load(p, F32)
                });
                let kept = kept.collect();
                loaded(b, kept)
            };
            let (some, kept) = tokens.fold(b, rows, load, token);
            let stores = b.and(some, self.inside);
            b.if_(stores, |b| {
                for (i, x) in kept.iter().enumerate() {
                    let p = b.atc(state, row(i));
                    b.store(*x, p);
                }
            });
        });
    }

    /// Address of the channel's number in a row of f32 rows of `cols` columns, `start` columns
    /// further on.
    pub fn at(&self, b: &mut Builder, rows: ParamId, (cols, start): (usize, usize), row: V) -> V {
        let line = row_at(b, self.args.operand(rows), cols, RowElem::F32, row);
        let line = b.atc(line, (start * 4) as i64);
        col_at(b, line, Elem::F32, self.channel)
    }
}
