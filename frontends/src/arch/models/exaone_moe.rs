//! K-EXAONE (arXiv 2601.01739): norms before the blocks and of queries and keys, windows in most
//! layers, positions rotated there only, experts as DeepSeek-V3 has them.
//!
//! The layer after the last, which predicts a further token, is left out.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, Experts, Shared, sparse_by_types};
use crate::arch::blocks::families::exaone;
use crate::arch::blocks::families::latent_experts::sigmoids;
use crate::arch::blocks::names::{DEEPSEEK_EXPERTS, HUGGING_FACE, Names, Table};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY, WIDTH, WINDOW};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "exaone_moe",
    class: "ExaoneMoeForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, WINDOW, OWN],
    fixed: &[("scoring_func", Neutral::Words(&["sigmoid"])), ("topk_method", Neutral::Words(&["noaux_tc"]))],
    goldens: &["exaone_moe"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let d = exaone::read(f)?;
        let ffn = f.size("moe_intermediate_size").or(1024);
        let beside = f.size("n_shared_experts").or(1);
        let experts = Experts {
            ffn,
            correction: Some(CORRECTION),
            shared: Some(Shared::plain(ffn.saturating_mul(beside))),
            ..Experts::like(&d, sigmoids(f, 8, 2.5)?, f.size("n_routed_experts").or(64))
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        let sparse = sparse_by_types(f, d.facts.layers, f.count("first_k_dense_replace").unwrap_or(1))?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("sliding_window_pattern", Accepts::Any),
    Field::new("n_routed_experts", Accepts::Size(4096)).or(&["num_experts", "num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("n_shared_experts", Accepts::Size(4096)).or(&["num_shared_experts"]),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("first_k_dense_replace", Accepts::Count),
    Field::new("mlp_layer_types", Accepts::Any),
    Field::new("routed_scaling_factor", Accepts::Number),
    Field::new("n_group", Accepts::Size(4096)),
    Field::new("topk_group", Accepts::Size(4096)),
    Field::new("norm_topk_prob", Accepts::Flag),
];

const NAMES: Table = &[
    (CORRECTION, "model.layers.{}.mlp.e_score_correction_bias"),
    (CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias"),
];
