//! Apertus (arXiv 2509.14233): Llama with norms of queries and keys, and xIELU without gate.

use crate::arch::blocks::names::{XIELU_N, XIELU_P};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "apertus",
    class: "ApertusForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, fields! { intermediate_size, rms_norm_eps }],
    fixed: fixed! { Words(&["xielu"]) => hidden_act; On => use_qk_norm qk_norm; Off => post_norm mlp_bias; },
    goldens: &["apertus"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 131_072, heads: 32, max_position: 65_536, eps: 1e-5, theta: 12e6, ..LLAMA };
        let bias = f.flag("attention_bias");
        let original = f.size("original_max_position_embeddings").or(8192) as f64;
        let mut d = Decoder::read(f, &defaults)?;
        if !rope::described(f)? {
            // The class's default.
            let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original };
            d.ropes.iter_mut().for_each(|rope| rope.scaling = scaling.clone());
        }
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.xielu) = (false, true))))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_NORM => "attention_layernorm", MLP_NORM => "feedforward_layernorm", XIELU_P => "mlp.act_fn.alpha_p",
        XIELU_N => "mlp.act_fn.alpha_n",
    }
};
