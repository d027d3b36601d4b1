//! Draft heads: a layer after a model's last that predicts the token after the next.
//!
//! DeepSeek-V3 (arXiv 2412.19437, section 2.2) trains one beside the model: of the hidden state that the
//! model has of token `i` (after its last norm, as `MtpModel` of Transformers takes it) and the embedding of
//! token `i + 1`, each normalized, a matrix makes a row `[T, hidden]` that goes through a layer as one of the
//! model's is, with keys and values of its own; norm and head make logits of token `i + 2`. Table and head are
//! the model's, unless the file has them again.
//!
//! A draft head is a module of its own: tokens come with hidden states ([`Input::Hidden`]), and the head leaves
//! its own, which the next head takes.

use super::model::Model;
use crate::arch::blocks::attention::{linear, norm};
use crate::arch::blocks::decoder::{self, Decoder};
use crate::arch::blocks::drafts::Drafts;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::families::draft_names::{DraftHead, DraftNames, EMBED_NORM, JOIN, ROW_NORM};
use crate::arch::blocks::layer::Layer;
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::{Kind, MLP_NORM};
use crate::arch::blocks::outputs::Entry;
use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op};
use std::any::Any;

/// The models whose draft heads are compiled.
const WITH: &str = "DeepSeek-V3, Kimi K2, GLM-4.5 to 5, Ling 3, Mellum 2, Qwen3-Next and Qwen3.5";

impl Decoder {
    /// Has draft heads that are layers by number, each as the last of its layers with experts is.
    pub(crate) fn with_numbered_drafts(self) -> Decoder {
        self.with_drafts(DraftNames::OfLayer, |layer| layer.experts.is_some())
    }

    /// Has draft heads that are as the last of such layers is, if there is one.
    pub(crate) fn with_drafts(mut self, names: DraftNames, such: impl Fn(&Layer) -> bool) -> Decoder {
        self.draft = self.layers.iter().rfind(|layer| such(layer)).map(|layer| Drafts { names, layer: *layer });
        self
    }
}

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
        DraftNames::Apart => 0,
    };
    if names == DraftNames::OfLayer && number >= model.ahead {
        let what = format!(
            "there is no draft head {number}: by `num_nextn_predict_layers`, {} layers predict further tokens",
            model.ahead
        );
        return Err(refuse(what, "leave out --draft-head, or give one of them, counted from 0"));
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

/// The decoder with draft heads, and their description.
fn drafts(shape: &dyn Shape) -> Option<(&Decoder, Drafts)> {
    let decoder = (shape as &dyn Any).downcast_ref::<Decoder>()?;
    Some((decoder, decoder.draft?))
}

/// Lifts a model, or its draft head where that is asked for.
///
/// # Errors
/// As [`Shape::lift`].
pub(crate) fn lift(l: &mut Lifter, shape: &dyn Shape) -> Result<(), FrontendError> {
    let (Some(draft), Some((d, of))) = (l.entry.draft, drafts(shape)) else { return shape.lift(l) };
    let (x, ropes) = decoder::embedding(l, d)?;
    let hidden = d.facts.hidden;
    let mut f = l.layer("join", draft.layer);
    let x = f.carried("x", &x);
    let x = norm(&mut f, EMBED_NORM, d.norm, x, hidden);
    let given = f.input(Input::Hidden);
    let given = f.op(Op::GivenRows, &[given]);
    let given = norm(&mut f, ROW_NORM, d.norm, given, hidden);
    let both = f.op(Op::ConcatCols, &[x, given]);
    let x = linear(&mut f, JOIN, [hidden, 2 * hidden], false, both);
    let x = f.call(&[x])?.pop().unwrap_or_default();
    let x = decoder::layer(l, d, draft.layer, &of.layer, (&x, None), &ropes)?;
    decoder::head(l, d, &x)
}
