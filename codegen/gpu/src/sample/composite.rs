//! Composites: 64 bits whose order is that of logits, and among equal logits that of token ids.

use crate::mlir::{Builder, Cmp, F32, I32, I64, V};

/// The bits of a float such that integers compare as the floats do; NaN is the largest.
pub(super) fn key(b: &mut Builder, x: V) -> V {
    let bits = b.bitcast(x, I32);
    let negative = b.cmpc(Cmp::Slt, bits, 0);
    let (inverted, raised) = (b.xorc(bits, -1), b.orc(bits, 1 << 31));
    let key = b.select(negative, inverted, raised);
    let magnitude = b.andc(bits, 0x7fff_ffff);
    let nan = b.cmpc(Cmp::Uge, magnitude, 0x7f80_0001);
    let most = b.i32(-1);
    b.select(nan, most, key)
}

/// A logit's composite; 0, less than any, for none.
pub(super) fn composite(b: &mut Builder, x: V, id: V, there: V) -> V {
    let (key, id) = (key(b, x), b.xorc(id, -1));
    let composite = join(b, key, id);
    let none = b.i64(0);
    b.select(there, composite, none)
}

/// `high·2³² + low`.
pub(super) fn join(b: &mut Builder, high: V, low: V) -> V {
    let (high, low) = (b.zext(high, I64), b.zext(low, I64));
    let high = b.shlc(high, 32);
    b.or(high, low)
}

pub(super) fn high(b: &mut Builder, composite: V) -> V {
    let high = b.shrc(composite, 32);
    b.trunc(high, I32)
}

pub(super) fn low(b: &mut Builder, composite: V) -> V {
    b.trunc(composite, I32)
}

/// The logit of a composite.
pub(super) fn logit(b: &mut Builder, composite: V) -> V {
    let key = high(b, composite);
    let negative = b.cmpc(Cmp::Sge, key, 0);
    let (inverted, lowered) = (b.xorc(key, -1), b.xorc(key, 1 << 31));
    let bits = b.select(negative, inverted, lowered);
    b.bitcast(bits, F32)
}

/// The logit of a composite, no less than the least number.
pub(super) fn finite_logit(b: &mut Builder, composite: V) -> V {
    let (x, least) = (logit(b, composite), b.f32(f32::MIN));
    b.fmax(x, least)
}

/// The token id of a composite, as f32.
pub(super) fn token(b: &mut Builder, composite: V) -> V {
    let id = low(b, composite);
    let id = b.xorc(id, -1);
    b.sitofp(id, F32)
}
