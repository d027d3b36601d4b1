//! Beam (Reflection, 2026): a stream that stays as large as what is added to it, norms before and after the
//! blocks and of queries and keys, windows in most layers, which alone are rotated, queries that grow with the
//! position in the others, gates of columns, and experts chosen by groups.

use crate::arch::blocks::attention::{QkNorm, Tuning};
use crate::arch::blocks::attention_gates::{ATTN_GATE_BIAS, Gate};
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, Experts, sparse_by_types};
use crate::arch::blocks::families::rotary_by_kind::{all_said, rotated_kinds, table_of, turning};
use crate::arch::blocks::names::{ATTN_GATE, HUGGING_FACE, Names, POST_NORMS, QWEN_EXPERTS, SANDWICH_NORMS, Table};
use crate::config::ConfigError;
use crate::config::common::{self, ATTENTION, ATTENTION_BIAS, MLP, MODEL, WIDTH, WINDOW};
use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};
use llmcc_ir::graph::{F32, Router, Score};

pub(crate) const ARCH: Arch = Arch {
    model_type: "beam",
    class: "BeamForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["beam"],
    names: Names(&[NAMES, SANDWICH_NORMS, POST_NORMS, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(151_936),
            heads: Some(48),
            kv_heads: Some(8),
            head_dim: Some(128),
            max_position: 8192,
            ..Defaults::LLAMA
        };
        let said = f.object("rope_parameters").is_some();
        let rotates = if said { rotated_kinds(f)? } else { [Some(false), Some(true)] };
        let mut d = Decoder::read_with(f, &defaults, |heads, max| turning(f, rotates, heads.dim, max))?;
        (d.norms, d.averaged) = (Norms::Both, true);
        d.scales.cap = cap(f)?;
        let layers = d.layers.len();
        let sliding = common::sliding_layers(f, layers)?;
        // Every sixth sees everything, and so does the last.
        let sliding = sliding.unwrap_or_else(|| (1..=layers).map(|i| !i.is_multiple_of(6) && i < layers).collect());
        all_said(f, rotates, &sliding)?;
        let (bias, window) = (f.flag("attention_bias"), f.size("sliding_window").or_null(512));
        let d = d.with_attention(|i, a| {
            (a.qkv_bias, a.out_bias, a.qk_norm, a.gate) = (bias, bias, Some(QkNorm::Head), Some(Gate::ColumnsBiased));
            a.window = window.filter(|_| sliding[i]);
            a.rotary = table_of(rotates, sliding[i]);
            a.tuning = a.rotary.is_none().then_some(Tuning { beta: 0.1, shift: 1, step: 2048, power: true });
        });
        let experts = experts(f, &d)?;
        let sparse = sparse_by_types(f, layers, 3)?;
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

/// 30 where nothing is said, none if that is said.
fn cap(f: &Fields) -> Result<Option<f32>, ConfigError> {
    let said = !matches!(f.get(CAP), Given::Absent);
    if said { common::limit(f, CAP) } else { Ok(Some(30.0)) }
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = Router {
        score: Score::Sigmoid,
        top: f.size("num_experts_per_tok").or(8),
        normalize: f.flag_or("norm_topk_prob", true),
        eps: F32::new(1e-20),
        scale: F32::new(f.factor_or("routed_scaling_factor", 2.5)? as f32),
        groups: f.size("n_group").or(8),
        kept: f.size("topk_group").or(4),
        pairs: true,
    };
    let experts = Experts {
        ffn: f.size("moe_intermediate_size").or(2560),
        correction: Some(CORRECTION),
        ..Experts::like(d, router, f.size("num_experts").or(256))
    };
    experts.checked(f, ["num_experts", "num_experts_per_tok"])
}

const CAP: &str = "final_logit_softcapping";

const OWN: &[Field] = &[
    Field::new("rope_parameters", Accepts::Object),
    Field::new("mlp_layer_types", Accepts::Any),
    Field::new("num_experts", Accepts::Size(4096)),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("norm_topk_prob", Accepts::Flag),
    Field::new("routed_scaling_factor", Accepts::Number),
    Field::new("n_group", Accepts::Size(4096)),
    Field::new("topk_group", Accepts::Size(4096)),
    Field::new(CAP, Accepts::Number),
];

const NAMES: Table = &[
    (ATTN_GATE, "model.layers.{}.self_attn.gate_proj"),
    (ATTN_GATE_BIAS, "model.layers.{}.self_attn.gate_bias"),
    (CORRECTION, "model.layers.{}.mlp.gate.e_score_correction_bias"),
];
