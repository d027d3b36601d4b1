//! Means of windows of tokens: a thread per channel ([`channels`]), as means with weights that decay ([`wkv`]).

use crate::Source;
use crate::channels::{self, Channel};
use crate::cx::Cx;
use crate::mlir::{Builder, Cmp, F32, V};
use crate::wkv::{self, joined};
use llmcc_ir::kernel::{ParamId, WindowMeans};

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &WindowMeans) -> Source {
    let (cols, series) = ([k.k, k.v].map(|p| cx.cols(p)), k.series(&cx.kernel.params));
    let means = Means { k, channels: cx.cols(k.out), series, cols };
    let state = (k.state, cx.kernel.fixed(k.state).bytes(), 3 * series);
    channels::emit(cx, means.channels, |b, t| {
        let loaded = |b: &mut Builder, kept: Vec<V>| kept.chunks(3).flat_map(|kept| wkv::loaded(b, kept)).collect();
        t.each(b, state, loaded, |b, token, kept| means.token(b, t, token, kept));
    })
}

struct Means<'k> {
    k: &'k WindowMeans,
    channels: usize,
    /// Series of values: with two of them the first counts in the next window.
    series: usize,
    /// Columns of the rows of keys and of values.
    cols: [usize; 2],
}

impl Means<'_> {
    /// Stores the mean of a token; returns the numbers kept after it.
    fn token(&self, b: &mut Builder, t: &Channel<'_>, token: V, kept: &[V]) -> Vec<V> {
        let position = t.args.position(b, token);
        let place = b.remc(position, self.k.width as i64);
        let begins = b.cmpc(Cmp::Eq, place, 0);
        // A window begins with the numbers kept for it.
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
            let p = t.at(b, self.k.out, (self.channels, 0), token);
            b.store(y, p);
        });
        [&now[..], &out].concat()
    }

    /// A mean with one more value: that of a token at its place in one of the series.
    fn with(&self, b: &mut Builder, t: &Channel<'_>, (token, place, series): (V, V, usize), kept: [V; 3]) -> [V; 3] {
        let skip = series * self.channels;
        let load = |b: &mut Builder, p: ParamId, (cols, start): (usize, usize), row: V| {
            let p = t.at(b, p, (cols, start + skip), row);
            b.load(p, F32)
        };
        let key = load(b, self.k.k, (self.cols[0], self.k.k_start), token);
        let value = load(b, self.k.v, (self.cols[1], self.k.v_start), token);
        let by_place = load(b, self.k.places, (self.series * self.channels, 0), place);
        let key = b.fadd(key, by_place);
        joined(b, kept, [key, value])
    }
}
