//! Softmax over a block: scores become weights of values.

use llmcc_abi::{ATTEND_BLOCK, PAGE_TOKENS, attend_record};

use super::exp::exp;
use super::{Cache, Group, MAXIMUM, Run, SUM};
use crate::isa::Isa;

/// Rows of a group.
#[inline(always)]
pub(super) unsafe fn group<I: Isa, C: Cache<I>>(run: &Run, group: &Group) {
    for row in 0..group.rows {
        unsafe { soften::<I, C>(run, group, row) };
    }
}

/// Maximum and sum of a row; its scores become weights, 0 where it sees nothing.
#[inline(always)]
unsafe fn soften<I: Isa, C: Cache<I>>(run: &Run, group: &Group, row: usize) {
    unsafe {
        let (scores, record) = (group.scores(row), group.records.add(row * attend_record(run.d)));
        let (from, to) = run.range(group.first + row, group.page);
        let to = to.max(from).min(ATTEND_BLOCK);
        let from = from.min(to);
        let pages = if from < to { (from / PAGE_TOKENS, to.div_ceil(PAGE_TOKENS)) } else { (group.to, group.to) };
        // Other rows of a tile may see these pages: their values must not count for this one.
        for page in (group.from..pages.0).chain(pages.1..group.to) {
            scores.add(page * PAGE_TOKENS).write_bytes(0, PAGE_TOKENS);
        }
        let (zero, none) = (I::splat(0.0), I::splat(f32::NEG_INFINITY));
        let mut largest = [none; 2];
        let mut page = pages.0;
        while page < pages.1 {
            let at = run.page(group.page + page);
            for v in 0..PAGE_TOKENS / I::LANES {
                let slot = page * PAGE_TOKENS + v * I::LANES;
                let mut s = I::load(scores.add(slot).cast());
                if C::SCALED {
                    s = I::mul(s, I::load(at.k_scales.add(v * I::LANES * 4)));
                }
                s = I::mul(s, I::splat(run.a.scale));
                if slot < from || slot + I::LANES > to {
                    s = I::keep_lanes(s, none, from as i32 - slot as i32, to as i32 - slot as i32);
                }
                I::store(scores.add(slot), s);
                largest[v] = I::max(s, largest[v]);
            }
            page += 1;
        }
        let largest = I::max_float_lane(I::max(largest[1], largest[0]));
        let mut total = [zero; 2];
        let mut page = pages.0;
        while page < pages.1 {
            let at = run.page(group.page + page);
            for v in 0..PAGE_TOKENS / I::LANES {
                let slot = page * PAGE_TOKENS + v * I::LANES;
                // What was masked is far below the maximum: its weight is 0.
                let mut p = exp::<I>(I::sub(I::load(scores.add(slot).cast()), I::splat(largest)));
                total[v] = I::add(total[v], p);
                if C::SCALED {
                    // Slots outside the range may hold any scale.
                    let mut scales = I::load(at.v_scales.add(v * I::LANES * 4));
                    if slot < from || slot + I::LANES > to {
                        scales = I::keep_lanes(scales, zero, from as i32 - slot as i32, to as i32 - slot as i32);
                    }
                    p = I::mul(p, scales);
                }
                I::store(scores.add(slot), p);
            }
            page += 1;
        }
        record.add(MAXIMUM).write(largest);
        record.add(SUM).write(I::sum_float_lanes(total[0], total[1]));
    }
}
