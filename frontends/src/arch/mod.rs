//! Architectures: from checked tensors to the graph level.
//!
//! - `models` has one file per architecture and the table of them, [`ARCHS`].
//! - `blocks` has the parts that models are made of.
//! - `towers` has the parts that see images, a file per family.
//! - `reading` finds out which model a checkpoint holds.

mod blocks;
mod models;
mod reading;
mod towers;

use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
pub use blocks::entry::{Arch, REFERENCE, reference};
use blocks::origin::Source;
use llmcc_ir::graph::{EMBED, ENCODE_IMAGE, Module, draft_entry};
pub use models::ARCHS;
pub use reading::drafter::kind as draft_kind;
pub use reading::find_arch::by_model_type;
pub use reading::model::Model;
use reading::normal::Normal;
pub use reading::options::{DraftHeads, Options};
use reading::{chosen_output, draft_head, drafter};
use serde_json::Value;
pub use towers::has_tower;

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
    let most = model.facts().max_position;
    let max_context = match options.max_context {
        Some(asked) if asked == 0 || asked > most => return Err(FrontendError::Context { asked, most }),
        asked => asked.unwrap_or(most),
    };
    let heads = draft_head::count(ckpt, &model, options.draft_heads)?;
    let drafter = drafter::read(ckpt, &model, options)?;
    let wants_hidden = options.hidden_states || heads > 0 || drafter.is_some();
    let mut entry = chosen_output::entry(ckpt, &model, &Options { hidden_states: wants_hidden, ..*options })?;
    let tower = if options.with_image { Some(towers::find(ckpt, &model, &entry)?) } else { None };
    entry.image = tower.as_ref().map(|found| found.tower.seen());
    if let Some(fused) = drafter.as_ref().and_then(|drafter| drafter.fused.clone()) {
        (entry.hidden, entry.fused) = (false, Some(fused));
    }
    let beside = if options.also_embed { Some(chosen_output::beside(ckpt, &model, &entry)?) } else { None };
    let lift = |entry| model.lift(Source::Checkpoint(ckpt), entry, options.kv_dtype, max_context);
    let (mut module, _) = lift(entry)?;
    let failed = |function: &str, what| FrontendError::Structure {
        file: ckpt.config_path().to_path_buf(),
        class: model.arch.class,
        function: function.to_string(),
        what,
    };
    if let Some(rows) = beside {
        module.join(EMBED, lift(rows)?.0).map_err(|what| failed(EMBED, what))?;
    }
    for number in 0..heads {
        let (head, _) = lift(draft_head::entry(ckpt, &model, number)?)?;
        let name = draft_entry(number);
        module.join_apart(&name, head).map_err(|what| failed(&name, what))?;
    }
    if let Some(drafter) = &drafter {
        for i in 0..drafter.entries() {
            let entry = drafter.lift((ckpt, &model), i, (options.kv_dtype, max_context))?;
            let name = draft_entry(i);
            module.join_apart(&name, entry).map_err(|what| failed(&name, what))?;
        }
        drafter.check_all_read(ckpt, &module)?;
    }
    if let Some(found) = &tower {
        let module_of = found.lift(ckpt, &model, (options.kv_dtype, max_context))?;
        found.check_step(ckpt, &model, &module)?;
        module.join_apart(ENCODE_IMAGE, module_of).map_err(|what| failed(ENCODE_IMAGE, what))?;
    }
    if wants_hidden && module.entries.iter().all(|e| e.hidden().is_none()) {
        return Err(chosen_output::without_hidden(ckpt, model.arch.class));
    }
    Ok(module)
}

/// The JSON document by which a runtime makes rows of images for the model of a checkpoint that is lifted with its
/// tower.
///
/// # Errors
/// When there is no tower that is supported, or the files about its processor are malformed.
pub fn image_document(ckpt: &Checkpoint) -> Result<Value, FrontendError> {
    let model = config(ckpt)?;
    let entry = chosen_output::entry(ckpt, &model, &Options::default())?;
    towers::find(ckpt, &model, &entry)?.document(ckpt)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::dummy_config;
