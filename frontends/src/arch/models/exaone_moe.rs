//! K-EXAONE (arXiv 2601.01739): norms before the blocks and of queries and keys, windows in most
//! layers, positions rotated there only, experts as DeepSeek-V3 has them.
//!
//! The layer after the last, which predicts a further token, is left out.

use crate::arch::blocks::families::exaone;
use crate::arch::blocks::families::latent_experts::{experts, sigmoids};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "exaone_moe",
    class: "ExaoneMoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, OWN],
    fixed: &[("scoring_func", Neutral::Words(&["sigmoid"])), ("topk_method", Neutral::Words(&["noaux_tc"]))],
    goldens: &["exaone_moe"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let d = exaone::read(f)?;
        let experts = experts(f, &d, sigmoids(f, 8, 2.5)?, [64, 1, 1024])?;
        let experts = Experts { correction: Some(CORRECTION), ..experts };
        Ok(Box::new(d.with_sparse(f, f.count("first_k_dense_replace").unwrap_or(1), experts)?))
    },
};

const OWN: &[Field] = fields! {
    sliding_window_pattern: Accepts::Any, n_routed_experts | num_experts | num_local_experts, num_experts_per_tok,
    n_shared_experts | num_shared_experts, moe_intermediate_size, first_k_dense_replace, mlp_layer_types,
    routed_scaling_factor, n_group, topk_group, norm_topk_prob,
};

const NAMES: Table = names! {
    "model.layers.{}." { CORRECTION => "mlp.e_score_correction_bias", CORRECTION => "mlp.gate.e_score_correction_bias" }
};
