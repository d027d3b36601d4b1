//! Prompts made shorter.

use super::handles::MODELS;
use super::{array, array_mut, guard, llmcc_model};
use crate::compress::{Prompt, compress};
use crate::error::{Error, Result};
use crate::reserve::need;

/// Decides which tokens of a prompt are kept.
///
/// # Safety
/// `model` is open; `tokens` and `keep` have `n` elements, `information` is null or has as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_compress(
    model: *const llmcc_model,
    tokens: *const i32,
    n: usize,
    context: usize,
    share: f64,
    keep: *mut u8,
    information: *mut f32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, tokens, keep, information) = unsafe {
            let given = if information.is_null() { 0 } else { n };
            (
                MODELS.get(model)?,
                array(tokens, n, "tokens")?,
                array_mut(keep, n, "keep")?,
                array_mut(information, given, "information")?,
            )
        };
        need(2 * n)?;
        let mut kept = forced(keep)?;
        let found = compress(&mut model.engine(), &Prompt { tokens, context, share }, &mut kept)?;
        keep.iter_mut().zip(kept).for_each(|(to, kept)| *to = u8::from(kept));
        information.iter_mut().zip(found).for_each(|(to, nats)| *to = nats as f32);
        Ok(())
    })
}

/// The tokens that must be kept.
fn forced(keep: &[u8]) -> Result<Vec<bool>> {
    if let Some((i, byte)) = keep.iter().enumerate().find(|(_, byte)| **byte > 1) {
        return Err(Error::invalid(format!("keep[{i}] is {byte}; use 1 for a token that must be kept, else 0")));
    }
    Ok(keep.iter().map(|byte| *byte == 1).collect())
}
