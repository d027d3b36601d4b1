//! A.X K2 (SK Telecom, 2026): DeepSeek-V3.2 with gates behind its norms and behind attention, whose queries and gates
//! are made of one matrix.

use crate::arch::blocks::experts::sparse_by_types_or_every;
use crate::arch::blocks::families::indexer::{INDEXER, indexed};
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids};
use crate::arch::blocks::indexer::{self, Indexer};
use crate::arch::blocks::latent_attention::Q_UP;
use crate::arch::blocks::norm_gates::{ATTN_NORM_GATE, MLP_NORM_GATE};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "axk2",
    class: "AXK2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, INDEXER, OWN],
    fixed: fixed! {
        Words(&["sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
        All("indexed_attention") => layer_types;
    },
    goldens: &["axk2", "axk2_select"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, indexer::NAMES, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        Latent::short_queries(f)?;
        // The class lets experts of other groups compete with a score of 0, which is more than a
        // corrected score of the groups that are kept may be.
        for name in ["n_group", "topk_group"] {
            if let Some(n) = f.size(name).value().filter(|n| *n != 1) {
                let help = "this architecture expects experts without groups, as in the light models";
                return Err(f.unsupported(name, n.to_string(), help.into()));
            }
        }
        let defaults = defaults! { vocab: 163_840, heads: 32, max_position: 131_072, ..LLAMA };
        let latent = Latent { q_rank: Some(384), kv_rank: 128, nope: 64, rope: 32, value: 64, ..Latent::of(f) };
        // Its indexer rotates halves, attention neighbours.
        let indexer = Indexer { heads: 16, ..Indexer::DEEPSEEK };
        let mut d = indexed(f, latent_decoder::decoder(f, defaults, latent)?, indexer)?;
        d.block_norms.gates = Some(f.size("gated_norm_rank").or(16));
        let d = d.with_attention(|_, a| a.gate = Some(Gate::BesideQueries));
        let router = sigmoids(f, 8, 2.5)?;
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [128, 1, 512])? };
        let sparse = sparse_by_types_or_every(f, d.layers.len())?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = fields! { mlp_layer_types, moe_layer_freq, gated_norm_rank };

/// As they are published, and as Transformers has them in memory.
const NAMES: Table = names! {
    "model.layers.{}." {
        CORRECTION => "mlp.gate.e_score_correction_bias", Q_UP => "self_attn.q_b_proj",
        Q_UP => "self_attn.q_gate_proj", ATTN_NORM => "input_layernorm.norm",
        ATTN_NORM_GATE.down => "input_layernorm.W_down", ATTN_NORM_GATE.down => "input_layernorm.mlp.fc1",
        ATTN_NORM_GATE.up => "input_layernorm.W_up", ATTN_NORM_GATE.up => "input_layernorm.mlp.fc2",
        // (The second in layers without experts.)
        MLP_NORM => "post_attention_layernorm.norm", MLP_NORM => "post_attention_layernorm",
        MLP_NORM_GATE.down => "post_attention_layernorm.W_down",
        MLP_NORM_GATE.down => "post_attention_layernorm.mlp.fc1", MLP_NORM_GATE.up => "post_attention_layernorm.W_up",
        MLP_NORM_GATE.up => "post_attention_layernorm.mlp.fc2",
    }
};
