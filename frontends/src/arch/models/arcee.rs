//! Arcee (AFM-4.5B): Llama with squared ReLU without gate.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP_BIAS, MODEL, RMS_NORM, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "arcee",
    class: "ArceeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, MLP_BIAS, OWN],
    fixed: &[],
    goldens: &["arcee"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(32_000),
            heads: Some(32),
            max_position: 4096,
            eps: 1e-5,
            act: ("hidden_act", UnaryOp::Relu2),
            ..Defaults::LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias) = (attention, attention));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, mlp))))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(&["relu2", "relu", "silu", "gelu", "gelu_pytorch_tanh"])),
    RMS_NORM,
];
