//! Gemma 4, the text models (Google, 2026): Gemma 3 with wider heads in layers that see everything,
//! norms of values and a factor of each layer. Of 12B and more, the values of those layers are their
//! keys, and one has experts beside the MLP; the smaller ones (E2B, E4B) have embeddings for each
//! layer, and caches that layers share.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{EXPERT_SCALE, EXPERTS_NORM, EXPERTS_POST_NORM, MLP_OWN_NORM, ROUTER_SCALE};
use crate::arch::blocks::families::gemma4::{FIELDS, SCALES, read};
use crate::arch::blocks::names::{
    EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_GATE_UP, HUGGING_FACE, Names, POST_NORMS, ROUTER,
    SANDWICH_NORMS, Table,
};
use crate::arch::blocks::per_layer_embeddings::LAYER_ROWS;
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MODEL, WIDTH, WINDOW};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gemma4_text",
    class: "Gemma4ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, WINDOW, FIELDS, OWN],
    // Of images, which text has none of.
    fixed: &[("use_bidirectional_attention", Neutral::Words(&["vision"]))],
    goldens: &["gemma4_moe", "gemma4", "gemma4_e"],
    names: Names(&[SCALES, NAMES, LAYER_ROWS, SANDWICH_NORMS, POST_NORMS, HUGGING_FACE]),
    read: |f| read(f, 512, 131_072),
};

const OWN: &[Field] = &[
    Field::new("hidden_size_per_layer_input", Accepts::Any),
    Field::new("vocab_size_per_layer_input", Accepts::Size(1 << 24)),
    Field::new("enable_moe_block", Accepts::Flag),
    Field::new("num_experts", Accepts::Size(4096)),
    Field::new("num_experts_per_tok", Accepts::Size(4096)).or(&["top_k_experts"]),
    Field::new("moe_intermediate_size", WIDTH),
];

const NAMES: Table = &[
    (MLP_OWN_NORM, "model.layers.{}.post_feedforward_layernorm_1"),
    (EXPERTS_NORM, "model.layers.{}.pre_feedforward_layernorm_2"),
    (EXPERTS_POST_NORM, "model.layers.{}.post_feedforward_layernorm_2"),
    (ROUTER, "model.layers.{}.router.proj"),
    (ROUTER_SCALE, "model.layers.{}.router.scale"),
    (EXPERT_SCALE, "model.layers.{}.router.per_expert_scale"),
    (EXPERTS_GATE_UP, "model.layers.{}.experts.gate_up_proj"),
    (EXPERTS_DOWN, "model.layers.{}.experts.down_proj"),
    // As GGUF files have them.
    (EXPERT_GATE, "model.layers.{}.experts.{e}.gate_proj"),
    (EXPERT_UP, "model.layers.{}.experts.{e}.up_proj"),
    (EXPERT_DOWN, "model.layers.{}.experts.{e}.down_proj"),
];
