//! Images, for models that see them.

use std::ffi::{c_char, c_void};

use super::handles::MODELS;
use super::{Model, array, guard, llmcc_model, put_array, put_text, utf8};
use crate::engine::sees_nothing;
use crate::error::Result;
use crate::eyes::Eyes;
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
            if out.is_null() {
                // The number of floats alone is asked for, which all images have.
                let floats = eyes.tokens() * model.engine().image().desc().hidden as usize;
                need(4 * floats)?;
                return put_array(&vec![0.0_f32; floats], out, capacity, needed);
            }
            let sides = (width != 0 || height != 0).then_some((width, height));
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
            let prompt = eyes(&model)?.prompt(text, images)?;
            put_text(&prompt, out, capacity, needed)
        }
    })
}
