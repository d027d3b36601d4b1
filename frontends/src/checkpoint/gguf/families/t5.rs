//! Encoders of T5 and those after it; of files that have a decoder too, the encoder alone.

use super::super::file::{Config, File, Wrong, without};
use super::super::names::Names;
use super::{Family, PLAIN};
use serde_json::Value;

pub(in super::super) const FAMILIES: &[Family] = &[
    // Each layer has numbers of its own by distance.
    Family { model_type: ("umt5", "UMT5EncoderModel"), suits: |f| gated(f) && f.has(SECOND), ..GATED },
    Family {
        name: "t5",
        model_type: ("umt5", "UMT5EncoderModel"),
        suits: |f| gated(f) && f.has(SECOND),
        ..WITH_DECODER
    },
    GATED,
    WITH_DECODER,
    Family { suits: |_| true, names: &[ONE, NAMES], ..GATED },
    Family { suits: |_| true, names: &[ONE, NAMES], ..WITH_DECODER },
];

const GATED: Family = Family {
    name: "t5encoder",
    model_type: ("t5", "T5EncoderModel"),
    suits: gated,
    keys: &[&[
        ("embedding_length", "d_model"),
        ("block_count", "num_layers"),
        ("feed_forward_length", "d_ff"),
        ("attention.head_count", "num_heads"),
        ("attention.key_length", "d_kv"),
        ("context_length", "n_positions"),
        ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
        ("attention.relative_buckets_count", "relative_attention_num_buckets"),
    ]],
    quiet: &["attention.causal"],
    names: &[TWO, NAMES],
    adapt: t5,
    ..PLAIN
};

const WITH_DECODER: Family = Family {
    name: "t5",
    quiet: &["attention.causal", "decoder_start_token_id", "decoder_block_count"],
    note: |_| Some("its decoder is left out: only the encoder is compiled, which yields rows for tokens".into()),
    ..GATED
};

/// The learned numbers of the second layer.
const SECOND: &str = "enc.blk.1.attn_rel_b.weight";

fn gated(f: &File) -> bool {
    f.has("enc.blk.0.ffn_gate.weight")
}

/// As llama.cpp: MLPs with gates are of GELU, others of ReLU.
fn t5(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let mlp = if gated(f) { "gated-gelu" } else { "relu" };
    config.insert("feed_forward_proj".into(), mlp.into());
    let eps = f.number("attention.layer_norm_epsilon").or(f.number("attention.layer_norm_rms_epsilon"));
    config.insert("layer_norm_epsilon".into(), eps.map_or(Value::Null, Value::from));
    let shared =
        ["hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads"];
    without(config, &shared)?;
    without(config, &["head_dim", "max_position_embeddings", "rms_norm_eps", "_name_or_path"])
}

const NAMES: Names = &[
    ("token_embd", "shared"),
    ("enc.output_norm", "encoder.final_layer_norm"),
    ("enc.blk.{}.attn_norm", "encoder.block.{}.layer.0.layer_norm"),
    ("enc.blk.{}.attn_q", "encoder.block.{}.layer.0.SelfAttention.q"),
    ("enc.blk.{}.attn_k", "encoder.block.{}.layer.0.SelfAttention.k"),
    ("enc.blk.{}.attn_v", "encoder.block.{}.layer.0.SelfAttention.v"),
    ("enc.blk.{}.attn_o", "encoder.block.{}.layer.0.SelfAttention.o"),
    ("enc.blk.{}.attn_rel_b", "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias"),
    ("enc.blk.{}.ffn_norm", "encoder.block.{}.layer.1.layer_norm"),
    ("enc.blk.{}.ffn_gate", "encoder.block.{}.layer.1.DenseReluDense.wi_0"),
    ("enc.blk.{}.ffn_down", "encoder.block.{}.layer.1.DenseReluDense.wo"),
];

/// Beside a gate, and without.
const TWO: Names = &[("enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi_1")];
const ONE: Names = &[("enc.blk.{}.ffn_up", "encoder.block.{}.layer.1.DenseReluDense.wi")];
