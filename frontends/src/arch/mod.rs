//! Architectures: from checked tensors to the graph level.
//!
//! One file per architecture over the shared [`blocks`], one line in [`ARCHS`].

mod blocks;
mod lifter;
mod llama;
mod mistral;
mod qwen2;
mod qwen3;

use crate::checkpoint::Checkpoint;
use crate::config::fields::Field;
use crate::config::known::Neutral;
use crate::config::{Config, Defaults};
use crate::error::FrontendError;
use lifter::Lifter;
pub(crate) use lifter::{HEAD, TABLE};
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;

/// Every supported architecture.
pub const ARCHS: &[&Arch] = &[&llama::ARCH, &mistral::ARCH, &qwen2::ARCH, &qwen3::ARCH];

/// An architecture.
pub struct Arch {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Class in `architectures` of `config.json`.
    pub class: &'static str,
    /// The fields of `config.json` that it reads, and the values that they may have, as tables. Nothing else is read.
    pub fields: &'static [&'static [Field]],
    /// Fields that it does not read because the class leaves no choice, with the values that agree with it; all others are refused.
    pub fixed: &'static [(&'static str, Neutral)],
    /// What absent fields of `config.json` mean.
    pub defaults: Defaults,
    /// Adds the functions and calls of the model.
    lift: fn(&mut Lifter) -> Result<(), FrontendError>,
}

impl std::fmt::Debug for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.class)
    }
}

/// Choices of the user that shape the graph.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Element type of cached keys and values.
    pub kv_dtype: KvDType,
    /// Longest sequence, in tokens; `None` = all positions of the model.
    pub max_context: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options { kv_dtype: KvDType::F16, max_context: None }
    }
}

/// The architecture with a `model_type`.
pub fn by_model_type(name: &str) -> Option<&'static Arch> {
    ARCHS.iter().find(|a| a.model_type == name).copied()
}

/// The architecture with a class name.
pub fn by_class(name: &str) -> Option<&'static Arch> {
    ARCHS.iter().find(|a| a.class == name).copied()
}

/// Names of the supported architectures.
pub fn supported() -> Vec<&'static str> {
    ARCHS.iter().map(|a| a.model_type).collect()
}

/// Reads and checks the `config.json` of a checkpoint.
///
/// # Errors
/// When it describes something impossible or unsupported.
pub fn config(ckpt: &Checkpoint) -> Result<Config, FrontendError> {
    Config::parse(ckpt.config()).map_err(|source| FrontendError::Config { path: ckpt.config_path().to_path_buf(), source })
}

/// Builds the graph of a checkpoint. Reads no tensor data.
///
/// # Errors
/// When the configuration is unsupported, or a tensor is missing or has another shape or type than needed.
pub fn lift(ckpt: &Checkpoint, options: &Options) -> Result<Module, FrontendError> {
    let config = config(ckpt)?;
    let most = config.max_position;
    let max_context = match options.max_context {
        Some(asked) if asked == 0 || asked > most => return Err(FrontendError::Context { asked, most }),
        asked => asked.unwrap_or(most),
    };
    let mut lifter = Lifter::new(ckpt, &config, options.kv_dtype, max_context);
    (config.arch.lift)(&mut lifter)?;
    Ok(lifter.finish())
}

#[cfg(test)]
mod tests;
