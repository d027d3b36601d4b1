//! Results of blocks become the result of a context.

use llmcc_abi::attend_record;

use super::exp::exp;
use super::{Group, Row, Run, part};
use crate::isa::Isa;

part!(pub(super) Merge<I> = all(run, group): Args);

/// Adds a block. The first that a row sees is its result so far, and after the last one that is
/// divided by the sum of the probabilities.
#[inline(always)]
unsafe fn all<I: Isa>(run: &Run, group: &Group) {
    for i in 0..group.rows.len() {
        unsafe {
            let row = group.row(i);
            if row.from < row.to {
                add::<I>(run, group, i);
            }
        }
    }
}

/// The first lane.
#[inline(always)]
unsafe fn first<I: Isa>(x: I::F) -> f32 {
    let mut lanes = [0f32; 16];
    unsafe { I::store(lanes.as_mut_ptr(), x) };
    lanes[0]
}

/// The value at `out` times `keep`, plus the block's `values` times `take`.
#[inline(always)]
unsafe fn result<I: Isa>(row: &Row, out: *const f32, values: *const f32, keep: I::F, take: I::F, sum: I::F) -> I::F {
    unsafe {
        let old = if row.begins { I::splat(0.0) } else { I::load(out.cast()) };
        let x = I::fma(old, keep, I::mul(I::load(values.cast()), take));
        if row.ends { I::div(x, sum) } else { x }
    }
}

#[inline(always)]
unsafe fn add<I: Isa>(run: &Run, group: &Group, i: usize) {
    unsafe {
        let (row, d) = (*group.row(i), run.values);
        let (values, state) = (group.records.add(i * attend_record(d)), group.state.add(2 * i));
        let (new, total) = (I::splat(values.add(d).read()), I::splat(values.add(d + 1).read()));
        let (mut keep, mut take, mut sum, mut largest) = (I::splat(0.0), I::splat(1.0), total, new);
        let sinks = run.more.sinks;
        let before = if !row.begins {
            Some((state.read(), state.add(1).read()))
        } else if !sinks.is_null() {
            Some((sinks.add(row.head).read(), 1.0))
        } else {
            None
        };
        if let Some((old, before)) = before {
            let old = I::splat(old);
            largest = I::max(new, old);
            (keep, take) = (exp::<I>(I::sub(old, largest)), exp::<I>(I::sub(new, largest)));
            sum = I::fma(I::splat(before), keep, I::mul(total, take));
        }
        state.write(first::<I>(largest));
        state.add(1).write(first::<I>(sum));
        let mut column = 0;
        while d - column >= I::LANES {
            let out = row.out.add(column);
            I::store(out, result::<I>(&row, out, values.add(column), keep, take, sum));
            column += I::LANES;
        }
        if column < d {
            let count = d - column;
            let (mut a, mut b) = ([0f32; 16], [0f32; 16]);
            core::ptr::copy_nonoverlapping(row.out.add(column), a.as_mut_ptr(), count);
            core::ptr::copy_nonoverlapping(values.add(column), b.as_mut_ptr(), count);
            let x = result::<I>(&row, a.as_ptr(), b.as_ptr(), keep, take, sum);
            I::store(a.as_mut_ptr(), x);
            core::ptr::copy_nonoverlapping(a.as_ptr(), row.out.add(column), count);
        }
    }
}
