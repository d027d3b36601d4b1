//! Nemotron-H and Nemotron 3 (arXiv 2504.03624, 2512.20856): layers of one block each: a mixer of
//! Mamba-2, attention without positions, an MLP or experts, both with squared ReLU without gate. Experts
//! may read and write a narrower row.

use crate::arch::blocks::decoder::{Decoder, Defaults, Half};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{CORRECTION, ExpertRow, Experts, ROW_DOWN, ROW_UP, Shared};
use crate::arch::blocks::families::latent_experts::sigmoids;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, EXPERT_DOWN, EXPERT_UP, EXPERTS_DOWN, EXPERTS_UP, HEAD, MLP_DOWN,
    MLP_NORM, MLP_UP, NORM, Names, ROUTER, SHARED_DOWN, SHARED_UP, TABLE, Table,
};
use crate::arch::blocks::recurrent::{Mamba2, ReadNorm, SSM_A, SSM_CONV, SSM_D, SSM_DT, SSM_IN, SSM_NORM, SSM_OUT};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::ConfigError;
use crate::config::common::{self, ACTIVATIONS, ATTENTION, ATTENTION_BIAS, MLP_BIAS, MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "nemotron_h",
    class: "NemotronHForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, ATTENTION, ATTENTION_BIAS, MLP_BIAS, OWN],
    // The class has its own bounds of time steps, and one MLP beside the experts; the rest is about
    // training, or how it is computed. Nothing is rotated.
    fixed: &[
        ("time_step_limit", Neutral::Any),
        ("time_step_max", Neutral::Any),
        ("time_step_floor", Neutral::Any),
        ("time_step_rank", Neutral::Any),
        ("n_shared_experts", Neutral::Any),
        ("mamba_proj_bias", Neutral::Any),
        ("use_mamba_kernels", Neutral::Any),
        ("mamba_ssm_cache_dtype", Neutral::Any),
        ("moe_shared_expert_overlap", Neutral::Any),
        ("chunk_size", Neutral::Any),
        ("expand", Neutral::Any),
        ("rope_theta", Neutral::Any),
        ("partial_rotary_factor", Neutral::Any),
        ("rms_norm_eps", Neutral::Any),
        ("norm_eps", Neutral::Any),
        ("mtp_hybrid_override_pattern", Neutral::Any),
        ("mtp_layers_block_type", Neutral::Any),
    ],
    goldens: &["nemotron_h", "nemotron_h_latent"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(131_072),
            heads: Some(32),
            kv_heads: Some(8),
            head_dim: Some(128),
            max_position: 4096,
            eps_field: "layer_norm_epsilon",
            eps: 1e-5,
            act: ("mlp_hidden_act", UnaryOp::Relu2),
            ..Defaults::LLAMA
        };
        let (attention, mlp) = (f.flag("attention_bias"), f.flag("mlp_bias"));
        let d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        let (kinds, mixer) = (kinds(f, d.facts.layers)?, mixer(f)?);
        let experts = if kinds.contains(&KIND_EXPERTS) { Some(experts(f, &d)?) } else { None };
        let d = d.with_mixers(|i| (kinds[i] == KIND_MIXER).then_some(Mixer::Mamba2(mixer)));
        let mut d = d.with_experts(|i| experts.filter(|_| kinds[i] == KIND_EXPERTS));
        for (layer, kind) in d.layers.iter_mut().zip(&kinds) {
            let first = matches!(*kind, KIND_MIXER | KIND_ATTENTION);
            layer.only = Some(if first { Half::First } else { Half::Second });
        }
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.rotary) = (attention, attention, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, mlp))))
    },
};

/// As in [`ATTENTION`], and as the first files have it.
const HEADS: &[Field] = &[Field::new("head_dim", Accepts::Size(1 << 14)).or(&["attention_head_dim"])];

const OWN: &[Field] = &[
    Field::new("hybrid_override_pattern", Accepts::Text),
    Field::new("layer_types", Accepts::ListOf(LAYER_TYPES)).or(&["layers_block_type"]),
    Field::new("intermediate_size", WIDTH),
    Field::new("mlp_hidden_act", Accepts::OneOf(&["relu2", "relu", "silu", "gelu", "gelu_pytorch_tanh"])),
    Field::new("layer_norm_epsilon", Accepts::Number),
    Field::new("mamba_num_heads", Accepts::Size(1 << 14)),
    Field::new("mamba_head_dim", Accepts::Size(1 << 14)),
    Field::new("mamba_hidden_act", Accepts::OneOf(ACTIVATIONS)),
    Field::new("ssm_state_size", WIDTH),
    Field::new("n_groups", Accepts::Size(1 << 14)).or(&["mamba_n_groups"]),
    Field::new("conv_kernel", Accepts::Size(64)).or(&["mamba_d_conv"]),
    Field::new("use_conv_bias", Accepts::Flag).or(&["mamba_conv_bias"]),
    Field::new("use_bias", Accepts::Flag),
    Field::new("time_step_min", Accepts::Number).unless(Neutral::Any),
    Field::new("n_routed_experts", Accepts::Size(4096)).or(&["num_local_experts"]),
    Field::new("num_experts_per_tok", Accepts::Size(4096)),
    Field::new("moe_intermediate_size", WIDTH),
    Field::new("moe_shared_expert_intermediate_size", WIDTH),
    Field::new("moe_latent_size", WIDTH),
    Field::new("routed_scaling_factor", Accepts::Number),
    Field::new("n_group", Accepts::Size(4096)),
    Field::new("topk_group", Accepts::Size(4096)),
    Field::new("norm_topk_prob", Accepts::Flag),
];

/// As newer and older files say it; the last is refused with a word of its own.
const LAYER_TYPES: &[&str] =
    &["linear_attention", "full_attention", "moe", "mlp", "mamba", "attention", "sliding_attention"];

/// Letters of a pattern.
const KIND_MIXER: char = 'M';
const KIND_ATTENTION: char = '*';
const KIND_MLP: char = '-';
const KIND_EXPERTS: char = 'E';

const NAMES: Table = &[
    (TABLE, "backbone.embeddings"),
    (HEAD, "lm_head"),
    (NORM, "backbone.norm_f"),
    (ATTN_NORM, "backbone.layers.{}.norm"),
    (MLP_NORM, "backbone.layers.{}.norm"),
    (ATTN_Q, "backbone.layers.{}.mixer.q_proj"),
    (ATTN_K, "backbone.layers.{}.mixer.k_proj"),
    (ATTN_V, "backbone.layers.{}.mixer.v_proj"),
    (ATTN_OUT, "backbone.layers.{}.mixer.o_proj"),
    (MLP_UP, "backbone.layers.{}.mixer.up_proj"),
    (MLP_DOWN, "backbone.layers.{}.mixer.down_proj"),
    (ROUTER, "backbone.layers.{}.mixer.gate"),
    (CORRECTION, "backbone.layers.{}.mixer.gate.e_score_correction_bias"),
    (EXPERT_UP, "backbone.layers.{}.mixer.experts.{e}.up_proj"),
    (EXPERT_DOWN, "backbone.layers.{}.mixer.experts.{e}.down_proj"),
    (ROW_DOWN, "backbone.layers.{}.mixer.fc1_latent_proj"),
    (ROW_UP, "backbone.layers.{}.mixer.fc2_latent_proj"),
    (EXPERTS_UP, "backbone.layers.{}.mixer.experts.up_proj"),
    (EXPERTS_DOWN, "backbone.layers.{}.mixer.experts.down_proj"),
    (SHARED_UP, "backbone.layers.{}.mixer.shared_experts.up_proj"),
    (SHARED_DOWN, "backbone.layers.{}.mixer.shared_experts.down_proj"),
    (SSM_IN, "backbone.layers.{}.mixer.in_proj"),
    (SSM_CONV, "backbone.layers.{}.mixer.conv1d"),
    (SSM_DT, "backbone.layers.{}.mixer.dt_bias"),
    (SSM_A, "backbone.layers.{}.mixer.A_log"),
    (SSM_D, "backbone.layers.{}.mixer.D"),
    (SSM_NORM, "backbone.layers.{}.mixer.norm"),
    (SSM_OUT, "backbone.layers.{}.mixer.out_proj"),
];

/// The kind of each layer, by names or by letters.
fn kinds(f: &Fields, layers: usize) -> Result<Vec<char>, ConfigError> {
    if let Some(types) = common::layer_types(f, layers)? {
        if types.contains(&"sliding_attention") {
            let help = "this architecture has mixers, full attention, MLPs and experts".to_string();
            return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
        }
        return Ok(types.into_iter().map(letter).collect());
    }
    let pattern = f.text("hybrid_override_pattern").ok_or_else(|| f.missing("hybrid_override_pattern"))?;
    if pattern.chars().count() != layers {
        let help = format!("this architecture has a layer for each letter of `hybrid_override_pattern` ({pattern:?})");
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help));
    }
    let known = [KIND_MIXER, KIND_ATTENTION, KIND_MLP, KIND_EXPERTS];
    if !pattern.chars().all(|c| known.contains(&c)) {
        let help = "this architecture has M (a mixer), * (attention), - (an MLP) and E (experts)".to_string();
        return Err(f.unsupported("hybrid_override_pattern", format!("{pattern:?}"), help));
    }
    Ok(pattern.chars().collect())
}

/// The letter of a kind of layer.
fn letter(kind: &str) -> char {
    match kind {
        "linear_attention" | "mamba" => KIND_MIXER,
        "full_attention" | "attention" => KIND_ATTENTION,
        "moe" => KIND_EXPERTS,
        _ => KIND_MLP,
    }
}

fn mixer(f: &Fields) -> Result<Mamba2, ConfigError> {
    let size = |name: &str, default: usize| f.size(name).or(default);
    let (heads, groups) = (size("mamba_num_heads", 128), size("n_groups", 8));
    if !heads.is_multiple_of(groups) {
        let help = format!("this architecture has groups that divide its {heads} heads");
        return Err(f.unsupported("n_groups", groups.to_string(), help));
    }
    let conv = size("conv_kernel", 4);
    if conv < 2 {
        return Err(f.invalid("conv_kernel", &conv, "at least 2".into()));
    }
    let least = f.number("time_step_min").unwrap_or(0.001) as f32;
    Ok(Mamba2 {
        heads,
        head_dim: size("mamba_head_dim", 64),
        state: size("ssm_state_size", 128),
        groups,
        conv,
        bias: f.flag("use_bias"),
        out_bias: f.flag("use_bias"),
        conv_bias: f.flag_or("use_conv_bias", true),
        act: common::activation(f, "mamba_hidden_act", UnaryOp::Silu),
        steps: [Some(least), None],
        norm: ReadNorm::Gated,
        parts: None,
        scale: None,
    })
}

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let router = sigmoids(f, 2, 1.0)?;
    let experts = Experts {
        ffn: f.size("moe_intermediate_size").or(7688),
        gated: false,
        correction: Some(CORRECTION),
        row: f
            .size("moe_latent_size")
            .value()
            .map(|width| ExpertRow { bias: f.flag("mlp_bias"), ..ExpertRow::plain(width) }),
        shared: Some(Shared::plain(f.size("moe_shared_expert_intermediate_size").or(7688))),
        ..Experts::like(d, router, f.size("n_routed_experts").or(8))
    };
    experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])
}
