//! A.X K2 (SK Telecom, 2026): DeepSeek-V3.2 with gates behind its norms and behind attention, whose
//! queries and gates are made of one matrix. Contexts of which no token is left out are compiled.

use crate::arch::blocks::attention_gates::Gate;
use crate::arch::blocks::decoder::Defaults;
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, Experts, sparse_by_types_or_every};
use crate::arch::blocks::families::indexer::{SELECTION, dense};
use crate::arch::blocks::families::latent_experts::{EXPERTS, experts, sigmoids};
use crate::arch::blocks::latent_attention::{self, LATENT, Latent, Q_UP};
use crate::arch::blocks::latent_decoder;
use crate::arch::blocks::names::{ATTN_NORM, DEEPSEEK_EXPERTS, HUGGING_FACE, MLP_NORM, Names, Table};
use crate::arch::blocks::norm_gates::{ATTN_NORM_GATE, MLP_NORM_GATE};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "axk2",
    class: "AXK2ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS, LATENT, EXPERTS, SELECTION, OWN],
    fixed: &[
        ("scoring_func", Neutral::Words(&["sigmoid"])),
        ("topk_method", Neutral::Words(&["noaux_tc"])),
        ("layer_types", Neutral::All("indexed_attention")),
        ("index_n_heads", Neutral::Any),
        ("index_head_dim", Neutral::Any),
    ],
    goldens: &["axk2"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, latent_attention::NAMES, HUGGING_FACE]),
    read: |f| {
        Latent::short_queries(f)?;
        // The class lets experts of other groups compete with a score of 0, which is more than a
        // corrected score of the groups that are kept may be.
        for name in ["n_group", "topk_group"] {
            if let Some(n) = f.size(name).value().filter(|n| *n != 1) {
                let help = "this architecture has experts without groups, which the light models have none of";
                return Err(f.unsupported(name, n.to_string(), help.into()));
            }
        }
        let defaults = Defaults { vocab: Some(163_840), heads: Some(32), max_position: 131_072, ..Defaults::LLAMA };
        let latent = Latent {
            bias: f.flag("attention_bias"),
            q_rank: Some(384),
            kv_rank: 128,
            nope: 64,
            rope: 32,
            value: 64,
            ..Latent::DEEPSEEK
        };
        let mut d = dense(f, latent_decoder::decoder(f, defaults, latent)?);
        d.norm_gates = Some(f.size("gated_norm_rank").or(16));
        let d = d.with_attention(|_, a| a.gate = Some(Gate::BesideQueries));
        let router = sigmoids(f, 8, 2.5)?;
        let experts = Experts { correction: Some(CORRECTION), ..experts(f, &d, router, [128, 1, 512])? };
        let sparse = sparse_by_types_or_every(f, d.layers.len())?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

const OWN: &[Field] = &[
    Field::new("mlp_layer_types", Accepts::Any),
    Field::new("moe_layer_freq", Accepts::Size(4096)),
    Field::new("gated_norm_rank", WIDTH),
];

/// As they are published, and as Transformers has them in memory.
const NAMES: Table = &[
    (CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias"),
    (Q_UP, "model.layers.{}.self_attn.q_b_proj"),
    (Q_UP, "model.layers.{}.self_attn.q_gate_proj"),
    (ATTN_NORM, "model.layers.{}.input_layernorm.norm"),
    (ATTN_NORM_GATE.down, "model.layers.{}.input_layernorm.W_down"),
    (ATTN_NORM_GATE.down, "model.layers.{}.input_layernorm.mlp.fc1"),
    (ATTN_NORM_GATE.up, "model.layers.{}.input_layernorm.W_up"),
    (ATTN_NORM_GATE.up, "model.layers.{}.input_layernorm.mlp.fc2"),
    // (The second in layers without experts.)
    (MLP_NORM, "model.layers.{}.post_attention_layernorm.norm"),
    (MLP_NORM, "model.layers.{}.post_attention_layernorm"),
    (MLP_NORM_GATE.down, "model.layers.{}.post_attention_layernorm.W_down"),
    (MLP_NORM_GATE.down, "model.layers.{}.post_attention_layernorm.mlp.fc1"),
    (MLP_NORM_GATE.up, "model.layers.{}.post_attention_layernorm.W_up"),
    (MLP_NORM_GATE.up, "model.layers.{}.post_attention_layernorm.mlp.fc2"),
];
