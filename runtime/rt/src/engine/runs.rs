//! Runs of tokens that stand for rows of an image.

use crate::error::{Error, Result};

/// The number that a sequence has in its list of tokens for a row of an image, in place of the token that stands for
/// it: negative, and another one for another row (but for some in a thousand million), so that prompts begin alike only
/// where their images do.
pub fn mark(row: &[f32]) -> i32 {
    // FNV-1a.
    let hash = row.iter().flat_map(|x| x.to_bits().to_le_bytes());
    let hash = hash.fold(0x811c_9dc5_u32, |h, byte| (h ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    -1 - (hash & 0x7fff_ffff) as i32
}

/// How many of the first `count` of `tokens` may be a step, where runs of tokens `of` come whole: all before a run that
/// goes on.
pub(crate) fn whole_runs(tokens: &[i32], of: i32, count: usize) -> usize {
    let cut = tokens.get(count) == Some(&of);
    let run = if cut { tokens[..count].iter().rev().take_while(|t| **t == of).count() } else { 0 };
    count - run
}

/// Fails where a chunk has no tokens: those of an image do not fit.
pub(super) fn check_progress(any: bool) -> Result<()> {
    match any {
        true => Ok(()),
        false => Err(Error::invalid(
            "the tokens of an image see each other, and so go through the model at once, but not as many rows are \
             given at once: ask for fewer rows of them",
        )),
    }
}
