//! GLM-4.7-Flash (arXiv 2508.06471): latent attention and experts as DeepSeek-V3 has them.
//!
//! The layers after the last, which predict further tokens, are left out.

use super::decoder::Defaults;
use super::entry::Arch;
use super::experts::{CORRECTION, Experts};
use super::latent::{self, LATENT, Latent};
use super::latent_decoder;
use super::latent_experts::{MIXTURE, experts};
use super::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::ConfigError;
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::{F32, Router, Score};

pub(super) const ARCH: Arch = Arch {
    model_type: "glm4_moe_lite",
    class: "Glm4MoeLiteForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, MIXTURE, OWN],
    fixed: &[
        ("topk_method", Neutral::Words(&["noaux_tc"])),
        ("scoring_func", Neutral::Words(&["sigmoid"])),
        ("first_k_dense_replace", Neutral::One),
    ],
    goldens: &["glm4_moe_lite"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, latent::NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(154_880),
            heads: Some(20),
            max_position: 202_752,
            eps: 1e-5,
            ..Defaults::LLAMA
        };
        let latent = Latent {
            q_rank: Some(768),
            kv_rank: 512,
            nope: 192,
            rope: 64,
            value: 256,
            interleaved: f.flag_or("rope_interleave", true),
            bias: f.flag("attention_bias"),
        };
        let d = latent_decoder::decoder(f, defaults, latent)?;
        let groups = f.size("n_group").or(1);
        let router = Router {
            score: Score::Sigmoid,
            eps: F32::new(1e-20),
            scale: F32::new(f.factor_or("routed_scaling_factor", 1.8)? as f32),
            groups,
            kept: f.size("topk_group").or(1),
            pairs: groups > 1,
            ..Router::softmax(f.size("num_experts_per_tok").or(4), f.flag_or("norm_topk_prob", true))
        };
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [64, 1, 1536])? };
        let sparse = sparse(f, d.layers.len())?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = &[Field::new("rope_interleave", Accepts::Flag), Field::new("mlp_layer_types", Accepts::Any)];

const NAMES: Table = &[(CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias")];

/// Which layers have experts: all but the first, where nothing is said.
fn sparse(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let field = "mlp_layer_types";
    let Some(v) = f.get(field).value() else { return Ok((0..layers).map(|i| i > 0).collect()) };
    let flag = |v: &serde_json::Value| match v.as_str() {
        Some("sparse") => Some(true),
        Some("dense") => Some(false),
        _ => None,
    };
    let list: Option<Vec<bool>> = v.as_array().and_then(|list| list.iter().map(flag).collect());
    let expected = || format!("\"dense\" or \"sparse\" for each of {layers} layers");
    list.filter(|list| list.len() >= layers).ok_or_else(|| f.invalid_value(field, v, expected()))
}
