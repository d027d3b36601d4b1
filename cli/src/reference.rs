//! The reference of measurements: a checkpoint compiled in its own types.
//!
//! Weights are stored as in the checkpoint, products take f32 inputs, and keys and values are cached in f32, so that
//! nothing is rounded but the results of f32 arithmetic. The artifact has one version, for this machine's processor.

use crate::Error;
use crate::backends::Backends;
use crate::options::{Choose, CompileOptions, find_target};
use crate::session::{self, Unnamed};
use llmcc_codegen::link::WeightsPlace;
use llmcc_frontends::{Checkpoint, DraftHeads};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_passes::method::LEAST_SQUARES;
use llmcc_passes::{ActPolicy, Explain};
use std::path::Path;

/// Options for the reference of a checkpoint.
///
/// # Errors
/// This machine's processor is no target.
pub fn options(checkpoint: &Path) -> Result<CompileOptions, Error> {
    Ok(CompileOptions {
        checkpoint: checkpoint.to_owned(),
        adapters: vec![],
        slots: None,
        targets: vec![find_target("native")?],
        weights: None,
        keep_quantized: None,
        act: Some(ActPolicy::F32),
        kv: Some(KvDType::F32),
        choose: Choose::default(),
        damage: None,
        method: &LEAST_SQUARES,
        calibration: None,
        explain: Explain::default(),
        max_context: None,
        embed: false,
        also_embed: false,
        with_image: false,
        draft_heads: DraftHeads::default(),
        tap: false,
        hidden_states: false,
        place: WeightsPlace::Embed,
        soname: None,
        ignore_unused: false,
        deny_fallback: false,
        measured: None,
        golden: None,
    })
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
    let checkpoint = Checkpoint::open_without_data(&options.checkpoint, &options.adapters)?;
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
