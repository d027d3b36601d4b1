//! Text to tokens and back, chat templates.

use std::ffi::c_char;

use super::handles::MODELS;
use super::types::{LLMCC_ADD_SPECIAL, LLMCC_NO_PROMPT, LLMCC_SHOW_SPECIAL};
use super::{array, guard, llmcc_model, owned, put_array, put_text, utf8};
use crate::error::{Error, Result};
use crate::reserve::need;

/// Tokens whose text is made on the caller's thread.
const FEW: usize = 256;

fn check_flags(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(Error::invalid(format!("unknown flags {:#x}", flags & !known))) }
}

/// Token ids of UTF-8 text.
///
/// # Safety
/// `model` is open, `text` has `len` bytes, `out` has `capacity` elements, `needed` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_tokenize(
    model: *const llmcc_model,
    text: *const c_char,
    len: usize,
    flags: u32,
    out: *mut i32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        check_flags(flags, LLMCC_ADD_SPECIAL | LLMCC_NO_PROMPT)?;
        let special = flags & LLMCC_ADD_SPECIAL != 0;
        // SAFETY: the caller's promise.
        unsafe {
            let (model, text) = (MODELS.get(model)?, utf8(text, len, "text")?);
            model.tokenizer()?;
            let own = owned(text)?;
            let whole = flags & LLMCC_NO_PROMPT != 0;
            let ids = model.with_text(text.len(), move |t| match whole {
                false => t.tokenizer()?.encode(&own, special),
                true => t.tokenizer()?.encode_whole(&own, special),
            })?;
            put_array(&ids, out, capacity, needed)
        }
    })
}

/// Text of token ids.
///
/// # Safety
/// `model` is open, `tokens` has `n` elements, `out` has `capacity` bytes, `needed` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_detokenize(
    model: *const llmcc_model,
    tokens: *const i32,
    n: usize,
    flags: u32,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        check_flags(flags, LLMCC_SHOW_SPECIAL)?;
        // SAFETY: the caller's promise.
        unsafe {
            let (model, tokens) = (MODELS.get(model)?, array(tokens, n, "tokens")?);
            let vocab = model.vocab();
            if let Some((i, token)) =
                tokens.iter().enumerate().find(|(_, t)| usize::try_from(**t).map_or(true, |t| t >= vocab))
            {
                return Err(Error::invalid(format!("token {token} at index {i} is outside the vocabulary of {vocab}")));
            }
            let special = flags & LLMCC_SHOW_SPECIAL != 0;
            let text = match n {
                // Nothing that memory may be short of.
                0..FEW => model.tokenizer()?.decode(tokens, special)?,
                _ => {
                    model.tokenizer()?;
                    need(4 * n)?;
                    let own = tokens.to_vec();
                    model.with_text(n.saturating_mul(4), move |t| t.tokenizer()?.decode(&own, special))?
                }
            };
            put_text(&text, out, capacity, needed)
        }
    })
}

/// The prompt for a conversation given as JSON.
///
/// # Safety
/// `model` is open, `json` has `len` bytes, `out` has `capacity` bytes, `needed` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_apply_chat_template(
    model: *const llmcc_model,
    json: *const c_char,
    len: usize,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let (model, json) = (MODELS.get(model)?, utf8(json, len, "json")?);
            let own = owned(json)?;
            let prompt = model.with_text(json.len(), move |t| t.apply_template(&own))?;
            put_text(&prompt, out, capacity, needed)
        }
    })
}

/// Tokens that end a generation.
///
/// # Safety
/// `model` is open, `out` has `capacity` elements, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_eos_tokens(
    model: *const llmcc_model,
    out: *mut i32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            let ids = model.text().map_or(&[][..], |t| t.config().eos_ids());
            put_array(ids, out, capacity, needed)
        }
    })
}
