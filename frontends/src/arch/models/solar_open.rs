//! Solar Open (arXiv 2601.07022): Llama's attention, mixtures of experts as GLM-4.5 has them in
//! every layer.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::CORRECTION;
use crate::arch::blocks::experts::Experts;
use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::common::{ACTIVATIONS, ATTENTION, ATTENTION_BIAS, MODEL, PARTIAL_ROTARY, RMS_NORM};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "solar_open",
    class: "SolarOpenForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, ATTENTION_BIAS, MIXTURE, OWN],
    // There is no layer without experts.
    fixed: &[
        ("first_k_dense_replace", Neutral::Off),
        ("intermediate_size", Neutral::Any),
        ("use_qk_norm", Neutral::Off),
        ("scoring_func", Neutral::Words(&["sigmoid"])),
        ("topk_method", Neutral::Words(&["noaux_tc"])),
    ],
    goldens: &["solar_open"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(196_608),
            heads: Some(64),
            kv_heads: Some(8),
            head_dim: Some(128),
            max_position: 131_072,
            eps: 1e-5,
            theta: 1e6,
            // There are no MLPs but those of `experts`.
            ffn: Some(1),
            ..Defaults::LLAMA
        };
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults)?.with_attention(|_, a| a.qkv_bias = bias);
        let experts = experts(f, &d, sigmoids(f, 8, 1.0)?, [128, 1, 1280])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = &[RMS_NORM, Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS))];

const NAMES: Table = &[(CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias")];
