//! Weighted values of a block.

use llmcc_abi::{PAGE_TOKENS, attend_record};

use super::{Cache, Group, Run, VALUES};
use crate::isa::Isa;

/// Vectors of columns at once.
const COLUMNS: usize = 4;

/// `Σ p·V` of all rows of a group.
#[inline(always)]
pub(super) unsafe fn group<I: Isa, C: Cache<I>>(run: &Run, group: &Group) {
    let mut row = 0;
    macro_rules! blocks {
        ($($n:literal)*) => { $(
            if const { $n <= I::ATTEND_WEIGHS && (C::ALL_TILES || $n % 3 != 0) } {
                while group.rows - row >= $n {
                    unsafe { rows::<I, C, $n>(run, group, row) };
                    row += $n;
                }
            }
        )* };
    }
    blocks!(6 4 3 2 1);
}

#[inline(always)]
unsafe fn rows<I: Isa, C: Cache<I>, const R: usize>(run: &Run, group: &Group, row: usize) {
    let (from, to) = unsafe { run.union(group.first + row, R, group.page) };
    if from >= to {
        return;
    }
    let slots = (from, to);
    let mut column = 0;
    macro_rules! blocks {
        ($($n:expr,)*) => { $(
            while run.d - column >= $n * I::LANES {
                unsafe { weigh::<I, C, R, { $n }>(run, group, row, slots, column) };
                column += $n * I::LANES;
            }
        )* };
    }
    blocks!(COLUMNS, 1,);
    // What is less than a vector: alone in a vector filled up with zeros.
    if column < run.d {
        for r in row..row + R {
            unsafe { tail::<I, C>(run, group, r, slots, column) };
        }
    }
}

/// Slots of page `page` among `from..to`, all counted from the block's start.
#[inline(always)]
fn within(page: usize, (from, to): (usize, usize)) -> (usize, usize) {
    let start = page * PAGE_TOKENS;
    (from.saturating_sub(start), (to - start).min(PAGE_TOKENS))
}

/// `Σ p·V` for `R` rows and `V` vectors of columns from `column` on.
#[inline(always)]
unsafe fn weigh<I: Isa, C: Cache<I>, const R: usize, const V: usize>(
    run: &Run,
    group: &Group,
    row: usize,
    slots: (usize, usize),
    column: usize,
) {
    unsafe {
        let mut acc = [[I::splat(0.0); V]; R];
        let mut page = slots.0 / PAGE_TOKENS;
        while page * PAGE_TOKENS < slots.1 {
            let number = group.page + page;
            let values = run.page(number).v;
            let ahead = run.ahead(group, number, 8, false);
            let ahead = if ahead.is_null() { values } else { ahead };
            let (from, to) = within(page, slots);
            let mut p = [core::ptr::null::<f32>(); R];
            for r in 0..R {
                p[r] = group.scores(row + r).add(page * PAGE_TOKENS);
            }
            for slot in from..to {
                let at = (slot * run.d + column) * C::BYTES;
                let mut line = 0;
                while line < V * I::LANES * C::BYTES {
                    I::prefetch_far(ahead.wrapping_add(at + line));
                    line += 64;
                }
                let mut x = [I::splat(0.0); V];
                for v in 0..V {
                    x[v] = C::load(values.add(at + v * I::LANES * C::BYTES));
                }
                for r in 0..R {
                    let p = I::splat(p[r].add(slot).read());
                    for v in 0..V {
                        acc[r][v] = I::fma(x[v], p, acc[r][v]);
                    }
                }
            }
            page += 1;
        }
        for r in 0..R {
            let out = group.records.add((row + r) * attend_record(run.d) + VALUES + column);
            for v in 0..V {
                I::store(out.add(v * I::LANES), acc[r][v]);
            }
        }
    }
}

#[inline(always)]
unsafe fn tail<I: Isa, C: Cache<I>>(run: &Run, group: &Group, row: usize, slots: (usize, usize), column: usize) {
    let count = run.d - column;
    unsafe {
        let mut acc = I::splat(0.0);
        for slot in slots.0..slots.1 {
            let values = run.page(group.page + slot / PAGE_TOKENS).v;
            let mut bytes = [0u8; PAGE_TOKENS * 4];
            let at = values.add((slot % PAGE_TOKENS * run.d + column) * C::BYTES);
            core::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), count * C::BYTES);
            acc = I::fma(C::load(bytes.as_ptr()), I::splat(group.scores(row).add(slot).read()), acc);
        }
        let mut lanes = [0f32; PAGE_TOKENS];
        I::store(lanes.as_mut_ptr(), acc);
        let out = group.records.add(row * attend_record(run.d) + VALUES + column);
        core::ptr::copy_nonoverlapping(lanes.as_ptr(), out, count);
    }
}
