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

use super::Model;
use super::blocks::{linear, norm};
use super::decoder::{self, Decoder};
use super::entry::Shape;
use super::layer::Layer;
use super::lifter::Lifter;
use super::names::{HEAD, Kind, MLP_NORM, NORM, Names, Part, TABLE, Table};
use super::yields::Entry;
use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op};

/// Norm of the embeddings.
const EMBED_NORM: Part = Part("draft.embed_norm");
/// Norm of the rows that come with tokens.
const ROW_NORM: Part = Part("draft.row_norm");
/// Both to one row, `[hidden, 2·hidden]`, the embedding first.
const JOIN: Part = Part("draft.join");

/// The models whose draft heads are compiled.
const WITH: &str = "DeepSeek-V3, Kimi K2, GLM-4.5 to 5, Mellum 2, Qwen3-Next and Qwen3.5";

/// What checkpoints call a draft head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraftNames {
    /// As a layer with a number after the last, with the further parts beside its blocks.
    OfLayer,
    /// `mtp.layers.N`, with the further parts, of all together, in `mtp`.
    Apart,
}

impl DraftNames {
    /// Its tensors beside those that a layer has.
    fn own(self) -> Table {
        match self {
            DraftNames::OfLayer => &[
                (TABLE, "model.layers.{}.embed_tokens"),
                (HEAD, "model.layers.{}.shared_head.head"),
                (NORM, "model.layers.{}.shared_head.norm"),
                (EMBED_NORM, "model.layers.{}.enorm"),
                (ROW_NORM, "model.layers.{}.hnorm"),
                (JOIN, "model.layers.{}.eh_proj"),
            ],
            DraftNames::Apart => &[
                (TABLE, "mtp.embed_tokens"),
                (NORM, "mtp.norm"),
                (EMBED_NORM, "mtp.pre_fc_norm_embedding"),
                (ROW_NORM, "mtp.pre_fc_norm_hidden"),
                (JOIN, "mtp.fc"),
            ],
        }
    }

    /// What the tensor of a layer is called, if that is the head's.
    fn of_layer(self, tensor: &str) -> String {
        match (self, tensor.strip_prefix("model.")) {
            (DraftNames::Apart, Some(rest)) => format!("mtp.{rest}"),
            _ => tensor.to_string(),
        }
    }
}

/// The draft heads that a decoder's checkpoints have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drafts {
    /// What files call them.
    pub names: DraftNames,
    /// Their layer.
    pub layer: Layer,
}

impl Decoder {
    /// Has draft heads that are layers by number, each as the last of its layers with experts is.
    pub(super) fn with_numbered_drafts(self) -> Decoder {
        self.with_drafts(DraftNames::OfLayer, |layer| layer.experts.is_some())
    }

    /// Has draft heads that are as the last of such layers is, if there is one.
    pub(super) fn with_drafts(mut self, names: DraftNames, such: impl Fn(&Layer) -> bool) -> Decoder {
        self.draft = self.layers.iter().rfind(|layer| such(layer)).map(|layer| Drafts { names, layer: *layer });
        self
    }
}

/// A draft head of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftHead {
    /// The number that it has as a layer.
    layer: usize,
    names: DraftNames,
}

impl Entry {
    /// What a checkpoint that `has` some tensors calls one of what is lifted.
    pub(super) fn tensor_of(
        &self,
        names: Names,
        (part, kind): (Part, Kind),
        place: (Option<usize>, Option<usize>),
        has: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let Some(of) = self.draft else { return names.tensor_of(part, kind, place, has) };
        let own = of.names.own().iter().find(|(p, _)| *p == part).map(|(_, name)| {
            let module = name.replace("{}", &of.layer.to_string());
            kind.named(&module)
        });
        // Table and head are the model's where there are no others.
        let own = own.filter(|name| !matches!(part, TABLE | HEAD) || has(name));
        own.or_else(|| match place.0 {
            Some(_) => {
                let name = names.tensor_of(part, kind, place, |name| has(&of.names.of_layer(name)))?;
                Some(of.names.of_layer(&name))
            }
            None => names.tensor_of(part, kind, place, has),
        })
    }
}

impl Model {
    /// How many draft heads of the model a checkpoint has.
    pub fn draft_heads(&self, ckpt: &Checkpoint) -> usize {
        (0..).take_while(|k| entry(ckpt, self, *k).is_ok()).count()
    }
}

/// What is lifted where draft head `number` is asked for.
///
/// # Errors
/// The architecture has none, or the checkpoint not so many.
pub(super) fn entry(ckpt: &Checkpoint, model: &Model, number: usize) -> Result<Entry, FrontendError> {
    let refuse = |what: String, help| FrontendError::Output { path: ckpt.dir().to_path_buf(), what, help };
    let Some((_, Drafts { names, .. })) = model.shape.drafts() else {
        let what = format!("draft heads of {} are not compiled, but those of {WITH}", model.arch.class);
        return Err(refuse(what, "leave out --draft-head"));
    };
    let first = match names {
        DraftNames::OfLayer => model.facts().layers,
        DraftNames::Apart => 0,
    };
    if names == DraftNames::OfLayer && number >= model.ahead {
        let what = format!(
            "there is no draft head {number}: `num_nextn_predict_layers` says that {} layers predict further tokens",
            model.ahead
        );
        return Err(refuse(what, "leave out --draft-head, or ask for one of those, the first being 0"));
    }
    let draft = DraftHead { layer: first.saturating_add(number), names };
    let entry = Entry { draft: Some(draft), hidden: true, ..Entry::default() };
    let has = |name: &str| ckpt.info(name).is_some();
    let named = |part, layer| entry.tensor_of(model.arch.names, (part, Kind::Matrix), (layer, None), has);
    let norm = entry.tensor_of(model.arch.names, (MLP_NORM, Kind::Gain), (Some(draft.layer), None), has);
    let lacks = [named(JOIN, None), norm].into_iter().flatten().find(|name| !has(name));
    match lacks {
        None => Ok(entry),
        Some(name) => {
            let what = format!("draft head {number} is not in the checkpoint: there is no tensor `{name}`");
            Err(refuse(what, "leave out --draft-head, or take a checkpoint with all layers"))
        }
    }
}

/// Lifts a model, or its draft head where that is asked for.
///
/// # Errors
/// As [`Shape::lift`].
pub(super) fn lift(l: &mut Lifter, shape: &dyn Shape) -> Result<(), FrontendError> {
    let (Some(draft), Some((d, of))) = (l.entry.draft, shape.drafts()) else { return shape.lift(l) };
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
