//! Blocks that share work: each counts itself, and the last one finishes.

use crate::mlir::{Builder, Cmp, I32, V};

/// Counts a block that has left its results in the workspace: whether it is the last of `all`. The first `thread`
/// counts, in the word of the workspace that `counter` gives, which is 0 before the first block and after the last.
/// `flag`: a word of shared memory, which another barrier frees.
pub(crate) fn is_last(b: &mut Builder, (thread, flag): (V, V), counter: impl FnOnce(&mut Builder) -> V, all: V) -> V {
    b.fence();
    b.barrier();
    let one_thread = b.cmpc(Cmp::Eq, thread, 0);
    b.if_(one_thread, |b| {
        let counter = counter(b);
        let one = b.i32(1);
        let before = b.atomic_add(counter, one);
        let after = b.addc(before, 1);
        let last = b.cmp(Cmp::Eq, after, all);
        b.if_(last, |b| {
            let zero = b.i32(0);
            b.store(zero, counter);
        });
        let word = b.zext(last, I32);
        b.store(word, flag);
    });
    b.barrier();
    let last = b.load(flag, I32);
    b.cmpc(Cmp::Ne, last, 0)
}
