//! Nemotron and Minitron (arXiv 2402.16819, 2407.14679): LayerNorm with gains that are one more than
//! what is stored, squared ReLU without gate, rotation of a part of each head.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP_BIAS, MODEL, PARTIAL_ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nemotron",
    class: "NemotronForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    // What Minitron's configurations have beside it.
    fixed: &[("rope_percent", Neutral::Same("partial_rotary_factor"))],
    goldens: &["nemotron"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(256_000),
            heads: Some(48),
            max_position: 4096,
            eps_field: "norm_eps",
            eps: 1e-5,
            partial: 0.5,
            act: ("hidden_act", UnaryOp::Relu2),
            ..Defaults::LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm { from_one: true, ..Norm::layer(d.norm.eps) };
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (attention, attention));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, mlp))))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(&["relu2", "relu", "silu", "gelu", "gelu_pytorch_tanh"])),
    Field::new("norm_eps", Accepts::Number),
];
