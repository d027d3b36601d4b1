//! Draft heads: a layer after a model's last that predicts the token after the next.
//!
//! DeepSeek-V3 (arXiv 2412.19437, section 2.2) trains one beside the model: of the hidden state that the
//! model has of token `i` (after its last norm, as `MtpModel` of Transformers takes it) and the embedding of
//! token `i + 1`, each normalized, a matrix makes a row `[T, hidden]` that goes through a layer as one of the
//! model's is, with keys and values of its own; norm and head make logits of token `i + 2`. Table and head are
//! the model's, unless the file has them again.
//!
//! A draft head is an entry of its own: tokens come with hidden states ([`llmcc_ir::graph::Input::Given`]), and the
//! head leaves its own, which the next head takes.

use crate::arch::blocks::attention::{linear, norm};
use crate::arch::blocks::decoder::{self, Decoder};
use crate::arch::blocks::drafts::Drafts;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::families::draft_names::{DraftNames, EMBED_NORM, JOIN, ROW_NORM};
use crate::arch::blocks::layer::Layer;
use crate::arch::blocks::lifter::Lifter;
use crate::error::FrontendError;
use llmcc_ir::graph::Op;
use std::any::Any;

impl Decoder {
    /// Has draft heads that are layers by number, each as the last of its layers with experts is.
    pub(crate) fn with_numbered_drafts(self) -> Decoder {
        self.with_drafts(DraftNames::OfLayer, |layer| layer.experts.is_some())
    }

    /// Has draft heads that are as the last of such layers is, if there is one.
    pub(crate) fn with_drafts(mut self, names: DraftNames, such: impl Fn(&Layer) -> bool) -> Decoder {
        let of = |layer: &Layer| Drafts { names, layer: layer.selecting_alone() };
        self.draft = self.layers.iter().rfind(|layer| such(layer)).map(of);
        self
    }
}

/// The decoder with draft heads, and their description.
pub(crate) fn drafts(shape: &dyn Shape) -> Option<(&Decoder, Drafts)> {
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
    let given = f.given(hidden);
    let given = norm(&mut f, ROW_NORM, d.norm, given, hidden);
    let both = f.op(Op::ConcatCols, &if of.names.rows_first() { [given, x] } else { [x, given] });
    let x = linear(&mut f, JOIN, [hidden, 2 * hidden], false, both);
    let x = f.call(&[x])?.pop().unwrap_or_default();
    let x = decoder::layer(l, d, draft.layer, &of.layer, (&x, None), &ropes)?;
    decoder::head(l, d, &x)
}
