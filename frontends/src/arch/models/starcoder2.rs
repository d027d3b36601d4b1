//! StarCoder2 (arXiv 2402.19173): LayerNorm, an MLP without gate, biases, and a window if there is one.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "starcoder2",
    class: "Starcoder2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, WINDOW, OWN],
    // The last two are in published files, beside the names that the class reads.
    fixed: fixed! {
        Words(&["layer_norm"]) => norm_type;
        Words(&["default"]) => mlp_type;
        Any => activation_function layer_norm_epsilon;
    },
    goldens: &["starcoder2"],
    names: Names(&[names! { "model.layers.{}." { MLP_UP => "mlp.c_fc", MLP_DOWN => "mlp.c_proj" } }, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            heads: 24, kv_heads: 2, max_position: 4096, window: Given, tied: true, eps(norm_epsilon): 1e-5,
            act: GeluTanh, ..LLAMA
        };
        let bias = f.flag_or("use_bias", true);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let d = d.with_attention_bias(bias);
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, bias))))
    },
};

const OWN: &[Field] = fields! { intermediate_size, hidden_act, norm_epsilon, use_bias };
