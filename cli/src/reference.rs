//! The reference of measurements: a checkpoint compiled in its own types.
//!
//! Weights are stored as in the checkpoint, products take f32 inputs, and keys and values are cached in f32, so that
//! nothing is rounded but the results of f32 arithmetic. The artifact has one version, for this machine's processor.

use crate::Error;
use crate::advice::is_checkpoint;
use crate::backends::Backends;
use crate::options::{CompileOptions, find_target};
use crate::session::{self, Unnamed};
use llmcc_frontends::Checkpoint;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_passes::ActPolicy;
use std::path::Path;

/// Options for the reference of a checkpoint.
///
/// # Errors
/// This machine's processor is no target.
pub fn options(checkpoint: &Path) -> Result<CompileOptions, Error> {
    let own = CompileOptions::new(checkpoint, vec![find_target("native")?]);
    Ok(CompileOptions { act: Some(ActPolicy::F32), kv: Some(KvDType::F32), ..own })
}

/// The same for a model that is compiled with other options.
///
/// # Errors
/// As [`options`].
pub fn options_of(model: &CompileOptions) -> Result<CompileOptions, Error> {
    Ok(CompileOptions {
        adapters: model.adapters.clone(),
        max_context: model.max_context,
        ignore_unused: model.ignore_unused,
        ..options(&model.checkpoint)?
    })
}

/// Bytes of a quantized checkpoint whose reference has f32 weights.
const DECODED: u64 = 512 << 20;

/// The format of a reference's weights: f32 for a small checkpoint of codes, which hold the same numbers and are
/// multiplied many times faster; else the checkpoint's own.
fn weights(options: &CompileOptions) -> Result<Option<Format>, Error> {
    let checkpoint = options.with_draft(Checkpoint::open_without_data(&options.checkpoint, &options.adapters)?)?;
    let bytes: u64 = checkpoint.source_files()?.iter().map(|f| f.bytes).sum();
    Ok((checkpoint.coded().next().is_some() && bytes <= DECODED).then_some(Format::F32))
}

/// Compiles a reference to a file without a name in the folder of `near`.
///
/// # Errors
/// Whatever is wrong with the checkpoint.
pub fn compile(options: &CompileOptions, near: &Path) -> Result<Unnamed, Error> {
    let backends = Backends::new(None);
    let options = &CompileOptions { weights: weights(options)?, ..options.clone() };
    let mut lowered = session::lower(options, &backends)?;
    session::unnamed(&mut lowered, options, &backends, near)
}

/// A reference as a user names it.
pub enum Reference<'a> {
    /// An artifact.
    Artifact(&'a Path),
    /// A checkpoint, compiled in its own types.
    Checkpoint(Box<Unnamed>),
}

impl Reference<'_> {
    /// The reference at a path; a checkpoint is compiled, for sequences of up to `max_context` tokens (`None`: the
    /// model's longest).
    ///
    /// # Errors
    /// As [`options`] and [`compile`].
    pub fn open(path: &Path, max_context: Option<usize>) -> Result<Reference<'_>, Error> {
        if !is_checkpoint(path) {
            return Ok(Reference::Artifact(path));
        }
        let options = CompileOptions { max_context, ..options(path)? };
        Ok(Reference::Checkpoint(compile(&options, &std::env::temp_dir().join("llmcc"))?.into()))
    }

    /// The path of its artifact.
    pub fn path(&self) -> &Path {
        match self {
            Reference::Artifact(path) => path,
            Reference::Checkpoint(made) => made.path(),
        }
    }
}
