//! Panels: weights as their descriptions say, one output after the other.

use llmcc_abi::PanelArgs;
use llmcc_abi::encoding::trellis::{STATE_BITS, Trellis, trellis_column, trellis_place};
use llmcc_abi::encoding::{Code, Encoding, Float, ScaleKind, e4m3_to_f32, e8m0_to_f32};
use llmcc_abi::layout::{self, BLOCK, CHAIN, K_PAD, SIX_LOW, block, groups, pair_at, q8_row, q8_sum_bytes, six_places};

use crate::element::{bf16_to_f32, f16_to_f32, read};

/// Stored code of row `row`, column `k` of a group of quantized weights whose codes start at
/// `codes`.
unsafe fn code(weights: &Encoding, codes: *const u8, row: usize, k: usize) -> u8 {
    if matches!(weights.code, Code::Pairs) {
        let of = |i: usize| unsafe {
            let [(at, bit), (place, of_place)] = pair_at(row, k / 4 * 4, i);
            let (code, place): (u8, u8) = (read(codes, at), read(codes, place));
            (usize::from(place >> of_place & 3) == k % 4).then_some(code >> bit & 15)
        };
        return of(0).or(of(1)).unwrap_or(weights.zero_code());
    }
    let (widths, count) = weights.planes();
    let (mut plane, mut code, mut base) = (k / K_PAD * K_PAD * 2 * weights.bits() as usize, 0, 0);
    for width in &widths[..count] {
        let (columns, k) = (32 / *width as usize, k % K_PAD);
        let byte: u8 = unsafe { read(codes, plane + k / columns * 64 + row * 4 + k % 4) };
        code |= (byte >> (k % columns / 4 * *width as usize) & (0xff >> (8 - width))) << base;
        base += width;
        plane += 64 * *width as usize;
    }
    code
}

/// Row `row` of the block at `w`: the facts a panel needs of its weights.
struct Row {
    weights: Encoding,
    w: *const u8,
    row: usize,
    layout: layout::Block,
    group: usize,
    /// The unit of its numbers, where there is one.
    unit: f32,
}

impl Row {
    unsafe fn scale(&self, group: usize) -> f32 {
        unsafe { self.factor(group, 0, 0) }
    }

    unsafe fn min(&self, group: usize) -> f32 {
        unsafe { self.factor(group, self.layout.mins, self.layout.above_mins) }
    }

    /// The factor `beside` bytes behind the group's scales, times the one above it, `above` bytes
    /// behind the first.
    unsafe fn factor(&self, group: usize, beside: usize, above: usize) -> f32 {
        let at = self.layout.scales_of(group) + beside;
        let [of, upper] = self.weights.scales;
        unsafe {
            let factor = of.map_or(1.0, |of| match of.kind {
                ScaleKind::Six => self.six(group) as f32,
                kind => self.number(kind, at),
            });
            let Some((upper, columns)) = upper.zip(self.weights.super_group()) else { return factor };
            factor * self.number(upper.kind, self.layout.above_of(group * self.group / columns) + above)
        }
    }

    /// The scale of a group, where that is [`ScaleKind::Six`].
    unsafe fn six(&self, group: usize) -> i32 {
        let at = self.layout.scales_of(group);
        let [(low, low_bit), (high, high_bit)] = six_places(self.row, group % self.layout.groups);
        let bits = |at: usize, bit: u32| unsafe { i32::from(read::<u8>(self.w, at)) >> bit };
        let code = bits(at + low, low_bit) & 15 | (bits(at - SIX_LOW + high, high_bit) & 3) << 4;
        (code << 26) >> 26
    }

    /// This row's number of those that are stored side by side from byte `at` on.
    unsafe fn number(&self, kind: ScaleKind, at: usize) -> f32 {
        let at = at + self.row * kind.bytes();
        unsafe {
            match kind {
                ScaleKind::F32 => read(self.w, at),
                ScaleKind::F16 => f16_to_f32(read(self.w, at)),
                ScaleKind::Bf16 => bf16_to_f32(read(self.w, at)),
                ScaleKind::E8m0 => e8m0_to_f32(read(self.w, at)),
                ScaleKind::E4m3 => e4m3_to_f32(read(self.w, at)),
                ScaleKind::Unsigned { .. } => f32::from(read::<u8>(self.w, at)),
                ScaleKind::Signed { .. } | ScaleKind::Six => f32::from(read::<i8>(self.w, at)),
            }
        }
    }

    /// Stored code of column `k`. The codes of a record are adjacent.
    unsafe fn code(&self, k: usize) -> u8 {
        let record = self.layout.groups * self.group;
        unsafe {
            let codes = self.w.add(self.layout.codes_of(k / record * self.layout.groups));
            code(&self.weights, codes, self.row, k % record)
        }
    }

    /// The number of column `k`, without its scale.
    unsafe fn decoded(&self, k: usize) -> f32 {
        unsafe {
            match self.weights.code {
                Code::Trellis(of) => of.level(self.state(of, k)).into(),
                Code::Float(_) | Code::Int { .. } | Code::Signed { .. } | Code::Table { .. } | Code::Pairs => {
                    self.weights.number(self.code(k))
                }
            }
        }
    }

    /// The state of column `k` of a trellis: its code, and those before it in its group.
    unsafe fn state(&self, of: &Trellis, k: usize) -> usize {
        let first = k / self.group * self.group;
        let place = (k - first) / K_PAD * K_PAD + trellis_place(k % K_PAD);
        let mut state = 0;
        for before in place.saturating_sub(STATE_BITS as usize)..=place {
            let column = first + before / K_PAD * K_PAD + trellis_column(before % K_PAD);
            state = of.next(state, unsafe { self.code(column) });
        }
        state
    }

    /// The number of column `k` in units.
    unsafe fn integer(&self, k: usize) -> i32 {
        (unsafe { self.decoded(k) } / self.unit) as i32
    }

    /// Decoded weight of column `k`.
    unsafe fn value(&self, k: usize) -> f32 {
        unsafe {
            match self.weights.float() {
                Some(Float::F32) => read(self.w, k * 64 + self.row * 4),
                Some(Float::F16) => f16_to_f32(read(self.w, k * 32 + self.row * 2)),
                Some(Float::Bf16) => bf16_to_f32(read(self.w, k / 2 * 64 + self.row * 4 + k % 2 * 2)),
                Some(Float::E4m3) | None => {
                    let (number, group) = (self.decoded(k), k / self.group);
                    match self.weights.has_minimum() {
                        true => libm::fmaf(number, self.scale(group), self.min(group)),
                        false => self.scale(group) * number,
                    }
                }
            }
        }
    }
}

/// Calls `f(weight row, activation row)` for each output and stores the result.
unsafe fn each_output(p: &PanelArgs, weights: Encoding, f: impl Fn(&Row, *const u8) -> f32) {
    let k = p.k as usize;
    let weights = weights.in_groups(p.group as usize);
    let group = weights.group().unwrap_or(layout::padded_k(k).max(1));
    let unit = weights.unit().unwrap_or(1.0);
    for n in 0..p.blocks as usize * BLOCK {
        let w = unsafe { p.w.add(n / BLOCK * p.w_stride as usize) };
        let row = Row { weights, w, row: n % BLOCK, layout: block(&weights, k), group, unit };
        for m in 0..p.m as usize {
            unsafe {
                let a = p.a.add(m * p.a_stride as usize);
                p.c.add(m * p.c_stride as usize + n).write(f(&row, a));
            }
        }
    }
}

/// Any weights × f32 rows: one fused multiply-add per `k`, ascending, in chains of [`CHAIN`], whose sums are added, or
/// multiplied by their scale and added where weights have a [unit of chains](layout::chain_unit).
pub(crate) unsafe fn panel_f32_rows(p: &PanelArgs, weights: Encoding) {
    let unit = layout::chain_unit(&weights);
    let dot = |w: &Row, a: *const u8| {
        let weight = |k| unsafe { unit.map_or_else(|| w.value(k), |unit| w.decoded(k) / unit) };
        let term = |acc, k| unsafe { libm::fmaf(weight(k), read(a, k * 4), acc) };
        let chain = |from: usize| (from..(p.k as usize).min(from + CHAIN)).fold(0.0f32, term);
        let add = |sum, from: usize| match unit {
            Some(unit) => libm::fmaf(chain(from), unsafe { w.scale(from / w.group) } * unit, sum),
            None => sum + chain(from),
        };
        (0..p.k as usize).step_by(CHAIN).fold(0.0f32, add)
    };
    unsafe { each_output(p, weights, dot) }
}

/// bf16 weights × bf16 rows: one fused multiply-add per `k`, of each pair `2i, 2i + 1` the second
/// first.
pub(crate) unsafe fn panel_bf16_rows(p: &PanelArgs, weights: Encoding) {
    let k = p.k as usize;
    let dot = |w: &Row, a: *const u8| {
        let term = |acc, k| unsafe { libm::fmaf(w.value(k), bf16_to_f32(read(a, k * 2)), acc) };
        (0..k.div_ceil(2)).fold(0.0f32, |acc, pair| {
            let (low, high) = (2 * pair, 2 * pair + 1);
            // Where there is no second, it is zero.
            term(if high < k { term(acc, high) } else { acc }, low)
        })
    };
    unsafe { each_output(p, weights, dot) }
}

/// Weights whose scales are integers × int8 rows. Per super-group, ascending:
/// `acc = fma(f32(Σ s·Σ integer·a), s_above·unit·s_a, acc)`, the sums being integers.
pub(crate) unsafe fn panel_integer_scales(p: &PanelArgs, weights: Encoding) {
    let (kp, columns) = (layout::padded_k(p.k as usize), p.group as usize);
    let q8 = q8_row(p.k as usize, columns);
    let Some(above) = weights.scales[1] else { return };
    let unit = weights.unit().unwrap_or(1.0);
    let dot = |w: &Row, a: *const u8| {
        (0..groups(p.k as usize, columns)).fold(0.0f32, |acc, s| unsafe {
            let product = |k: usize| w.integer(k) * read::<i8>(a, k) as i32 * w.six(k / w.group);
            let sum: i32 = (s * columns..kp.min((s + 1) * columns)).map(product).sum();
            let scale = w.number(above.kind, w.layout.above_of(s)) * unit * read::<f32>(a, q8.scales + s * 4);
            libm::fmaf(sum as f32, scale, acc)
        })
    };
    unsafe { each_output(p, weights, dot) }
}

/// Quantized weights × int8 rows. Per group, ascending:
/// `acc = fma(f32(Σ integer·a), s_w·unit·s_a, acc)`, of the [integers](Encoding::integer) that codes
/// stand for and their [unit](Encoding::unit), with their minimum following:
/// `acc = fma(min·s_a, f32(Σ a), acc)`. One scale of a row is that of all groups.
pub(crate) unsafe fn panel_int8_rows(p: &PanelArgs, weights: Encoding) {
    let (kp, group) = (layout::padded_k(p.k as usize), p.group as usize);
    let q8 = q8_row(p.k as usize, group);
    let unit = weights.unit().unwrap_or(1.0);
    let dot = |w: &Row, a: *const u8| {
        let mut acc = 0.0f32;
        for g in 0..groups(p.k as usize, group) {
            let columns = g * group..kp.min((g + 1) * group);
            unsafe {
                let sum: i32 = columns.map(|k| w.integer(k) * read::<i8>(a, k) as i32).sum();
                let a_scale: f32 = read(a, q8.scales + g * 4);
                let of = if weights.by_row() { 0 } else { g };
                acc = libm::fmaf(sum as f32, w.scale(of) * unit * a_scale, acc);
                if weights.has_minimum() {
                    let a_sum: i32 = read(a, q8.sums + g * q8_sum_bytes(group));
                    acc = libm::fmaf(w.min(of) * a_scale, a_sum as f32, acc);
                }
            }
        }
        acc
    };
    unsafe { each_output(p, weights, dot) }
}
