//! Decoders whose queries, keys and values are one matrix, which Transformers has head by head.

use super::super::file::{Config, File, Wrong, head_dim, size, without};
use super::super::names::Names;
use super::{Family, Keys, LAYER_NORM, PLAIN, Recipe, Stored, head_by_head, rows};
use crate::checkpoint::stored::Turns;
use serde_json::json;

const EPSILON: Keys = &[("attention.layer_norm_epsilon", "layer_norm_epsilon")];

pub(in super::super) const FAMILIES: &[Family] = &[
    // GPT-2's matrices are not transposed here, as in GPTBigCode, which is the same otherwise.
    Family {
        name: "gpt2",
        model_type: ("gpt_bigcode", "GPTBigCodeForCausalLM"),
        keys: &[EPSILON],
        fixed: &[("multi_query", false)],
        names: &[GPT2],
        stored: Stored { joins: GPT2_HEADS, ..Stored::SAME },
        adapt: starcoder,
        ..PLAIN
    },
    Family {
        name: "starcoder",
        model_type: ("gpt_bigcode", "GPTBigCodeForCausalLM"),
        suits: |f| f.size("attention.head_count_kv") == Some(1),
        keys: &[EPSILON],
        fixed: &[("multi_query", true)],
        names: &[GPT2],
        adapt: starcoder,
        ..PLAIN
    },
    Family {
        name: "gptneox",
        model_type: ("gpt_neox", "GPTNeoXForCausalLM"),
        keys: &[&[LAYER_NORM, ("use_parallel_residual", "use_parallel_residual")]],
        names: &[NEOX],
        found: &[("attention_bias", "blk.0.attn_qkv.bias")],
        stored: Stored { joins: NEOX_HEADS, ..Stored::SAME },
        adapt: |_, config| without(config, &["num_key_value_heads"]),
        ..PLAIN
    },
    Family {
        name: "bloom",
        model_type: ("bloom", "BloomForCausalLM"),
        keys: &[EPSILON],
        names: &[BLOOM],
        stored: Stored { joins: BLOOM_HEADS, ..Stored::SAME },
        adapt: |_, config| without(config, &["num_key_value_heads", "intermediate_size"]),
        ..PLAIN
    },
    Family {
        name: "mpt",
        model_type: ("mpt", "MptForCausalLM"),
        keys: &[EPSILON],
        quiet: &["attention.clamp_kqv", "attention.max_alibi_bias"],
        names: &[MPT],
        adapt: slopes,
        ..PLAIN
    },
    Family {
        name: "falcon",
        model_type: ("falcon", "FalconForCausalLM"),
        suits: |f| f.has("blk.0.attn_norm_2.weight"),
        keys: &[EPSILON],
        fixed: &[("new_decoder_architecture", true)],
        names: &[FALCON_NORMS, FALCON],
        found: FALCON_BIAS,
        stored: Stored { joins: FALCON_GROUPS, ..Stored::SAME },
        ..PLAIN
    },
    // With one norm for both blocks.
    Family {
        name: "falcon",
        model_type: ("falcon", "FalconForCausalLM"),
        keys: &[EPSILON],
        fixed: &[("new_decoder_architecture", true)],
        names: &[FALCON],
        found: FALCON_BIAS,
        stored: Stored { joins: FALCON_GROUPS, ..Stored::SAME },
        adapt: |_, config| {
            config.insert("num_ln_in_parallel_attn".into(), 1.into());
            Ok(())
        },
        ..PLAIN
    },
];

/// Files say that MLPs are four times as wide as rows, whatever they are.
fn starcoder(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if let Some(n) = f.rows("blk.0.ffn_up.weight") {
        config.insert("intermediate_size".into(), n.into());
    }
    without(config, &["num_key_value_heads"])
}

/// Scores that fall with the distance, and limits of queries, keys and values.
fn slopes(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let Some(max) = f.number("attention.max_alibi_bias").filter(|max| *max > 0.0) else {
        return f.refused("has positions instead of slopes");
    };
    let mut attention = json!({ "alibi": true, "alibi_bias_max": max });
    if let Some(limit) = f.number("attention.clamp_kqv") {
        attention["clip_qkv"] = limit.into();
    }
    if let (Some(width), Some(inner)) = (f.size("embedding_length"), f.size("feed_forward_length")) {
        if width == 0 || !inner.is_multiple_of(width) {
            return f.refused("has an MLP whose width is not a multiple of the model's");
        }
        config.insert("expansion_ratio".into(), (inner / width).into());
    }
    config.insert("attn_config".into(), attention);
    without(config, &["num_key_value_heads", "intermediate_size"])
}

const GPT2: Names = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("blk.{}.attn_norm", "transformer.h.{}.ln_1"),
    ("blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn"),
    ("blk.{}.attn_output", "transformer.h.{}.attn.c_proj"),
    ("blk.{}.ffn_norm", "transformer.h.{}.ln_2"),
    ("blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc"),
    ("blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj"),
];

const GPT2_HEADS: &[Recipe] = &[
    rows("transformer.h.{}.attn.c_attn.weight", &["blk.{}.attn_qkv.weight"], head_by_head),
    rows("transformer.h.{}.attn.c_attn.bias", &["blk.{}.attn_qkv.bias"], head_by_head),
];

const NEOX: Names = &[
    ("token_embd", "gpt_neox.embed_in"),
    ("output_norm", "gpt_neox.final_layer_norm"),
    ("output", "embed_out"),
    ("blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"),
    ("blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"),
    ("blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"),
    ("blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"),
];

const NEOX_HEADS: &[Recipe] = &[
    rows("gpt_neox.layers.{}.attention.query_key_value.weight", &["blk.{}.attn_qkv.weight"], head_by_head),
    rows("gpt_neox.layers.{}.attention.query_key_value.bias", &["blk.{}.attn_qkv.bias"], head_by_head),
];

const BLOOM: Names = &[
    ("token_embd", "transformer.word_embeddings"),
    ("token_embd_norm", "transformer.word_embeddings_layernorm"),
    ("output_norm", "transformer.ln_f"),
    ("blk.{}.attn_norm", "transformer.h.{}.input_layernorm"),
    ("blk.{}.attn_output", "transformer.h.{}.self_attention.dense"),
    ("blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"),
    ("blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"),
    ("blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"),
];

const BLOOM_HEADS: &[Recipe] = &[
    rows("transformer.h.{}.self_attention.query_key_value.weight", &["blk.{}.attn_qkv.weight"], head_by_head),
    rows("transformer.h.{}.self_attention.query_key_value.bias", &["blk.{}.attn_qkv.bias"], head_by_head),
];

const MPT: Names = &[
    ("token_embd", "transformer.wte"),
    ("output_norm", "transformer.norm_f"),
    ("blk.{}.attn_norm", "transformer.blocks.{}.norm_1"),
    ("blk.{}.attn_qkv", "transformer.blocks.{}.attn.Wqkv"),
    ("blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj"),
    ("blk.{}.ffn_norm", "transformer.blocks.{}.norm_2"),
    ("blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj"),
    ("blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj"),
];

/// Where each block has a norm.
const FALCON_NORMS: Names =
    &[("blk.{}.attn_norm_2", "transformer.h.{}.ln_attn"), ("blk.{}.attn_norm", "transformer.h.{}.ln_mlp")];

const FALCON: Names = &[
    ("token_embd", "transformer.word_embeddings"),
    ("output_norm", "transformer.ln_f"),
    ("blk.{}.attn_norm", "transformer.h.{}.input_layernorm"),
    ("blk.{}.attn_output", "transformer.h.{}.self_attention.dense"),
    ("blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"),
    ("blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"),
];

const FALCON_BIAS: &[(&str, &str)] = &[("bias", "blk.0.attn_qkv.bias")];

const FALCON_GROUPS: &[Recipe] = &[
    rows("transformer.h.{}.self_attention.query_key_value.weight", &["blk.{}.attn_qkv.weight"], group_by_group),
    rows("transformer.h.{}.self_attention.query_key_value.bias", &["blk.{}.attn_qkv.bias"], group_by_group),
];

/// For each group of heads its queries, its key and its value.
fn group_by_group(config: &Config, _: &[usize]) -> Turns {
    let (heads, groups) = (size(config, "num_attention_heads"), size(config, "num_key_value_heads").max(1));
    let dim = head_dim(config).unwrap_or(0);
    Turns { before: 0, groups, parts: vec![(heads / groups).saturating_mul(dim), dim, dim] }
}
