//! The user's choices for a graph.

use llmcc_ir::kv::KvDType;

/// The draft heads of a checkpoint that become entries of the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftHeads {
    /// None of them.
    #[default]
    None,
    /// All of them, and there is one.
    All,
    /// So many, from the first on.
    First(usize),
}

/// Choices of the user that shape the graph.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Element type of cached keys and values.
    pub kv_dtype: KvDType,
    /// Longest sequence, in tokens; `None` = all positions of the model.
    pub max_context: Option<usize>,
    /// Embeddings are wanted, whatever the checkpoint's class.
    pub embed: bool,
    /// Embeddings are wanted beside text: the module gets an entry that makes them.
    pub also_embed: bool,
    /// Draft heads are wanted beside the model: layers that predict the token after the next.
    pub draft_heads: DraftHeads,
    /// The hidden states are wanted beside the logits.
    pub hidden_states: bool,
    /// The tower for images is wanted beside the model, which takes its rows in place of tokens.
    pub with_image: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kv_dtype: KvDType::F16,
            max_context: None,
            embed: false,
            also_embed: false,
            draft_heads: DraftHeads::None,
            hidden_states: false,
            with_image: false,
        }
    }
}
