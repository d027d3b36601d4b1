//! Common parts of Granite's models.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::experts::{Experts, Shared, Stored};
use crate::arch::blocks::names::{
    EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_GATE_UP, ROUTER, SHARED_DOWN, SHARED_GATE_UP, Table,
    names,
};
use crate::config::ConfigError;
use crate::config::common;
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use llmcc_ir::graph::{Router, Score};

/// The decoder of models with experts, without these.
pub(crate) fn read(f: &Fields) -> Result<Decoder, ConfigError> {
    decoder(f, &Defaults::LLAMA)
}

/// A decoder without experts, whose MLP may have biases.
pub(crate) fn dense(f: &Fields, defaults: &Defaults) -> Result<Decoder, ConfigError> {
    let bias = f.flag("mlp_bias");
    Ok(decoder(f, defaults)?.with_mlp(|m| m.bias = bias))
}

fn decoder(f: &Fields, defaults: &Defaults) -> Result<Decoder, ConfigError> {
    let bias = f.flag("attention_bias");
    // Instead of 1/√head_dim, also where the file does not say it.
    let scale = common::factor(f, "attention_multiplier")?.unwrap_or(1.0);
    let mut d = Decoder::read(f, defaults)?;
    d.scales.embedding = common::factor(f, "embedding_multiplier")?;
    d.scales.residual = common::factor(f, "residual_multiplier")?;
    d.scales.logits = common::factor(f, "logits_scaling")?.map(|x| 1.0 / x);
    Ok(d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.scale) = (bias, bias, scale)))
}

/// The experts.
pub(crate) fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = Router::softmax(f.size("num_experts_per_tok").or(2), false);
    let router = Router { score: Score::Chosen, ..router };
    let experts = Experts { stored: Stored::Joined, ..Experts::like(d, router, f.size("num_local_experts").or(8)) };
    experts.checked(f, ["num_local_experts", "num_experts_per_tok"])
}

/// Gives all layers experts, and perhaps an MLP for all tokens.
pub(crate) fn with_experts(f: &Fields, d: Decoder) -> Result<Decoder, ConfigError> {
    let beside = f.count("shared_intermediate_size").unwrap_or(0).min(1 << 20);
    let shared = (beside > 0).then_some(Shared { fused: true, ..Shared::plain(beside) });
    let experts = Experts { shared, ..experts(f, &d)? };
    Ok(d.with_experts(|_| Some(experts)))
}

/// Fields of all of them.
pub(crate) const MULTIPLIERS: &[Field] = fields! {
    embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling,
};

/// Fields of [`with_experts`] besides [`EXPERTS`].
pub(crate) const SHARED: &[Field] = fields! { shared_intermediate_size: Accepts::Count };

/// Fields of [`experts`].
pub(crate) const EXPERTS: &[Field] = fields! { num_local_experts | num_experts, num_experts_per_tok };

/// Names of the experts, and of the MLP for all tokens.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        ROUTER => "block_sparse_moe.router.layer", EXPERTS_GATE_UP => "block_sparse_moe.input_linear",
        EXPERTS_DOWN => "block_sparse_moe.output_linear", ROUTER => "block_sparse_moe.router",
        EXPERTS_GATE_UP => "block_sparse_moe.experts.gate_up_proj",
        EXPERTS_DOWN => "block_sparse_moe.experts.down_proj", EXPERT_GATE => "block_sparse_moe.experts.{e}.gate_proj",
        EXPERT_UP => "block_sparse_moe.experts.{e}.up_proj", EXPERT_DOWN => "block_sparse_moe.experts.{e}.down_proj",
        SHARED_GATE_UP => "shared_mlp.input_linear", SHARED_DOWN => "shared_mlp.output_linear",
    }
};
