//! StarCoder2 (arXiv 2402.19173): LayerNorm, an MLP without gate, biases, and a window if there is one.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{HUGGING_FACE, MLP_DOWN, MLP_UP, Names, Table};
use crate::config::common::{ACTIVATIONS, ATTENTION, MODEL, ROTARY, WIDTH, WINDOW, WindowRule};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "starcoder2",
    class: "Starcoder2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, WINDOW, OWN],
    // The last two are in published files, beside the names that the class reads.
    fixed: &[
        ("norm_type", Neutral::Words(&["layer_norm"])),
        ("mlp_type", Neutral::Words(&["default"])),
        ("activation_function", Neutral::Any),
        ("layer_norm_epsilon", Neutral::Any),
    ],
    goldens: &["starcoder2"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            heads: Some(24),
            kv_heads: Some(2),
            max_position: 4096,
            window: WindowRule::Given,
            tied: true,
            eps_field: "norm_epsilon",
            eps: 1e-5,
            act: ("hidden_act", UnaryOp::GeluTanh),
            ..Defaults::LLAMA
        };
        let bias = f.flag_or("use_bias", true);
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm::layer(d.norm.eps);
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (bias, bias));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, bias))))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("norm_epsilon", Accepts::Number),
    Field::new("use_bias", Accepts::Flag),
];

const NAMES: Table = &[(MLP_UP, "model.layers.{}.mlp.c_fc"), (MLP_DOWN, "model.layers.{}.mlp.c_proj")];
