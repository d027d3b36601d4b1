//! Experts as DeepSeek's models have them, beside latent attention: some layers without, then
//! layers with an MLP for all tokens and the chosen ones.

use crate::arch::blocks::decoder::Decoder;
use crate::arch::blocks::experts::{Experts, Shared};
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use llmcc_ir::graph::{F32, Router, Score};

/// Layers with experts from the one that `first_k_dense_replace` names on.
pub(crate) fn with_dense(f: &Fields, d: Decoder, experts: Experts, first: usize) -> Decoder {
    let first = f.count("first_k_dense_replace").unwrap_or(first);
    d.with_experts(|i| (i >= first).then_some(experts))
}

/// The experts, checked; `default`: how many there are, of how many widths the MLP for all tokens
/// is, and the width.
pub(crate) fn experts(f: &Fields, d: &Decoder, router: Router, default: [usize; 3]) -> Result<Experts, ConfigError> {
    experts_by(f, d, router, ["n_routed_experts", "n_shared_experts"], default)
}

/// The same by the names of two fields: how many there are, of how many widths the MLP for all tokens is.
pub(crate) fn experts_by(
    f: &Fields,
    d: &Decoder,
    router: Router,
    [count, beside]: [&str; 2],
    default: [usize; 3],
) -> Result<Experts, ConfigError> {
    let ffn = f.size("moe_intermediate_size").or(default[2]);
    let shared = Some(Shared::plain(f.size(beside).or(default[1]).saturating_mul(ffn)));
    let experts = Experts { ffn, shared, ..Experts::like(d, router, f.size(count).or(default[0])) };
    experts.checked(f, [count, "num_experts_per_tok"])
}

/// The experts of DeepSeek-V2, whose router takes softmax before it chooses, from some groups or all.
pub(crate) fn second_experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let limited = match f.text("topk_method") {
        None | Some("greedy") => false,
        Some("group_limited_greedy") => true,
        Some(other) => {
            let help = "this architecture supports `greedy` and `group_limited_greedy`".into();
            return Err(f.unsupported("topk_method", other.into(), help));
        }
    };
    let router = Router {
        scale: F32::new(f.factor_or("routed_scaling_factor", 1.0)? as f32),
        groups: if limited { f.size_or("n_group", None)? } else { 1 },
        kept: if limited { f.size_or("topk_group", None)? } else { 1 },
        ..Router::softmax(f.size_or("num_experts_per_tok", None)?, false)
    };
    experts(f, d, router, [64, 2, 1407])
}

/// The router of DeepSeek-V3: corrected sigmoids, in groups that are ranked by their two best.
/// `top` and `scale` are for absent fields.
pub(crate) fn sigmoids(f: &Fields, top: usize, scale: f64) -> Result<Router, ConfigError> {
    sigmoids_of(f, chosen(f, top), scale)
}

/// The router of Mistral 4: probabilities, in groups as those of [`sigmoids`].
pub(crate) fn probabilities(f: &Fields, top: usize, scale: f64) -> Result<Router, ConfigError> {
    grouped(f, chosen(f, top), scale)
}

/// The best of all experts, by their probabilities.
fn chosen(f: &Fields, top: usize) -> Router {
    Router::softmax(f.size("num_experts_per_tok").or(top), f.flag_or("norm_topk_prob", true))
}

/// [`sigmoids`] of as many experts as `chosen`, normalized as there.
pub(crate) fn sigmoids_of(f: &Fields, chosen: Router, scale: f64) -> Result<Router, ConfigError> {
    grouped(f, Router { score: Score::Sigmoid, ..chosen }, scale)
}

/// `chosen` in groups that are ranked by their two best.
fn grouped(f: &Fields, chosen: Router, scale: f64) -> Result<Router, ConfigError> {
    let groups = f.size("n_group").or(1);
    Ok(Router {
        eps: F32::new(1e-20),
        scale: F32::new(f.factor_or("routed_scaling_factor", scale)? as f32),
        groups,
        kept: f.size("topk_group").or(1),
        pairs: groups > 1,
        ..chosen
    })
}

/// [`sigmoids`] from 4 of 8 groups where the file does not say.
pub(crate) fn sigmoids_in_groups(f: &Fields, top: usize, scale: f64) -> Result<Router, ConfigError> {
    let (groups, kept) = (f.size("n_group").or(8), f.size("topk_group").or(4));
    Ok(Router { groups, kept, pairs: groups > 1, ..sigmoids(f, top, scale)? })
}

/// The fields that [`experts`] and [`with_dense`] read, and fields of the choice.
pub(crate) const EXPERTS: &[Field] = fields! {
    n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size, first_k_dense_replace,
    routed_scaling_factor, n_group, topk_group, norm_topk_prob,
};

/// The fields that [`experts`] reads, and fields of the choice.
pub(crate) const MIXTURE: &[Field] = fields! {
    n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size, routed_scaling_factor, n_group,
    topk_group, norm_topk_prob,
};
