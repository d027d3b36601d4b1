//! MPT (MosaicML, 2023): scores with slopes instead of positions (ALiBi), queries, keys and values of
//! limited size, no biases at all.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::attention_scores::Distance;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::config::ConfigError;
use crate::config::common::{TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;
use serde_json::Map;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mpt",
    class: "MptForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[
        ("no_bias", Neutral::On),
        ("norm_type", Neutral::Words(&["low_precision_layernorm", "layernorm"])),
        // Slopes are there in their place.
        ("learned_pos_emb", Neutral::Any),
    ],
    goldens: &["mpt", "mpt_slopes"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(50_368),
            heads: Some(16),
            max_position: 2048,
            ffn: Some(f.size("expansion_ratio").or(4)),
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::GPT2
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm { bias: false, ..Norm::layer(d.norm.eps) };
        let Scores { clip, scale, slopes } = scores(f)?;
        let d = d.with_attention(|_, a| {
            (a.fused, a.rotary, a.clip) = (true, None, clip);
            (a.distance, a.scale) = (Some(Distance::Slopes { max: slopes }), scale.unwrap_or(a.scale));
        });
        Ok(Box::new(d.with_mlp(|m| m.gated = false)))
    },
};

/// What `attn_config` says.
struct Scores {
    clip: Option<f32>,
    scale: Option<f32>,
    /// As in the authors' code (llm-foundry); Transformers has 8, whatever the file says.
    slopes: f64,
}

fn scores(f: &Fields) -> Result<Scores, ConfigError> {
    let (at, none) = ("attn_config.", Map::new());
    let map = f.object("attn_config").unwrap_or(&none);
    let a = f.inside_alone(map, at, &[ATTENTION], FIXED)?;
    let factor = |field: &str| match a.number(field) {
        Some(_) => a.factor(field, 0.0).map(|x| Some(x as f32)),
        None => Ok(None),
    };
    // A limit of 0 is none.
    let clip = if a.number("clip_qkv") == Some(0.0) { None } else { factor("clip_qkv")? };
    Ok(Scores { clip, scale: factor("softmax_scale")?, slopes: a.factor_or("alibi_bias_max", 8.0)? })
}

const OWN: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("hidden_size", WIDTH).or(&["d_model"]),
    Field::new("num_hidden_layers", Accepts::Size(4096)).or(&["n_layers"]),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["n_heads"]),
    Field::new("max_position_embeddings", TOKENS).or(&["max_seq_len"]).unless(Neutral::Any),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("expansion_ratio", Accepts::Size(64)),
    Field::new("attn_config", Accepts::Object),
];

const ATTENTION: &[Field] = &[
    Field::new("alibi_bias_max", Accepts::Number),
    Field::new("clip_qkv", Accepts::Number),
    Field::new("softmax_scale", Accepts::Number),
];

const FIXED: &[(&str, Neutral)] = &[
    ("attn_type", Neutral::Words(&["multihead_attention"])),
    ("attn_impl", Neutral::Any),
    ("_name_or_path", Neutral::Any),
    ("model_type", Neutral::Any),
    ("attn_pdrop", Neutral::Any),
    ("alibi", Neutral::On),
];

const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (HEAD, "lm_head"),
    (NORM, "transformer.norm_f"),
    (ATTN_NORM, "transformer.blocks.{}.norm_1"),
    (ATTN_QKV, "transformer.blocks.{}.attn.Wqkv"),
    (ATTN_OUT, "transformer.blocks.{}.attn.out_proj"),
    (MLP_NORM, "transformer.blocks.{}.norm_2"),
    (MLP_UP, "transformer.blocks.{}.ffn.up_proj"),
    (MLP_DOWN, "transformer.blocks.{}.ffn.down_proj"),
];
