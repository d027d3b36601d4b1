//! Images of a prompt: rows in place of the tokens that stand for them.

use crate::engine::{Engine, STEP, mark};
use crate::error::{Error, Result, Status};
use crate::reserve::need;
use llmcc_abi::AXES;
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

/// Tokens of an image of these rows and columns.
pub fn tokens_of([rows, columns]: [u32; 2]) -> usize {
    (rows as usize).saturating_mul(columns as usize)
}

/// The positions of a prompt's tokens along axes: an image's tokens stand in its rows and columns, at one time, as in
/// Qwen2-VL (arXiv 2409.12191); nothing where there are no images, or tokens of the model have no such positions.
///
/// # Errors
/// The images have other numbers of tokens than the prompt has for them; there is not enough memory.
pub(super) fn positions(engine: &Engine, prompt: &[i32], grids: &[[u32; 2]]) -> Result<Vec<i32>> {
    let step = &engine.image().entries[STEP];
    let Some(token) = engine.placeholder().filter(|token| step.axes > 0 && prompt.contains(token)) else {
        return Ok(vec![]);
    };
    need(4 * AXES * prompt.len())?;
    let places = prompt.iter().filter(|t| **t == token).count();
    let all = grids.iter().fold(0, |sum: usize, grid| sum.saturating_add(tokens_of(*grid)));
    if all != places || grids.iter().any(|grid| tokens_of(*grid) == 0) {
        return Err(Error::invalid(format!(
            "the prompt has {places} tokens {token}, which stand for rows of images, and the images have {all}: give \
             the rows and columns of each image's tokens (llmcc_image_grid, llmcc_gen_params.image_grids)"
        )));
    }
    let (mut out, mut next, mut grids) = (Vec::with_capacity(AXES * prompt.len()), 0, grids.iter());
    let mut at = 0;
    while at < prompt.len() {
        match grids.as_slice().first().filter(|_| prompt[at] == token) {
            Some(grid @ [rows, columns]) => {
                let (rows, columns) = (*rows as i32, *columns as i32);
                out.extend((0..rows).flat_map(|y| (0..columns).flat_map(move |x| [next, next + y, next + x])));
                (at, next) = (at + tokens_of(*grid), next + rows.max(columns));
                grids.next();
            }
            None => {
                out.extend([next; AXES]);
                (at, next) = (at + 1, next + 1);
            }
        }
    }
    Ok(out)
}

/// A prompt as a sequence that has seen it lists it.
pub(crate) fn marked<'a>(engine: &Engine, prompt: &'a [i32], rows: &[f32]) -> Cow<'a, [i32]> {
    match engine.placeholder() {
        Some(token) if !rows.is_empty() => {
            let mut rows = rows.chunks_exact(engine.image().entries[STEP].given.max(1));
            let mut of = |t: &i32| if *t == token { rows.next().map_or(*t, mark) } else { *t };
            Cow::Owned(prompt.iter().map(&mut of).collect())
        }
        _ => Cow::Borrowed(prompt),
    }
}
