//! Bamba: mixers of Mamba-2 in most layers, attention that rotates half of each head in the others.

use crate::arch::blocks::families::mamba_fields::{EXPAND, MAMBA, MIXER, mixer};
use crate::arch::blocks::prelude::*;
use crate::config::known::Unread;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bamba",
    class: "BambaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY_OF_KINDS, MLP, ATTENTION_BIAS, MLP_BIAS, MAMBA, EXPAND, OWN],
    // The width of a head follows from `mamba_expand`; the rest is about computation and training.
    fixed: &[("mamba_chunk_size", Neutral::Any), ("attn_rotary_emb", Neutral::Any)],
    goldens: &["bamba"],
    names: Names(&[NAMES, MIXER, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 128_000, heads: 32, kv_heads: 8, max_position: 262_144, eps: 1e-5, ..LLAMA };
        let d = Decoder::read_with(f, &defaults, |heads, max| Ok(vec![rotation(f, heads.dim, max)?]))?;
        let mixer = mixer(f, f.size("mamba_expand").or(2).saturating_mul(d.facts.hidden))?;
        let attend = f.numbers("attn_layer_indices").unwrap_or_default();
        common::follow(f, "layers_block_type", d.facts.layers, |kind, i| match kind {
            "attention" | "full_attention" => attend.contains(&(i as f64)),
            "mamba" | "linear_attention" => !attend.contains(&(i as f64)),
            _ => false,
        })?;
        let d = d.with_mixers(|i| (!attend.contains(&(i as f64))).then_some(Mixer::Mamba2(mixer)));
        Ok(Box::new(d.with_biases(f)))
    },
};

/// Half of each head turns: the class takes another part from `rope_parameters` only.
fn rotation(f: &Fields, head_dim: usize, max_position: usize) -> Result<RopeConfig, ConfigError> {
    const PART: &str = "partial_rotary_factor";
    let (at, map) = rope::object(f)?;
    let mut map = map.clone();
    map.entry(PART).or_insert(0.5.into());
    if let Some(part) = f.number(PART).filter(|part| *part != 0.5) {
        f.leave(Unread { others: vec![format!("`{PART}` is {part}")], ..Unread::default() });
    }
    let theta = f.number("rope_theta").unwrap_or(10_000.0);
    rope::read_described(&f.bare(), (at, &map), true, (head_dim, max_position), theta)
}

const OWN: &[Field] = fields! { attn_layer_indices, layers_block_type };

const NAMES: Table = names! {
    "" { NORM => "model.final_layernorm" }
    "model.layers.{}." {
        MLP_NORM => "pre_ff_layernorm", MLP_GATE => "feed_forward.gate_proj", MLP_UP => "feed_forward.up_proj",
        MLP_DOWN => "feed_forward.down_proj",
    }
};
