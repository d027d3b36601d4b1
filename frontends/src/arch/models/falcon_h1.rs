//! Falcon-H1 (arXiv 2507.22448): attention and a mixer of Mamba-2 side by side in every layer, with
//! multipliers of nearly everything.

use crate::arch::blocks::families::mamba_fields::{MAMBA, MIXER, mixer};
use crate::arch::blocks::layer::Beside;
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{Factors, Mamba2, ReadNorm};

pub(crate) const ARCH: Arch = Arch {
    model_type: "falcon_h1",
    class: "FalconH1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, MAMBA, OWN],
    fixed: fixed! { Any => mamba_chunk_size mamba_expand; On => mamba_use_mlp; Off => attn_layer_indices; },
    goldens: &["falcon_h1"],
    names: Names(&[NAMES, MIXER, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 128_000, heads: 32, kv_heads: 8, max_position: 8192, eps: 1e-5, ..LLAMA };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let factor = |name: &str| common::factor(f, name);
        let mut d = Decoder::read(f, &defaults)?;
        (d.scales.embedding, d.scales.logits) = (factor("embedding_multiplier")?, factor("lm_head_multiplier")?);
        let beside = Beside {
            into: factor("attention_in_multiplier")?,
            out: factor("attention_out_multiplier")?,
            mixer: factor("ssm_out_multiplier")?,
        };
        let keys = factor("key_multiplier")?.unwrap_or(1.0);
        let [gate, down] = multipliers::<2>(f, "mlp_multipliers")?;
        let mixer = mixer_of(f)?;
        d.layers.iter_mut().for_each(|l| (l.mixer, l.beside) = (Some(Mixer::Mamba2(mixer)), Some(beside)));
        let d = d.with_heads(|_, a, h| {
            // Keys times a number are scores times it.
            (h.qkv_bias, h.out_bias, a.scale) = (attention, attention, a.scale * keys);
        });
        Ok(Box::new(d.with_mlp(|m| (m.bias, m.gate.scale, m.scale) = (mlp, Some(gate), Some(down)))))
    },
};

const OWN: &[Field] = fields! {
    mamba_d_ssm, mamba_rms_norm, mamba_norm_before_gate, projectors_bias, embedding_multiplier, lm_head_multiplier,
    mlp_multipliers, key_multiplier, attention_in_multiplier, attention_out_multiplier, ssm_multipliers,
    ssm_in_multiplier, ssm_out_multiplier,
};

const NAMES: Table = names! {
    "" { NORM => "model.final_layernorm" }
    "model.layers.{}." {
        MLP_NORM => "pre_ff_layernorm", MLP_GATE => "feed_forward.gate_proj", MLP_UP => "feed_forward.up_proj",
        MLP_DOWN => "feed_forward.down_proj",
    }
};

/// `N` multipliers; 1 where nothing is said.
fn multipliers<const N: usize>(f: &Fields, field: &str) -> Result<[f32; N], ConfigError> {
    let Some(list) = f.numbers(field) else { return Ok([1.0; N]) };
    let all: Vec<f32> = list.iter().map(|x| *x as f32).collect();
    match <[f32; N]>::try_from(all) {
        Ok(all) if all.iter().all(|x| x.is_normal()) => Ok(all),
        _ => Err(f.invalid(field, &list, format!("{N} numbers other than 0, one for each part"))),
    }
}

/// The mixer beside attention.
fn mixer_of(f: &Fields) -> Result<Mamba2, ConfigError> {
    let inner = match f.size("mamba_d_ssm") {
        Given::Value(n) => n,
        Given::Null => {
            let help = "this architecture expects the columns of its mixers".to_string();
            return Err(f.unsupported("mamba_d_ssm", "null".into(), help));
        }
        Given::Absent => 1024,
    };
    let heads = f.size("mamba_n_heads").or(128);
    if !inner.is_multiple_of(heads) {
        let help = format!("this architecture expects columns that `mamba_n_heads` ({heads}) divides");
        return Err(f.unsupported("mamba_d_ssm", inner.to_string(), help));
    }
    let norm = match (f.flag("mamba_rms_norm"), f.flag_or("mamba_norm_before_gate", true)) {
        (false, _) => ReadNorm::None,
        (true, true) => ReadNorm::BeforeGate,
        (true, false) => ReadNorm::Gated,
    };
    let parts = multipliers::<5>(f, "ssm_multipliers")?;
    let factors = Some(Factors { parts, input: common::factor(f, "ssm_in_multiplier")? });
    Ok(Mamba2 { norm, out_bias: f.flag("projectors_bias"), factors, ..mixer(f, inner)? })
}
