//! Sounds, for models that write what is said.

use std::ffi::c_char;

use super::handles::MODELS;
use super::types::llmcc_audio_info;
use super::{Model, OutStruct, array, guard, llmcc_model, put_array, utf8};
use crate::error::{Error, Result, Status};
use crate::hearing::Ears;
use crate::reserve::need;

fn ears(model: &Model) -> Result<&Ears> {
    model.ears().ok_or_else(|| {
        Error::new(Status::Unsupported, "this model does not read sounds (LLMCC_HEARS): use a model such as Whisper")
    })
}

/// Sizes of the clips that a model reads.
///
/// # Safety
/// `model` is open, `info` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_audio(model: *const llmcc_model, info: *mut llmcc_audio_info) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, info) = unsafe { (MODELS.get(model)?, OutStruct::new(info)?) };
        let clip = ears(&model)?.clip();
        info.set(&llmcc_audio_info {
            size: size_of::<llmcc_audio_info>(),
            samples: clip.samples as u64,
            rows: clip.rows as u64,
            columns: clip.columns as u64,
            rate: clip.rate,
            reserved: 0,
        })
    })
}

/// Samples at the model's rate, of a WAV file or of samples at another rate.
///
/// # Safety
/// `model` is open; `data` has `n` bytes where `rate` is 0, else `n` floats; `out` has `capacity` floats, `needed` is
/// null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_audio_samples(
    model: *const llmcc_model,
    data: *const std::ffi::c_void,
    n: usize,
    rate: u32,
    out: *mut f32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            let ears = ears(&model)?;
            let samples = match rate {
                0 => ears.of_file(array(data.cast::<u8>(), n, "data")?)?,
                rate => ears.of_samples(array(data.cast::<f32>(), n, "data")?, rate)?,
            };
            put_array(&samples, out, capacity, needed)
        }
    })
}

/// Gives a sequence a clip of sound as its source.
///
/// # Safety
/// `model` is open, `samples` has `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_encode_audio(
    model: *const llmcc_model,
    seq: i32,
    samples: *const f32,
    n: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, samples) = unsafe { (MODELS.get(model)?, array(samples, n, "samples")?) };
        let rows = ears(&model)?.rows(samples)?;
        model.engine().encode_rows(seq, &rows)
    })
}

/// Gives a sequence its source as rows of the encoder.
///
/// # Safety
/// `model` is open, `rows` has `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_encode_rows(model: *const llmcc_model, seq: i32, rows: *const f32, n: usize) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, rows) = unsafe { (MODELS.get(model)?, array(rows, n, "rows")?) };
        need(8 * rows.len())?;
        model.engine().encode_rows(seq, rows)
    })
}

/// The tokens that the text about a sequence's clip begins with.
///
/// # Safety
/// `model` is open; `language` and `task` are null or have as many bytes as is said; `out` has `capacity` elements,
/// `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_audio_prompt(
    model: *const llmcc_model,
    seq: i32,
    language: *const c_char,
    language_len: usize,
    task: *const c_char,
    task_len: usize,
    out: *mut i32,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let model = MODELS.get(model)?;
            let ears = ears(&model)?;
            let (language, task) = (utf8(language, language_len, "language")?, utf8(task, task_len, "task")?);
            let [language, task] = [language, task].map(|text| Some(text).filter(|text| !text.is_empty()));
            let tokens = ears.prompt(&mut model.engine(), seq, language, task)?;
            put_array(&tokens, out, capacity, needed)
        }
    })
}
