//! Weighted values of a block.

use llmcc_abi::{ATTEND_STRIDE, PAGE_TOKENS, attend_record};

use super::{Cache, Group, Run, Wide, part, typed, wide};
use crate::isa::Isa;

/// Vectors of columns at once.
const COLUMNS: usize = 4;

/// `Σ p·V` of all rows of a group.
#[inline(always)]
pub(super) unsafe fn group<I: Isa>(run: &Run, group: &Group) {
    unsafe {
        if !group.many(run) {
            return typed!(run.a.dtype, C => I::apart::<_, Weigh<I, C>>((run, group, group.from, group.to)));
        }
        for (from, to) in wide::runs(group) {
            I::apart::<_, wide::Values<I>>((run, group, from, to));
            I::apart::<_, Weigh<I, Wide>>((run, group, from, to));
        }
    }
}

part!(Weigh<I, C> = tiles(run, group, from, to): Pages);

/// Pages `from..to`.
#[inline(always)]
unsafe fn tiles<I: Isa, C: Cache<I>>(run: &Run, group: &Group, from: usize, to: usize) {
    let mut row = 0;
    macro_rules! blocks {
        ($($n:literal)*) => { $(
            if const { $n <= I::ATTEND_WEIGHS && (C::ALL_TILES || $n % 3 != 0) } {
                while group.rows.len() - row >= $n {
                    unsafe { rows::<I, C, $n>(run, group, row, from * PAGE_TOKENS, to * PAGE_TOKENS) };
                    row += $n;
                }
            }
        )* };
    }
    blocks!(6 4 3 2 1);
}

/// The slots a tile sees in the pages at hand.
#[derive(Clone, Copy)]
struct Seen {
    /// Slots of the block.
    from: usize,
    to: usize,
    /// Whether it has seen some before.
    continued: bool,
}

/// Slots `from..to`.
#[inline(always)]
unsafe fn rows<I: Isa, C: Cache<I>, const R: usize>(run: &Run, group: &Group, row: usize, from: usize, to: usize) {
    let (first, end) = unsafe { group.union(row, R) };
    let seen = Seen { from: from.max(first), to: to.min(end), continued: first < from };
    if seen.from >= seen.to {
        return;
    }
    let mut column = 0;
    macro_rules! blocks {
        ($($n:expr,)*) => { $(
            while run.values - column >= $n * I::LANES {
                unsafe { weigh::<I, C, R, { $n }>(run, group, row, seen, column) };
                column += $n * I::LANES;
            }
        )* };
    }
    blocks!(COLUMNS, 1,);
    // The rest, less than a vector: alone in a vector filled up with zeros.
    if column < run.values {
        for r in row..row + R {
            unsafe { tail::<I, C>(run, group, r, seen, column) };
        }
    }
}

/// Values of page `page` of the block.
#[inline(always)]
unsafe fn values<I: Isa, C: Cache<I>>(run: &Run, group: &Group, page: usize) -> *const u8 {
    if C::WIDE { wide::place(run, group, page).cast() } else { unsafe { run.page(group.page + page).v } }
}

/// Slots of page `page` among those seen.
#[inline(always)]
fn within(page: usize, seen: Seen) -> (usize, usize) {
    let start = page * PAGE_TOKENS;
    (seen.from.saturating_sub(start), (seen.to - start).min(PAGE_TOKENS))
}

/// `Σ p·V` for `R` rows and `V` vectors of columns from `column` on.
#[inline(always)]
unsafe fn weigh<I: Isa, C: Cache<I>, const R: usize, const V: usize>(
    run: &Run,
    group: &Group,
    row: usize,
    seen: Seen,
    column: usize,
) {
    unsafe {
        let out = group.records.add(row * attend_record(run.values) + column);
        let mut acc = [[I::splat(0.0); V]; R];
        if C::WIDE && seen.continued {
            for r in 0..R {
                for v in 0..V {
                    acc[r][v] = I::load(out.add(r * attend_record(run.values) + v * I::LANES).cast());
                }
            }
        }
        let mut page = seen.from / PAGE_TOKENS;
        while page * PAGE_TOKENS < seen.to {
            let values = values::<I, C>(run, group, page);
            let mut ahead = values;
            if !C::WIDE {
                let next = run.ahead(group, group.page + page, 8, false);
                ahead = if next.is_null() { values } else { next };
            }
            let (from, to) = within(page, seen);
            let p = group.scores(row).add(page * PAGE_TOKENS);
            for slot in from..to {
                let at = (slot * run.values + column) * C::BYTES;
                let mut line = 0;
                while !C::WIDE && line < V * I::LANES * C::BYTES {
                    I::prefetch_far(ahead.wrapping_add(at + line));
                    line += 64;
                }
                let mut x = [I::splat(0.0); V];
                for v in 0..V {
                    x[v] = C::load(values.add(at + v * I::LANES * C::BYTES));
                }
                for r in 0..R {
                    let p = I::splat(p.add(r * ATTEND_STRIDE + slot).read());
                    for v in 0..V {
                        acc[r][v] = I::fma(x[v], p, acc[r][v]);
                    }
                }
            }
            page += 1;
        }
        for r in 0..R {
            for v in 0..V {
                I::store(out.add(r * attend_record(run.values) + v * I::LANES), acc[r][v]);
            }
        }
    }
}

#[inline(always)]
unsafe fn tail<I: Isa, C: Cache<I>>(run: &Run, group: &Group, row: usize, seen: Seen, column: usize) {
    let count = run.values - column;
    unsafe {
        let out = group.records.add(row * attend_record(run.values) + column);
        let mut lanes = [0f32; PAGE_TOKENS];
        if C::WIDE && seen.continued {
            core::ptr::copy_nonoverlapping(out, lanes.as_mut_ptr(), count);
        }
        let mut acc = I::load(lanes.as_ptr().cast());
        for slot in seen.from..seen.to {
            let values = values::<I, C>(run, group, slot / PAGE_TOKENS);
            let mut bytes = [0u8; PAGE_TOKENS * 4];
            let at = values.add((slot % PAGE_TOKENS * run.values + column) * C::BYTES);
            core::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), count * C::BYTES);
            acc = I::fma(C::load(bytes.as_ptr()), I::splat(group.scores(row).add(slot).read()), acc);
        }
        I::store(lanes.as_mut_ptr(), acc);
        core::ptr::copy_nonoverlapping(lanes.as_ptr(), out, count);
    }
}
