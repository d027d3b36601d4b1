//! Common parts of OLMoE and FlexOLMo: norms of the whole rows of queries and keys, and a mixture
//! of experts in every layer.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::decoder::Decoder;
use crate::arch::blocks::entry::Shape;
use crate::arch::blocks::experts::Experts;
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use crate::config::known::Neutral;
use llmcc_ir::graph::Router;

/// Fields of norms that always exist.
pub(crate) const FIXED: &[(&str, Neutral)] =
    &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)];

/// The fields that [`with_experts`] reads beside the attention's biases.
pub(crate) const EXPERTS: &[Field] = fields! { num_experts | num_local_experts, num_experts_per_tok, norm_topk_prob };

/// `d` with both; `top` of `count` experts for absent fields.
pub(crate) fn with_experts(f: &Fields, d: Decoder, top: usize, count: usize) -> Result<Box<dyn Shape>, ConfigError> {
    let bias = f.flag("attention_bias");
    let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Row)));
    let router = Router::softmax(f.size("num_experts_per_tok").or(top), f.flag("norm_topk_prob"));
    let experts = Experts::like(&d, router, f.size("num_experts").or(count));
    let experts = experts.checked(f, ["num_experts", "num_experts_per_tok"])?;
    Ok(Box::new(d.with_experts(|_| Some(experts))))
}
