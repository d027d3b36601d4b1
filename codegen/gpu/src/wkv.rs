//! Means with weights that decay, channel by channel ([`channels`]).

use crate::Source;
use crate::channels::{self, Channel};
use crate::cx::Cx;
use crate::expr::unary;
use crate::mlir::{Builder, Elem, F32, V};
use crate::piece::col_at;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::Wkv;

/// Emits the kernel.
pub fn emit(cx: &Cx<'_>, k: &Wkv) -> Source {
    let (width, bytes) = (cx.cols(k.out), cx.kernel.fixed(k.state).bytes());
    let cols = [k.k, k.v].map(|p| cx.cols(p));
    channels::emit(cx, width, |b, t| {
        let [decay, bonus] = [k.decay, k.bonus].map(|p| {
            let p = col_at(b, t.args.operand(p), Elem::F32, t.channel);
            b.load(p, F32)
        });
        let means = Decaying { k, width, cols, decay, bonus };
        let first = |b: &mut Builder, kept: Vec<V>| loaded(b, &kept);
        t.each(b, (k.state, bytes, 3), first, |b, token, kept| means.token(b, t, token, kept));
    })
}

struct Decaying<'k> {
    k: &'k Wkv,
    /// Channels.
    width: usize,
    /// Columns of the rows of keys and of values.
    cols: [usize; 2],
    decay: V,
    bonus: V,
}

impl Decaying<'_> {
    /// Stores the mean of a token; returns the numbers kept after it.
    fn token(&self, b: &mut Builder, t: &Channel<'_>, token: V, kept: &[V]) -> Vec<V> {
        let [sum, weights, most] = [kept[0], kept[1], kept[2]];
        let k = t.at(b, self.k.k, (self.cols[0], self.k.k_start), token);
        let v = t.at(b, self.k.v, (self.cols[1], self.k.v_start), token);
        let (k, v) = (b.load(k, F32), b.load(v, F32));
        let own = b.fadd(k, self.bonus);
        let [value, weight, _] = joined(b, [sum, weights, most], [own, v]);
        let y = b.fdiv(value, weight);
        b.if_(t.inside, |b| {
            let p = t.at(b, self.k.out, (self.width, 0), token);
            b.store(y, p);
        });
        let most = b.fadd(most, self.decay);
        joined(b, [sum, weights, most], [k, v]).to_vec()
    }
}

/// A state of three rows as it was stored: without weights, the values weighted count for nothing.
pub fn loaded(b: &mut Builder, kept: &[V]) -> Vec<V> {
    let [sum, weights, most] = [kept[0], kept[1], kept[2]];
    let zero = b.f32(0.0);
    let some = b.flt(zero, weights);
    let none = b.f32(-1e38);
    let most = b.select(some, most, none);
    vec![sum, weights, most]
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
