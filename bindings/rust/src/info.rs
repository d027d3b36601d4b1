//! Facts about an open model.

use crate::Token;
use crate::capi::*;

/// The output of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Logits of the next token: it writes text.
    Logits,
    /// A vector for a text.
    Embedding,
    /// A number for each class of a text, or of a pair of texts.
    Scores,
}

/// Sizes and abilities of an open model.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Info {
    /// Entries of the vocabulary.
    pub vocab: usize,
    /// Width.
    pub hidden: usize,
    /// Attention layers.
    pub layers: usize,
    /// Longest sequence, in tokens.
    pub max_context: usize,
    /// Bytes of weights.
    pub weights_bytes: u64,
    /// Bytes of cache for a token, in all layers.
    pub kv_bytes_per_token: u64,
    /// Tokens that the cache holds.
    pub max_tokens: u64,
    /// Tokens that are computed at once.
    pub max_batch_tokens: usize,
    /// Threads in use.
    pub threads: usize,
    /// The token at the beginning of texts.
    pub bos_token: Option<Token>,
    /// Kind of the output.
    pub output: Output,
    /// Numbers in a row of the output.
    pub columns: usize,
    /// Numbers in a row of embeddings or scores; 0: the artifact makes none.
    pub embed_columns: usize,
    /// Whether it has a tokenizer.
    pub tokenizer: bool,
    /// Whether it has a chat template.
    pub chat_template: bool,
    /// Whether tokens see later ones: a sequence is computed in one step.
    pub whole: bool,
    /// Whether its embeddings have length 1.
    pub normalized: bool,
    /// Whether prompts may have images.
    pub sees: bool,
}

impl Info {
    pub(crate) fn of(raw: &llmcc_model_info) -> Info {
        let has = |flag: u32| raw.flags & flag != 0;
        Info {
            vocab: raw.vocab as usize,
            hidden: raw.hidden as usize,
            layers: raw.layers as usize,
            max_context: raw.max_context as usize,
            weights_bytes: raw.weights_bytes,
            kv_bytes_per_token: raw.kv_bytes_per_token,
            max_tokens: raw.max_tokens,
            max_batch_tokens: raw.max_batch_tokens as usize,
            threads: raw.threads as usize,
            bos_token: Some(raw.bos_token).filter(|t| *t >= 0),
            output: match raw.output {
                LLMCC_OUTPUT_EMBEDDING => Output::Embedding,
                LLMCC_OUTPUT_SCORES => Output::Scores,
                _ => Output::Logits,
            },
            columns: raw.columns as usize,
            embed_columns: raw.embed_columns as usize,
            tokenizer: has(LLMCC_HAS_TOKENIZER),
            chat_template: has(LLMCC_HAS_CHAT_TEMPLATE),
            whole: has(LLMCC_IS_WHOLE),
            normalized: has(LLMCC_IS_NORMALIZED),
            sees: has(LLMCC_SEES),
        }
    }
}
