//! Entries of the vocabulary.

use std::ffi::c_char;

use super::handles::MODELS;
use super::types::{LLMCC_TOKEN_BYTE, LLMCC_TOKEN_ENDS, LLMCC_TOKEN_SPECIAL, LLMCC_TOKEN_UNUSED};
use super::{Model, Out, guard, llmcc_model, put_array, put_text, utf8};
use crate::error::{Error, Result};
use crate::text::Tokenizer;

/// The tokenizer that spells `token`, which the model must have.
fn spelling(model: &Model, token: i32) -> Result<&Tokenizer> {
    let (tokenizer, vocab) = (model.tokenizer()?, model.vocab());
    if usize::try_from(token).is_ok_and(|t| t < vocab) {
        return Ok(tokenizer);
    }
    Err(Error::invalid(format!("token {token} is outside the vocabulary of {vocab}")))
}

/// A token as the tokenizer's vocabulary writes it.
///
/// # Safety
/// `model` is open, `out` has `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_token_piece(
    model: *const llmcc_model,
    token: i32,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            put_text(&spelling(&model, token)?.piece(token).unwrap_or_default(), out, capacity, needed)
        }
    })
}

/// The bytes that a token adds to a text.
///
/// # Safety
/// `model` is open, `out` has `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_token_bytes(
    model: *const llmcc_model,
    token: i32,
    out: *mut u8,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            put_array(&spelling(&model, token)?.bytes(token)?, out, capacity, needed)
        }
    })
}

/// The flags of a token (`LLMCC_TOKEN_*`).
///
/// # Safety
/// `model` is open, `flags` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_token_flags(model: *const llmcc_model, token: i32, flags: *mut u32) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, flags) = unsafe { (MODELS.get(model)?, Out::new(flags, "flags")?) };
        let (text, tokenizer) = (model.need_text()?, spelling(&model, token)?);
        let bits = [
            (tokenizer.is_special(token), LLMCC_TOKEN_SPECIAL),
            (tokenizer.byte(token).is_some(), LLMCC_TOKEN_BYTE),
            (text.config().eos_ids().contains(&token), LLMCC_TOKEN_ENDS),
            (tokenizer.piece(token).is_none(), LLMCC_TOKEN_UNUSED),
        ];
        let found = bits.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit);
        flags.set(found);
        Ok(())
    })
}

/// The token that the vocabulary writes so; -1: none.
///
/// # Safety
/// `model` is open, `piece` has `len` bytes, `token` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_piece_token(
    model: *const llmcc_model,
    piece: *const c_char,
    len: usize,
    token: *mut i32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, piece, token) =
            unsafe { (MODELS.get(model)?, utf8(piece, len, "piece")?, Out::new(token, "token")?) };
        token.set(model.tokenizer()?.token_id(piece).unwrap_or(-1));
        Ok(())
    })
}

/// Entries of the tokenizer's vocabulary.
///
/// # Safety
/// `model` is open, `n` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_tokenizer_size(model: *const llmcc_model, n: *mut usize) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, n) = unsafe { (MODELS.get(model)?, Out::new(n, "n")?) };
        n.set(model.tokenizer()?.vocab_size());
        Ok(())
    })
}
