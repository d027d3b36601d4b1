//! Pages of int8 codes for tensor cores.
//!
//! A page goes to shared memory as it is, half the bytes of a 16-bit one, and becomes f16 in
//! registers, exactly. `ldmatrix` moves pairs of bytes, so a word that it brings has two adjacent
//! tokens (of keys) or columns (of values) of two rows of the product: its even bytes are one
//! operand, its odd bytes another. Hence in both products, a lane's share of the results comes from
//! four adjacent tokens or columns, `4t` to `4t + 3` of every sixteen, and the operand that it
//! makes of its probabilities belongs to four adjacent tokens: [`place`] puts their values where
//! `ldmatrix` takes them from.
//!
//! The scale of a key multiplies its score. The scale of a value multiplies its probability, which
//! could leave the range of f16; so the online softmax is relative to the largest *scaled*
//! probability, `max(s + e)` with `e` the scale's exponent, instead of `max(s)`: weights are below
//! 2, whatever the scales. The sum of the probabilities has the same base, so nothing else changes.

use crate::mlir::{Builder, Elem, F32, I32, Ty, V};
use llmcc_abi::PAGE_TOKENS;

/// Bytes of the scales of a page's keys (or values) of one head.
pub(super) const SCALE_BYTES: usize = PAGE_TOKENS * 4;

/// Scales of a lane's four tokens of a page.
pub(super) struct Scales {
    pub(super) keys: Vec<V>,
    pub(super) values: Vec<V>,
    /// Exponents of the values' scales, as f32: at least −64, so that the sum of probabilities
    /// stays in range.
    pub(super) exponents: Vec<V>,
}

impl Scales {
    /// Loads them; `first` is the first token.
    pub(super) fn load(b: &mut Builder, first: V, scales: V) -> Scales {
        let offset = b.shlc(first, 2);
        let p = b.at(scales, offset);
        let four = Ty::Vec(4, Elem::F32);
        let keys = b.load(p, four);
        let p = b.atc(p, SCALE_BYTES as i64);
        let values = b.load(p, four);
        let (keys, values) = (b.unpack(keys), b.unpack(values));
        let exponents = values
            .iter()
            .map(|s| {
                let bits = b.bitcast(*s, I32);
                let biased = b.shrc(bits, 23);
                let least = b.i32(127 - 64);
                let biased = b.max(biased, least);
                let exponent = b.addc(biased, -127);
                b.sitofp(exponent, F32)
            })
            .collect();
        Scales { keys, values, exponents }
    }
}

/// Where the values of a token lie in shared memory: tokens `4t` and `4t + 1` are rows `2t` and
/// `2t + 1` of the first matrix, the next two of the second.
pub(super) fn place(b: &mut Builder, token: V) -> V {
    let four = b.shrc(token, 2);
    let row = b.shlc(four, 1);
    let odd = b.andc(token, 1);
    let second = b.andc(token, 2);
    let matrix = b.shlc(second, 2);
    let row = b.or(row, odd);
    b.or(row, matrix)
}

/// The even and the odd bytes of a word as pairs of f16.
pub(super) fn widen(b: &mut Builder, word: V) -> [V; 2] {
    let unsigned = b.xorc(word, 0x8080_8080);
    // 1024 + u in f16 is u in the mantissa; minus 1024 + 128.
    let magic = b.i32(0x6464_6464);
    let pair = Ty::Vec(2, Elem::F16);
    [0x4240, 0x4341].map(|bytes| {
        let x = b.asm(I32, &format!("prmt.b32 $0, $1, $2, {bytes:#06x};"), "=r,r,r", &[unsigned, magic]);
        let x = b.bitcast(x, pair);
        let minus = b.bits32(0x6480_6480, pair);
        let x = b.fsub(x, minus);
        b.bitcast(x, I32)
    })
}

/// The right operands that two words (rows `2t`, `2t + 1` and the same of the next eight) become.
pub(super) fn operands(b: &mut Builder, words: &[V]) -> [[V; 2]; 2] {
    let [low, high] = [words[0], words[1]].map(|w| widen(b, w));
    [[low[0], high[0]], [low[1], high[1]]]
}
