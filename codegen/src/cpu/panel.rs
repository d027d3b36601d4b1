//! Inner products of a matmul tile as 128-bit vector code: the same as the microkernels, for
//! targets without them.
//!
//! Like theirs, every output is a sum of chains of fused multiply-adds over [`CHAIN`] columns each in
//! ascending order (int8 rows: one chain over groups), so that the results equal theirs bit for bit.

use super::codes::{self, Factors};
use super::emit::{Emit, F32, F32X4, I8X16, I16X8, I32, I32X4, LANES};
use super::pairs;
use super::trellis::{self, Slice};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::encoding::trellis::{LEVEL_ZERO, Levels, Trellis};
use llmcc_abi::encoding::{Code, Encoding, Float, PAIRS_ZERO};
use llmcc_abi::layout::{self, BLOCK, CHAIN, EXCESS, K_PAD, PAIR_PLACES};
use llmcc_ir::kernel::RowElem;
use llmcc_ir::quant::Format;

/// Vectors in a block of 16 weight rows.
const VECTORS: usize = BLOCK / LANES;

/// `c[rows, 16·blocks] = a[rows, k] · wᵀ`, as [`llmcc_abi::PanelArgs`].
pub(super) struct Panel {
    /// Weight format.
    pub format: Format,
    /// Storage of the activations.
    pub rows_elem: RowElem,
    /// Columns.
    pub k: usize,
    /// First block.
    pub w: Value,
    /// Bytes from one block to the next.
    pub w_stride: usize,
    /// Blocks.
    pub blocks: Value,
    /// First activation row.
    pub a: Value,
    /// Bytes from one activation row to the next.
    pub a_stride: usize,
    /// Activation rows.
    pub rows: Value,
    /// Output.
    pub c: Value,
    /// f32 elements from one output row to the next.
    pub c_stride: usize,
}

/// Emits a panel.
pub(super) fn emit(e: &mut Emit, p: &Panel) {
    let zero = e.int(0);
    e.range(zero, p.blocks, 1, &[p.w, p.c], |e, _, block| {
        let (w, c) = (block[0], block[1]);
        e.range(zero, p.rows, 1, &[p.a, c], |e, _, row| {
            let (a, c) = (row[0], row[1]);
            if p.rows_elem.group().is_some() && p.format.encoding().has_integer_scales() {
                int8_row_of_integers(e, p, w, a, c);
            } else if p.rows_elem.group().is_some() {
                int8_row(e, p, w, a, c);
            } else {
                let acc = float_row(e, p, w, a);
                for (v, acc) in acc.iter().enumerate() {
                    e.store(*acc, c, v * 16);
                }
            }
            vec![e.offset(a, p.a_stride), e.offset(c, p.c_stride * 4)]
        });
        vec![e.offset(w, p.w_stride), e.offset(c, BLOCK * 4)]
    });
}

/// One f32 row times one block.
fn float_row(e: &mut Emit, p: &Panel, w: Value, a: Value) -> Vec<Value> {
    let sums = [e.floats(0.0); VECTORS];
    match p.format.encoding().float() {
        Some(Float::F32) => plain(e, p.k, 64, 1, w, a, sums, |e, w, step, v| e.load(F32X4, w, step * 64 + v * 16)),
        Some(Float::F16) => plain(e, p.k, 32, 1, w, a, sums, |e, w, step, v| {
            let halves = e.load_halves(w, step * 32 + v * 8);
            e.finite_f16_to_f32(halves)
        }),
        Some(Float::Bf16) => plain(e, p.k, 32, 2, w, a, sums, |e, w, step, v| {
            let pairs = e.load(I32X4, w, step / 2 * 64 + v * 16);
            if step % 2 == 0 {
                return e.bf16_to_f32(pairs);
            }
            let mask = e.ints(0xffff_0000);
            let bits = e.b.ins().band(pairs, mask);
            e.as_floats(bits)
        }),
        Some(Float::E4m3) | None => decoded(e, p, w, a, sums),
    }
}

/// Unquantized weights of `bytes` bytes per `k`, in units of `unit` k. `weight(w, step, v)`: vector
/// `v` of column `step` after `w`.
fn plain(
    e: &mut Emit,
    k: usize,
    bytes: usize,
    unit: usize,
    w: Value,
    a: Value,
    sums: [Value; VECTORS],
    weight: impl Fn(&mut Emit, Value, usize, usize) -> Value,
) -> Vec<Value> {
    // As many columns as are in a chain, from `w` and `a` on; the addresses after them follow the sums.
    let chain = |e: &mut Emit, count: usize, carried: &[Value]| {
        let steps = |e: &mut Emit, carried: &[Value], count: usize| {
            let (w, a, mut acc) = (carried[0], carried[1], carried[2..].to_vec());
            for step in 0..count {
                let x = e.load_splat(a, step * 4);
                for (v, acc) in acc.iter_mut().enumerate() {
                    let weight = weight(e, w, step, v);
                    *acc = e.fma(weight, x, *acc);
                }
            }
            [vec![e.offset(w, count * bytes), e.offset(a, count * 4)], acc].concat()
        };
        let unroll = [4, 2, 1].into_iter().find(|u| count / u > 0).unwrap_or(1).max(unit);
        let whole = count / unroll * unroll;
        let none = e.floats(0.0);
        let start = [&carried[..2], &[none; VECTORS][..]].concat();
        let end = e.fixed(whole, unroll, &start, |e, _, carried| steps(e, carried, unroll));
        let end = steps(e, &end, count - whole);
        let sums = carried[2..].iter().zip(&end[2..]).map(|(sum, acc)| e.fadd(*sum, *acc)).collect();
        [end[..2].to_vec(), sums].concat()
    };
    let whole = k / CHAIN * CHAIN;
    let carried = [vec![w, a], sums.to_vec()].concat();
    let mut carried = e.fixed(whole, CHAIN, &carried, |e, _, carried| chain(e, CHAIN, carried));
    if whole < k {
        carried = chain(e, k - whole, &carried);
    }
    carried.split_off(2)
}

/// The factors of a block's rows.
fn factors(e: &mut Emit, encoding: &Encoding, block: &layout::Block, at: &codes::GroupAt) -> Vec<Factors> {
    (0..VECTORS).map(|v| codes::factors(e, encoding, block, at, v * LANES)).collect()
}

/// Quantized weights, decoded to f32.
fn decoded(e: &mut Emit, p: &Panel, w: Value, a: Value, sums: [Value; VECTORS]) -> Vec<Value> {
    let encoding = p.format.encoding();
    let group = encoding.group().unwrap_or(p.k);
    let block = layout::block(&encoding, p.k);
    let (zero, end, none) = (e.int(0), e.int(p.k as i64), [e.floats(0.0); VECTORS]);
    // Columns of one group.
    let columns = |e: &mut Emit, start, stop, at: &codes::GroupAt, factors: &[Factors], acc: &[Value]| {
        e.range(start, stop, 1, acc, |e, k, acc| {
            let column = codes::column_at(e, &encoding, at.codes, k);
            let x = e.index(a, k, 4);
            let x = e.load_splat(x, 0);
            (0..VECTORS)
                .map(|v| {
                    let codes = codes::column_codes(e, &encoding, &column, v);
                    let numbers = codes::numbers(e, &encoding, codes);
                    let weight = match layout::chain_unit(&encoding) {
                        Some(unit) => scaled(e, numbers, unit.recip()),
                        None => codes::values(e, &encoding, numbers, factors[v].scale, factors[v].min),
                    };
                    e.fma(weight, x, acc[v])
                })
                .collect()
        })
    };
    let add = |e: &mut Emit, sums: &[Value], acc: &[Value]| -> Vec<Value> {
        sums.iter().zip(acc).map(|(sum, acc)| e.fadd(*sum, *acc)).collect()
    };
    let up_to = |e: &mut Emit, start, columns, end| {
        let stop = e.offset(start, columns);
        e.min(stop, end)
    };
    if group >= CHAIN.min(p.k) {
        return e.range(zero, end, group, &sums, |e, start, sums| {
            let at = codes::group_at(e, &block, group, w, start);
            let factors = factors(e, &encoding, &block, &at);
            let stop = up_to(e, start, group, end);
            e.range(start, stop, CHAIN, sums, |e, start, sums| {
                let stop = up_to(e, start, CHAIN, stop);
                let acc = columns(e, start, stop, &at, &factors, &none);
                match layout::chain_unit(&encoding) {
                    Some(unit) => add_scaled(e, sums, &acc, &factors, unit),
                    None => add(e, sums, &acc),
                }
            })
        });
    }
    // Several groups in a chain.
    e.range(zero, end, CHAIN, &sums, |e, first, sums| {
        let mut acc = none.to_vec();
        for from in (0..CHAIN).step_by(group) {
            let start = e.offset(first, from);
            let at = codes::group_at(e, &block, group, w, start);
            let factors = factors(e, &encoding, &block, &at);
            let stop = up_to(e, start, group, end);
            acc = columns(e, start, stop, &at, &factors, &acc);
        }
        add(e, sums, &acc)
    })
}

/// A vector times a number.
fn scaled(e: &mut Emit, x: Value, factor: f32) -> Value {
    let factor = e.floats(factor);
    e.fmul(x, factor)
}

/// `sums`, and to each the sum of a chain times its scale, whose unit is `unit`.
fn add_scaled(e: &mut Emit, sums: &[Value], chains: &[Value], factors: &[Factors], unit: f32) -> Vec<Value> {
    let terms = sums.iter().zip(chains).zip(factors);
    terms
        .map(|((sum, chain), factors)| {
            let factor = scaled(e, factors.scale, unit);
            e.fma(*chain, factor, *sum)
        })
        .collect()
}

/// One int8 row times one block, accumulated in `c`.
fn int8_row(e: &mut Emit, p: &Panel, w: Value, a: Value, c: Value) {
    let encoding = p.format.encoding();
    let Some(group) = p.rows_elem.group() else { return };
    let block = layout::block(&encoding, p.k);
    let q8 = layout::q8_row(p.k, group);
    // Bytes of codes per column.
    let column = BLOCK / 8 * encoding.bits() as usize;
    let none = e.floats(0.0);
    for v in 0..VECTORS {
        e.store(none, c, v * 16);
    }
    let (zero, end) = (e.int(0), e.int(layout::padded_k(p.k) as i64));
    let (a_scales, a_sums) = (e.offset(a, q8.scales), e.offset(a, q8.sums));
    // Groups of less than a slice, in which codes lie together, are taken by slices.
    e.range(zero, end, group.max(K_PAD), &[a_scales, a_sums], |e, first, factors| {
        let mut a_factors = (factors[0], factors[1]);
        for from in (0..K_PAD).step_by(group.min(K_PAD)) {
            let start = e.offset(first, from);
            // One scale of a row is that of its first group.
            let at = match encoding.by_row() {
                true => codes::group_at(e, &block, layout::padded_k(p.k), w, zero),
                false => codes::group_at(e, &block, group, w, start),
            };
            let stop = e.offset(first, group.max(K_PAD));
            let stop = e.min(stop, end);
            let none = e.ints(0);
            let step = if matches!(encoding.code, Code::Int { bits: 4 | 8, .. }) { 8 } else { K_PAD };
            let acc = e.range(first, stop, step, &[none; 2 * VECTORS], |e, k, acc| {
                let w = e.index(at.codes, k, column);
                let a = e.add(a, k);
                match encoding.code {
                    Code::Int { bits: 8, .. } => bytes(e, w, a, acc),
                    Code::Int { bits: 4, .. } => nibbles(e, w, a, acc),
                    Code::Trellis(of) => {
                        let first_slice = e.b.ins().icmp(IntCC::Equal, k, first);
                        let codes = Slice::new(e, of, w, first_slice);
                        of_trellis(e, (of, &codes), a, acc)
                    }
                    Code::Pairs => of_pairs(e, w, a, acc),
                    Code::Int { .. } | Code::Signed { .. } | Code::Float(_) | Code::Table { .. } => {
                        slice(e, &encoding, w, a, acc, from..K_PAD.min(from + group))
                    }
                }
            });
            scale_group(e, &encoding, &block, &at, a_factors, c, &acc);
            a_factors = (e.offset(a_factors.0, 4), e.offset(a_factors.1, layout::q8_sum_bytes(group)));
        }
        vec![a_factors.0, a_factors.1]
    });
}

/// One int8 row times one block of weights with [integer scales](Encoding::has_integer_scales), whose results go to
/// `c`: sums stay integers over the columns that share a scale in the row.
fn int8_row_of_integers(e: &mut Emit, p: &Panel, w: Value, a: Value, c: Value) {
    let encoding = p.format.encoding();
    let (Some(columns), Some(group), Some(above)) = (p.rows_elem.group(), encoding.group(), encoding.scales[1]) else {
        return;
    };
    let (block, q8) = (layout::block(&encoding, p.k), layout::q8_row(p.k, columns));
    let (zero, end) = (e.int(0), e.int(layout::padded_k(p.k) as i64));
    let carried = [vec![e.offset(a, q8.scales), e.offset(a, q8.sums)], vec![e.floats(0.0); VECTORS]].concat();
    let results = e.range(zero, end, columns, &carried, |e, first, carried| {
        let stop = e.offset(first, columns);
        let stop = e.min(stop, end);
        let start = [vec![carried[1]], vec![e.ints(0); VECTORS]].concat();
        let sums = e.range(first, stop, group, &start, |e, k, sums| {
            let at = codes::group_at(e, &block, group, w, k);
            let row = e.add(a, k);
            scaled_dots(e, &encoding, &block, (&at, k, row), sums)
        });
        let at = codes::group_at(e, &block, group, w, first);
        let of_row = e.load_splat(carried[0], 0);
        let mut out = vec![e.offset(carried[0], 4), e.offset(carried[1], layout::q8_sum_bytes(columns))];
        for (v, acc) in carried[2..].iter().enumerate() {
            let mut factor = codes::factor_above(e, above.kind, &block, &at, v * LANES);
            if let Some(unit) = encoding.unit().filter(|unit| *unit != 1.0) {
                let unit = e.floats(unit);
                factor = e.fmul(factor, unit);
            }
            let factor = e.fmul(factor, of_row);
            let sum = e.b.ins().fcvt_from_sint(F32X4, sums[1 + v]);
            out.push(e.fma(sum, factor, *acc));
        }
        out
    });
    for (v, acc) in results[2..].iter().enumerate() {
        e.store(*acc, c, v * 16);
    }
}

/// Adds the sums of the group from column `k` on, times its integer scales, to `sums[1..]`; the row's columns are at
/// `row`, and `sums[0]` is where the excess of the group before was. Returns the same for the next group.
fn scaled_dots(
    e: &mut Emit,
    encoding: &Encoding,
    block: &layout::Block,
    (at, k, row): (&codes::GroupAt, Value, Value),
    sums: &[Value],
) -> Vec<Value> {
    let w = e.index(at.codes, k, BLOCK / 8 * encoding.bits() as usize);
    let none = e.ints(0);
    let dots = slice(e, encoding, w, row, &[none; 2 * VECTORS], 0..K_PAD);
    // The sum of the codes, from its excess: a shift, and the other sign.
    let stored = e.load(I32, sums[0], 4);
    let sum = e.b.ins().sshr_imm_s(stored, i64::from(EXCESS.unsigned_abs().ilog2()));
    let surplus = e.b.ins().imul_imm_s(sum, -i64::from(excess(encoding)));
    let surplus = e.splat(surplus);
    let mut out = vec![e.offset(sums[0], 4)];
    for v in 0..VECTORS {
        let dot = e.b.ins().iadd_pairwise(dots[2 * v], dots[2 * v + 1]);
        let dot = e.sub(dot, surplus);
        let scale = codes::six(e, block, at, (v * LANES, LANES));
        let product = e.b.ins().imul(dot, scale);
        out.push(e.add(sums[1 + v], product));
    }
    out
}

/// Columns of a slice of 32, of codes of any width. Signed codes are made unsigned by adding the bit
/// above theirs, numbers of a table by subtracting the least, which [`excess`] knows.
fn slice(
    e: &mut Emit,
    encoding: &Encoding,
    w: Value,
    a: Value,
    acc: &[Value],
    columns: std::ops::Range<usize>,
) -> Vec<Value> {
    let mut acc = acc.to_vec();
    let (widths, count) = encoding.planes();
    for quad in columns.start / 4..columns.end / 4 {
        let x = activations(e, a, quad * 4);
        for v in 0..VECTORS {
            let (mut plane, mut base, mut codes) = (0, 0, None);
            for bits in &widths[..count] {
                let in_word = 8 / *bits as usize;
                let word = e.load(I32X4, w, plane + quad / in_word * 64 + v * 16);
                let word = e.b.ins().ushr_imm_u(word, (quad % in_word) as i64 * i64::from(*bits));
                let word = codes::masked(e, word, *bits, 4);
                let word = e.b.ins().ishl_imm_u(word, base);
                codes = Some(codes.map_or(word, |c| e.b.ins().bor(c, word)));
                (plane, base) = (plane + 64 * *bits as usize, base + i64::from(*bits));
            }
            let Some(mut codes) = codes else { continue };
            if let Code::Signed { bits } = encoding.code {
                let sign = e.ints(0x0101_0101 << (bits - 1));
                codes = e.b.ins().bxor(codes, sign);
            }
            let mut codes = e.cast(I8X16, codes);
            if matches!(encoding.code, Code::Table { .. }) {
                codes = of_table(e, encoding, codes);
            }
            multiply(e, codes, x, &mut acc[2 * v..2 * v + 2]);
        }
    }
    acc
}

/// Columns of a slice of trellis codes, with levels that are made unsigned by adding [`LEVEL_ZERO`].
fn of_trellis(e: &mut Emit, (of, codes): (&Trellis, &Slice), a: Value, acc: &[Value]) -> Vec<Value> {
    let mut acc = acc.to_vec();
    let [first, second] = of.tables();
    for v in 0..VECTORS {
        let words = codes.words(e, |e, p, offset| e.load(I32X4, p, offset + v * 16));
        for quad in 0..K_PAD / 4 {
            let place = e.b.ins().iconst(I32, quad as i64);
            let indices = trellis::joined(e, &words, place, 0x0101_0101);
            let indices = e.cast(I8X16, indices);
            let levels = match &of.levels {
                Levels::Whole(_) => look_up(e, 0..4, &first, indices),
                Levels::Sum(_) => {
                    let (x, y) = (look_up(e, 3..6, &first[..8], indices), look_up(e, 0..3, &second[..8], indices));
                    e.b.ins().iadd(x, y)
                }
            };
            let x = activations(e, a, quad * 4);
            multiply(e, levels, x, &mut acc[2 * v..2 * v + 2]);
        }
    }
    acc
}

/// Columns of a slice of codes of two of each four.
fn of_pairs(e: &mut Emit, w: Value, a: Value, acc: &[Value]) -> Vec<Value> {
    let mut acc = acc.to_vec();
    for quad in 0..K_PAD / 4 {
        let x = activations(e, a, quad * 4);
        for v in 0..VECTORS {
            let stored = e.load(I32X4, w, quad / 4 * 64 + v * 16);
            let stored = e.b.ins().ushr_imm_u(stored, (quad % 4 / 2 * 4) as i64);
            let places = e.load(I32X4, w, PAIR_PLACES + v * 16);
            let places = e.b.ins().ushr_imm_u(places, (quad / 2 * 2) as i64);
            let codes = pairs::dense(e, stored, places, (quad % 2 * 16) as i64);
            let codes = e.cast(I8X16, codes);
            multiply(e, codes, x, &mut acc[2 * v..2 * v + 2]);
        }
    }
    acc
}

/// The least integer of a table.
fn least(encoding: &Encoding) -> i32 {
    (0..1 << encoding.bits()).map(|u| encoding.integer(u as u8)).min().unwrap_or(0)
}

/// The integers of table codes, less the least.
fn of_table(e: &mut Emit, encoding: &Encoding, codes: Value) -> Value {
    let least = least(encoding);
    let integers: Vec<u8> = (0..1u32 << encoding.bits()).map(|u| (encoding.integer(u as u8) - least) as u8).collect();
    look_up(e, 0..encoding.bits(), &integers, codes)
}

/// Entries of a table of bytes by some bits of codes: each bit, the highest last, chooses half of the remaining table.
fn look_up(e: &mut Emit, bits: std::ops::Range<u32>, table: &[u8], codes: Value) -> Value {
    let byte = |e: &mut Emit, x: u32| {
        let word = e.ints(x * 0x0101_0101);
        e.cast(I8X16, word)
    };
    let mut left: Vec<Value> = table.iter().map(|x| byte(e, (*x).into())).collect();
    let zero = byte(e, 0);
    for bit in bits {
        let only = byte(e, 1 << bit);
        let set = e.b.ins().band(codes, only);
        let mask = e.b.ins().icmp(IntCC::NotEqual, set, zero);
        left = left.chunks(2).map(|pair| e.b.ins().bitselect(mask, pair[pair.len() - 1], pair[0])).collect();
    }
    left[0]
}

/// Offset of the multiplied codes above their integers.
fn excess(encoding: &Encoding) -> i32 {
    match encoding.code {
        Code::Signed { bits } => 1 << (bits - 1),
        Code::Int { zero, .. } => zero,
        Code::Pairs => PAIRS_ZERO,
        Code::Table { .. } => -least(encoding),
        Code::Trellis(_) => LEVEL_ZERO,
        Code::Float(_) => 0,
    }
}

/// Adds the products of a vector of 4 × 4 codes, as bytes, and 4 activations (in each half of `x`):
/// pairs of columns stay apart.
fn multiply(e: &mut Emit, codes: Value, x: Value, acc: &mut [Value]) {
    let parts = [e.b.ins().uwiden_low(codes), e.b.ins().uwiden_high(codes)];
    for (part, acc) in parts.into_iter().zip(acc) {
        // This shape becomes pmaddwd.
        let (wl, wh) = (e.b.ins().swiden_low(part), e.b.ins().swiden_high(part));
        let (xl, xh) = (e.b.ins().swiden_low(x), e.b.ins().swiden_high(x));
        let (low, high) = (e.b.ins().imul(wl, xl), e.b.ins().imul(wh, xh));
        let pairs = e.b.ins().iadd_pairwise(low, high);
        *acc = e.add(*acc, pairs);
    }
}

fn activations(e: &mut Emit, a: Value, offset: usize) -> Value {
    let x = e.load_word_splat(a, offset);
    e.b.ins().swiden_low(x)
}

/// 8 columns of 8-bit codes.
fn bytes(e: &mut Emit, w: Value, a: Value, acc: &[Value]) -> Vec<Value> {
    let mut acc = acc.to_vec();
    for word in 0..2 {
        let x = activations(e, a, word * 4);
        for v in 0..VECTORS {
            let codes = e.load(I8X16, w, word * 64 + v * 16);
            multiply(e, codes, x, &mut acc[2 * v..2 * v + 2]);
        }
    }
    acc
}

/// 8 columns of 4-bit codes.
fn nibbles(e: &mut Emit, w: Value, a: Value, acc: &[Value]) -> Vec<Value> {
    let mut acc = acc.to_vec();
    let (x0, x1) = (activations(e, a, 0), activations(e, a, 4));
    for v in 0..VECTORS {
        let codes = e.load(I8X16, w, v * 16);
        let mask = e.ints(0x0f0f_0f0f);
        let mask = e.cast(I8X16, mask);
        let low = e.b.ins().band(codes, mask);
        multiply(e, low, x0, &mut acc[2 * v..2 * v + 2]);
        let high = e.cast(I16X8, codes);
        let high = e.b.ins().ushr_imm_u(high, 4);
        let high = e.cast(I8X16, high);
        let high = e.b.ins().band(high, mask);
        multiply(e, high, x1, &mut acc[2 * v..2 * v + 2]);
    }
    acc
}

/// Adds a group's integer sums, scaled, to the accumulators in `c`.
fn scale_group(
    e: &mut Emit,
    encoding: &Encoding,
    block: &layout::Block,
    at: &codes::GroupAt,
    (a_scale, a_sum): (Value, Value),
    c: Value,
    sums: &[Value],
) {
    let of_weights = factors(e, encoding, block, at);
    let a_scale = e.load_splat(a_scale, 0);
    let a_sum = e.load(I32, a_sum, 0);
    for v in 0..VECTORS {
        let mut sum = e.b.ins().iadd_pairwise(sums[2 * v], sums[2 * v + 1]);
        if excess(encoding) != 0 {
            let excess = e.b.ins().imul_imm_s(a_sum, i64::from(excess(encoding)));
            let excess = e.splat(excess);
            sum = e.sub(sum, excess);
        }
        let sum = e.b.ins().fcvt_from_sint(F32X4, sum);
        let mut scale = of_weights[v].scale;
        if let Some(unit) = encoding.unit().filter(|unit| *unit != 1.0) {
            let unit = e.floats(unit);
            scale = e.fmul(scale, unit);
        }
        let scale = e.fmul(scale, a_scale);
        let acc = e.load(F32X4, c, v * 16);
        let mut acc = e.fma(sum, scale, acc);
        if let Some(min) = of_weights[v].min {
            let min = e.fmul(min, a_scale);
            let a_sum = e.b.ins().fcvt_from_sint(F32, a_sum);
            let a_sum = e.splat(a_sum);
            acc = e.fma(min, a_sum, acc);
        }
        e.store(acc, c, v * 16);
    }
}
