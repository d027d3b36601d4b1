//! Means of windows of tokens: a thread per channel, as means with weights that decay ([`wkv`]).

use crate::Source;
use crate::cx::{Args, Cx};
use crate::mlir::{Builder, Cmp, Elem, F32, V, WARP};
use crate::piece::{col_at, row_at};
use crate::tokens::{Tokens, each_sequence, sequence_grid};
use crate::wkv::{self, joined};
use llmcc_ir::kernel::{ParamId, RowElem, WindowMeans};

/// Warps of a block.
const WARPS: i32 = 2;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &WindowMeans) -> Source {
    let threads = (WARPS * WARP) as usize;
    let plan = Means::new(cx, k);
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

struct Means<'k> {
    k: &'k WindowMeans,
    channels: usize,
    /// Series of values: with two of them the first counts in the next window.
    series: usize,
    /// Columns of the rows of keys and of values.
    cols: [usize; 2],
    /// Bytes of the state.
    bytes: usize,
}

/// What a thread knows of itself.
struct OfChannel<'a> {
    args: Args<'a>,
    m: V,
    lane: V,
    /// Whether it has a channel, and which; else the last that there is.
    inside: V,
    channel: V,
}

impl<'k> Means<'k> {
    fn new(cx: &Cx<'_>, k: &'k WindowMeans) -> Means<'k> {
        let (cols, series) = ([k.k, k.v].map(|p| cx.cols(p)), k.series(&cx.kernel.params));
        Means { k, channels: cx.cols(k.out), series, cols, bytes: cx.kernel.fixed(k.state).bytes() }
    }

    fn thread<'a>(&self, b: &mut Builder, args: Args<'a>, (m, threads): (V, usize)) -> OfChannel<'a> {
        let (tid, block) = (b.sreg("tid.x"), b.sreg("ctaid.x"));
        let lane = b.andc(tid, i64::from(WARP) - 1);
        let first = b.mulc(block, threads as i64);
        let channel = b.add(first, tid);
        let inside = b.cmpc(Cmp::Slt, channel, self.channels as i64);
        let last = b.i32(self.channels as i64 - 1);
        OfChannel { args, m, lane, inside, channel: b.min(channel, last) }
    }

    /// The tokens of a sequence, and its state before and after.
    fn sequence(&self, b: &mut Builder, t: &OfChannel<'_>, seq: V) {
        let tokens = Tokens { args: t.args, lane: t.lane, seq, m: t.m };
        let slot = t.args.slot(b, t.args.operand(self.k.state), self.bytes, seq);
        let state = col_at(b, slot, Elem::F32, t.channel);
        let (rows, row) = (3 * self.series, |i: usize| (i * self.channels * 4) as i64);
        let load = |b: &mut Builder| {
            let load = |b: &mut Builder, i| {
                let p = b.atc(state, row(i));
                b.load(p, F32)
            };
            let series = (0..self.series).flat_map(|s| {
                let kept = [0, 1, 2].map(|i| load(b, 3 * s + i));
                wkv::loaded(b, kept)
            });
            series.collect()
        };
        let (some, kept) = tokens.fold(b, rows, load, |b, token, kept| self.token(b, t, token, kept));
        let stores = b.and(some, t.inside);
        b.if_(stores, |b| {
            for (i, x) in kept.iter().enumerate() {
                let p = b.atc(state, row(i));
                b.store(*x, p);
            }
        });
    }

    /// Stores the mean of a token; what is kept after it.
    fn token(&self, b: &mut Builder, t: &OfChannel<'_>, token: V, kept: &[V]) -> Vec<V> {
        let position = t.args.position(b, token);
        let place = b.remc(position, self.k.width as i64);
        let begins = b.cmpc(Cmp::Eq, place, 0);
        // A window begins with what has been kept for it.
        let (zero, none) = (b.f32(0.0), b.f32(-1e38));
        let nothing = [zero, zero, none];
        let (now, next) = kept.split_at(3);
        let of = |b: &mut Builder, kept: &[V], first: &[V]| {
            [0, 1, 2].map(|i| b.select(begins, *first.get(i).unwrap_or(&nothing[i]), kept[i]))
        };
        let mut out = vec![];
        if self.series > 1 {
            let next = of(b, next, &nothing);
            out.extend(self.with(b, t, (token, place, 0), next));
        }
        let now = of(b, now, next);
        let now = self.with(b, t, (token, place, self.series - 1), now);
        let y = b.fdiv(now[0], now[1]);
        b.if_(t.inside, |b| {
            let line = row_at(b, t.args.operand(self.k.out), self.channels, RowElem::F32, token);
            let p = col_at(b, line, Elem::F32, t.channel);
            b.store(y, p);
        });
        [&now[..], &out].concat()
    }

    /// A mean with one more value: that of a token at its place in one of the series.
    fn with(&self, b: &mut Builder, t: &OfChannel<'_>, (token, place, series): (V, V, usize), kept: [V; 3]) -> [V; 3] {
        let skip = series * self.channels;
        let load = |b: &mut Builder, p: ParamId, (cols, start): (usize, usize), row: V| {
            let line = row_at(b, t.args.operand(p), cols, RowElem::F32, row);
            let line = b.atc(line, ((start + skip) * 4) as i64);
            let p = col_at(b, line, Elem::F32, t.channel);
            b.load(p, F32)
        };
        let key = load(b, self.k.k, (self.cols[0], self.k.k_start), token);
        let value = load(b, self.k.v, (self.cols[1], self.k.v_start), token);
        let by_place = load(b, self.k.places, (self.series * self.channels, 0), place);
        let key = b.fadd(key, by_place);
        joined(b, kept, [key, value])
    }
}
