//! Sequences and sampling.

use super::handles::MODELS;
use super::types::llmcc_sampling;
use super::{Out, array, guard, llmcc_model, put_array, put_room};
use crate::bias::Bias;
use crate::error::{Error, Result};
use crate::reserve::need;
use crate::sample::{Sampling, sample};

/// Creates an empty sequence.
///
/// # Safety
/// `model` is open, `seq` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_new(model: *const llmcc_model, seq: *mut i32) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, seq) = unsafe { (MODELS.get(model)?, Out::new(seq, "seq")?) };
        seq.set(model.engine().kv_mut().seq_new()?);
        Ok(())
    })
}

/// Frees a sequence.
///
/// # Safety
/// `model` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_free(model: *const llmcc_model, seq: i32) -> i32 {
    guard(|| MODELS.get(model)?.engine().kv_mut().seq_free(seq))
}

/// Forgets all but the first `len` tokens.
///
/// # Safety
/// `model` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_truncate(model: *const llmcc_model, seq: i32, len: usize) -> i32 {
    guard(|| MODELS.get(model)?.engine().kv_mut().truncate(seq, len))
}

/// Copies a sequence, sharing its cache.
///
/// # Safety
/// `model` is open, `copy` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_fork(model: *const llmcc_model, seq: i32, copy: *mut i32) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, copy) = unsafe { (MODELS.get(model)?, Out::new(copy, "copy")?) };
        copy.set(model.engine().kv_mut().fork(seq)?);
        Ok(())
    })
}

/// Gives a sequence its source.
///
/// # Safety
/// `model` is open, `tokens` has `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_encode(model: *const llmcc_model, seq: i32, tokens: *const i32, n: usize) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, tokens) = unsafe { (MODELS.get(model)?, array(tokens, n, "tokens")?) };
        need(8 * tokens.len())?;
        model.engine().encode(seq, tokens)
    })
}

/// Number of tokens of a sequence.
///
/// # Safety
/// `model` is open, `len` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_len(model: *const llmcc_model, seq: i32, len: *mut usize) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, len) = unsafe { (MODELS.get(model)?, Out::new(len, "len")?) };
        len.set(model.engine().kv().tokens(seq)?.len());
        Ok(())
    })
}

/// Tokens of a sequence.
///
/// # Safety
/// `model` is open, `out` has `capacity` elements, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_tokens(
    model: *const llmcc_model,
    seq: i32,
    out: *mut i32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        let model = MODELS.get(model)?;
        let engine = model.engine();
        // SAFETY: the caller's promise.
        unsafe { put_array(engine.kv().tokens(seq)?, out, capacity, needed) }
    })
}

/// Copies a sequence out of the cache.
///
/// # Safety
/// `model` is open, `out` is null or has room for `capacity` bytes, `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_save(
    model: *const llmcc_model,
    seq: i32,
    out: *mut u8,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        let model = MODELS.get(model)?;
        let mut engine = model.engine();
        let len = engine.saved_len(seq)?;
        // SAFETY: the caller's promise.
        unsafe {
            if out.is_null() || capacity < len {
                return put_room(len, capacity, out, needed);
            }
            put_array(&engine.save(seq)?, out, capacity, needed)
        }
    })
}

/// Makes a sequence of bytes that [`llmcc_seq_save`] has written.
///
/// # Safety
/// `model` is open, `bytes` has `len` bytes, `seq` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_load(model: *const llmcc_model, bytes: *const u8, len: usize, seq: *mut i32) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, bytes, seq) = unsafe { (MODELS.get(model)?, array(bytes, len, "bytes")?, Out::new(seq, "seq")?) };
        seq.set(model.engine().load(bytes)?);
        Ok(())
    })
}

/// Chooses a token from logits.
///
/// # Safety
/// The arrays have the lengths given; `sampling` is null or valid; `token` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_sample(
    logits: *const f32,
    n_logits: usize,
    sampling: *const llmcc_sampling,
    history: *const i32,
    n_history: usize,
    draw: u64,
    token: *mut i32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let params = sampling.as_ref().map(|s| sampling_from(s, Zeros::Numbers)).transpose()?.unwrap_or_default();
            let (logits, history) = (array(logits, n_logits, "logits")?, array(history, n_history, "history")?);
            need(sampling.as_ref().map_or(0, |s| s.n_bias as usize * 16))?;
            let bias = sampling.as_ref().map(|s| bias_from(s, logits.len())).transpose()?.unwrap_or_default();
            let token = Out::new(token, "token")?;
            token.set(sample(&bias.apply(logits)?, &params, history, draw)?);
        }
        Ok(())
    })
}

/// Meaning of zeros in a structure that is not zero as a whole.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Zeros {
    /// Numbers like others.
    Numbers,
    /// The default: in programs for versions of the API before 1.4.
    Defaults,
}

/// The C structure's meaning. One that says nothing of how to choose stands for the defaults.
pub(super) fn sampling_from(c: &llmcc_sampling, zeros: Zeros) -> Result<Sampling> {
    if c.reserved != 0 {
        return Err(Error::invalid("llmcc_sampling.reserved must be zero"));
    }
    let floats = [c.temperature, c.top_p, c.min_p, c.repetition_penalty];
    let untouched = floats.iter().all(|x| *x == 0.0) && c.top_k == 0 && c.repetition_window == 0;
    let one = |name: &str, value: f32, use_: &str| match value == 0.0 {
        false => Ok(value),
        true if untouched || zeros == Zeros::Defaults => Ok(1.0),
        true => Err(Error::invalid(format!(
            "llmcc_sampling.{name} is 0; use {use_}. Begin with LLMCC_SAMPLING_INIT, which has the defaults: \
                zeros mean defaults only if the whole structure is zero"
        ))),
    };
    Ok(Sampling {
        temperature: c.temperature,
        top_k: c.top_k,
        top_p: one(
            "top_p",
            c.top_p,
            "a number above 0, up to 1 (1: all tokens; top_k = 1 takes the most probable one)",
        )?,
        min_p: c.min_p,
        repetition_penalty: one("repetition_penalty", c.repetition_penalty, "a positive number (1: off)")?,
        repetition_window: c.repetition_window,
        seed: c.seed,
        ..Sampling::default()
    })
}

/// The structure's bias for the logits of `vocab` tokens.
///
/// # Safety
/// `c.bias` is null or has `c.n_bias` elements.
pub(super) unsafe fn bias_from(c: &llmcc_sampling, vocab: usize) -> Result<Bias> {
    // SAFETY: the caller's promise.
    Bias::new(unsafe { array(c.bias, c.n_bias as usize, "llmcc_sampling.bias")? }, vocab)
}
