//! Softmax over a block: scores become weights of values.

use llmcc_abi::{PAGE_TOKENS, attend_record, kv_dtype};

use super::bias::biased;
use super::exp::{exp, tanh};
use super::{Group, Row, Run, part};
use crate::isa::Isa;

/// Rows whose maxima are found before any of their exponentials, so that these do not wait for
/// them. Their scores fit in the first-level cache.
const TOGETHER: usize = 8;

part!(pub(super) Soften<I> = all(run, group): Args);

/// Rows of a group.
#[inline(always)]
unsafe fn all<I: Isa>(run: &Run, group: &Group) {
    unsafe {
        // Only codes have scales, and those of selected slots have been multiplied by theirs.
        if kv_dtype::has_scales(run.a.dtype) && !run.selects() {
            rows::<I, true>(run, group)
        } else {
            rows::<I, false>(run, group)
        }
    }
}

#[inline(always)]
unsafe fn rows<I: Isa, const SCALED: bool>(run: &Run, group: &Group) {
    let mut first = 0;
    while first < group.rows.len() {
        let count = TOGETHER.min(group.rows.len() - first);
        let mut largest = [0.0; TOGETHER];
        for i in 0..count {
            unsafe { largest[i] = scale::<I, SCALED>(run, group, first + i) };
        }
        for i in 0..count {
            unsafe { soften::<I, SCALED>(run, group, first + i, largest[i]) };
        }
        first += count;
    }
}

/// Pages of the block in which a row sees a slot.
#[derive(Clone, Copy)]
struct Seen {
    from: usize,
    to: usize,
    /// Pages in which it sees all slots; there are none if not `whole < end`.
    whole: usize,
    end: usize,
}

#[inline(always)]
unsafe fn seen(group: &Group, row: usize) -> Seen {
    let row = unsafe { group.row(row) };
    if row.from >= row.to {
        return Seen { from: group.to, to: group.to, whole: group.to, end: group.to };
    }
    Seen {
        from: row.from / PAGE_TOKENS,
        to: row.to.div_ceil(PAGE_TOKENS),
        whole: row.from.div_ceil(PAGE_TOKENS),
        end: row.to / PAGE_TOKENS,
    }
}

/// `x` at slots that row `row` sees, `other` elsewhere, for the vector at `slot`.
#[inline(always)]
unsafe fn mask<I: Isa>(group: &Group, row: usize, slot: usize, x: I::F, other: I::F) -> I::F {
    unsafe {
        let Row { from, to, .. } = *group.row(row);
        I::keep_lanes(x, other, from as i32 - slot as i32, to as i32 - slot as i32)
    }
}

/// Runs `$f::<.., MASKED>` on the pages that a row sees, in order: masked are the first and the
/// last one, if only a part of them is seen.
macro_rules! pages {
    ($f:ident($run:expr, $group:expr, $row:expr, $seen:expr, $($more:expr),*)) => {
        let seen = $seen;
        $f::<I, SCALED, true>($run, $group, $row, (seen.from, seen.whole.min(seen.to)), $($more),*);
        $f::<I, SCALED, false>($run, $group, $row, (seen.whole, seen.end), $($more),*);
        $f::<I, SCALED, true>($run, $group, $row, (seen.whole.max(seen.end), seen.to), $($more),*);
    };
}

/// Scores in their unit, masked; the largest of them.
#[inline(always)]
unsafe fn scale<I: Isa, const SCALED: bool>(run: &Run, group: &Group, row: usize) -> f32 {
    unsafe {
        let mut largest = [I::splat(f32::NEG_INFINITY); 2];
        pages!(scale_pages(run, group, row, seen(group, row), &mut largest));
        I::max_float_lane(I::max(largest[1], largest[0]))
    }
}

#[inline(always)]
unsafe fn scale_pages<I: Isa, const SCALED: bool, const MASKED: bool>(
    run: &Run,
    group: &Group,
    row: usize,
    (mut page, end): (usize, usize),
    largest: &mut [I::F; 2],
) {
    let factor = unsafe { I::splat(run.a.scale) };
    let cap = run.more.softcap;
    while page < end {
        for v in 0..PAGE_TOKENS / I::LANES {
            let slot = page * PAGE_TOKENS + v * I::LANES;
            unsafe {
                let at = group.scores(row).add(slot);
                let mut s = I::load(at.cast());
                if SCALED && !run.latent() && !run.relative() {
                    s = I::mul(s, I::load(run.page(group.page + page).k_scales.add(v * I::LANES * 4)));
                }
                s = I::mul(s, factor);
                if cap != 0.0 {
                    s = I::mul(tanh::<I>(I::div(s, I::splat(cap))), I::splat(cap));
                }
                if !run.more.bias.is_null() {
                    s = biased::<I>(run, group.row(row), group.page * PAGE_TOKENS + slot, s);
                }
                if MASKED {
                    s = mask::<I>(group, row, slot, s, I::splat(f32::NEG_INFINITY));
                }
                I::store(at, s);
                largest[v] = I::max(s, largest[v]);
            }
        }
        page += 1;
    }
}

/// Weights of values, 0 where the row sees nothing; maximum and sum.
#[inline(always)]
unsafe fn soften<I: Isa, const SCALED: bool>(run: &Run, group: &Group, row: usize, largest: f32) {
    unsafe {
        let zero = I::splat(0.0);
        let seen = seen(group, row);
        // Other rows of a tile may see these pages: their values must not count for this one.
        for page in (group.from..seen.from).chain(seen.to..group.to) {
            for v in 0..PAGE_TOKENS / I::LANES {
                I::store(group.scores(row).add(page * PAGE_TOKENS + v * I::LANES), zero);
            }
        }
        let mut total = [zero; 2];
        pages!(soften_pages(run, group, row, seen, I::splat(largest), &mut total));
        let record = group.records.add(row * attend_record(run.values) + run.values);
        record.write(largest);
        record.add(1).write(I::sum_float_lanes(total[0], total[1]));
    }
}

#[inline(always)]
unsafe fn soften_pages<I: Isa, const SCALED: bool, const MASKED: bool>(
    run: &Run,
    group: &Group,
    row: usize,
    (mut page, end): (usize, usize),
    largest: I::F,
    total: &mut [I::F; 2],
) {
    while page < end {
        for v in 0..PAGE_TOKENS / I::LANES {
            let slot = page * PAGE_TOKENS + v * I::LANES;
            unsafe {
                let at = group.scores(row).add(slot);
                // Masked scores are far below the maximum: their weight is 0.
                let mut p = exp::<I>(I::sub(I::load(at.cast()), largest));
                total[v] = I::add(total[v], p);
                if SCALED {
                    let mut scales = I::load(run.page(group.page + page).v_scales.add(v * I::LANES * 4));
                    if MASKED {
                        // Slots outside the range may hold any scale.
                        scales = mask::<I>(group, row, slot, scales, I::splat(0.0));
                    }
                    p = I::mul(p, scales);
                }
                I::store(at, p);
            }
        }
        page += 1;
    }
}
