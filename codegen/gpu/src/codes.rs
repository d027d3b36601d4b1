//! Decoding of codes and scales, number by number, from their [`Encoding`] alone: the generic path
//! of products, and embedding tables.

use crate::mlir::{BF16, Builder, Cmp, F16, F32, I8, I32, Ty, V};
use llmcc_ir::quant::{Code, Encoding, ScaleKind};

/// The number that an unsigned code (`i32`, nothing above its bits) stands for, without its scale.
pub fn number(b: &mut Builder, encoding: &Encoding, code: V) -> V {
    match encoding.code {
        Code::Float(_) => {
            let bias = e4m3_bias(b);
            e4m3(b, code, 0, bias)
        }
        Code::Int { zero: 0, .. } => b.sitofp(code, F32),
        Code::Int { zero, .. } => {
            let u = b.sitofp(code, F32);
            let zero = b.f32(zero as f32);
            b.fsub(u, zero)
        }
        Code::Signed { bits } => {
            let top = b.shlc(code, i64::from(32 - bits));
            let down = b.i32(i64::from(32 - bits));
            let code = b.op(I32, format!("arith.shrsi {top}, {down} : i32"));
            b.sitofp(code, F32)
        }
        Code::Table { bits, values } => look_up(b, code, bits, values),
        Code::Trellis(_) | Code::Pairs => unreachable!("in fragments each code stands by itself"),
    }
}

/// Each bit of the code, the highest last, chooses half of the remaining table.
fn look_up(b: &mut Builder, code: V, bits: u32, values: &[u32]) -> V {
    let mut left: Vec<V> = values.iter().map(|v| b.f32(f32::from_bits(*v))).collect();
    for bit in 0..bits {
        let bit = b.andc(code, 1 << bit);
        let set = b.cmpc(Cmp::Ne, bit, 0);
        left = left.chunks(2).map(|pair| b.select(set, pair[pair.len() - 1], pair[0])).collect();
    }
    left[0]
}

/// 2^120, which mends the exponents of e4m3 numbers.
pub fn e4m3_bias(b: &mut Builder) -> V {
    b.f32(f32::from_bits((127 + 120) << 23))
}

/// The e4m3 number in byte `i` of a word: exponent and mantissa where f32 has its own, times
/// [`e4m3_bias`].
pub fn e4m3(b: &mut Builder, word: V, i: i64, bias: V) -> V {
    let x = b.shlc(word, 24 - 8 * i);
    let (sign, magnitude) = (b.andc(x, 1 << 31), b.shrc(x, 4));
    let magnitude = b.andc(magnitude, 0x07f0_0000);
    let bits = b.or(sign, magnitude);
    let x = b.bitcast(bits, F32);
    b.fmul(x, bias)
}

/// The type that a factor is loaded as.
pub fn stored(kind: ScaleKind) -> Ty {
    match kind {
        ScaleKind::F32 => F32,
        ScaleKind::F16 => F16,
        ScaleKind::Bf16 => BF16,
        ScaleKind::E8m0 | ScaleKind::E4m3 | ScaleKind::Signed { .. } | ScaleKind::Six | ScaleKind::Unsigned { .. } => {
            I8
        }
    }
}

/// A factor as f32, read by `load` as a value of type [`stored`].
pub fn factor(b: &mut Builder, kind: ScaleKind, load: impl FnOnce(&mut Builder, Ty) -> V) -> V {
    let x = load(b, stored(kind));
    match kind {
        ScaleKind::F32 => x,
        ScaleKind::F16 | ScaleKind::Bf16 => b.fext(x, F32),
        ScaleKind::Signed { .. } | ScaleKind::Six => {
            let x = b.sext(x, I32);
            b.sitofp(x, F32)
        }
        ScaleKind::E8m0 | ScaleKind::E4m3 | ScaleKind::Unsigned { .. } => {
            let x = b.zext(x, I32);
            match kind {
                ScaleKind::E4m3 => {
                    let bias = e4m3_bias(b);
                    e4m3(b, x, 0, bias)
                }
                ScaleKind::E8m0 => {
                    // 2⁻¹²⁷ is subnormal.
                    let none = b.cmpc(Cmp::Eq, x, 0);
                    let (bits, least) = (b.shlc(x, 23), b.i32(1 << 22));
                    let bits = b.select(none, least, bits);
                    b.bitcast(bits, F32)
                }
                ScaleKind::F32
                | ScaleKind::F16
                | ScaleKind::Bf16
                | ScaleKind::Unsigned { .. }
                | ScaleKind::Signed { .. }
                | ScaleKind::Six => b.sitofp(x, F32),
            }
        }
    }
}

/// The value of a number: times its scale, and the minimum added. Where the product is exact, that
/// rounds once with or without a fused multiply-add.
pub fn value(b: &mut Builder, encoding: &Encoding, number: V, scale: V, min: Option<V>) -> V {
    match min {
        None => b.fmul(number, scale),
        Some(min) if encoding.exact_products() => {
            let x = b.fmul(number, scale);
            b.fadd(x, min)
        }
        Some(min) => b.fma(number, scale, min),
    }
}
