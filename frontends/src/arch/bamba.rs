//! Bamba: mixers of Mamba-2 in most layers, attention that rotates half of each head in the others.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::mamba_fields::{EXPAND, MAMBA, MIXER, mixer};
use super::mixer::Mixer;
use super::names::{HUGGING_FACE, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Names, Table};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MLP_BIAS, MODEL, PARTIAL_ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(super) const ARCH: Arch = Arch {
    model_type: "bamba",
    class: "BambaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MAMBA, EXPAND, OWN],
    // What a head has follows from `mamba_expand`; the rest is how it is computed, and training.
    fixed: &[
        ("mamba_d_head", Neutral::Any),
        ("mamba_chunk_size", Neutral::Any),
        ("attn_rotary_emb", Neutral::Any),
        ("layers_block_type", Neutral::Any),
    ],
    goldens: &["bamba"],
    names: Names(&[NAMES, MIXER, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(128_000),
            heads: Some(32),
            kv_heads: Some(8),
            max_position: 262_144,
            eps: 1e-5,
            partial: 0.5,
            ..Defaults::LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = Decoder::read(f, &defaults)?;
        if d.ropes.iter().zip(&d.layers).any(|(rope, l)| 2 * rope.dim != l.attention.heads.dim) {
            let found = f.number("partial_rotary_factor").map_or("not 0.5".into(), |n| n.to_string());
            let help = "this architecture has half of each head rotated".to_string();
            return Err(f.unsupported("partial_rotary_factor", found, help));
        }
        let mixer = mixer(f, f.size("mamba_expand").or(2).saturating_mul(d.facts.hidden))?;
        let attend = f.numbers("attn_layer_indices").unwrap_or_default();
        let d = d.with_mixers(|i| (!attend.contains(&(i as f64))).then_some(Mixer::Mamba2(mixer)));
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (attention, attention));
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const OWN: &[Field] = &[Field::new("attn_layer_indices", Accepts::Numbers)];

const NAMES: Table = &[
    (NORM, "model.final_layernorm"),
    (MLP_NORM, "model.layers.{}.pre_ff_layernorm"),
    (MLP_GATE, "model.layers.{}.feed_forward.gate_proj"),
    (MLP_UP, "model.layers.{}.feed_forward.up_proj"),
    (MLP_DOWN, "model.layers.{}.feed_forward.down_proj"),
];
