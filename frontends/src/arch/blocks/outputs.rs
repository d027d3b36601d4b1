//! Kinds of outputs of models' structures, and requests of classes.

use crate::arch::blocks::families::draft_names::DraftHead;
use crate::arch::blocks::families::drafter_names::DrafterNames;
use crate::embedding::Embedding;
use llmcc_ir::output::{Output, Pool};

/// A class's head above its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// The architecture's own output.
    Own,
    /// A head that predicts the next token.
    NextToken,
    /// A head that predicts tokens that are masked: of no use for embeddings.
    MaskedToken,
    /// A head that scores classes.
    Classes,
    /// Nothing.
    Nothing,
}

/// Endings of classes.
const TOPS: [(&str, Top); 9] = [
    // XLM and FlauBERT, which are encoders.
    ("WithLMHeadModel", Top::MaskedToken),
    ("ForCausalLM", Top::NextToken),
    ("LMHeadModel", Top::NextToken),
    ("ForMaskedLM", Top::MaskedToken),
    // These two guess, beside or in place of masked tokens, whether a text follows another, or which
    // tokens are not its own.
    ("ForPreTraining", Top::MaskedToken),
    ("ForNextSentencePrediction", Top::MaskedToken),
    // NeoBERT; decoders' classes have longer names.
    ("LMHead", Top::MaskedToken),
    ("ForSequenceClassification", Top::Classes),
    ("Model", Top::Nothing),
];

impl Top {
    /// A class as the name of its family and its top.
    pub(crate) fn split(class: &str) -> Option<(&str, Top)> {
        TOPS.iter().find_map(|(end, top)| Some((class.strip_suffix(end)?, *top)))
    }

    /// The top of `class`, if it is the class of an architecture or another of the same family.
    pub(crate) fn of(class: &str, arch: &str) -> Option<Top> {
        if class == arch || ALSO.contains(&(arch, class)) {
            return Some(Top::Own);
        }
        let (family, top) = Top::split(class)?;
        // The text model of one that sees images too has a name between.
        let same = |ours: &str| ours.eq_ignore_ascii_case(family) || family.strip_suffix("Text") == Some(ours);
        // A class without an ending is all name.
        Some(top).filter(|_| same(Top::split(arch).map_or(arch, |(ours, _)| ours)))
    }
}

/// Classes that have another name in files of the same `model_type`: in older ones, or because Transformers
/// reads them by that class.
const ALSO: &[(&str, &str)] = &[
    ("Rwkv5ForCausalLM", "RwkvForCausalLM"),
    ("Step3p7ForConditionalGeneration", "Step3p5ForCausalLM"),
    ("InternLM3ForCausalLM", "LlamaForCausalLM"),
    ("IQuestCoderForCausalLM", "LlamaForCausalLM"),
    // Its head predicts tokens in any order.
    ("XLNetLMHeadModel", "XLNetModel"),
];

/// Kinds of outputs of a model's structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yields {
    /// Logits of the next token.
    Logits,
    /// These, or rows, which are pooled so unless something else is said, or scores of classes by the
    /// last one.
    LogitsOrRows(Pool),
    /// Rows, or scores of classes by one of them.
    Rows {
        /// How rows are pooled, unless something else is said.
        pool: Pool,
        /// Whose row the scores are made of.
        classes: Pool,
    },
}

impl Yields {
    /// Whether a class with this on top of its layers can be compiled.
    pub(crate) fn suits(self, top: Top) -> bool {
        match (self, top) {
            (_, Top::Own | Top::Nothing) => true,
            (Yields::Logits | Yields::LogitsOrRows(_), Top::NextToken) => true,
            (Yields::Rows { .. }, Top::MaskedToken | Top::Classes) => true,
            (Yields::LogitsOrRows(_), Top::Classes) => true,
            (Yields::Logits, Top::Classes) => false,
            (Yields::Logits | Yields::LogitsOrRows(_), Top::MaskedToken) => false,
            (Yields::Rows { .. }, Top::NextToken) => false,
        }
    }
}

/// Rows of images among the tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageRows {
    /// The id of the tokens that stand for them.
    pub token: usize,
    /// The tokens of an image see each other, before and after.
    pub both_ways: bool,
}

/// Rows made of the inputs of three layers, which EAGLE-3 takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fused {
    /// The layers; the number of all layers stands for the last one's output.
    pub layers: [usize; 3],
    /// The tensor `[hidden, 3·hidden]` that makes a row of the three.
    pub tensor: String,
}

/// The requested output, with the embedding's form if it is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// The output.
    pub output: Output,
    /// Rows that are embeddings: their final form.
    pub embedding: Option<Embedding>,
    /// The draft head that is compiled in the model's place.
    pub draft: Option<DraftHead>,
    /// The published draft whose tensors come before the model's.
    pub drafter: Option<DrafterNames>,
    /// Whether the caller gets the hidden states, too.
    pub hidden: bool,
    /// The rows that the caller gets in their place.
    pub fused: Option<Fused>,
    /// Rows of images that the step takes in place of tokens.
    pub image: Option<ImageRows>,
    /// Whether it stands beside an entry with logits, which shares its weights.
    pub beside: bool,
}
