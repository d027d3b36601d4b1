//! MiniCPM3 (arXiv 2404.06395 and OpenBMB's MiniCPM3-4B): latent attention, an MLP with a gate, and
//! the scales of MiniCPM.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "minicpm3",
    class: "MiniCPM3ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, MLP_BIAS, LATENT, SCALES],
    fixed: &[],
    goldens: &["minicpm3"],
    names: Names(&[latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        let (hidden, queries) = (f.required_size("hidden_size")?, f.size_or("num_attention_heads", Some(40))?);
        let defaults = defaults! { vocab: 73_448, heads: 40, max_position: 32_768, tied: true, eps: 1e-5, ..LLAMA };
        let latent = Latent {
            q_rank: Some(768),
            kv_rank: 256,
            nope: 64,
            rope: 32,
            value: hidden / queries,
            interleaved: false,
            ..Latent::of(f)
        };
        let mut d = latent_decoder::decoder(f, defaults, latent)?;
        // `null` stands for no scale, absence for a number.
        let or_null = |name: &str, absent: f64| match f.get(name) {
            Given::Null => None,
            Given::Absent => Some(absent),
            Given::Value(v) => v.as_f64(),
        };
        d.scales.embedding = match f.number("scale_emb") {
            Some(_) => common::factor(f, "scale_emb")?,
            None => Some(12.0),
        };
        d.scales.residual = or_null("scale_depth", 1.4).map(|x| (x / (d.facts.layers as f64).sqrt()) as f32);
        d.scales.logits = or_null("dim_model_base", 256.0).map(|x| (x / hidden as f64) as f32);
        let mlp = f.flag("mlp_bias");
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};

const SCALES: &[Field] = fields! { scale_emb, scale_depth, dim_model_base };
