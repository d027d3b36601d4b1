//! Operands that many rows use again and again, brought together: pages of the cache as f32, and
//! the queries.

use llmcc_abi::{ATTEND_WIDE, PAGE_TOKENS, kv_dtype};

use super::{Cache, Group, Page, Run, part, typed};
use crate::element;
use crate::isa::Isa;

/// Elements of a query that lie together.
pub(super) const PART: usize = 16;

/// The pages of a group in runs that are widened together: the first of each, and the one after its
/// last.
#[inline(always)]
pub(super) fn runs(group: &Group) -> impl Iterator<Item = (usize, usize)> {
    let (from, to) = (group.from, group.to);
    (from / ATTEND_WIDE..to.div_ceil(ATTEND_WIDE))
        .map(move |run| (from.max(run * ATTEND_WIDE), to.min((run + 1) * ATTEND_WIDE)))
}

/// Where page `page` lies when it is widened.
#[inline(always)]
pub(super) fn place(run: &Run, group: &Group, page: usize) -> *mut f32 {
    group.wide.wrapping_add(page % ATTEND_WIDE * PAGE_TOKENS * run.d.max(run.values))
}

part!(pub(super) Keys<I> = keys(run, group, from, to): Pages);
part!(pub(super) Values<I> = values(run, group, from, to): Pages);
part!(pub(super) Queries<I> = copy_queries(run, group): Args);

#[inline(always)]
unsafe fn keys<I: Isa>(run: &Run, group: &Group, from: usize, to: usize) {
    unsafe { pages::<I>(run, group, from, to, true) }
}

#[inline(always)]
unsafe fn values<I: Isa>(run: &Run, group: &Group, from: usize, to: usize) {
    unsafe { pages::<I>(run, group, from, to, false) }
}

/// Widens the keys or the values of pages `from..to`, which are at most [`ATTEND_WIDE`].
#[inline(always)]
unsafe fn pages<I: Isa>(run: &Run, group: &Group, from: usize, to: usize, keys: bool) {
    for page in from..to {
        if run.selects() {
            unsafe { selected::<I>(run, group.page + page, place(run, group, page), keys) };
            continue;
        }
        unsafe {
            let at = run.page(group.page + page);
            let (from, to) = (if keys { at.k } else { at.v }, place(run, group, page));
            match (run.a.dtype, keys) {
                (kv_dtype::INT4, true) => widen_keys4::<I>(from, run.own, to),
                (kv_dtype::INT4, false) => widen_values4::<I>(from, run.values, to),
                (dtype, true) => typed!(dtype, C => widen::<I, C>(from, run.own * PAGE_TOKENS, to)),
                (dtype, false) => typed!(dtype, C => widen::<I, C>(from, run.values * PAGE_TOKENS, to)),
            }
            if keys && run.latent() {
                latent::<I>(run, &at, to);
            }
        }
    }
}

/// Completes the keys of a latent cache's page, whose part stored as keys is widened already: codes
/// times their scales, then the values.
#[inline(always)]
unsafe fn latent<I: Isa>(run: &Run, page: &Page, to: *mut f32) {
    unsafe {
        if kv_dtype::has_scales(run.a.dtype) {
            for i in (0..run.own * PAGE_TOKENS).step_by(I::LANES) {
                let scale = I::load(page.k_scales.add(i % PAGE_TOKENS * 4));
                I::store(to.add(i), I::mul(I::load(to.add(i).cast()), scale));
            }
        }
        let values = Rows::of_page((page.v, page.v_scales), (run.a.dtype, run.values));
        values.together::<I>(to.add(run.own * PAGE_TOKENS), true);
    }
}

/// Values of 16 slots, of `d` elements of a type.
pub(crate) struct Rows {
    at: [*const u8; PAGE_TOKENS],
    scales: [f32; PAGE_TOKENS],
    dtype: u32,
    d: usize,
}

impl Rows {
    /// The rows of a page, whose values and their scales are at these addresses.
    #[inline(always)]
    pub(crate) unsafe fn of_page((values, scales): (*const u8, *const u8), (dtype, d): (u32, usize)) -> Rows {
        let mut rows = Rows { at: [values; PAGE_TOKENS], scales: [1.0; PAGE_TOKENS], dtype, d };
        for slot in 0..PAGE_TOKENS {
            unsafe { rows.take((values, scales), slot, slot) };
        }
        rows
    }

    /// Row `from` of a page as row `slot`.
    #[inline(always)]
    unsafe fn take(&mut self, (values, scales): (*const u8, *const u8), slot: usize, from: usize) {
        let bytes = self.d * kv_dtype::bits(self.dtype).unwrap_or_default() / 8;
        self.at[slot] = values.wrapping_add(from * bytes);
        self.scales[slot] = unsafe { element::scale(scales, from, self.dtype) };
    }

    /// The rows times their scales, as `[16][d]`, or `turned` as `[d][16]`.
    #[inline(always)]
    pub(crate) unsafe fn together<I: Isa>(&self, to: *mut f32, turned: bool) {
        let d = self.d;
        let place = |slot: usize, i: usize| to.wrapping_add(if turned { i * PAGE_TOKENS + slot } else { slot * d + i });
        unsafe {
            match self.dtype {
                kv_dtype::INT4 => values4(self, place),
                dtype => typed!(dtype, C => turn::<I, C>(self, place)),
            }
        }
    }
}

/// The keys or the values of the selected slots that are page `page` of the context; where fewer are
/// left, the last of them again.
#[inline(always)]
unsafe fn selected<I: Isa>(run: &Run, page: usize, to: *mut f32, keys: bool) {
    let last = run.more.selected_count as usize - 1;
    let mut rows =
        Rows { at: [core::ptr::null(); PAGE_TOKENS], scales: [1.0; PAGE_TOKENS], dtype: run.a.dtype, d: run.values };
    for i in 0..PAGE_TOKENS {
        unsafe {
            let slot = run.more.selected.add((page * PAGE_TOKENS + i).min(last)).read() as usize;
            let (at, within) = (run.page(slot / PAGE_TOKENS), slot % PAGE_TOKENS);
            rows.take((at.v, at.v_scales), i, within);
            if keys {
                stored_key(run, &at, within, to.add(i));
            }
        }
    }
    unsafe {
        if !keys {
            rows.together::<I>(to, false);
        } else if run.latent() {
            rows.together::<I>(to.add(run.own * PAGE_TOKENS), true);
        }
    }
}

/// Writes the part of slot `slot` of a page that is stored as a key, times its scale, 16 elements apart.
#[inline(always)]
unsafe fn stored_key(run: &Run, page: &Page, slot: usize, to: *mut f32) {
    unsafe {
        let scale = element::scale(page.k_scales, slot, run.a.dtype);
        for i in 0..run.own {
            let x = element::cached(page.k, (true, run.own, slot, i), run.a.dtype);
            to.add(i * PAGE_TOKENS).write(x * scale);
        }
    }
}

/// Elements of 16 slots times their scales, each to its place.
#[inline(always)]
unsafe fn turn<I: Isa, C: Cache<I>>(rows: &Rows, place: impl Fn(usize, usize) -> *mut f32) {
    let (mut column, d) = (0, rows.d);
    while column < d {
        let count = PAGE_TOKENS.min(d - column);
        let mut tile = [[0f32; PAGE_TOKENS]; PAGE_TOKENS];
        for slot in 0..PAGE_TOKENS {
            let mut bytes = [0u8; PAGE_TOKENS * 4];
            unsafe {
                let at = rows.at[slot].add(column * C::BYTES);
                core::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), count * C::BYTES);
                for i in (0..PAGE_TOKENS).step_by(I::LANES) {
                    let x = I::mul(C::load(bytes.as_ptr().add(i * C::BYTES)), I::splat(rows.scales[slot]));
                    I::store(tile[slot].as_mut_ptr().add(i), x);
                }
            }
        }
        for i in 0..count {
            for (slot, row) in tile.iter().enumerate() {
                unsafe { place(slot, column + i).write(row[i]) };
            }
        }
        column += count;
    }
}

/// The same of values of 4 bits, the two of a byte half a head apart.
#[inline(always)]
unsafe fn values4(rows: &Rows, place: impl Fn(usize, usize) -> *mut f32) {
    let half = rows.d / 2;
    for (slot, scale) in rows.scales.iter().enumerate() {
        for j in 0..half {
            unsafe {
                let [low, high] = halves(rows.at[slot].add(j), 1);
                place(slot, j).write(f32::from(low[0]) * scale);
                place(slot, half + j).write(f32::from(high[0]) * scale);
            }
        }
    }
}

/// `count` elements, a multiple of 16.
#[inline(always)]
unsafe fn widen<I: Isa, C: Cache<I>>(from: *const u8, count: usize, to: *mut f32) {
    let mut i = 0;
    while i < count {
        unsafe { I::store(to.add(i), C::load(from.add(i * C::BYTES))) };
        i += I::LANES;
    }
}

/// The lower and the upper codes of `count` bytes, at most 16, as signed bytes.
#[inline(always)]
unsafe fn halves(from: *const u8, count: usize) -> [[i8; PAGE_TOKENS]; 2] {
    let mut bytes = [0u8; PAGE_TOKENS];
    unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count) };
    let signed = |nibble: u8| (nibble ^ 8) as i8 - 8;
    [bytes.map(|b| signed(b & 15)), bytes.map(|b| signed(b >> 4))]
}

/// `count` of 16 codes as f32.
#[inline(always)]
unsafe fn numbers<I: Isa>(codes: &[i8; PAGE_TOKENS], count: usize, to: *mut f32) {
    let mut out = [0f32; PAGE_TOKENS];
    let mut i = 0;
    while i < PAGE_TOKENS {
        unsafe { I::store(out.as_mut_ptr().add(i), I::load_i8(codes.as_ptr().add(i).cast())) };
        i += I::LANES;
    }
    unsafe { core::ptr::copy_nonoverlapping(out.as_ptr(), to, count) };
}

/// Keys `[d/2][16]`, two elements to a byte.
#[inline(always)]
unsafe fn widen_keys4<I: Isa>(from: *const u8, d: usize, to: *mut f32) {
    for pair in 0..d / 2 {
        unsafe {
            let codes = halves(from.add(pair * PAGE_TOKENS), PAGE_TOKENS);
            for (i, codes) in codes.iter().enumerate() {
                numbers::<I>(codes, PAGE_TOKENS, to.add((2 * pair + i) * PAGE_TOKENS));
            }
        }
    }
}

/// Values `[16][d/2]`, the two elements of a byte half a head apart.
#[inline(always)]
unsafe fn widen_values4<I: Isa>(from: *const u8, d: usize, to: *mut f32) {
    let half = d / 2;
    for slot in 0..PAGE_TOKENS {
        let mut j = 0;
        while j < half {
            let count = PAGE_TOKENS.min(half - j);
            unsafe {
                let codes = halves(from.add(slot * half + j), count);
                for (i, codes) in codes.iter().enumerate() {
                    numbers::<I>(codes, count, to.add(slot * d + i * half + j));
                }
            }
            j += count;
        }
    }
}

/// Elements `16 * part..16 * part + 16` of the queries, `[rows][16]`: rows lie a constant apart, so
/// that one register addresses a tile.
#[inline(always)]
pub(super) fn queries(group: &Group, row: usize, part: usize) -> *mut f32 {
    group.queries.wrapping_add((part * group.rows.len() + row) * PART)
}

/// Copies the queries of all rows to where [`queries`] says.
#[inline(always)]
unsafe fn copy_queries<I: Isa>(run: &Run, group: &Group) {
    for row in 0..group.rows.len() {
        unsafe {
            let of = group.row(row);
            if run.latent() {
                for i in 0..run.own {
                    queries(group, row, i / PART).add(i % PART).write(of.own.add(i).read());
                }
                for i in run.own..run.d {
                    queries(group, row, i / PART).add(i % PART).write(of.q.add(i - run.own).read());
                }
                continue;
            }
            let from = of.q;
            let mut i = 0;
            while run.d - i >= I::LANES {
                I::store(queries(group, row, i / PART).add(i % PART), I::load(from.add(i).cast()));
                i += I::LANES;
            }
            while i < run.d {
                queries(group, row, i / PART).add(i % PART).write(from.add(i).read());
                i += 1;
            }
        }
    }
}
