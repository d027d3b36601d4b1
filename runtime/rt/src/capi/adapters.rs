//! Adapters that are loaded while the model runs.

use std::ffi::c_char;
use std::path::Path;

use super::handles::MODELS;
use super::{Out, guard, llmcc_model, utf8};
use crate::text::read_adapter;

/// Loads the adapter in a folder, or a file of tensors beside its settings.
///
/// # Safety
/// `model` is open, `path` has `len` bytes, `adapter` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_adapter_load(
    model: *const llmcc_model,
    path: *const c_char,
    len: usize,
    adapter: *mut i32,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, path, adapter) =
            unsafe { (MODELS.get(model)?, utf8(path, len, "path")?, Out::new(adapter, "adapter")?) };
        // Read before the engine is locked: others go on meanwhile.
        let (manifest, path) = (model.manifest(), Path::new(path).to_owned());
        let matrices = model.elsewhere(move || read_adapter(manifest.to_str().unwrap_or_default(), &path))?;
        adapter.set(model.engine().add_adapter(&matrices)? as i32);
        Ok(())
    })
}

/// Unloads an adapter that no sequence has.
///
/// # Safety
/// `model` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_adapter_unload(model: *const llmcc_model, adapter: i32) -> i32 {
    guard(|| MODELS.get(model)?.engine().remove_adapter(adapter))
}

/// Gives a sequence without tokens an adapter; 0: none.
///
/// # Safety
/// `model` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_seq_set_adapter(model: *const llmcc_model, seq: i32, adapter: i32) -> i32 {
    guard(|| MODELS.get(model)?.engine().set_adapter(seq, adapter))
}
