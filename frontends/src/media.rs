//! How sounds become the rows that an encoder reads, by the files of a checkpoint: the member `media` of the text
//! configuration of an artifact, which the runtime reads (`llmcc-media`).

mod audio;

use crate::arch::Model;
use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use serde_json::{Value, json};

/// Name of the member.
pub(crate) const MEDIA: &str = "media";

/// The member of a model that reads sounds; `ending` is its `generation_config.json`.
///
/// # Errors
/// Files that do not fit the model, or ask for work that the runtime does not do.
pub(crate) fn described(
    ckpt: &Checkpoint,
    model: &Model,
    ending: &Value,
) -> Result<Option<(&'static str, Value)>, FrontendError> {
    let Some(sizes) = model.sound() else { return Ok(None) };
    let audio = audio::described(ckpt, sizes, (ending, model.facts().vocab))?;
    Ok(Some((MEDIA, json!({ "audio": audio }))))
}
