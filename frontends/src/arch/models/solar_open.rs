//! Solar Open (arXiv 2601.07022): Llama's attention, mixtures of experts as GLM-4.5 has them in every layer.

use crate::arch::blocks::families::latent_experts::{MIXTURE, experts, sigmoids};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "solar_open",
    class: "SolarOpenForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, ATTENTION_BIAS, MIXTURE, OWN],
    // There is no layer without experts.
    fixed: fixed! {
        Off => first_k_dense_replace use_qk_norm;
        Any => intermediate_size;
        Words(&["sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
    },
    goldens: &["solar_open"],
    names: Names(&[DEEPSEEK_CORRECTION, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 196_608, heads: 64, kv_heads: 8, head_dim: 128, max_position: 131_072, eps: 1e-5, theta: 1e6,
            // The experts are the only MLPs.
            ffn: 1, ..LLAMA
        };
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults)?.with_heads(|_, _, h| h.qkv_bias = bias);
        let experts = experts(f, &d, sigmoids(f, 8, 1.0)?, [128, 1, 1280])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = fields! { rms_norm_eps, hidden_act };
