//! Prompts to measure with.

use crate::Error;
use crate::loaded::Model;

pub(super) fn token(i: usize, vocab: usize) -> i32 {
    ((i * 7919 + 13) % vocab) as i32
}

/// The passes of a prompt; the last one gives a row of logits.
pub(super) fn prompt(model: &Model, seq: i32, ids: &[i32]) -> Result<(), Error> {
    let (n, chunk) = (ids.len(), model.info().max_batch_tokens);
    let mut at = 0;
    while at < n {
        let m = chunk.min(n - at);
        let rows = [m as u32 - 1];
        model.trial(0, &ids[at..at + m], &vec![seq; m], if at + m == n { &rows } else { &[] })?;
        at += m;
    }
    Ok(())
}
