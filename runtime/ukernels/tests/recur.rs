//! Linear recurrences: every level has the bits of the scalar code, and touches nothing else.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "entries of a table of this machine, and memory that the test owns"
)]

use crate::support::{Guarded, Rng, levels};
use llmcc_abi::Uk;
use llmcc_abi::recur::{RecurArgs, RecurFn, Update};
use llmcc_ukernels::{Level, table};

/// The state and the result after a token of `cols` columns of a state with `stride`.
fn run(level: Level, seed: u64, [rows, cols, stride]: [usize; 3], (update, per_row): (Update, bool)) -> [Vec<u8>; 2] {
    let mut rng = Rng(seed);
    let mut floats = |n: usize| {
        let number = |_| (rng.below(2001) as f32 - 1000.0) / 1000.0;
        Guarded::from_bytes(&(0..n).map(number).flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    };
    let decays = match update {
        Update::Scan => cols,
        Update::Plain | Update::Delta | Update::Erase | Update::Bonus => {
            if per_row {
                rows
            } else {
                1
            }
        }
    };
    let withs = match update {
        Update::Plain | Update::Delta => 1,
        Update::Erase | Update::Bonus => rows,
        Update::Scan => (rows - 1) * stride + cols,
    };
    let (q, k, v, decay, with) = (floats(rows), floats(rows), floats(cols), floats(decays), floats(withs));
    let write = floats(rows);
    // Nothing behind the last column of the last row.
    let mut state = floats((rows - 1) * stride + cols);
    let mut out = Guarded::from_bytes(&vec![0xaa; 4 * cols]);
    let args = RecurArgs {
        state: state.as_mut_ptr().cast(),
        stride: stride as u64,
        rows: rows as u64,
        cols: cols as u64,
        q: q.as_ptr().cast(),
        k: k.as_ptr().cast(),
        v: v.as_ptr().cast(),
        decay: decay.as_ptr().cast(),
        decays: per_row.into(),
        with: with.as_ptr().cast(),
        write: write.as_ptr().cast(),
        out: out.as_mut_ptr().cast(),
        update,
    };
    let f = unsafe { std::mem::transmute::<usize, RecurFn>(table(level).f[Uk::Recur as usize]) };
    unsafe { f(&args) };
    [state, out].map(|x| x.as_bytes().to_vec())
}

#[test]
fn all_levels_have_the_same_bits() {
    for seed in 0..400 {
        let mut rng = Rng(seed + 1);
        let cols = 1 + rng.below(130);
        let shape = [1 + rng.below(40), cols, cols + rng.below(3) * 7];
        let kinds = (Update::ALL[rng.below(5)], rng.below(2) == 0);
        let want = run(Level::Scalar, seed, shape, kinds);
        for level in levels() {
            assert_eq!(run(level, seed, shape, kinds), want, "{level:?} {shape:?} {kinds:?}");
        }
    }
}
