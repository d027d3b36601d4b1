//! The encoders of T5 and those after it, which some embedders are: RMSNorm before the blocks, no biases,
//! and scores that are not scaled, but get a learned number by the distance of the key.

use crate::arch::blocks::attention::{Attention, Norm};
use crate::arch::blocks::attention_scores::{Buckets, Distance};
use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, TABLE, Table,
};
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, Facts, Heads, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

/// What their classes decide.
pub(crate) const FIXED: &[(&str, Neutral)] = &[
    ("is_decoder", Neutral::Off),
    // The class is an encoder alone, and sets it so.
    ("is_encoder_decoder", Neutral::Any),
    ("num_decoder_layers", Neutral::Any),
    ("scale_decoder_outputs", Neutral::Any),
    ("tie_word_embeddings", Neutral::Any),
    ("dropout_rate", Neutral::Any),
    ("bos_token_id", Neutral::Any),
    // Of files of UMT5; nothing reads it.
    ("scalable_attention", Neutral::Any),
];

/// What their configuration classes differ in.
pub(crate) struct Absent {
    /// `vocab_size`.
    pub vocab: usize,
    /// `d_ff`.
    pub ffn: usize,
    /// `num_layers`.
    pub layers: usize,
    /// `num_heads`.
    pub heads: usize,
    /// `feed_forward_proj`.
    pub mlp: &'static str,
}

impl Absent {
    /// Those of T5.
    pub(crate) const T5: Absent = Absent { vocab: 32_128, ffn: 2048, layers: 6, heads: 8, mlp: "relu" };
    /// Those of its successors.
    pub(crate) const MT5: Absent = Absent { vocab: 250_112, ffn: 1024, layers: 8, heads: 6, mlp: "gated-gelu" };
}

/// MLPs by their names, `gelu` with a gate being the approximation by tanh.
const MLPS: &[&str] = &["relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-gelu_new", "gated-relu", "gated-silu"];

/// Their fields.
pub(crate) const FIELDS: &[Field] = &[
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("d_model", WIDTH),
    Field::new("d_kv", Accepts::Size(1 << 14)),
    Field::new("d_ff", WIDTH),
    Field::new("num_layers", Accepts::Size(4096)),
    Field::new("num_heads", Accepts::Size(1 << 14)),
    // Distances have no end; published models were trained with so many tokens.
    Field::new("n_positions", TOKENS).unless(Neutral::Any),
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("feed_forward_proj", Accepts::OneOf(MLPS)),
    Field::new("dense_act_fn", Accepts::OneOf(ACTIVATIONS)),
    Field::new("is_gated_act", Accepts::Flag),
    Field::new(COUNT, Accepts::Size(1 << 14)),
    Field::new(MOST, TOKENS).unless(Neutral::Any),
    Field::new("eos_token_id", Accepts::Tokens),
];

const COUNT: &str = "relative_attention_num_buckets";
const MOST: &str = "relative_attention_max_distance";

/// Buckets of all published models. Those of others may begin elsewhere than the class's f32 says.
const BUCKETS: Buckets = Buckets { count: 32, most: 128 };

/// Reads [`FIELDS`].
pub(crate) fn read(f: &Fields, d: &Absent) -> Result<Encoder, ConfigError> {
    for (field, only) in [(COUNT, BUCKETS.count), (MOST, BUCKETS.most)] {
        if let Some(n) = f.size(field).value().filter(|n| *n != only) {
            return Err(f.unsupported(field, n.to_string(), format!("this architecture has {only}")));
        }
    }
    let vocab = f.size("vocab_size").or(d.vocab);
    let facts = Facts {
        name: None,
        vocab,
        hidden: f.required_size("d_model")?,
        layers: f.size("num_layers").or(d.layers),
        max_position: f.size("n_positions").or(512),
        tied: true,
        bos: None,
        eos: f.token_ids("eos_token_id", vocab)?,
    };
    let queries = f.size("num_heads").or(d.heads);
    let heads = Heads { queries, kv: queries, dim: f.size("d_kv").or(64) };
    let named = f.text("feed_forward_proj").unwrap_or(d.mlp);
    let act = match named {
        "gated-gelu" | "gelu_new" | "gated-gelu_new" => UnaryOp::GeluTanh,
        "gelu" => UnaryOp::Gelu,
        "silu" | "gated-silu" => UnaryOp::Silu,
        _ => UnaryOp::Relu,
    };
    // What newer files say of it besides counts.
    let act = common::activation(f, "dense_act_fn", act);
    let gated = f.flag_or("is_gated_act", named.starts_with("gated-"));
    let eps = common::eps(f, "layer_norm_epsilon", 1e-6)?;
    let mut e = Encoder::alike(facts, heads, (f.size("d_ff").or(d.ffn), act), eps);
    (e.norm, e.norm_first, e.table_norm) = (Norm::rms(eps), true, false);
    // The third is what GGUF files call it.
    e.spare = &["encoder.embed_tokens.", "decoder.", "dec.", "lm_head."];
    for layer in &mut e.layers {
        let distance = Some(Distance::Buckets(BUCKETS));
        layer.attention =
            Attention { scale: 1.0, rotary: None, causal: false, distance, ..Attention::plain(heads, None) };
        (layer.mlp.gated, layer.mlp.bias) = (gated, false);
    }
    Ok(e)
}

/// Their names, but those of what scores get by distance.
pub(crate) const NAMES: Table = &[
    (TABLE, "shared"),
    (TABLE, "encoder.embed_tokens"),
    (NORM, "encoder.final_layer_norm"),
    (ATTN_NORM, "encoder.block.{}.layer.0.layer_norm"),
    (ATTN_Q, "encoder.block.{}.layer.0.SelfAttention.q"),
    (ATTN_K, "encoder.block.{}.layer.0.SelfAttention.k"),
    (ATTN_V, "encoder.block.{}.layer.0.SelfAttention.v"),
    (ATTN_OUT, "encoder.block.{}.layer.0.SelfAttention.o"),
    (MLP_NORM, "encoder.block.{}.layer.1.layer_norm"),
    (MLP_GATE, "encoder.block.{}.layer.1.DenseReluDense.wi_0"),
    (MLP_UP, "encoder.block.{}.layer.1.DenseReluDense.wi_1"),
    (MLP_UP, "encoder.block.{}.layer.1.DenseReluDense.wi"),
    (MLP_DOWN, "encoder.block.{}.layer.1.DenseReluDense.wo"),
];
