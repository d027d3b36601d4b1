//! Architectures: from checked tensors to the graph level.
//!
//! - `models` has one file per architecture and the table of them, [`ARCHS`].
//! - `blocks` has the parts that models are made of.
//! - `reading` finds out which model a checkpoint holds.

mod blocks;
mod models;
mod reading;

use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
pub use blocks::entry::{Arch, REFERENCE, reference};
use blocks::origin::Source;
use llmcc_ir::graph::{EMBED, Module};
pub use models::ARCHS;
pub use reading::find_arch::by_model_type;
pub use reading::model::Model;
use reading::normal::Normal;
pub use reading::options::Options;
use reading::{chosen_output, draft_head};

/// The fixtures of `tests/goldens` that hold architectures against Transformers.
pub fn goldens() -> impl Iterator<Item = &'static str> {
    ARCHS.iter().flat_map(|a| a.goldens).copied()
}

/// Reads and checks the `config.json` of a checkpoint.
///
/// # Errors
/// When it describes something impossible or unsupported.
pub fn config(ckpt: &Checkpoint) -> Result<Model, FrontendError> {
    let read = Normal::of(ckpt.config(), Some(ckpt)).and_then(|normal| Model::read(&normal));
    read.map_err(|source| ckpt.wrong_config(source))
}

/// Builds the graph of a checkpoint. Reads no tensor data.
///
/// # Errors
/// When the configuration is unsupported, or a tensor is missing or has another shape or type than
/// needed.
pub fn lift(ckpt: &Checkpoint, options: &Options) -> Result<Module, FrontendError> {
    let model = config(ckpt)?;
    let most = model.longest(options.selects);
    let max_context = match options.max_context {
        Some(asked) if asked == 0 || asked > most => return Err(FrontendError::Context { asked, most }),
        asked => asked.unwrap_or(most),
    };
    let entry = match options.draft_head {
        Some(number) => draft_head::entry(ckpt, &model, number)?,
        None => chosen_output::entry(ckpt, &model, options)?,
    };
    let wants_hidden = entry.hidden;
    let beside = if options.also_embed { Some(chosen_output::beside(ckpt, &model, &entry)?) } else { None };
    let lift = |entry| model.lift(Source::Checkpoint(ckpt), entry, options.kv_dtype, max_context);
    let (mut module, _) = lift(entry)?;
    if let Some(rows) = beside {
        let (rows, _) = lift(rows)?;
        let (file, class) = (ckpt.config_path().to_path_buf(), model.arch.class);
        let function = EMBED.to_string();
        module.join(EMBED, rows).map_err(|what| FrontendError::Structure { file, class, function, what })?;
    }
    if wants_hidden && module.entries.iter().all(|e| e.hidden().is_none()) {
        return Err(chosen_output::without_hidden(ckpt, model.arch.class));
    }
    Ok(module)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::dummy_config;
