//! Gemma 4, the text models (Google, 2026): Gemma 3 with wider heads in layers that see everything, norms of values and
//! a factor of each layer. In 12B and larger, the values of those layers are their keys, and one has experts beside the
//! MLP; the smaller ones (E2B, E4B) have embeddings for each layer, and caches that layers share.

use crate::arch::blocks::experts::{EXPERT_SCALE, EXPERTS_NORM, EXPERTS_POST_NORM, MLP_OWN_NORM, ROUTER_SCALE};
use crate::arch::blocks::families::gemma4::{FIELDS, SCALES, read};
use crate::arch::blocks::per_layer_embeddings::LAYER_ROWS;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma4_text",
    class: "Gemma4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, WINDOW, FIELDS, OWN],
    // A field about images; text has none.
    fixed: &[("use_bidirectional_attention", Neutral::Words(&["vision"]))],
    goldens: &["gemma4_moe", "gemma4", "gemma4_e"],
    names: Names(&[SCALES, NAMES, LAYER_ROWS, SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| read(f, 512, 131_072),
};

const OWN: &[Field] = fields! {
    hidden_size_per_layer_input: Accepts::Any, vocab_size_per_layer_input, enable_moe_block, num_experts,
    num_experts_per_tok | top_k_experts, moe_intermediate_size,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        MLP_OWN_NORM => "post_feedforward_layernorm_1", EXPERTS_NORM => "pre_feedforward_layernorm_2",
        EXPERTS_POST_NORM => "post_feedforward_layernorm_2", ROUTER => "router.proj", ROUTER_SCALE => "router.scale",
        EXPERT_SCALE => "router.per_expert_scale", EXPERTS_GATE_UP => "experts.gate_up_proj",
        EXPERTS_DOWN => "experts.down_proj",
        // As GGUF files have them.
        EXPERT_GATE => "experts.{e}.gate_proj", EXPERT_UP => "experts.{e}.up_proj",
        EXPERT_DOWN => "experts.{e}.down_proj",
    }
};
