//! Names of the tensors of published drafts: EAGLE and Medusa.

use super::draft_names::{EMBED_NORM, JOIN, ROW_NORM};
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_Q, ATTN_V, HEAD, Kind, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Names, Part, TABLE,
    Table, names,
};

/// A block of a head of Medusa.
pub(crate) const BLOCK: Part = Part("medusa.block");
/// The matrix from a head's row to logits.
pub(crate) const BLOCK_HEAD: Part = Part("medusa.head");

/// EAGLE (SafeAILab/EAGLE, vLLM, speculators): one layer.
const EAGLE: Table = names! {
    "draft/" | "draft/model." {
        TABLE => "embed_tokens", HEAD => "lm_head", NORM => "norm", JOIN => "fc",
    }
    "draft/layers.0." | "draft/midlayer." | "draft/model.layers.0." | "draft/model.midlayer." {
        ROW_NORM => "hidden_norm", EMBED_NORM => "input_layernorm", ATTN_Q => "self_attn.q_proj",
        ATTN_K => "self_attn.k_proj", ATTN_V => "self_attn.v_proj", ATTN_OUT => "self_attn.o_proj",
        MLP_NORM => "post_attention_layernorm", MLP_GATE => "mlp.gate_proj", MLP_UP => "mlp.up_proj",
        MLP_DOWN => "mlp.down_proj",
    }
};

/// Medusa (FasterDecoding/Medusa, and the same heads as vLLM names them): `{}` is the head, `{e}` the block, and in the
/// authors' files the head's matrix is as a further block.
const MEDUSA: Table = names! {
    "draft/" | "draft/medusa_head." | "draft/medusa_heads." {
        BLOCK => "{}.{e}.linear", BLOCK => "blocks.{}.layers.{e}", BLOCK_HEAD => "{}.{e}", BLOCK_HEAD => "lm_heads.{}",
    }
};

/// The tensors that a draft has of its own; all others are the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrafterNames {
    /// EAGLE's; whether its table is another than the model's.
    Eagle {
        /// It is.
        table: bool,
    },
    /// Medusa's.
    Medusa,
}

impl DrafterNames {
    /// The name of a tensor in a checkpoint that `has` some tensors; `model` has the names of the model.
    pub(crate) fn tensor_of(
        self,
        model: Names,
        (part, kind): (Part, Kind),
        place: (Option<usize>, Option<usize>),
        has: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let own = match self {
            DrafterNames::Eagle { .. } => Names(&[EAGLE]),
            DrafterNames::Medusa => Names(&[MEDUSA]),
        };
        let own = own.tensor_of(part, kind, place, &has);
        let shared = |name: &String| match (self, part) {
            (DrafterNames::Eagle { table }, TABLE) => !table,
            (DrafterNames::Eagle { .. }, HEAD) => !has(name),
            _ => false,
        };
        own.filter(|name| !shared(name)).or_else(|| model.tensor_of(part, kind, place, has))
    }
}
