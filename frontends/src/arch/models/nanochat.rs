//! nanochat (Karpathy, 2025): norms without gains, also of embeddings and of rotated queries and
//! keys, squared ReLU without gate, positions rotated backwards.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{HUGGING_FACE, MLP_DOWN, MLP_UP, Names, Table};
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MODEL, RMS_NORM, WIDTH};
use crate::config::fields::{Accepts, Field, Given, IDENTITY};
use crate::rope::RopeScaling;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nanochat",
    class: "NanoChatForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ATTENTION_BIAS, OWN],
    fixed: &[],
    goldens: &["nanochat"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults =
            Defaults { vocab: Some(50_304), heads: Some(6), act: ("hidden_act", UnaryOp::Relu2), ..Defaults::LLAMA };
        let bias = f.flag("attention_bias");
        let mut d = Decoder::read(f, &defaults)?;
        d.norm.gain = false;
        d.table_norm = Some(d.norm);
        d.scales.cap = match f.get("final_logit_softcapping") {
            Given::Absent => Some(15.0),
            Given::Null | Given::Value(_) => common::limit(f, "final_logit_softcapping")?,
        };
        for rope in &mut d.ropes {
            if rope.scaling != RopeScaling::Default {
                let help = "this architecture has frequencies as they are".to_string();
                return Err(f.unsupported("rope_scaling", "a scaling".into(), help));
            }
            // Backwards.
            rope.scaling = RopeScaling::Linear { factor: -1.0 };
        }
        let d = d.with_attention(|_, a| {
            (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::BareAfter));
        });
        Ok(Box::new(d.with_mlp(|m| m.gated = false)))
    },
};

const OWN: &[Field] = &[
    Field::new("intermediate_size", WIDTH),
    Field::new("hidden_act", Accepts::OneOf(&["relu2", "relu", "silu", "gelu", "gelu_pytorch_tanh"])),
    RMS_NORM,
    Field::new("final_logit_softcapping", Accepts::Number),
    Field::new("rope_theta", Accepts::Number),
    Field::new("rope_scaling", Accepts::Object),
    Field::new("rope_parameters", Accepts::Object),
];

const NAMES: Table = &[(MLP_UP, "model.layers.{}.mlp.fc1"), (MLP_DOWN, "model.layers.{}.mlp.fc2")];
