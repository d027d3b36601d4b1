//! Code World Model (arXiv 2510.02387): Llama 3 with windows in most layers.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "cwm",
    class: "CwmForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, MLP_BIAS, WINDOW],
    fixed: &[],
    goldens: &["cwm"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 128_256, heads: 48, kv_heads: 8, head_dim: 128, max_position: 131_072, eps: 1e-5, theta: 1e6, ..LLAMA
        };
        let mlp = f.flag("mlp_bias");
        let original = f.size("original_max_position_embeddings").or(8192) as f64;
        let mut d = Decoder::read(f, &defaults)?;
        if !rope::described(f)? {
            // The class's default.
            let scaling = RopeScaling::Llama3 { factor: 16.0, low: 1.0, high: 4.0, original };
            d.ropes.iter_mut().for_each(|rope| rope.scaling = scaling.clone());
        }
        let window = f.size("sliding_window").or_null(8192);
        let sliding = common::sliding_layers(f, d.layers.len())?;
        let d = d.with_attention(|i, a| {
            a.window = window.filter(|_| sliding.as_ref().map_or(i % 4 != 0, |s| s[i]));
        });
        Ok(Box::new(d.with_mlp(|m| m.bias = mlp)))
    },
};
