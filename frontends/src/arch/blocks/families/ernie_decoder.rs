//! Common parts of ERNIE 4.5's decoders, and of PaddleOCR-VL.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::defaults::defaults;
use crate::arch::blocks::experts::{Experts, Shared};
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Field, Fields};
use llmcc_ir::graph::Router;

const DEFAULTS: Defaults = defaults! {
    vocab: 103_424, max_position: 131_072, tied: true, eps: 1e-5, theta: 5e5, ..LLAMA
};

/// The field that says whether there are biases.
pub(crate) const BIASES: &[Field] = fields! { use_bias };

/// A decoder without experts, that rotates halves.
pub(crate) fn dense(f: &Fields) -> Result<Decoder, ConfigError> {
    let bias = f.flag("use_bias");
    let d = Decoder::read(f, &defaults! { heads: 16, kv_heads: 2, head_dim: 128, ..DEFAULTS })?;
    let d = d.with_attention_bias(bias);
    Ok(d.with_mlp(|m| m.bias = bias))
}

/// The decoder of models with experts, without these; neighbours are rotated.
pub(crate) fn decoder(f: &Fields) -> Result<Decoder, ConfigError> {
    f.refuse_flag("use_bias", "biases in some modules only are not supported")?;
    let d = Decoder::read(f, &defaults! { heads: 20, kv_heads: 4, ..DEFAULTS })?;
    Ok(d.with_heads(|_, a, h| h.neighbours = a.heads.dim))
}

/// Experts of this width, and an MLP for all tokens that is as wide as several of them.
pub(crate) fn experts(f: &Fields, d: &Decoder, ffn: usize) -> Result<Experts, ConfigError> {
    let least = f.number("moe_norm_min").unwrap_or(1e-12);
    if !(0.0..=1e-6).contains(&least) {
        let expected = "0 to 1e-6, below the sum of this architecture's weights";
        return Err(f.invalid("moe_norm_min", &least, expected.into()));
    }
    let beside = f.count("moe_num_shared_experts").unwrap_or(2).min(1 << 12);
    let router = Router::softmax(f.size("num_experts_per_tok").or(6), true);
    let experts = Experts {
        ffn,
        shared: (beside > 0).then_some(Shared::plain(ffn.saturating_mul(beside))),
        ..Experts::like(d, router, f.size("moe_num_experts").or(64))
    };
    experts.checked(f, ["moe_num_experts", "num_experts_per_tok"])
}

/// The fields that [`experts`] reads.
pub(crate) const EXPERTS: &[Field] = fields! {
    moe_num_experts | num_experts | num_local_experts, num_experts_per_tok | moe_k, moe_num_shared_experts,
    moe_norm_min,
};
