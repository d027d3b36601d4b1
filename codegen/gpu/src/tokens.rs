//! The tokens of one sequence in a step.
//!
//! Tokens of sequences may be mixed in any way. A warp looks through the numbers of the step's
//! sequences 32 at a time, a lane each, and votes: every lane knows the result. All lanes of the
//! warp must be there.

use crate::cx::Args;
use crate::mlir::{Builder, Cmp, F32, I32, V, WARP};
use crate::{blocks, per_rows};
use llmcc_abi::GpuDim;

/// Tokens that are looked at together.
const CHUNK: i64 = WARP as i64;

/// Blocks of a sequence, or of several, beside which further ones would not end sooner than one
/// after the other; and of many tokens few blocks have a sequence at all.
const BUSY: usize = 16;

/// Blocks of a kernel that takes sequences side by side ([`each_sequence`]), and a sequence's tokens
/// one after the other, in `of_sequence` blocks.
pub fn sequence_grid(of_sequence: usize) -> [GpuDim; 3] {
    [blocks(of_sequence), per_rows((of_sequence / BUSY).clamp(1, 32)), blocks(1)]
}

/// Runs `body` for each sequence of the step that the block has by [`sequence_grid`].
pub fn each_sequence(b: &mut Builder, args: Args<'_>, body: impl FnOnce(&mut Builder, V)) {
    let (seq, count) = (b.sreg("ctaid.y"), b.sreg("nctaid.y"));
    b.assume(count, &[1]);
    let sequences = args.sequences(b);
    b.for_((seq, sequences, count), &[], |b, seq, _| {
        body(b, seq);
        vec![]
    });
}

/// A sequence of the step.
#[derive(Clone, Copy)]
pub struct Tokens<'a> {
    /// The kernel's arguments.
    pub args: Args<'a>,
    /// Number of the thread in its warp.
    pub lane: V,
    /// The sequence: a row of the block table.
    pub seq: V,
    /// Number of tokens in the step.
    pub m: V,
}

/// From which end tokens are taken.
#[derive(Clone, Copy, PartialEq)]
enum End {
    First,
    Last,
}

impl Tokens<'_> {
    /// Which of the 32 tokens from `first` on (which may be before the first of all) are of the
    /// sequence, up to token `end`: a bit each.
    fn mask(&self, b: &mut Builder, first: V, end: V) -> V {
        let i = b.add(first, self.lane);
        let (from, below) = (b.cmpc(Cmp::Sge, i, 0), b.cmp(Cmp::Slt, i, end));
        let inside = b.and(from, below);
        let zero = b.i32(0);
        let at = b.select(inside, i, zero);
        let seq = self.args.seq(b, at);
        let same = b.cmp(Cmp::Eq, seq, self.seq);
        let mine = b.and(same, inside);
        b.ballot(mine)
    }

    /// Runs `body` for each 32 tokens with some of the sequence, in order, with values carried: it
    /// gets the index of the first of the 32, and the bits of the sequence's tokens.
    pub fn chunks(&self, b: &mut Builder, init: &[V], body: impl FnOnce(&mut Builder, V, V, &[V]) -> Vec<V>) -> Vec<V> {
        let (zero, step) = (b.i32(0), b.i32(CHUNK));
        let types: Vec<_> = init.iter().map(|v| v.ty).collect();
        b.for_((zero, self.m, step), init, |b, first, carried| {
            let mask = self.mask(b, first, self.m);
            let some = b.cmpc(Cmp::Ne, mask, 0);
            b.if_else(some, &types, |b| body(b, first, mask, carried), |_| carried.to_vec())
        })
    }

    /// Runs `token` for each token of the sequence in order, with `n` numbers that are kept from
    /// one to the next; `load` gives the first ones. Returns whether there was a token, and the
    /// numbers kept after the last.
    pub fn fold(
        &self,
        b: &mut Builder,
        n: usize,
        load: impl FnOnce(&mut Builder) -> Vec<V>,
        token: impl FnOnce(&mut Builder, V, &[V]) -> Vec<V>,
    ) -> (V, Vec<V>) {
        let (zero, no) = (b.f32(0.0), b.no());
        let start = [vec![no], vec![zero; n]].concat();
        let mut done = self.chunks(b, &start, |b, first, mask, carried| {
            let kept = b.if_else(carried[0], &vec![F32; n], |_| carried[1..].to_vec(), load);
            let (zero, count, one) = (b.i32(0), b.count_ones(mask), b.i32(1));
            let done = b.for_((zero, count, one), &[vec![mask], kept].concat(), |b, _, carried| {
                let (mask, kept) = (carried[0], &carried[1..]);
                let bit = b.lowest(mask);
                let at = b.add(first, bit);
                let kept = token(b, at, kept);
                let less = b.addc(mask, -1);
                let rest = b.and(mask, less);
                [vec![rest], kept].concat()
            });
            let yes = b.yes();
            [&[yes], &done[1..]].concat()
        });
        let kept = done.split_off(1);
        (done[0], kept)
    }

    /// The last `n` tokens of the sequence before token `end`, the latest first; −1 for those that
    /// are not there.
    pub fn last(&self, b: &mut Builder, end: V, n: usize) -> Vec<V> {
        let none = b.i32(-1);
        let first = b.addc(end, -CHUNK);
        let mask = self.mask(b, first, end);
        let found = take(b, End::Last, mask, first, &vec![none; n]);
        // Nearly always the tokens of a sequence stand together.
        let missing = b.cmpc(Cmp::Slt, found[n - 1], 0);
        let more = b.cmpc(Cmp::Sge, first, 1);
        let search = b.and(missing, more);
        b.if_else(
            search,
            &vec![I32; n],
            |b| {
                let (from, step) = (b.i32(CHUNK), b.i32(CHUNK));
                b.for_((from, end, step), &found, |b, back, found| {
                    let first = b.sub(first, back);
                    let mask = self.mask(b, first, end);
                    take(b, End::Last, mask, first, found)
                })
            },
            |_| found.clone(),
        )
    }

    /// The first `n` tokens of the sequence in order; −1 for those that are not there.
    pub fn first(&self, b: &mut Builder, n: usize) -> Vec<V> {
        let (zero, step, none) = (b.i32(0), b.i32(CHUNK), b.i32(-1));
        b.for_((zero, self.m, step), &vec![none; n], |b, first, found| {
            let mask = self.mask(b, first, self.m);
            take(b, End::First, mask, first, found)
        })
    }
}

/// `found` with the places that are still free taken by tokens of `mask`, whose bit 0 is token
/// `first`.
fn take(b: &mut Builder, end: End, mask: V, first: V, found: &[V]) -> Vec<V> {
    let (mut mask, mut out) = (mask, vec![]);
    let one = b.i32(1);
    for f in found {
        let (free, some) = (b.cmpc(Cmp::Slt, *f, 0), b.cmpc(Cmp::Ne, mask, 0));
        let takes = b.and(free, some);
        let bit = match end {
            End::First => b.lowest(mask),
            End::Last => {
                let zeros = b.leading_zeros(mask);
                b.xorc(zeros, CHUNK - 1)
            }
        };
        let token = b.add(first, bit);
        out.push(b.select(takes, token, *f));
        // Without a bit to take, which one this is does not matter.
        let bit = b.andc(bit, CHUNK - 1);
        let bit = b.op(I32, format!("arith.shli {one}, {bit} : i32"));
        let rest = b.xor(mask, bit);
        mask = b.select(takes, rest, mask);
    }
    out
}

/// Whether a token of a step of `m` is alone of its sequence: those of a sequence are side by side.
/// (Where they are not, each is taken to be alone.) `usual`: what is tried when the kernel's skeleton
/// is verified.
pub fn is_lone(b: &mut Builder, args: Args<'_>, (token, m): (V, V), usual: bool) -> V {
    let seq = args.seq(b, token);
    b.assume(seq, &[0]);
    let (zero, last, one) = (b.i32(0), b.addc(m, -1), b.i32(1));
    let before = b.addc(token, -1);
    let after = b.add(token, one);
    let others = [b.smax(before, zero), b.min(after, last)].map(|other| {
        let of_other = args.seq(b, other);
        b.assume(of_other, &[i64::from(usual)]);
        let (is_other, same) = (b.cmp(Cmp::Ne, other, token), b.cmp(Cmp::Eq, of_other, seq));
        b.and(is_other, same)
    });
    let some = b.or(others[0], others[1]);
    let (yes, no) = (b.yes(), b.no());
    b.select(some, no, yes)
}
