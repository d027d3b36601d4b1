//! Results of blocks become the result of a context.

use llmcc_abi::attend_record;

use super::exp::exp;
use super::{Group, MAXIMUM, Run, SUM, VALUES};
use crate::isa::Isa;

/// Nothing seen yet.
#[inline(always)]
pub(super) unsafe fn start(run: &Run) {
    for row in 0..run.rows {
        unsafe {
            run.state(row).add(MAXIMUM).write(f32::NEG_INFINITY);
            run.state(row).add(SUM).write(0.0);
            run.out(row).write_bytes(0, run.d);
        }
    }
}

/// Adds a block.
#[inline(always)]
pub(super) unsafe fn group<I: Isa>(run: &Run, group: &Group) {
    unsafe {
        for i in 0..group.rows {
            let row = group.first + i;
            let (from, to) = run.range(row, group.page);
            if from < to {
                add::<I>(run, row, group.records.add(i * attend_record(run.d)));
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

#[inline(always)]
unsafe fn add<I: Isa>(run: &Run, row: usize, record: *const f32) {
    unsafe {
        let (state, out) = (run.state(row), run.out(row));
        let (old, new) = (I::splat(state.add(MAXIMUM).read()), I::splat(record.add(MAXIMUM).read()));
        let largest = I::max(new, old);
        let (keep, take) = (exp::<I>(I::sub(old, largest)), exp::<I>(I::sub(new, largest)));
        let sum = I::mul(I::splat(record.add(SUM).read()), take);
        let sum = I::fma(I::splat(state.add(SUM).read()), keep, sum);
        state.add(MAXIMUM).write(first::<I>(largest));
        state.add(SUM).write(first::<I>(sum));
        let values = record.add(VALUES);
        let mut column = 0;
        while run.d - column >= I::LANES {
            let x = I::mul(I::load(values.add(column).cast()), take);
            I::store(out.add(column), I::fma(I::load(out.add(column).cast()), keep, x));
            column += I::LANES;
        }
        if column < run.d {
            let count = run.d - column;
            let (mut a, mut b) = ([0f32; 16], [0f32; 16]);
            core::ptr::copy_nonoverlapping(out.add(column), a.as_mut_ptr(), count);
            core::ptr::copy_nonoverlapping(values.add(column), b.as_mut_ptr(), count);
            let x = I::mul(I::load(b.as_ptr().cast()), take);
            I::store(a.as_mut_ptr(), I::fma(I::load(a.as_ptr().cast()), keep, x));
            core::ptr::copy_nonoverlapping(a.as_ptr(), out.add(column), count);
        }
    }
}

/// Divides by the sums of the probabilities.
#[inline(always)]
pub(super) unsafe fn finish(run: &Run) {
    for row in 0..run.rows {
        unsafe {
            let total = run.state(row).add(SUM).read();
            for i in 0..run.d {
                let p = run.out(row).add(i);
                p.write(p.read() / total);
            }
        }
    }
}
