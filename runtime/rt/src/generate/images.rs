//! Images of a prompt: rows in place of the tokens that stand for them.

use crate::engine::{Engine, STEP, mark};
use crate::error::{Error, Result, Status};
use std::borrow::Cow;

/// Checks the rows of a prompt's images: one for each token that stands for one.
pub(super) fn check(engine: &Engine, prompt: &[i32], rows: &[f32]) -> Result<()> {
    let Some(token) = engine.placeholder() else {
        return match rows.is_empty() {
            true => Ok(()),
            false => Err(Error::new(
                Status::Unsupported,
                "this artifact takes no images (LLMCC_SEES): compile a model that sees them with --with-image",
            )),
        };
    };
    let step = &engine.image().entries[STEP];
    engine.check_room_of_runs(step, prompt)?;
    let width = step.given;
    let places = prompt.iter().filter(|t| **t == token).count();
    match places.checked_mul(width) == Some(rows.len()) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the prompt has {places} tokens {token}, which stand for rows of images, and {} rows are given: give an \
             image for each of its places (llmcc_image_prompt, llmcc_image_rows; `images=` in Python, --image)",
            rows.len() as f64 / width.max(1) as f64
        ))),
    }
}

/// A prompt as a sequence that has seen it lists it.
pub(super) fn marked<'a>(engine: &Engine, prompt: &'a [i32], rows: &[f32]) -> Cow<'a, [i32]> {
    match engine.placeholder() {
        Some(token) if !rows.is_empty() => {
            let mut rows = rows.chunks_exact(engine.image().entries[STEP].given.max(1));
            let mut of = |t: &i32| if *t == token { rows.next().map_or(*t, mark) } else { *t };
            Cow::Owned(prompt.iter().map(&mut of).collect())
        }
        _ => Cow::Borrowed(prompt),
    }
}
