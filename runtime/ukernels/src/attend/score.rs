//! Scores of a block: products of queries and keys.

use llmcc_abi::PAGE_TOKENS;

use super::relative::Relative;
use super::{Cache, Group, Run, Wide, part, typed, wide};
use crate::isa::Isa;

/// Pages at once for `rows` rows, where registers hold sums of `pairs` pairs of a row and a page:
/// so many that enough chains of accumulation are in flight.
const fn pages(pairs: usize, rows: usize) -> usize {
    match pairs / rows {
        0 => 0,
        1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// All scores of a block: `q·k`, in the cache's unit and without any mask.
#[inline(always)]
pub(super) unsafe fn group<I: Isa>(run: &Run, group: &Group) {
    unsafe {
        if !group.many(run) {
            return typed!(run.a.dtype, C => I::apart::<_, Score<I, C>>((run, group, group.from, group.to)));
        }
        for (from, to) in wide::runs(group) {
            I::apart::<_, wide::Keys<I>>((run, group, from, to));
            I::apart::<_, Score<I, Wide>>((run, group, from, to));
            if run.relative() {
                I::apart::<_, Relative<I>>((run, group, from, to));
            }
        }
    }
}

part!(Score<I, C> = tiles(run, group, from, to): Pages);

/// Pages `from..to`.
#[inline(always)]
unsafe fn tiles<I: Isa, C: Cache<I>>(run: &Run, group: &Group, from: usize, to: usize) {
    let mut row = 0;
    macro_rules! blocks {
        ($($rows:literal $pages:literal,)*) => { $(
            if const { pages(I::ATTEND_SCORES, $rows) == $pages && (C::ALL_TILES || $rows % 3 != 0) } {
                while group.rows.len() - row >= $rows {
                    unsafe { rows::<I, C, $rows, $pages>(run, group, row, from, to) };
                    row += $rows;
                }
            }
        )* };
    }
    blocks!(6 4, 4 4, 4 1, 3 4, 3 1, 2 4, 2 2, 1 4,);
}

#[inline(always)]
unsafe fn rows<I: Isa, C: Cache<I>, const R: usize, const P: usize>(
    run: &Run,
    group: &Group,
    row: usize,
    from: usize,
    to: usize,
) {
    unsafe {
        let seen = group.union(row, R);
        if seen.0 >= seen.1 {
            return;
        }
        let (mut page, end) = (from.max(seen.0 / PAGE_TOKENS), to.min(seen.1.div_ceil(PAGE_TOKENS)));
        while page + P <= end {
            score::<I, C, R, P>(run, group, row, page);
            page += P;
        }
        // Few instances, since all of them are in every artifact.
        if const { C::WIDE && P > 2 } && page + 2 <= end {
            score::<I, C, R, 2>(run, group, row, page);
            page += 2;
        }
        while P > 1 && page < end {
            score::<I, C, R, 1>(run, group, row, page);
            page += 1;
        }
    }
}

/// Scores of `R` rows and `P` pages.
#[inline(always)]
unsafe fn score<I: Isa, C: Cache<I>, const R: usize, const P: usize>(
    run: &Run,
    group: &Group,
    row: usize,
    page: usize,
) {
    unsafe {
        let (mut k, mut ahead, mut q) =
            ([core::ptr::null::<u8>(); P], [core::ptr::null::<u8>(); P], [core::ptr::null::<f32>(); R]);
        for p in 0..P {
            if C::WIDE {
                k[p] = wide::place(run, group, page + p).cast();
                continue;
            }
            let number = group.page + page + p;
            k[p] = run.page(number).k;
            if C::BYTES == 1 {
                I::prefetch(run.page(number).k_scales);
                I::prefetch(run.page(number).v_scales);
            }
            ahead[p] = run.ahead(group, number, 8, true);
            if ahead[p].is_null() {
                // In the cache already: asking again costs next to nothing.
                ahead[p] = k[p];
            }
        }
        for r in 0..R {
            q[r] = group.row(row + r).q;
        }
        // A page is 16 slots: one vector, or two.
        let mut acc = [[[I::splat(0.0); 2]; P]; R];
        let bytes = PAGE_TOKENS * C::BYTES;
        let line = 64 / bytes;
        let mut i = 0;
        while C::WIDE && i < run.d {
            let base = wide::queries(group, row, i / wide::PART);
            for r in 0..R {
                q[r] = base.wrapping_add(r * wide::PART);
            }
            let count = wide::PART.min(run.d - i);
            for j in 0..count {
                add::<I, C, R, P>(&k, &q, j, &mut acc);
            }
            for p in 0..P {
                k[p] = k[p].wrapping_add(count * bytes);
            }
            i += count;
        }
        while run.d - i >= line {
            for p in 0..P {
                I::prefetch_far(ahead[p].wrapping_add(i * bytes));
            }
            for j in 0..line {
                add::<I, C, R, P>(&k, &q, i + j, &mut acc);
            }
            i += line;
        }
        while i < run.d {
            add::<I, C, R, P>(&k, &q, i, &mut acc);
            i += 1;
        }
        for r in 0..R {
            for p in 0..P {
                for v in 0..PAGE_TOKENS / I::LANES {
                    I::store(group.scores(row + r).add((page + p) * PAGE_TOKENS + v * I::LANES), acc[r][p][v]);
                }
            }
        }
    }
}

/// Adds the products with element `i` of the keys.
#[inline(always)]
unsafe fn add<I: Isa, C: Cache<I>, const R: usize, const P: usize>(
    k: &[*const u8; P],
    q: &[*const f32; R],
    i: usize,
    acc: &mut [[[I::F; 2]; P]; R],
) {
    unsafe {
        for p in 0..P {
            for v in 0..PAGE_TOKENS / I::LANES {
                let keys = C::load(k[p].add((i * PAGE_TOKENS + v * I::LANES) * C::BYTES));
                for r in 0..R {
                    acc[r][p][v] = I::fma(keys, I::splat(q[r].add(i).read()), acc[r][p][v]);
                }
            }
        }
    }
}
