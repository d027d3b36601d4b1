//! Results beside the weighted values, and the results of tokens that see nothing.

use llmcc_abi::AttendWith;

use crate::split;

/// Maxima and sums of all rows, as they are at `state` for each KV head one after the other, where they
/// are wanted; and the results of tokens that saw no block. Gives 1: the results are in place.
///
/// # Safety
/// As [`llmcc_abi::AttendFn`]; all blocks are merged.
pub(super) unsafe fn more(with: &AttendWith, state: *const f32) -> u64 {
    let (a, more) = (&with.args, &with.more);
    let (heads, all) = (a.heads as usize, (a.heads * a.kv_heads) as usize);
    let rows = a.tokens as usize * heads;
    if more.sums.is_null() && !more.may_be_blind() {
        return 1;
    }
    for token in 0..a.tokens as usize {
        unsafe {
            let nothing = split::end(a, more, token) == 0;
            for head in 0..all {
                let (kv_head, of_group) = (head / heads, head % heads);
                let row = kv_head * rows + token * heads + of_group;
                let sums = state.wrapping_add(2 * row);
                put(with, token, head, if nothing { None } else { Some((sums.read(), sums.add(1).read())) });
            }
        }
    }
    1
}

/// The same where no token sees anything, and nobody has a block: who has the first part says so.
///
/// # Safety
/// As [`llmcc_abi::AttendFn`].
pub(super) unsafe fn without(with: &AttendWith) -> u64 {
    if with.args.part_from > 0 {
        return 0;
    }
    for token in 0..with.args.tokens as usize {
        for head in 0..(with.args.heads * with.args.kv_heads) as usize {
            unsafe { put(with, token, head, None) };
        }
    }
    1
}

/// Writes the maximum and the sum of a head of a token; of one that saw nothing the result, too.
pub(crate) unsafe fn put(with: &AttendWith, token: usize, head: usize, found: Option<(f32, f32)>) {
    let (a, more, d) = (&with.args, &with.more, with.value_dim());
    let at = token * a.out_stride as usize;
    unsafe {
        if found.is_none() {
            let out = a.out.byte_add(at).add(head * d);
            (0..d).for_each(|i| out.add(i).write(0.0));
        }
        let none = if more.sinks.is_null() { (f32::MIN, 0.0) } else { (more.sinks.add(head).read(), 1.0) };
        let (largest, sum) = found.unwrap_or(none);
        if !more.sums.is_null() {
            let to = more.sums.byte_add(at).add(head);
            to.write(largest);
            to.add(more.sums_after as usize).write(sum);
        }
    }
}
