//! MPT (MosaicML, 2023): scores with slopes instead of positions (ALiBi), queries, keys and values of
//! limited size, no biases at all.

use crate::arch::blocks::prelude::*;
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
        let defaults = defaults! {
            vocab: 50_368, heads: 16, max_position: 2048, ffn: f.size("expansion_ratio").or(4), act: Gelu, ..GPT2
        };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm { bias: false, ..Norm::layer(d.norm.eps) };
        let Scores { clip, scale, slopes } = scores(f)?;
        let d = d.with_heads(|_, a, h| {
            (h.projection, a.rotary, a.scale) = (Projection::Fused, None, scale.unwrap_or(a.scale));
            h.with_dot(|s| (s.clip, s.distance) = (clip, Some(Distance::Slopes { max: slopes })));
        });
        Ok(Box::new(d.with_mlp(|m| m.gated = false)))
    },
};

/// The contents of `attn_config`.
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

const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size | d_model, num_hidden_layers | n_layers,
    num_attention_heads | n_heads, max_position_embeddings | max_seq_len, tie_word_embeddings, bos_token_id,
    eos_token_id, layer_norm_epsilon, expansion_ratio, attn_config,
};

const ATTENTION: &[Field] = fields! { alibi_bias_max, clip_qkv, softmax_scale };

const FIXED: &[(&str, Neutral)] = fixed! {
    Words(&["multihead_attention"]) => attn_type;
    Any => attn_impl _name_or_path model_type attn_pdrop;
    On => alibi;
};

const NAMES: Table = names! {
    "transformer." { TABLE => "wte", NORM => "norm_f" }
    "" { HEAD => "lm_head" }
    "transformer.blocks.{}." {
        ATTN_NORM => "norm_1", ATTN_QKV => "attn.Wqkv", ATTN_OUT => "attn.out_proj", MLP_NORM => "norm_2",
        MLP_UP => "ffn.up_proj", MLP_DOWN => "ffn.down_proj",
    }
};
