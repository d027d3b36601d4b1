//! Scalar code that defines every microkernel: short and slow; the fast versions must equal it bit
//! for bit.
//!
//! Processors without a faster level run it, too.

use core::ops::Range;

use llmcc_abi::layout::{self, EXCESS, EXCESS_PART, excess_parts, groups, q8_sum_bytes};
use llmcc_abi::{ATTEND_BLOCK, AttendArgs, AttendMore, AttendWith, HalfKind, PAGE_TOKENS, SelectArgs, attend_record};

use crate::attend::results;
use crate::element::{cached, scale};
use crate::select::select_by;
use crate::split::{Share, end, oldest};

mod evict;
mod map;
mod panel;
mod windows;
pub(crate) use evict::evict;
pub(crate) use map::{exp_and_tail, map};
pub(crate) use panel::{panel_bf16_rows, panel_f32_rows, panel_int8_rows, panel_integer_scales};
pub(crate) use windows::select_windows;

/// Scale and its inverse for a group of an int8 row whose largest magnitude is `amax`; the inverse
/// is 0 when no code but 0 makes sense: `amax` is 0 (or so small that `127 / amax` overflows),
/// infinite or NaN. The scale of the latter two makes every result they touch NaN.
#[inline(always)]
pub(crate) fn scales(amax: f32) -> (f32, f32) {
    let inverse = 127.0 / amax;
    (amax / 127.0, if inverse < f32::INFINITY { inverse } else { 0.0 })
}

/// See [`llmcc_abi::QuantRowsFn`].
pub(crate) unsafe extern "C" fn quant_rows(
    x: *const f32,
    k: u64,
    group: u64,
    codes: *mut i8,
    row_scales: *mut f32,
    sums: *mut i32,
) {
    let (k, group) = (k as usize, group as usize);
    unsafe { codes.write_bytes(0, layout::padded_k(k)) };
    for g in 0..groups(k, group) {
        let columns = g * group..k.min((g + 1) * group);
        unsafe {
            // As integers, magnitudes order like the numbers, and NaN above infinity.
            let magnitude = |j| x.add(j).read().to_bits() & 0x7fff_ffff;
            let amax = columns.clone().map(magnitude).max().unwrap_or(0);
            let (scale, inverse) = scales(f32::from_bits(amax));
            let mut sum = 0i32;
            if inverse > 0.0 {
                for j in columns {
                    let code = libm::rintf(x.add(j).read() * inverse) as i32;
                    sum += code;
                    codes.add(j).write(code as i8);
                }
            }
            row_scales.add(g).write_unaligned(scale);
            let sums = sums.byte_add(g * q8_sum_bytes(group));
            sums.write_unaligned(sum);
            write_excesses(codes.add(g * group), layout::padded_k(k) - g * group, group, sums);
        }
    }
}

/// Writes the excesses of the parts of a group behind its sum: of the codes at `codes`; the row has `left` from
/// there on.
pub(crate) unsafe fn write_excesses(codes: *const i8, left: usize, group: usize, sum: *mut i32) {
    for part in 0..excess_parts(group) {
        let mut excess = 0;
        if part * EXCESS_PART < left {
            for j in 0..EXCESS_PART {
                excess += EXCESS * i32::from(unsafe { codes.add(part * EXCESS_PART + j).read() });
            }
        }
        unsafe { sum.add(1 + part).write_unaligned(excess) };
    }
}

/// See [`llmcc_abi::recur::RecurArgs`].
pub(crate) unsafe extern "C" fn recur(a: *const llmcc_abi::recur::RecurArgs) {
    use llmcc_abi::recur::Update;
    unsafe {
        let a = &*a;
        let (rows, decays, stride) = (a.rows as usize, a.decays as usize, a.stride as usize);
        for j in 0..a.cols as usize {
            let at = |i: usize| a.state.add(i * stride + j);
            let decayed = |i: usize| match a.update {
                Update::Scan => exp_and_tail(*a.with.add(i * stride + j) * *a.decay.add(j), 0.0) * *at(i),
                Update::Plain | Update::Delta | Update::Erase | Update::Bonus => *a.decay.add(i * decays) * *at(i),
            };
            let held = |keys: *const f32| (0..rows).fold(0.0, |d, i| libm::fmaf(*keys.add(i), decayed(i), d));
            let v = *a.v.add(j);
            let (new, erased) = match a.update {
                Update::Plain => (*a.with * v, 0.0),
                Update::Delta => (*a.with * (v - held(a.k)), 0.0),
                Update::Erase => (v, 0.0 - held(a.with)),
                Update::Bonus | Update::Scan => (v, 0.0),
            };
            let mut y = 0.0;
            for i in 0..rows {
                let (old, mut s) = (*at(i), decayed(i));
                if a.update == Update::Erase {
                    s = libm::fmaf(*a.write.add(i), erased, s);
                }
                s = libm::fmaf(*a.k.add(i), new, s);
                *at(i) = s;
                let read = match a.update {
                    Update::Bonus => libm::fmaf(*a.with.add(i) * *a.k.add(i), new, old),
                    Update::Plain | Update::Delta | Update::Erase | Update::Scan => s,
                };
                y = libm::fmaf(*a.q.add(i), read, y);
            }
            *a.out.add(j) = y;
        }
    }
}

/// See [`llmcc_abi::RoundHalvesFn`].
pub(crate) unsafe extern "C" fn round_halves(
    x: *const f32,
    n: u64,
    to: HalfKind,
    out: *mut u16,
    first: u64,
    run: u64,
    jump: u64,
) {
    for i in 0..n {
        let x = unsafe { x.add(i as usize).read() };
        let half = match to {
            HalfKind::Bf16 => bf16(x),
            HalfKind::F16 => f16(x),
        };
        let at = (first + i) / run * jump + (first + i) % run;
        unsafe { out.add(at as usize).write(half) };
    }
}

fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = if x.is_nan() { bits | 0x0040_0000 } else { bits + 0x7fff + (bits >> 16 & 1) };
    (rounded >> 16) as u16
}

fn f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let half = if x.is_nan() {
        0x7e00
    } else if magnitude >= 0x4780_0000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Subnormal: the last place of ½ is their unit.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        // Rounding beyond the largest number gives infinity.
        (magnitude - (112 << 23) + 0x0fff + (magnitude >> 13 & 1)) >> 13
    };
    (half | bits >> 16 & 0x8000) as u16
}

/// See [`llmcc_abi::RopeTableFn`]. A position becomes f32 before the multiplication, as in Transformers;
/// the sine, the cosine and their product with `scale` are f64, rounded to f32 once.
pub(crate) unsafe extern "C" fn rope_table(
    pos: *const i32,
    n: u64,
    inv_freq: *const f32,
    half: u64,
    axes: u64,
    scale: f32,
    out: *mut f32,
) {
    let (half, axes) = (half as usize, axes as usize);
    for i in 0..n as usize {
        unsafe {
            let pos = pos.add(i * axes);
            let row = out.add(i * 2 * half);
            for j in 0..half {
                let turn = |a: usize| pos.add(a).read() as f32 * inv_freq.add(a * half + j).read();
                let angle = (1..axes).fold(turn(0), |sum, a| sum + turn(a));
                let (sin, cos) = libm::sincos(angle as f64);
                row.add(j).write((cos * scale as f64) as f32);
                row.add(half + j).write((sin * scale as f64) as f32);
            }
        }
    }
}

/// `e^r − 1` and `2^n` of `x = r + n·ln 2`, for `x` of −87 to 0. Cephes' `expf`, each product and sum
/// fused or rounded as in the fast versions.
fn exp_parts(x: f32) -> (f32, f32) {
    let k = libm::rintf(x * core::f32::consts::LOG2_E);
    let r = libm::fmaf(k, -0.693_359_4, x);
    let r = libm::fmaf(k, 2.121_944_4e-4, r);
    let poly = [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let p = poly[1..].iter().fold(poly[0], |p, c| libm::fmaf(p, r, *c));
    (libm::fmaf(p, r * r, r), f32::from_bits(((k as i32 + 127) << 23) as u32))
}

/// `e^x` for `x <= 0`; 0 below -87.
pub(crate) fn exp(x: f32) -> f32 {
    if x < -87.0 {
        return 0.0;
    }
    let (p, power) = exp_parts(x);
    (p + 1.0) * power
}

/// `tanh x`, by `t = e^(−2|x|) − 1`.
fn tanh(x: f32) -> f32 {
    let twice = x.abs() * -2.0;
    let (p, power) = exp_parts(if -87.0 > twice { -87.0 } else { twice });
    let t = libm::fmaf(p, power, power - 1.0);
    let y = t / (t + 2.0);
    if x < 0.0 { y } else { 0.0 - y }
}

/// See [`llmcc_abi::SelectArgs`].
pub(crate) unsafe extern "C" fn select(a: *const SelectArgs) -> u64 {
    unsafe {
        let a = &*a;
        let d = a.d as usize;
        let score = |row: usize| {
            let page = a.pool.add(a.pages.add(row / PAGE_TOKENS).read() as usize * a.page_bytes as usize);
            let slot = row % PAGE_TOKENS;
            let step = scale(page.wrapping_add(a.v_scales as usize), slot, a.dtype as u32);
            let value = |i| cached(page.add(a.v as usize), (false, d, slot, i), a.dtype as u32) * step;
            let of_head = |sum, head: usize| {
                let term = |acc, i: usize| libm::fmaf(value(i), a.q.add(head * d + i).read(), acc);
                let product = (0..d).fold(0.0f32, term);
                libm::fmaf(if product < 0.0 { 0.0 } else { product }, a.weights.add(head).read(), sum)
            };
            (0..a.heads as usize).fold(0.0f32, of_head)
        };
        // Slots of the last page beyond the context hold anything.
        select_by(a, |first| core::array::from_fn(|i| if first + i < a.rows as usize { score(first + i) } else { 0.0 }))
    }
}

/// See [`AttendArgs`].
pub(crate) unsafe extern "C" fn attend(a: *const AttendArgs) -> u64 {
    unsafe { attend_with(&AttendWith::plain(*a)) }
}

/// See [`AttendMore`].
pub(crate) unsafe extern "C" fn attend_with(with: *const AttendWith) -> u64 {
    unsafe {
        let with = &(*with).counted();
        let (a, more) = (&with.args, &with.more);
        if a.tokens == 0 {
            return 1;
        }
        if a.kv_heads != 1 {
            (0..a.kv_heads as usize).for_each(|n| assert!(attend_with(&with.kv_head(n)) == 1));
            return 1;
        }
        let (share, d) = (Share::new(a, more), with.value_dim());
        if share.all.is_empty() && a.part_from > 0 {
            return 0;
        }
        let position = |token: usize| a.positions.add(token).read() as usize;
        let of_row = |row: usize| (row % a.heads as usize, position(row / a.heads as usize));
        let rows = |f: &mut dyn FnMut(usize, Range<usize>, (*const f32, *const f32), *mut f32)| {
            for row in 0..(a.tokens * a.heads) as usize {
                let (token, head) = (row / a.heads as usize, row % a.heads as usize);
                let q = a.q.byte_add(token * a.q_stride as usize).add(head * with.query_dim());
                let own =
                    more.own.wrapping_byte_add(token * more.own_stride as usize).wrapping_add(head * with.own_dim());
                let out = a.out.byte_add(token * a.out_stride as usize).add(head * d);
                f(row, oldest(a, more, position(token))..end(a, more, token), (q, own), out);
            }
        };
        if !share.alone() {
            for block in share.own.clone() {
                let records = share.record(with, block);
                rows(&mut |row, seen, q, _| {
                    attend_block(with, block, (seen, of_row(row)), q, records.add(row * attend_record(d)));
                });
            }
            if !share.arrive(a.shared) {
                return 0;
            }
        }
        rows(&mut |row, seen, q, out| {
            let (token, head) = (row / a.heads as usize, row % a.heads as usize);
            if seen.is_empty() {
                return results::put(with, token, head, None);
            }
            let record = |block: usize| {
                if !share.alone() {
                    return share.record(with, block).add(row * attend_record(d));
                }
                attend_block(with, block, (seen.clone(), of_row(row)), q, a.work);
                a.work
            };
            let found = merged(with, head, seen.start / ATTEND_BLOCK..seen.end.div_ceil(ATTEND_BLOCK), &record, out);
            results::put(with, token, head, Some(found));
        });
        1
    }
}

/// Writes the merged result of some blocks' records for a head; the maximum and the sum of all of
/// them.
unsafe fn merged(
    with: &AttendWith,
    head: usize,
    blocks: Range<usize>,
    record: &dyn Fn(usize) -> *mut f32,
    out: *mut f32,
) -> (f32, f32) {
    let (sinks, d) = (with.more.sinks, with.value_dim());
    unsafe {
        let (mut maximum, mut sum) =
            if sinks.is_null() { (f32::NEG_INFINITY, 0.0f32) } else { (sinks.add(head).read(), 1.0) };
        (0..d).for_each(|i| out.add(i).write(0.0));
        for block in blocks {
            let record = record(block);
            let (largest, total) = (record.add(d).read(), record.add(d + 1).read());
            let new = if largest > maximum { largest } else { maximum };
            let (keep, take) = (exp(maximum - new), exp(largest - new));
            maximum = new;
            sum = libm::fmaf(sum, keep, total * take);
            (0..d).for_each(|i| out.add(i).write(libm::fmaf(out.add(i).read(), keep, record.add(i).read() * take)));
        }
        (0..d).for_each(|i| out.add(i).write(out.add(i).read() / sum));
        (maximum, sum)
    }
}

/// Bias of a slot's score, by the slot, or by its distance from a head's query.
unsafe fn bias(more: &AttendMore, (head, position): (usize, usize), slot: usize) -> f32 {
    let (reach, distance) = (i64::from(more.reach), slot as i64 - position as i64);
    unsafe {
        let of_head = more.bias.add(head * more.bias_width());
        if more.bias_slots > 0 {
            return of_head.add(slot.min(more.bias_slots as usize - 1)).read();
        }
        if reach == 0 {
            return -(of_head.read() * distance.abs() as f32);
        }
        of_head.add((distance.clamp(-reach, reach) + reach) as usize).read()
    }
}

/// The product of a query and a slot's key, of elements over `step`, with the products of the
/// distance's query and key if there are any.
unsafe fn whole(
    with: &AttendWith,
    row: (usize, usize),
    slot: usize,
    q: *const f32,
    (key, step): (&dyn Fn(usize) -> f32, f32),
) -> f32 {
    let product = (0..with.own_dim()).fold(0.0, |acc, i| libm::fmaf(key(i), unsafe { q.add(i).read() }, acc));
    if !with.relative() {
        return product * step;
    }
    let near = |table, i| unsafe { relative(with, table, row, slot, i) };
    let queries = |acc, i| libm::fmaf(key(i), near(with.more.relative_queries, i), acc);
    let keys = |acc, i| libm::fmaf(near(with.more.relative_keys, i), unsafe { q.add(i).read() }, acc);
    (product + (0..with.own_dim()).fold(0.0, queries)) * step + (0..with.own_dim()).fold(0.0, keys)
}

/// Element `i` of a table's row for the distance of a slot from a head's query.
unsafe fn relative(with: &AttendWith, table: *const f32, row: (usize, usize), slot: usize, i: usize) -> f32 {
    let (head, position) = row;
    let reach = i64::from(with.more.reach);
    let at = (slot as i64 - position as i64).clamp(-reach, reach) + reach;
    unsafe { table.add((head * with.own_dim() + i) * with.more.bias_width() + at as usize).read() }
}

/// The page of slot `slot` of a context, and the slot's place in it.
unsafe fn find(with: &AttendWith, slot: usize) -> (*const u8, usize) {
    let a = &with.args;
    unsafe {
        let at = with.slot(slot);
        let page = a.pages.add(at / PAGE_TOKENS).read();
        (a.pool.add(page as usize * a.page_bytes as usize), at % PAGE_TOKENS)
    }
}

/// The score of a slot for the query of a head at a position.
unsafe fn score(with: &AttendWith, row: (usize, usize), slot: usize, (q, own): (*const f32, *const f32)) -> f32 {
    let (a, softcap) = (&with.args, with.more.softcap);
    let (own_dim, d) = (with.own_dim(), with.value_dim());
    unsafe {
        let (page, place) = find(with, slot);
        let key = |i| cached(page.add(a.k as usize), (true, own_dim, place, i), a.dtype);
        let of_key = scale(page.wrapping_add(a.k_scales as usize), place, a.dtype);
        let product = if with.latent() {
            let value = |i| cached(page.add(a.v as usize), (false, d, place, i), a.dtype);
            let of_value = scale(page.wrapping_add(a.v_scales as usize), place, a.dtype);
            let first = (0..own_dim).fold(0.0, |acc, i| libm::fmaf(key(i) * of_key, own.add(i).read(), acc));
            (0..d).fold(first, |acc, i| libm::fmaf(value(i) * of_value, q.add(i).read(), acc))
        } else if with.selects() {
            whole(with, row, slot, q, (&|i| key(i) * of_key, 1.0))
        } else {
            whole(with, row, slot, q, (&key, of_key))
        };
        let score = product * a.scale;
        let score = if softcap == 0.0 { score } else { tanh(score / softcap) * softcap };
        if with.more.bias.is_null() { score } else { score + bias(&with.more, row, slot) }
    }
}

/// One query, of a head at a position, that sees slots `seen`, and one block: weighted values,
/// maximum, sum at `record`.
unsafe fn attend_block(
    with: &AttendWith,
    block: usize,
    (seen, row): (Range<usize>, (usize, usize)),
    q: (*const f32, *const f32),
    record: *mut f32,
) {
    let (a, d) = (&with.args, with.value_dim());
    let slots = seen.start.max(block * ATTEND_BLOCK)..seen.end.min((block + 1) * ATTEND_BLOCK);
    let mut p = [f32::NEG_INFINITY; ATTEND_BLOCK];
    unsafe {
        slots.clone().for_each(|slot| p[slot % ATTEND_BLOCK] = score(with, row, slot, q));
        let maximum = p.iter().fold(f32::NEG_INFINITY, |m, s| if *s > m { *s } else { m });
        p.iter_mut().for_each(|s| *s = exp(*s - maximum));
        let mut total = [0.0f32; PAGE_TOKENS];
        p.iter().enumerate().for_each(|(i, p)| total[i % PAGE_TOKENS] += p);
        // Halves onto halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|i| total[i] += total[i + half]);
        }
        record.add(d).write(maximum);
        record.add(d + 1).write(total[0]);
        for i in 0..d {
            let term = |acc, slot: usize| {
                let (page, place) = find(with, slot);
                let value = cached(page.add(a.v as usize), (false, d, place, i), a.dtype);
                let step = scale(page.wrapping_add(a.v_scales as usize), place, a.dtype);
                let weight = p[slot % ATTEND_BLOCK];
                if with.selects() {
                    libm::fmaf(value * step, weight, acc)
                } else {
                    libm::fmaf(value, weight * step, acc)
                }
            };
            record.add(i).write(slots.clone().fold(0.0, term));
        }
    }
}
