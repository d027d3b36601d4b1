//! Beam (Reflection, 2026): a stream that stays as large as a block's output, norms before and after the blocks and of
//! queries and keys, windows in most layers, which alone are rotated, queries that grow with the position in the
//! others, gates of columns, and experts chosen by groups.

use crate::arch::blocks::attention_gates::ATTN_GATE_BIAS;
use crate::arch::blocks::families::latent_experts::sigmoids_in_groups;
use crate::arch::blocks::families::rotary_by_kind::{all_said, rotated_kinds, table_of, turning};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "beam",
    class: "BeamForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, MLP, ATTENTION_BIAS, WINDOW, OWN],
    fixed: &[],
    goldens: &["beam"],
    names: Names(&[NAMES, SANDWICH_NORMS, POST_NORMS, QWEN_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 151_936, heads: 48, kv_heads: 8, head_dim: 128, max_position: 8192, ..LLAMA };
        let said = f.object("rope_parameters").is_some();
        let rotates = if said { rotated_kinds(f)? } else { [Some(false), Some(true)] };
        let mut d = Decoder::read_with(f, &defaults, |heads, max| turning(f, rotates, heads.dim, max))?;
        (d.norms, d.scales.averaged) = (Norms::Both, true);
        d.scales.cap = cap(f)?;
        let layers = d.layers.len();
        let sliding = common::sliding_layers(f, layers)?;
        // Every sixth sees everything, and so does the last.
        let sliding = sliding.unwrap_or_else(|| (1..=layers).map(|i| !i.is_multiple_of(6) && i < layers).collect());
        all_said(f, rotates, &sliding)?;
        let (bias, window) = (f.flag("attention_bias"), f.size("sliding_window").or_null(512));
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias, h.qk_norm, a.gate) = (bias, bias, Some(QkNorm::Head), Some(Gate::ColumnsBiased));
            a.window = window.filter(|_| sliding[i]);
            a.rotary = table_of(rotates, sliding[i]);
            a.tuning = a.rotary.is_none().then_some(Tuning { beta: 0.1, shift: 1, step: 2048, power: true });
        });
        let experts = experts(f, &d)?;
        Ok(Box::new(d.with_sparse(f, 3, experts)?))
    },
};

/// 30 where nothing is said, none if that is said.
fn cap(f: &Fields) -> Result<Option<f32>, ConfigError> {
    let said = !matches!(f.get(CAP), Given::Absent);
    if said { common::limit(f, CAP) } else { Ok(Some(30.0)) }
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = Router { pairs: true, ..sigmoids_in_groups(f, 8, 2.5)? };
    let experts = Experts {
        ffn: f.size("moe_intermediate_size").or(2560),
        correction: Some(CORRECTION),
        ..Experts::like(d, router, f.size("num_experts").or(256))
    };
    experts.checked(f, ["num_experts", "num_experts_per_tok"])
}

const CAP: &str = "final_logit_softcapping";

const OWN: &[Field] = fields! {
    rope_parameters, mlp_layer_types, num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob,
    routed_scaling_factor, n_group, topk_group, final_logit_softcapping,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_GATE => "self_attn.gate_proj", ATTN_GATE_BIAS => "self_attn.gate_bias",
        CORRECTION => "mlp.gate.e_score_correction_bias",
    }
};
