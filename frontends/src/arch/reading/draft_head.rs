//! The draft heads of a checkpoint.

use super::model::Model;
use super::options::DraftHeads;
use crate::arch::blocks::draft_head::drafts;
use crate::arch::blocks::drafts::Drafts;
use crate::arch::blocks::families::draft_names::{DraftHead, DraftNames, JOIN};
use crate::arch::blocks::names::{Kind, MLP_NORM};
use crate::arch::blocks::outputs::Entry;
use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;

/// The models whose draft heads are compiled.
const WITH: &str = "DeepSeek-V3, Kimi K2, GLM-4.5 to 5, Ling 3, Mellum 2, MiMo, Qwen3-Next and Qwen3.5";

impl Model {
    /// How many draft heads of the model a checkpoint has.
    pub fn draft_heads(&self, ckpt: &Checkpoint) -> usize {
        (0..).take_while(|k| entry(ckpt, self, *k).is_ok()).count()
    }

    /// The tensors of draft head `number`, those included that are of all heads.
    pub(crate) fn of_draft_head<'a>(&self, ckpt: &'a Checkpoint, number: usize) -> Vec<&'a str> {
        let draft = entry(ckpt, self, number).ok().and_then(|entry| entry.draft);
        ckpt.names().filter(|name| draft.is_some_and(|draft| draft.has(name))).collect()
    }
}

/// How many draft heads are wanted.
///
/// # Errors
/// All are wanted, and there is none.
pub(crate) fn count(ckpt: &Checkpoint, model: &Model, wanted: DraftHeads) -> Result<usize, FrontendError> {
    match wanted {
        DraftHeads::None => Ok(0),
        DraftHeads::First(n) => Ok(n),
        DraftHeads::All => {
            entry(ckpt, model, 0)?;
            Ok(model.draft_heads(ckpt))
        }
    }
}

/// The entry for draft head `number`.
///
/// # Errors
/// The architecture has no draft heads, or the checkpoint has fewer.
pub(crate) fn entry(ckpt: &Checkpoint, model: &Model, number: usize) -> Result<Entry, FrontendError> {
    let refuse = |what: String, help| FrontendError::Output { path: ckpt.dir().to_path_buf(), what, help };
    let Some((_, Drafts { names, .. })) = drafts(&*model.shape) else {
        let what = format!("draft heads of {} are not supported; supported are those of {WITH}", model.arch.class);
        return Err(refuse(what, "leave out --draft-head"));
    };
    let layers = model.facts().layers;
    // GGUF files have all of them by number.
    let numbered = ckpt.info(&format!("model.layers.{layers}.eh_proj.weight")).is_some();
    let names = if numbered { DraftNames::OfLayer } else { names };
    let first = match names {
        DraftNames::OfLayer => layers,
        DraftNames::Apart | DraftNames::OfModel => 0,
    };
    if names == DraftNames::OfLayer && number >= model.ahead {
        let what = format!(
            "there is no draft head {number}: by `num_nextn_predict_layers`, {} layers predict further tokens",
            model.ahead
        );
        return Err(refuse(what, "leave out --draft-head, or give their number"));
    }
    let draft = DraftHead { layer: first.saturating_add(number), names };
    let entry = Entry { draft: Some(draft), hidden: true, ..Entry::default() };
    let has = |name: &str| ckpt.info(&model.located(ckpt, name)).is_some();
    let named = |part, layer| draft.tensor_of(model.arch.names, (part, Kind::Matrix), (layer, None), has);
    let norm = draft.tensor_of(model.arch.names, (MLP_NORM, Kind::Gain), (Some(draft.layer), None), has);
    let lacks = [named(JOIN, None), norm].into_iter().flatten().find(|name| !has(name));
    match lacks {
        None => Ok(entry),
        Some(name) => {
            let what = format!("draft head {number} is not in the checkpoint: there is no tensor `{name}`");
            Err(refuse(what, "leave out --draft-head, or take a checkpoint with all layers"))
        }
    }
}
