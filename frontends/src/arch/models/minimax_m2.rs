//! MiniMax-M2 (MiniMax, 2025): norms of the whole rows of queries and keys, rotation of a part of
//! each head, experts chosen by corrected sigmoids in every layer.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "minimax_m2",
    class: "MiniMaxM2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY, MLP, OWN],
    fixed: fixed! {
        On => use_qk_norm use_routing_bias;
        Words(&["per_layer"]) => qk_norm_type;
        Words(&["sigmoid"]) => scoring_func;
        // It does not look at these.
        Any => attn_type_list;
    },
    goldens: &["minimax_m2"],
    names: Names(&[NAMES, MIXTRAL_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 200_064, heads: 48, kv_heads: 8, head_dim: 128, max_position: 196_608, theta: 5e6, ..LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        if let Some(dim) = f.size("rotary_dim").value() {
            let head_dim = d.layers.first().map_or(0, |l| l.attention.heads.dim);
            rope::check_rotary_dim(f, dim, head_dim)?;
            let part = if rope::says_part(f)? { d.ropes.first().map(|rope| rope.dim) } else { None };
            if let Some(other) = part.filter(|other| *other != dim) {
                let help =
                    format!("this architecture rotates `rotary_dim` ({dim}) of `head_dim` ({head_dim}) elements");
                return Err(f.unsupported("partial_rotary_factor", format!("that of {other} elements"), help));
            }
            d.ropes.iter_mut().for_each(|rope| rope.dim = dim);
        }
        let d = d.with_heads(|_, _, h| h.qk_norm = Some(QkNorm::Row));
        let router = Router { score: Score::Sigmoid, ..Router::softmax(f.size("num_experts_per_tok").or(8), true) };
        let experts =
            Experts { correction: Some(CORRECTION), ..Experts::like(&d, router, f.size("num_local_experts").or(256)) };
        let experts = experts.checked(f, ["num_local_experts", "num_experts_per_tok"])?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

const OWN: &[Field] = fields! { num_local_experts | num_experts, num_experts_per_tok, rotary_dim };

const NAMES: Table = names! {
    "model.layers.{}." {
        CORRECTION => "block_sparse_moe.e_score_correction_bias", CORRECTION => "mlp.e_score_correction_bias",
    }
};
