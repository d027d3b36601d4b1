//! MiniMax-M3 (MiniMax, 2026), the text model: norms of each head of queries and keys, rotation of a part
//! of each, limited activations, experts chosen by corrected sigmoids beside an MLP for all tokens.
//!
//! Some layers attend to blocks of tokens that an indexer selects: only contexts in which none is dropped are compiled.

use crate::arch::blocks::families::indexer::{Selection, dense_of};
use crate::arch::blocks::names::SHARED_GATE_UP;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "minimax_m3_vl_text",
    class: "MiniMaxM3VLForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, OWN],
    fixed: fixed! {
        // The class puts the limited activation in its place, whatever is said.
        Words(&["silu", "swigluoai"]) => hidden_act;
        On => use_qk_norm use_gemma_norm use_routing_bias;
        Words(&["per_head"]) => qk_norm_type;
        Words(&["sigmoid"]) => scoring_func;
        Any => attn_type_list index_n_heads index_head_dim index_local_blocks;
        One => n_shared_experts;
    },
    goldens: &["minimax_m3_text", "minimax_m3"],
    names: Names(&[NAMES, MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 200_064, heads: 64, kv_heads: 4, head_dim: 128, max_position: 524_288, theta: 5e6, ..LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        refuse_other_part(f, &d)?;
        d.norm.from_one = true;
        let d = selected(f, d.with_heads(|_, _, h| h.qk_norm = Some(QkNorm::Head)))?;
        let alpha = f.factor_or("swiglu_alpha", 1.702)? as f32;
        let limits = Some(Limits::Clamped { alpha, limit: f.factor_or("swiglu_limit", 7.0)? as f32 });
        let shared = Shared { limits, fused: true, ..Shared::plain(f.size("shared_intermediate_size").or(3072)) };
        let router = sigmoid_router(f, 4, ("routed_scaling_factor", 2.0))?;
        let experts = Experts {
            correction: Some(CORRECTION),
            shared: Some(shared),
            limits,
            ..Experts::like(&d, router, f.size("num_local_experts").or(128))
        };
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        let sparse = sparse(f, d.layers.len())?;
        let ffn = f.size("dense_intermediate_size").or(12_288);
        let d = d.with_mlp(|m| (m.ffn, m.joined, m.limits) = (ffn, Some(Joined::GateUp), limits));
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

/// `rotary_dim` only repeats `partial_rotary_factor`.
fn refuse_other_part(f: &Fields, d: &Decoder) -> Result<(), ConfigError> {
    let head_dim = d.layers.first().map_or(0, |l| l.attention.heads.dim);
    let rotated = d.ropes.first().map_or(0, |rope| rope.dim);
    match f.size("rotary_dim").value() {
        Some(dim) if dim < head_dim && dim != rotated => {
            let help = format!(
                "this architecture rotates {rotated} of `head_dim` ({head_dim}) elements, by `partial_rotary_factor`"
            );
            Err(f.unsupported("rotary_dim", dim.to_string(), help))
        }
        _ => Ok(()),
    }
}

/// Which layers have experts: all, where nothing is said.
fn sparse(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if f.get("mlp_layer_types").value().is_none()
        && let Some(flags) = common::layer_flags(f, "moe_layer_freq", layers)?
    {
        return Ok(flags);
    }
    sparse_by_types(f, layers, 0)
}

/// Limits contexts to those in which nothing is dropped, if there are layers that select blocks.
fn selected(f: &Fields, d: Decoder) -> Result<Decoder, ConfigError> {
    let older = match f.object("sparse_attention_config") {
        Some(map) => Some(f.inside(map, "sparse_attention_config.", &[OLDER])?),
        None => None,
    };
    let of = |new: &str, old: &str, default| {
        older.as_ref().and_then(|r| r.size(old).value()).unwrap_or(f.size(new).or(default))
    };
    let types = common::layer_types(f, d.layers.len())?;
    let listed = older.as_ref().and_then(|r| r.numbers("sparse_attention_freq"));
    let selects = match (types, listed) {
        (Some(types), _) => types.contains(&"minimax_m3_sparse"),
        (None, Some(list)) => list.iter().any(|x| *x != 0.0),
        (None, None) => false,
    };
    if !selects {
        return Ok(d);
    }
    let blocks = of("index_topk_blocks", "sparse_topk_blocks", 16);
    let tokens = blocks.saturating_mul(of("index_block_size", "sparse_block_size", 128));
    Ok(dense_of(f, d, Selection { tokens, field: "index_topk_blocks" }))
}

const OWN: &[Field] = fields! {
    intermediate_size, rms_norm_eps, rotary_dim, dense_intermediate_size, shared_intermediate_size,
    num_local_experts | num_experts, num_experts_per_tok, routed_scaling_factor, swiglu_alpha, swiglu_limit,
    mlp_layer_types, moe_layer_freq: Accepts::Numbers,
    layer_types: Accepts::ListOf(&["full_attention", "minimax_m3_sparse"]), index_topk_blocks, index_block_size,
    sparse_attention_config,
};

/// Older files' fields of the selection.
const OLDER: &[Field] = fields! {
    sparse_attention_freq, sparse_topk_blocks, sparse_block_size, sparse_local_block, sparse_init_block,
    sparse_num_index_heads, sparse_index_dim, use_sparse_attention, sparse_score_type, sparse_disable_index_value,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        CORRECTION => "block_sparse_moe.e_score_correction_bias", CORRECTION => "mlp.gate.e_score_correction_bias",
        EXPERTS_GATE_UP => "mlp.experts.gate_up_proj", EXPERTS_DOWN => "mlp.experts.down_proj",
        SHARED_GATE => "block_sparse_moe.shared_experts.gate_proj",
        SHARED_UP => "block_sparse_moe.shared_experts.up_proj",
        SHARED_DOWN => "block_sparse_moe.shared_experts.down_proj",
        SHARED_GATE_UP => "mlp.shared_experts.gate_up_proj", SHARED_DOWN => "mlp.shared_experts.down_proj",
    }
};
