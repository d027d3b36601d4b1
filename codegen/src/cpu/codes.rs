//! Decoding of codes and scales as 128-bit vector code, from their [`Encoding`] alone.

use super::emit::{Emit, F32X4, I32, I32X4, LANES};
use super::pairs::Pairs;
use super::trellis::Slice;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::encoding::trellis::Levels;
use llmcc_abi::encoding::{Code, Encoding, ScaleKind};
use llmcc_abi::layout::{BLOCK, Block, K_PAD, SIX_LOW};

/// Addresses for the group that starts at column `start`: its factors, its super-group's factors,
/// and its codes, to which `start` columns of codes are to be added.
pub(super) struct GroupAt {
    pub factors: Value,
    pub above: Value,
    pub codes: Value,
    /// Which group of its record it is.
    pub within: Value,
}

/// Finds a group of `group` columns in the block at `w`.
pub(super) fn group_at(e: &mut Emit, block: &Block, group: usize, w: Value, start: Value) -> GroupAt {
    let (record, column) = e.div_mod(start, block.groups * group);
    let (within, _) = e.div_mod(column, group);
    let above = e.index(w, record, block.record);
    let factors = e.index(above, within, block.step);
    let factors = e.offset(factors, block.scales);
    // All earlier codes lie before the codes of a group, and so do the factors of the records up to
    // its own.
    let codes = e.index(w, record, block.codes);
    GroupAt { factors, above, codes: e.offset(codes, block.codes), within }
}

/// The scales and minima of a group.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    pub scale: Value,
    pub min: Option<Value>,
}

/// Factors of four rows, from row `row` of the group's block on.
pub(super) fn factors(e: &mut Emit, encoding: &Encoding, block: &Block, at: &GroupAt, row: usize) -> Factors {
    load_factors(e, encoding, block, at, (row, LANES), four)
}

impl GroupAt {
    /// The same for one row of the block, whose number is known when running.
    pub(super) fn of_row(&self, e: &mut Emit, encoding: &Encoding, row: Value) -> GroupAt {
        let mut at = |from: Value, level: usize| {
            let bytes = |kind: ScaleKind| if kind == ScaleKind::Six { SIX_BYTES } else { kind.bytes() };
            encoding.scales[level].map_or(from, |s| e.index(from, row, bytes(s.kind)))
        };
        let (factors, above) = (at(self.factors, 0), at(self.above, 1));
        GroupAt { factors, above, codes: e.index(self.codes, row, 4), within: self.within }
    }
}

/// Factors of one row, in all lanes.
pub(super) fn factors_of_row(e: &mut Emit, encoding: &Encoding, block: &Block, at: &GroupAt) -> Factors {
    load_factors(e, encoding, block, at, (0, 1), one)
}

fn load_factors(
    e: &mut Emit,
    encoding: &Encoding,
    block: &Block,
    at: &GroupAt,
    (row, lanes): (usize, usize),
    load: impl Fn(&mut Emit, ScaleKind, Value, usize) -> Value,
) -> Factors {
    let Some(of) = encoding.scales[0] else { return Factors { scale: e.floats(1.0), min: None } };
    let offset = row * of.kind.bytes();
    let mut scale = match of.kind {
        ScaleKind::Six => {
            let codes = six(e, block, at, (row, lanes));
            e.b.ins().fcvt_from_sint(F32X4, codes)
        }
        kind => load(e, kind, at.factors, offset),
    };
    let mut min = of.minimum.then(|| load(e, of.kind, at.factors, offset + block.mins));
    if let Some(above) = encoding.scales[1] {
        let offset = row * above.kind.bytes();
        let x = load(e, above.kind, at.above, offset);
        scale = e.fmul(scale, x);
        if above.minimum {
            min = min.map(|min| {
                let x = load(e, above.kind, at.above, offset + block.above_mins);
                e.fmul(min, x)
            });
        }
    }
    Factors { scale, min }
}

/// Bytes of a row's lower bits of [`ScaleKind::Six`].
const SIX_BYTES: usize = 4;

/// The scales of a group that are [`ScaleKind::Six`], as i32: of four rows from row `row` on, or of one (`lanes`) in
/// all lanes. Upper bits take two bytes of a row, as the scales above do, behind which they lie.
pub(super) fn six(e: &mut Emit, block: &Block, at: &GroupAt, (row, lanes): (usize, usize)) -> Value {
    let offset = block.scales - SIX_LOW - block.above + row * 2;
    let (low, high) = match lanes {
        1 => {
            let (low, high) = (e.load(I32, at.factors, row * SIX_BYTES), e.load_half(at.above, offset));
            (e.splat(low), e.splat(high))
        }
        _ => (e.load(I32X4, at.factors, row * SIX_BYTES), e.load_halves(at.above, offset)),
    };
    let group = e.b.ins().ireduce(I32, at.within);
    let (down, up) = (e.b.ins().ishl_imm_u(group, 2), e.b.ins().ishl_imm_u(group, 1));
    let most = e.b.ins().iconst(I32, 30);
    let up = e.b.ins().isub(most, up);
    let low = e.b.ins().ushr(low, down);
    let low = masked(e, low, 4, 1);
    let high = e.b.ins().ishl(high, up);
    let high = e.b.ins().sshr_imm_s(high, 26);
    let mask = e.ints(!15);
    let high = e.b.ins().band(high, mask);
    e.b.ins().bor(low, high)
}

/// The scales of the scales of a group of four rows, from row `row` on.
pub(super) fn factor_above(e: &mut Emit, kind: ScaleKind, block: &Block, at: &GroupAt, row: usize) -> Value {
    four(e, kind, at.above, block.above + row * kind.bytes())
}

/// Four adjacent factors.
fn four(e: &mut Emit, kind: ScaleKind, p: Value, offset: usize) -> Value {
    match kind {
        ScaleKind::F32 => e.load(F32X4, p, offset),
        ScaleKind::F16 => {
            let halves = e.load_halves(p, offset);
            e.finite_f16_to_f32(halves)
        }
        ScaleKind::Bf16 => {
            let halves = e.load_halves(p, offset);
            e.bf16_to_f32(halves)
        }
        ScaleKind::E8m0 | ScaleKind::E4m3 | ScaleKind::Unsigned { .. } | ScaleKind::Signed { .. } => {
            let word = e.load(I32, p, offset);
            let bytes = e.bytes(word);
            of_bytes(e, kind, bytes)
        }
        ScaleKind::Six => unreachable!("they are no bytes"),
    }
}

/// One factor in all lanes.
fn one(e: &mut Emit, kind: ScaleKind, p: Value, offset: usize) -> Value {
    match kind {
        ScaleKind::F32 => e.load_splat(p, offset),
        ScaleKind::F16 => {
            let half = e.load_half(p, offset);
            let x = scalar_f16(e, half);
            e.splat(x)
        }
        ScaleKind::Bf16 => {
            let half = e.load_half(p, offset);
            let half = e.splat(half);
            e.bf16_to_f32(half)
        }
        ScaleKind::E8m0 | ScaleKind::E4m3 | ScaleKind::Unsigned { .. } | ScaleKind::Signed { .. } => {
            let byte = e.load_byte(p, offset);
            let byte = e.splat(byte);
            of_bytes(e, kind, byte)
        }
        ScaleKind::Six => unreachable!("they are no bytes"),
    }
}

/// Factors of one byte, as i32.
fn of_bytes(e: &mut Emit, kind: ScaleKind, bytes: Value) -> Value {
    match kind {
        ScaleKind::E4m3 => e.e4m3_to_f32(bytes),
        ScaleKind::E8m0 => {
            // 2⁻¹²⁷ is subnormal.
            let bits = e.b.ins().ishl_imm_u(bytes, 23);
            let (zero, least) = (e.ints(0), e.ints(1 << 22));
            let none = e.b.ins().icmp(IntCC::Equal, bytes, zero);
            let bits = e.b.ins().bitselect(none, least, bits);
            e.as_floats(bits)
        }
        ScaleKind::Signed { .. } | ScaleKind::Six => {
            let up = e.b.ins().ishl_imm_u(bytes, 24);
            let signed = e.b.ins().sshr_imm_s(up, 24);
            e.b.ins().fcvt_from_sint(F32X4, signed)
        }
        ScaleKind::F32 | ScaleKind::F16 | ScaleKind::Bf16 | ScaleKind::Unsigned { .. } => {
            e.b.ins().fcvt_from_sint(F32X4, bytes)
        }
    }
}

/// A finite f16 (in the low half of an i32) as f32.
pub(super) fn scalar_f16(e: &mut Emit, half: Value) -> Value {
    let high = e.b.ins().ishl_imm_u(half, 16);
    let signed = e.b.ins().sshr_imm_s(high, 16);
    let v = e.splat(signed);
    let v = e.finite_f16_to_f32(v);
    e.lane(v, 0)
}

/// The numbers of four codes, of a trellis of indices, without their scales; codes are i32, zero above their bits
/// (8-bit floats ignore the bits above).
pub(super) fn numbers(e: &mut Emit, encoding: &Encoding, codes: Value) -> Value {
    match encoding.code {
        Code::Float(_) => e.e4m3_to_f32(codes),
        Code::Int { .. } | Code::Pairs => {
            let zero = e.ints(encoding.zero() as u32);
            let codes = e.sub(codes, zero);
            e.b.ins().fcvt_from_sint(F32X4, codes)
        }
        Code::Signed { bits } => {
            let up = e.b.ins().ishl_imm_u(codes, i64::from(32 - bits));
            let codes = e.b.ins().sshr_imm_s(up, i64::from(32 - bits));
            e.b.ins().fcvt_from_sint(F32X4, codes)
        }
        Code::Table { bits, values } => look_up(e, codes, bits, values),
        Code::Trellis(of) => {
            let bits = |table: &[i8]| table.iter().map(|level| f32::from(*level).to_bits()).collect::<Vec<_>>();
            match &of.levels {
                Levels::Whole(table) => look_up(e, codes, 4, &bits(table)),
                Levels::Sum([upper, lower]) => {
                    let half = e.b.ins().ushr_imm_u(codes, 3);
                    let (x, y) = (look_up(e, half, 3, &bits(upper)), look_up(e, codes, 3, &bits(lower)));
                    e.fadd(x, y)
                }
            }
        }
    }
}

/// The values of codes, by a table: each bit, the highest last, chooses half of the remaining
/// table.
fn look_up(e: &mut Emit, codes: Value, bits: u32, values: &[u32]) -> Value {
    let mut left: Vec<Value> = values.iter().map(|v| e.ints(*v)).collect();
    for bit in 0..bits {
        let top = e.b.ins().ishl_imm_u(codes, i64::from(31 - bit));
        let mask = e.b.ins().sshr_imm_s(top, 31);
        left = left.chunks(2).map(|pair| e.b.ins().bitselect(mask, pair[pair.len() - 1], pair[0])).collect();
    }
    e.as_floats(left[0])
}

/// The decoded values of four numbers. Where the product of a number and a scale is exact, adding
/// the minimum rounds once with or without a fused multiply-add.
pub(super) fn values(e: &mut Emit, encoding: &Encoding, numbers: Value, scale: Value, min: Option<Value>) -> Value {
    match min {
        None => e.fmul(numbers, scale),
        Some(min) if encoding.exact_products() => {
            let x = e.fmul(numbers, scale);
            e.fadd(x, min)
        }
        Some(min) => e.fma(numbers, scale, min),
    }
}

/// A plane of the codes of a column.
pub(super) struct Plane {
    /// The chunk of 64 bytes, or a row's word of it.
    pub chunk: Value,
    /// Lowest bit in its words (i32).
    pub shift: Value,
    /// Bits, and the lowest one of the code.
    pub bits: u32,
    pub base: u32,
}

/// Where the codes of a column are.
pub(super) enum Column {
    /// In planes.
    Planes(Vec<Plane>),
    /// In a slice of trellis codes, and at which bit of its words.
    Trellis(Slice, Value),
    /// Among the two of four columns.
    Pairs(Pairs),
}

/// Where column `k` of a block's codes is.
pub(super) fn column_at(e: &mut Emit, encoding: &Encoding, codes: Value, k: Value) -> Column {
    let of = match encoding.code {
        Code::Trellis(of) => of,
        Code::Pairs => return Column::Pairs(Pairs::at(e, codes, k)),
        Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } => {
            return Column::Planes(planes_at(e, encoding, codes, k));
        }
    };
    let (slice, place) = Slice::at(e, of, encoding.group().unwrap_or(K_PAD), codes, k);
    Column::Trellis(slice, place)
}

/// Where column `k` of a block's codes is.
fn planes_at(e: &mut Emit, encoding: &Encoding, codes: Value, k: Value) -> Vec<Plane> {
    let (widths, count) = encoding.planes();
    if let [bits] = widths[..count] {
        let (chunk, shift) = plane_at(e, codes, k, bits);
        return vec![Plane { chunk, shift, bits, base: 0 }];
    }
    let (slice, within) = e.div_mod(k, K_PAD);
    let slice = e.index(codes, slice, K_PAD * BLOCK / 8 * encoding.bits() as usize);
    let (mut base, mut skip) = (0, 0);
    let mut out = vec![];
    for bits in &widths[..count] {
        let plane = e.offset(slice, skip);
        let (chunk, shift) = plane_at(e, plane, within, *bits);
        out.push(Plane { chunk, shift, bits: *bits, base });
        base += bits;
        skip += 64 * *bits as usize;
    }
    out
}

/// In codes of `bits` bits, a power of two: the chunk of 16 words, and the bit of its words (i32).
fn plane_at(e: &mut Emit, codes: Value, k: Value, bits: u32) -> (Value, Value) {
    let (number, in_word) = e.div_mod(k, 32 / bits as usize);
    let chunk = e.index(codes, number, 64);
    let (high, byte) = e.div_mod(in_word, 4);
    let at = e.times(byte, 8);
    // Words of 8-bit codes have nothing higher.
    let within = e.times(high, bits.min(4) as usize);
    let at = e.add(at, within);
    (chunk, e.b.ins().ireduce(I32, at))
}

/// The codes (of a trellis, indices) of vector `v` of a block in one column, as i32.
pub(super) fn column_codes(e: &mut Emit, encoding: &Encoding, column: &Column, v: usize) -> Value {
    let planes = match column {
        Column::Planes(planes) => planes,
        Column::Trellis(slice, place) => return slice.column(e, v, *place),
        Column::Pairs(pairs) => return pairs.column(e, v),
    };
    let parts: Vec<Value> = planes
        .iter()
        .map(|p| {
            let words = e.load(I32X4, p.chunk, v * 16);
            let words = e.b.ins().ushr(words, p.shift);
            // The bits above an 8-bit float do no harm.
            if matches!(encoding.code, Code::Float(_)) { words } else { masked(e, words, p.bits, 1) }
        })
        .collect();
    joined(e, planes, &parts)
}

/// Codes (of a trellis, indices) of columns `k..k + 8` of a row, as i32; `codes`: the row's codes in the first chunk,
/// `k` a multiple of 8.
pub(super) fn eight_codes(e: &mut Emit, encoding: &Encoding, codes: Value, k: Value) -> [Value; 2] {
    match column_at(e, encoding, codes, k) {
        Column::Trellis(slice, place) => return slice.eight(e, place),
        Column::Pairs(pairs) => return pairs.eight(e),
        Column::Planes(_) => {}
    }
    match encoding.bits() {
        8 => {
            let p = e.index(codes, k, BLOCK);
            [0, 64].map(|offset| {
                let word = e.load(I32, p, offset);
                e.bytes(word)
            })
        }
        4 => {
            let p = e.index(codes, k, BLOCK / 2);
            let word = e.load(I32, p, 0);
            let low = e.b.ins().band_imm_u(word, 0x0f0f_0f0f);
            let high = e.b.ins().ushr_imm_u(word, 4);
            let high = e.b.ins().band_imm_u(high, 0x0f0f_0f0f);
            [e.bytes(low), e.bytes(high)]
        }
        _ => {
            let planes = planes_at(e, encoding, codes, k);
            [0, 4].map(|column| {
                let parts: Vec<Value> = planes
                    .iter()
                    .map(|p| {
                        // Both quads of 8 bits are words of their own, of fewer bits parts of one.
                        let (chunk, up) =
                            if p.bits == 8 { (column / 4 * 64, 0) } else { (0, column / 4 * p.bits as usize) };
                        let word = e.load(I32, p.chunk, chunk);
                        let word = e.b.ins().ushr(word, p.shift);
                        let word = e.b.ins().ushr_imm_u(word, up as i64);
                        let word = e.b.ins().band_imm_u(word, i64::from(bytes_of(p.bits)));
                        e.bytes(word)
                    })
                    .collect();
                joined(e, &planes, &parts)
            })
        }
    }
}

/// Four bytes with the lowest `bits` bits set.
pub(super) const fn bytes_of(bits: u32) -> u32 {
    (0xff >> (8 - bits)) * 0x0101_0101
}

/// The lowest `bits` bits of each i32, or (`per_word` 4) of each of its bytes.
pub(super) fn masked(e: &mut Emit, words: Value, bits: u32, per_word: u32) -> Value {
    let mask = e.ints(if per_word == 4 { bytes_of(bits) } else { 0xff >> (8 - bits) });
    e.b.ins().band(words, mask)
}

/// Codes from their planes.
fn joined(e: &mut Emit, planes: &[Plane], parts: &[Value]) -> Value {
    let mut code = parts[0];
    for (p, part) in planes.iter().zip(parts).skip(1) {
        let up = e.b.ins().ishl_imm_u(*part, i64::from(p.base));
        code = e.b.ins().bor(code, up);
    }
    code
}
