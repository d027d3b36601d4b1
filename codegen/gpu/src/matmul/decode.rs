//! From packed weights to operands: a lane's work on the 16-byte pieces of a unit of 16×64 weights.
//!
//! Codes become half-precision numbers without conversions: or-ed into the mantissa of 1024 (f16)
//! or 128 (bf16), minus that number, which is exact; numbers of a table are [looked up](super::table).
//! Scales are applied afterwards: to the sums where a unit lies in one group, to the weights where it
//! does not: f16 of groups in half precision, all others in f32, with one rounding to half.

use super::input::halves;
use super::table::{self, prmt};
use crate::codes;
use crate::mlir::{BF16, Builder, Elem as Scalar, F16, F32, I32, Ty, V};
use llmcc_abi::layout::{by_fours, fragment_bits};
use llmcc_ir::gpu::schedule::{self, FactorRun, TILE_K, has_f32_factors, is_fp8, unit_scales};
use llmcc_ir::kernel::RowElem;
use llmcc_ir::quant::{Code, Float, Format};

/// The A operands of a unit: four registers for each of four `mma` steps.
pub type Fragments = [[V; 4]; 4];

/// How the scales of a format enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Not here.
    None,
    /// A unit lies in one group: its sums are multiplied.
    Sums,
    /// Weights are multiplied, and the minimum added.
    Weights,
}

/// How the scales of `format` enter where sums of a unit are (`sums`) or are not kept apart.
pub fn scaling(format: Format, sums: bool) -> Scaling {
    let e = format.packed_encoding();
    // A scale per row of fp8 is the epilogue's.
    if !e.is_quantized() || is_fp8(format) {
        Scaling::None
    } else if sums && !e.has_minimum() && e.group().is_none_or(|group| group >= TILE_K) {
        Scaling::Sums
    } else {
        Scaling::Weights
    }
}

/// The scalar type of half-precision input.
pub fn half(elem: RowElem) -> Scalar {
    if elem.float() == Some(Float::Bf16) { Scalar::Bf16 } else { Scalar::F16 }
}

/// A pair of equal numbers, given as the bits of one.
fn pair(b: &mut Builder, bits: u32, half: Scalar) -> V {
    b.bits32(bits << 16 | bits, Ty::Vec(2, half))
}

/// A unit's weights as A operands, codes without their scales; `words` are the 32-bit words of the
/// lane's pieces.
pub fn fragments(b: &mut Builder, format: Format, half: Scalar, words: &[V]) -> Fragments {
    // Two words of 8-bit codes.
    let pair = |step: usize| (words[step / 2 * 4 + step % 2 * 2], words[step / 2 * 4 + step % 2 * 2 + 1]);
    std::array::from_fn(|step| match format.packed_encoding().code {
        Code::Float(Float::F16 | Float::Bf16 | Float::F32) => std::array::from_fn(|r| words[4 * step + r]),
        Code::Float(Float::E4m3) => fp8(b, half, pair(step).0, pair(step).1),
        Code::Int { bits: 0..=4, zero } => w4(b, half, words[step], zero as u32),
        Code::Int { zero, .. } => w8(b, half, pair(step).0, pair(step).1, zero as u32),
        Code::Signed { .. } => {
            // Two's complement of 8 bits, and 128.
            let [low, high] = [pair(step).0, pair(step).1].map(|word| b.xorc(word, 0x8080_8080u32.into()));
            w8(b, half, low, high, 128)
        }
        Code::Table { values, .. } => table::look_up(b, half, words[step], values),
        Code::Trellis(_) | Code::Pairs => unreachable!("in fragments each code stands by itself"),
    })
}

/// The bits of `mask` in `word`, or-ed into `magic`: one instruction where the constants are in
/// registers; LLVM's `and` and `or` would not become that, since an instruction takes one constant
/// only.
fn into_mantissa(b: &mut Builder, word: V, mask: i64, magic: i64) -> V {
    let (mask, magic) = (b.i32(mask), b.i32(magic));
    b.asm(I32, "lop3.b32 $0, $1, $2, $3, 0xea;", "=r,r,r,r", &[word, mask, magic])
}

/// Four pairs of 4-bit codes minus `zero`.
fn w4(b: &mut Builder, half: Scalar, word: V, zero: u32) -> [V; 4] {
    let ty = Ty::Vec(2, half);
    if half == Scalar::Bf16 {
        return std::array::from_fn(|r| {
            let shifted = b.shrc(word, 4 * r as i64);
            let magic = into_mantissa(b, shifted, 0x000f_000f, 0x4300_4300);
            let x = b.bitcast(magic, ty);
            // 128 + u − (128 + zero); as fma, which every target has for bf16.
            let (one, minus) = (pair(b, 0x3f80, half), pair(b, 0xc300 | zero, half));
            let x = b.fma(x, one, minus);
            b.bitcast(x, I32)
        });
    }
    let high = b.shrc(word, 8);
    std::array::from_fn(|r| {
        let source = if r < 2 { word } else { high };
        if r % 2 == 0 {
            let magic = into_mantissa(b, source, 0x000f_000f, 0x6400_6400);
            let x = b.bitcast(magic, ty);
            let minus = pair(b, 0x6400 | zero, half);
            let x = b.fsub(x, minus);
            b.bitcast(x, I32)
        } else {
            // 1024 + 16u, over 16, minus 64 + zero: exact.
            let magic = into_mantissa(b, source, 0x00f0_00f0, 0x6400_6400);
            let x = b.bitcast(magic, ty);
            let (sixteenth, minus) = (pair(b, 0x2c00, half), pair(b, 0xd400 | zero << 4, half));
            let x = b.fma(x, sixteenth, minus);
            b.bitcast(x, I32)
        }
    })
}

/// Four pairs of 8-bit codes minus `zero`.
fn w8(b: &mut Builder, half: Scalar, low: V, high: V, zero: u32) -> [V; 4] {
    std::array::from_fn(|r| {
        let word = if r < 2 { low } else { high };
        let first = 2 * (r % 2) as u32;
        if half == Scalar::F16 {
            let magic = b.i32(0x6464_6464);
            let x = prmt(b, word, magic, 0x4040 | (first + 1) << 8 | first);
            let x = b.bitcast(x, Ty::Vec(2, half));
            let minus = pair(b, 0x6400 | zero, half);
            let x = b.fsub(x, minus);
            b.bitcast(x, I32)
        } else {
            // 2^23 + u in f32, minus 2^23 + zero: at most 8 significant bits, so that the upper
            // half is the bf16.
            let magic = b.i32(0x4b00_0000);
            let minus = b.f32(8_388_608.0 + zero as f32);
            let parts: [V; 2] = std::array::from_fn(|i| {
                let x = prmt(b, word, magic, 0x7440 | (first + i as u32));
                let x = b.bitcast(x, F32);
                let x = b.fsub(x, minus);
                b.bitcast(x, I32)
            });
            prmt(b, parts[0], parts[1], 0x7632)
        }
    })
}

/// Exchanges the upper half of the first word with the lower half of the second, of each pair of
/// words: rows become pairs of columns, and back.
pub fn exchange_halves(b: &mut Builder, words: &[V]) -> Vec<V> {
    words.chunks_exact(2).flat_map(|w| [0x5410, 0x7632].map(|bytes| prmt(b, w[0], w[1], bytes))).collect()
}

/// Four pairs of e4m3 numbers: two of each of two rows' four.
fn fp8(b: &mut Builder, half: Scalar, first: V, second: V) -> [V; 4] {
    let (first, second) = (fp8_word(b, half, first), fp8_word(b, half, second));
    [first[0], second[0], first[1], second[1]]
}

/// The two pairs of four e4m3 numbers. Exponent and mantissa go where the wider type has its own,
/// and a product with a power of two, exact also of subnormal numbers, mends the bias.
pub fn fp8_word(b: &mut Builder, half: Scalar, word: V) -> [V; 2] {
    // Shift to the place, bits there, 2^8 or 2^120 as bits.
    let (shift, magnitude, factor) =
        if half == Scalar::F16 { (1, 0x3f80_3f80, 0x5c00) } else { (4, 0x07f0_07f0, 0x7b80) };
    // The two bytes as the upper halves of 16 bits.
    [0x1404, 0x3424].map(|bytes| {
        let zero = b.i32(0);
        let x = prmt(b, word, zero, bytes);
        let sign = b.andc(x, 0x8000_8000u32.into());
        let low = b.shrc(x, shift);
        let low = b.andc(low, magnitude);
        let x = b.or(low, sign);
        let x = b.bitcast(x, Ty::Vec(2, half));
        let (factor, zero) = (pair(b, factor, half), pair(b, 0x8000, half));
        let x = b.fma(x, factor, zero);
        b.bitcast(x, I32)
    })
}

/// Scales (and minima) of a lane's two rows in a unit.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// Scales of rows `g` and `g + 8`: f32 where [`has_f32_factors`] says so, else f16.
    pub scale: [V; 2],
    /// Minima of the same.
    pub min: Option<[V; 2]>,
}

/// Loads the scales of a lane from a unit in shared memory, whose codes end at `at`.
pub fn load_scales(b: &mut Builder, format: Format, at: V, lane: V) -> Scales {
    let groups = TILE_K.div_ceil(usize::from(format.group));
    let row = b.shrc(lane, 2);
    let mut index = row;
    if groups == 2 {
        // Lane t of a quad has columns 16t…16t+15.
        let t = b.andc(lane, 3);
        let group = b.shrc(t, 1);
        let skip = b.shlc(group, 4);
        index = b.add(row, skip);
    }
    scales_at(b, format, at, index)
}

/// Loads the scales of rows `row` and `row + 8` for each group in a unit whose codes end at `at`.
pub fn load_group_scales(b: &mut Builder, format: Format, at: V, row: V) -> Vec<Scales> {
    let groups = TILE_K.div_ceil(usize::from(format.group)) as i64;
    (0..groups)
        .map(|group| {
            let index = b.addc(row, 16 * group);
            scales_at(b, format, at, index)
        })
        .collect()
}

/// The scales (and minima) number `index` and eight further, of those at `at`.
fn scales_at(b: &mut Builder, format: Format, at: V, index: V) -> Scales {
    let groups = TILE_K.div_ceil(usize::from(format.group));
    let offset = b.shlc(index, 1);
    let p = b.at(at, offset);
    let read = |b: &mut Builder, from: i64| {
        std::array::from_fn(|h| {
            let p = b.atc(p, from + 16 * h as i64);
            b.load(p, F16)
        })
    };
    let scale = read(b, 0);
    let min = (unit_scales(format) > groups).then(|| read(b, groups as i64 * 32));
    Scales { scale, min }
}

/// An f16 as a pair of equal numbers of type `half`.
fn splat(b: &mut Builder, x: V, half: Scalar) -> V {
    let x = if half == Scalar::F16 {
        x
    } else {
        let wide = b.fext(x, F32);
        b.ftrunc(wide, BF16)
    };
    b.splat(x, 2)
}

/// Multiplies the weights of some steps by their scales, and adds the minima.
pub fn scale_weights(b: &mut Builder, format: Format, a: &mut [[V; 4]], s: Scales, half: Scalar) {
    if has_f32_factors(format) {
        return scale_in_f32(b, a, s, half);
    }
    let scale = s.scale.map(|x| splat(b, x, half));
    let zero = pair(b, 0x8000, half);
    let add = s.min.map_or([zero; 2], |m| m.map(|x| splat(b, x, half)));
    for step in a.iter_mut() {
        for (r, x) in step.iter_mut().enumerate() {
            let v = b.bitcast(*x, Ty::Vec(2, half));
            let v = b.fma(v, scale[r % 2], add[r % 2]);
            *x = b.bitcast(v, I32);
        }
    }
}

/// The same with factors in f32, which half precision need not hold.
fn scale_in_f32(b: &mut Builder, a: &mut [[V; 4]], s: Scales, half: Scalar) {
    for step in a.iter_mut() {
        for (r, x) in step.iter_mut().enumerate() {
            let mut numbers = halves(b, *x, half);
            for x in &mut numbers {
                *x = match s.min {
                    Some(min) => b.fma(*x, s.scale[r % 2], min[r % 2]),
                    None => b.fmul(*x, s.scale[r % 2]),
                };
            }
            let two = b.pack(&numbers);
            let two = b.ftrunc(two, Ty::Vec(2, half));
            *x = b.bitcast(two, I32);
        }
    }
}

/// Adds the products of a unit of weights (a lane's words and the scales of its two rows) with
/// 16-bit input, two words `x` for each step, to the four sums that a lane has of an `mma`.
pub fn multiply(
    b: &mut Builder,
    format: Format,
    half: Scalar,
    (words, scales): (Vec<V>, Option<Scales>),
    x: &[V],
    sums: &[V],
) -> Vec<V> {
    let mut a = fragments(b, format, half, &words);
    let how = scaling(format, true);
    if let (Scaling::Weights, Some(s)) = (how, scales) {
        scale_weights(b, format, &mut a, s, half);
    }
    let (Scaling::Sums, Some(s)) = (how, scales) else {
        return (0..4).fold(sums.to_vec(), |acc, step| b.mma(half, &a[step], &x[2 * step..][..2], &acc));
    };
    let zero = b.f32(0.0);
    let part = (0..4).fold(vec![zero; 4], |acc, step| b.mma(half, &a[step], &x[2 * step..][..2], &acc));
    let scale = if has_f32_factors(format) { s.scale } else { s.scale.map(|s| b.fext(s, F32)) };
    (0..4).map(|i| b.fma(part[i], scale[i / 2], sums[i])).collect()
}

/// The same by multiply-adds: the products of the lane's two rows of weights with its 16 columns of
/// all rows of input, to their sums, `[row of input][row g, row g + 8]`.
pub fn multiply_add(
    b: &mut Builder,
    format: Format,
    (words, scales): (Vec<V>, Option<Scales>),
    x: &[Vec<V>],
    sums: &[V],
) -> Vec<V> {
    let w = values(b, format, &words, scales);
    let mut out = sums.to_vec();
    for (r, x) in x.iter().enumerate() {
        for (h, w) in w.iter().enumerate() {
            out[2 * r + h] = w.iter().zip(x).fold(out[2 * r + h], |acc, (w, x)| b.fma(*w, *x, acc));
        }
    }
    out
}

/// The f32 values of a lane's weights in a unit: `[row g, row g + 8][16 columns]`.
pub fn values(b: &mut Builder, format: Format, words: &[V], scales: Option<Scales>) -> [Vec<V>; 2] {
    let mut rows = [vec![], vec![]];
    if has_f32_factors(format) {
        return decoded(b, format, words, scales);
    }
    let float = format.packed_encoding().float();
    let half = if float == Some(Float::Bf16) { Scalar::Bf16 } else { Scalar::F16 };
    let fragments = (float != Some(Float::F32)).then(|| fragments(b, format, half, words));
    for step in 0..4 {
        for pair in 0..2 {
            for (h, row) in rows.iter_mut().enumerate() {
                match &fragments {
                    Some(a) => {
                        let v = b.bitcast(a[step][h + 2 * pair], Ty::Vec(2, half));
                        for x in b.unpack(v) {
                            row.push(b.fext(x, F32));
                        }
                    }
                    None => row.extend((0..2).map(|e| b.bitcast(words[(2 * step + pair) * 4 + 2 * h + e], F32))),
                }
            }
        }
    }
    let Some(s) = scales else { return rows };
    for (h, row) in rows.iter_mut().enumerate() {
        let scale = b.fext(s.scale[h], F32);
        let min = s.min.map(|m| b.fext(m[h], F32));
        for x in row.iter_mut() {
            *x = match min {
                Some(min) => b.fma(scale, *x, min),
                None => b.fmul(scale, *x),
            };
        }
    }
    rows
}

/// The same for any quantized format, number by number.
fn decoded(b: &mut Builder, format: Format, words: &[V], scales: Option<Scales>) -> [Vec<V>; 2] {
    let e = format.packed_encoding();
    let mut rows = [vec![], vec![]];
    for (step, i) in (0..4).flat_map(|step| (0..8).map(move |i| (step, i))) {
        // Half `i` of step `step`: see `fragment_at`.
        let (row, column) = (i / 2 % 2, i % 2 + i / 4 * 2);
        let code = if fragment_bits(&e) == 4 {
            let code = b.shrc(words[step], 4 * (i / 2 + i % 2 * 4) as i64);
            b.andc(code, 15)
        } else {
            let byte = if by_fours(&e) { row * 4 + column } else { i };
            let code = b.shrc(words[step / 2 * 4 + step % 2 * 2 + byte / 4], (byte % 4 * 8) as i64);
            b.andc(code, 255)
        };
        let number = codes::number(b, &e, code);
        rows[row].push(match scales {
            Some(s) => codes::value(b, &e, number, s.scale[row], s.min.map(|m| m[row])),
            None => number,
        });
    }
    rows
}

/// Bytes from a run to the line of it that unit `unit` needs; nothing where there is one line.
pub fn line_of(b: &mut Builder, run: &FactorRun, unit: V) -> Option<V> {
    let units = run.units()?;
    let line = b.divc(unit, units as i64);
    Some(b.mulc(line, run.bytes() as i64))
}

/// Which factor of a unit's part of a run is that of row `g` and of the columns of lane `t` of a quad,
/// 16t…16t+15.
pub fn factor_of(b: &mut Builder, run: &FactorRun, g: V, t: V) -> V {
    if run.lines == 1 {
        return g;
    }
    let line = b.shrc(t, (4 / run.lines).trailing_zeros().into());
    let skip = b.shlc(line, 4);
    b.add(g, skip)
}

/// Loads the factors in f32, of both levels, for a lane's two rows and 16 columns of a
/// unit whose codes end at `at`.
pub fn load_factors(b: &mut Builder, format: Format, at: V, lane: V) -> Option<Scales> {
    let (g, t) = (b.shrc(lane, 2), b.andc(lane, 3));
    factors(b, format, Builder::load, |b, run| {
        let index = factor_of(b, run, g, t);
        let offset = b.mulc(index, run.of.kind.bytes() as i64);
        (b.at(at, offset), run.at)
    })
}

/// The same of rows `row` and `row + 8`, for each group in a unit.
pub fn load_group_factors(b: &mut Builder, format: Format, at: V, row: V) -> Vec<Scales> {
    let groups = schedule::factor_runs(format).first().map_or(1, |run| run.lines);
    let of = |group: usize| {
        factors(b, format, Builder::load, |b, run| {
            let index = b.addc(row, (16 * (group * run.lines / groups)) as i64);
            let offset = b.mulc(index, run.of.kind.bytes() as i64);
            (b.at(at, offset), run.at)
        })
    };
    (0..groups).filter_map(of).collect()
}

/// The factors of both levels for a lane's two rows, f32: `place` gives the first row's factors in
/// a run, as an address and bytes from there, and `load` reads them.
pub fn factors(
    b: &mut Builder,
    format: Format,
    load: fn(&mut Builder, V, Ty) -> V,
    place: impl Fn(&mut Builder, &FactorRun) -> (V, usize),
) -> Option<Scales> {
    joined(b, format, |b, run| {
        let (p, first) = place(b, run);
        Some(std::array::from_fn(|h| {
            let p = b.atc(p, (first + 8 * run.of.kind.bytes() * h) as i64);
            codes::factor(b, run.of.kind, |b, ty| load(b, p, ty))
        }))
    })
}

/// The same for factors that are in registers as they are stored: the two rows', run by run.
pub fn factors_of(b: &mut Builder, format: Format, stored: &[[V; 2]]) -> Option<Scales> {
    let mut stored = stored.iter();
    joined(b, format, |b, run| Some(stored.next()?.map(|v| codes::factor(b, run.of.kind, |_, _| v))))
}

/// The products of the levels; `read` gives a run's factors of the two rows.
fn joined(
    b: &mut Builder,
    format: Format,
    mut read: impl FnMut(&mut Builder, &FactorRun) -> Option<[V; 2]>,
) -> Option<Scales> {
    let mut out: [Option<[V; 2]>; 2] = [None; 2];
    for run in schedule::factor_runs(format) {
        let read = read(b, &run)?;
        let of = &mut out[usize::from(run.minima)];
        *of = Some(of.map_or(read, |below| std::array::from_fn(|h| b.fmul(below[h], read[h]))));
    }
    Some(Scales { scale: out[0]?, min: out[1] })
}
