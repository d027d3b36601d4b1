//! Images, for models that see them.

use std::ffi::{c_char, c_void};

use super::handles::MODELS;
use super::{Model, array, array_mut, guard, llmcc_model, put_array, put_length, put_text, utf8};
use crate::engine::sees_nothing;
use crate::error::{Error, Result, Status};
use crate::eyes::Eyes;
use crate::generate::tokens_of;
use crate::reserve::need;

fn eyes(model: &Model) -> Result<&Eyes> {
    model.eyes().ok_or_else(sees_nothing)
}

/// The rows of an image for its places in a prompt.
///
/// # Safety
/// `model` is open, `data` has `n` bytes, `out` has `capacity` floats, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_image_rows(
    model: *const llmcc_model,
    data: *const c_void,
    n: usize,
    width: u32,
    height: u32,
    out: *mut f32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            let eyes = eyes(&model)?;
            let bytes = array(data.cast::<u8>(), n, "data")?;
            let sides = sides(width, height);
            if out.is_null() {
                // The number of floats alone is asked for, which all images have, or which follows from their sizes.
                let tokens = match eyes.tokens() {
                    Some(tokens) => tokens,
                    None => tokens_of(eyes.grid(bytes, sides)?),
                };
                return put_length(tokens * model.hidden(), out, needed);
            }
            let patches = eyes.patches(bytes, sides)?;
            let rows = eyes.rows(&mut model.engine(), &patches)?;
            put_array(&rows, out, capacity, needed)
        }
    })
}

/// A prompt in which each marker of an image has become the tokens that stand for its rows.
///
/// # Safety
/// `model` is open, `text` has `len` bytes, `out` has `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_image_prompt(
    model: *const llmcc_model,
    text: *const c_char,
    len: usize,
    images: usize,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (model, text) = (MODELS.get(model)?, utf8(text, len, "text")?);
            let eyes = eyes(&model)?;
            let Some(tokens) = eyes.tokens() else {
                return Err(Error::new(
                    Status::Unsupported,
                    "images of this model have as many tokens as their sizes say: use llmcc_image_prompt_of, with what \
                     llmcc_image_grid says of each",
                ));
            };
            need(images.saturating_mul(8))?;
            put_text(&eyes.prompt(text, &vec![tokens; images])?, out, capacity, needed)
        }
    })
}

/// [`llmcc_image_prompt`] with images of any sizes.
///
/// # Safety
/// `model` is open, `text` has `len` bytes, `grids` two numbers for each image, `out` has `capacity` bytes, `needed` is
/// null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_image_prompt_of(
    model: *const llmcc_model,
    text: *const c_char,
    len: usize,
    grids: *const u32,
    images: usize,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (model, text) = (MODELS.get(model)?, utf8(text, len, "text")?);
            let counts: Vec<usize> = grids_of(grids, images)?.into_iter().map(tokens_of).collect();
            put_text(&eyes(&model)?.prompt(text, &counts)?, out, capacity, needed)
        }
    })
}

/// Rows and columns of the tokens of an image.
///
/// # Safety
/// `model` is open, `data` has `n` bytes, `grid` room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_image_grid(
    model: *const llmcc_model,
    data: *const c_void,
    n: usize,
    width: u32,
    height: u32,
    grid: *mut u32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            let bytes = array(data.cast::<u8>(), n, "data")?;
            let out = array_mut(grid, 2, "grid")?;
            out.copy_from_slice(&eyes(&model)?.grid(bytes, sides(width, height))?);
            Ok(())
        }
    })
}

/// The sides of an image of pixels; `None`: it is the bytes of a file.
fn sides(width: u32, height: u32) -> Option<(u32, u32)> {
    (width != 0 || height != 0).then_some((width, height))
}

/// A copy of the rows and columns of images.
///
/// # Safety
/// The array has two numbers for each.
pub(super) unsafe fn grids_of(grids: *const u32, images: usize) -> Result<Vec<[u32; 2]>> {
    let n = images.checked_mul(2).ok_or_else(|| Error::invalid("there are too many images; give fewer"))?;
    // SAFETY: the caller's promise.
    let all = unsafe { array(grids, n, "grids of images")? };
    need(all.len().saturating_mul(4))?;
    Ok(all.as_chunks().0.to_vec())
}
