//! The encoders of T5 and those after it, which some embedders are: RMSNorm before the blocks, no biases,
//! and scores that are not scaled, but get a learned number by the distance of the key.

use crate::arch::blocks::attention::{Attention, Norm};
use crate::arch::blocks::attention_scores::{Buckets, Distance};
use crate::arch::blocks::encoder::Encoder;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, TABLE, Table, names,
};
use crate::config::ConfigError;
use crate::config::common::{self, Facts, Heads};
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::{Neutral, fixed};
use llmcc_ir::graph::UnaryOp;

/// Fields that their classes decide.
pub(crate) const FIXED: &[(&str, Neutral)] = fixed! {
    Off => is_decoder;
    // The class is an encoder alone, and sets it so.
    Any => is_encoder_decoder;
    Any => num_decoder_layers scale_decoder_outputs tie_word_embeddings dropout_rate bos_token_id;
    // Files of UMT5 have it; nothing reads it.
    Any => scalable_attention;
};

/// Differences of their configuration classes.
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
    /// T5's defaults.
    pub(crate) const T5: Absent = Absent { vocab: 32_128, ffn: 2048, layers: 6, heads: 8, mlp: "relu" };
    /// Its successors' defaults.
    pub(crate) const MT5: Absent = Absent { vocab: 250_112, ffn: 1024, layers: 8, heads: 6, mlp: "gated-gelu" };
}

/// MLPs by their names, `gelu` with a gate being the approximation by tanh.
const MLPS: &[&str] = &["relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-gelu_new", "gated-relu", "gated-silu"];

/// Their fields.
pub(crate) const FIELDS: &[Field] = fields! {
    quantization_config, vocab_size, d_model, d_kv, d_ff, num_layers, num_heads,
    // Distances have no end; published models were trained with so many tokens.
    n_positions, layer_norm_epsilon, feed_forward_proj: Accepts::OneOf(MLPS), dense_act_fn, is_gated_act,
    relative_attention_num_buckets, relative_attention_max_distance, eos_token_id,
};

const COUNT: &str = "relative_attention_num_buckets";
const MOST: &str = "relative_attention_max_distance";

/// Buckets of all published models. Other models' buckets may begin elsewhere than in the class's
/// f32.
pub(crate) const BUCKETS: Buckets = Buckets { count: 32, most: 128 };

/// Reads [`FIELDS`].
pub(crate) fn read(f: &Fields, d: &Absent) -> Result<Encoder, ConfigError> {
    for (field, only) in [(COUNT, BUCKETS.count), (MOST, BUCKETS.most)] {
        if let Some(n) = f.size(field).value().filter(|n| *n != only) {
            return Err(f.unsupported(field, n.to_string(), format!("this architecture expects {only}")));
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
    // Newer files' field for it besides counts.
    let act = common::activation(f, "dense_act_fn", act);
    let gated = f.flag_or("is_gated_act", named.starts_with("gated-"));
    let eps = common::eps(f, "layer_norm_epsilon", 1e-6)?;
    let mut e = Encoder::alike(facts, heads, (f.size("d_ff").or(d.ffn), act), eps);
    (e.norm, e.norm_first, e.embedding.norm) = (Norm::rms(eps), true, false);
    // The third is the name in GGUF files.
    e.spare = &["encoder.embed_tokens.", "decoder.", "dec.", "lm_head."];
    for layer in &mut e.layers {
        let distance = Some(Distance::Buckets(BUCKETS));
        layer.attention = Attention { scale: 1.0, rotary: None, causal: false, ..Attention::plain(heads, None) };
        layer.attention.change_heads(|_, h| h.with_dot(|s| s.distance = distance));
        (layer.mlp.gated, layer.mlp.bias) = (gated, false);
    }
    Ok(e)
}

/// Their names, except the bias of scores by distance.
pub(crate) const NAMES: Table = names! {
    "" { TABLE => "shared" }
    "encoder." { TABLE => "embed_tokens", NORM => "final_layer_norm" }
    "encoder.block.{}." {
        ATTN_NORM => "layer.0.layer_norm", ATTN_Q => "layer.0.SelfAttention.q", ATTN_K => "layer.0.SelfAttention.k",
        ATTN_V => "layer.0.SelfAttention.v", ATTN_OUT => "layer.0.SelfAttention.o", MLP_NORM => "layer.1.layer_norm",
        MLP_GATE => "layer.1.DenseReluDense.wi_0", MLP_UP => "layer.1.DenseReluDense.wi_1",
        MLP_UP => "layer.1.DenseReluDense.wi", MLP_DOWN => "layer.1.DenseReluDense.wo",
    }
};
