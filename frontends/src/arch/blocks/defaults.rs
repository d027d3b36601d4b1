//! Defaults of decoders.

use crate::config::common::WindowRule;
use llmcc_ir::graph::UnaryOp;

/// The values an architecture's Transformers configuration class fills in for absent fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// `vocab_size`; `None` = it must be given.
    pub vocab: Option<usize>,
    /// `num_attention_heads`; `None` = it must be given.
    pub heads: Option<usize>,
    /// `num_key_value_heads`; `None` = as many as query heads.
    pub kv_heads: Option<usize>,
    /// `head_dim`; `None` = `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// `max_position_embeddings`.
    pub max_position: usize,
    /// How the attention windows of the layers are chosen.
    pub window: WindowRule,
    /// `tie_word_embeddings`.
    pub tied: bool,
    /// The field with the addend to the mean square of norms.
    pub eps_field: &'static str,
    /// Its value.
    pub eps: f64,
    /// `intermediate_size` as a multiple of the width; `None` = it must be given.
    pub ffn: Option<usize>,
    /// `rope_theta`.
    pub theta: f64,
    /// `partial_rotary_factor`.
    pub partial: f64,
    /// The field with the activation of the MLP.
    pub act: (&'static str, UnaryOp),
}

impl Defaults {
    /// Llama's defaults.
    pub(crate) const LLAMA: Defaults = Defaults {
        vocab: None,
        heads: None,
        kv_heads: None,
        head_dim: None,
        max_position: 2048,
        window: WindowRule::None,
        tied: false,
        eps_field: "rms_norm_eps",
        eps: 1e-6,
        ffn: None,
        theta: 10_000.0,
        partial: 1.0,
        act: ("hidden_act", UnaryOp::Silu),
    };

    /// Defaults of GPT-2, and of many successors, which list their differences.
    pub(crate) const GPT2: Defaults = Defaults {
        vocab: Some(50_257),
        heads: Some(12),
        max_position: 1024,
        tied: true,
        eps_field: "layer_norm_epsilon",
        eps: 1e-5,
        ffn: Some(4),
        act: ("hidden_act", UnaryOp::GeluTanh),
        ..Defaults::LLAMA
    };
}
