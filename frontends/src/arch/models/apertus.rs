//! Apertus (arXiv 2509.14233): Llama with norms of queries and keys, and xIELU without gate.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{ATTN_NORM, HUGGING_FACE, MLP_NORM, Names, Table, XIELU_N, XIELU_P};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MODEL, RMS_NORM, ROTARY, WIDTH};
use crate::config::fields::{Field, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;
use crate::rope::RopeScaling;

pub(crate) const ARCH: Arch = Arch {
    model_type: "apertus",
    class: "ApertusForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, ATTENTION_BIAS, OWN],
    fixed: &[
        ("hidden_act", Neutral::Words(&["xielu"])),
        ("use_qk_norm", Neutral::On),
        ("qk_norm", Neutral::On),
        ("post_norm", Neutral::Off),
        ("mlp_bias", Neutral::Off),
    ],
    goldens: &["apertus"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(131_072),
            heads: Some(32),
            max_position: 65_536,
            eps: 1e-5,
            theta: 12e6,
            ..Defaults::LLAMA
        };
        let bias = f.flag("attention_bias");
        let original = f.size("original_max_position_embeddings").or(8192) as f64;
        let mut d = Decoder::read(f, &defaults)?;
        if !rope::described(f)? {
            // What its class has where nothing is said.
            let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original };
            d.ropes.iter_mut().for_each(|rope| rope.scaling = scaling.clone());
        }
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.qk_norm) = (bias, bias, Some(QkNorm::Head)));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.xielu) = (false, true))))
    },
};

const OWN: &[Field] = &[Field::new("intermediate_size", WIDTH), RMS_NORM];

const NAMES: Table = &[
    (ATTN_NORM, "model.layers.{}.attention_layernorm"),
    (MLP_NORM, "model.layers.{}.feedforward_layernorm"),
    (XIELU_P, "model.layers.{}.mlp.act_fn.alpha_p"),
    (XIELU_N, "model.layers.{}.mlp.act_fn.alpha_n"),
];
