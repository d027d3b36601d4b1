//! Nemotron-H and Nemotron 3 (arXiv 2504.03624, 2512.20856): layers of one block each: a mixer of
//! Mamba-2, attention without positions, an MLP or experts, both with squared ReLU without gate. Experts
//! may read and write a narrower row.

use crate::arch::blocks::decoder::Half;
use crate::arch::blocks::experts::{ExpertRow, ROW_DOWN, ROW_UP};
use crate::arch::blocks::families::latent_experts::sigmoids;
use crate::arch::blocks::names::EXPERTS_UP;
use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{Mamba2, ReadNorm, SSM_A, SSM_CONV, SSM_D, SSM_DT, SSM_IN, SSM_NORM, SSM_OUT};

pub(crate) const ARCH: Arch = Arch {
    model_type: "nemotron_h",
    class: "NemotronHForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, ATTENTION, ATTENTION_BIAS, MLP_BIAS, OWN],
    // The class has its own bounds of time steps, and one MLP beside the experts; the rest is about
    // training, or how it is computed. Nothing is rotated.
    fixed: fixed! {
        Any => time_step_limit time_step_max time_step_floor time_step_rank n_shared_experts mamba_proj_bias
            use_mamba_kernels mamba_ssm_cache_dtype moe_shared_expert_overlap chunk_size expand rope_theta
            partial_rotary_factor rms_norm_eps norm_eps mtp_hybrid_override_pattern mtp_layers_block_type;
    },
    goldens: &["nemotron_h", "nemotron_h_latent"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = defaults! {
            vocab: 131_072, heads: 32, kv_heads: 8, head_dim: 128, max_position: 4096, eps(layer_norm_epsilon): 1e-5,
            act(mlp_hidden_act): Relu2, ..LLAMA
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
        let d = d.with_heads(|_, a, h| (h.qkv_bias, h.out_bias, a.rotary) = (attention, attention, None));
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, mlp))))
    },
};

/// As in [`ATTENTION`], and as the first files have it.
const HEADS: &[Field] = fields! { head_dim | attention_head_dim };

const OWN: &[Field] = fields! {
    hybrid_override_pattern, layer_types | layers_block_type: Accepts::ListOf(LAYER_TYPES), intermediate_size,
    mlp_hidden_act: SIMPLE_ACTS, layer_norm_epsilon, mamba_num_heads, mamba_head_dim, mamba_hidden_act, ssm_state_size,
    n_groups | mamba_n_groups, conv_kernel | mamba_d_conv, use_conv_bias | mamba_conv_bias, use_bias, time_step_min,
    n_routed_experts | num_local_experts, num_experts_per_tok, moe_intermediate_size,
    moe_shared_expert_intermediate_size, moe_latent_size, routed_scaling_factor, n_group, topk_group, norm_topk_prob,
};

/// As newer and older files say it; the last is refused with a word of its own.
const LAYER_TYPES: &[&str] =
    &["linear_attention", "full_attention", "moe", "mlp", "mamba", "attention", "sliding_attention"];

/// Letters of a pattern.
const KIND_MIXER: char = 'M';
const KIND_ATTENTION: char = '*';
const KIND_MLP: char = '-';
const KIND_EXPERTS: char = 'E';

const NAMES: Table = names! {
    "backbone." { TABLE => "embeddings", NORM => "norm_f" }
    "" { HEAD => "lm_head" }
    "backbone.layers.{}." {
        ATTN_NORM => "norm", MLP_NORM => "norm", ATTN_Q => "mixer.q_proj", ATTN_K => "mixer.k_proj",
        ATTN_V => "mixer.v_proj", ATTN_OUT => "mixer.o_proj", MLP_UP => "mixer.up_proj",
        MLP_DOWN => "mixer.down_proj", ROUTER => "mixer.gate", CORRECTION => "mixer.gate.e_score_correction_bias",
        EXPERT_UP => "mixer.experts.{e}.up_proj", EXPERT_DOWN => "mixer.experts.{e}.down_proj",
        ROW_DOWN => "mixer.fc1_latent_proj", ROW_UP => "mixer.fc2_latent_proj", EXPERTS_UP => "mixer.experts.up_proj",
        EXPERTS_DOWN => "mixer.experts.down_proj", SHARED_UP => "mixer.shared_experts.up_proj",
        SHARED_DOWN => "mixer.shared_experts.down_proj", SSM_IN => "mixer.in_proj", SSM_CONV => "mixer.conv1d",
        SSM_DT => "mixer.dt_bias", SSM_A => "mixer.A_log", SSM_D => "mixer.D", SSM_NORM => "mixer.norm",
        SSM_OUT => "mixer.out_proj",
    }
};

/// The kind of each layer, by names or by letters.
fn kinds(f: &Fields, layers: usize) -> Result<Vec<char>, ConfigError> {
    if let Some(types) = common::layer_types(f, layers)? {
        if types.contains(&"sliding_attention") {
            let help = "this architecture supports mixers, full attention, MLPs and experts".to_string();
            return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
        }
        return Ok(types.into_iter().map(letter).collect());
    }
    let pattern = f.text("hybrid_override_pattern").ok_or_else(|| f.missing("hybrid_override_pattern"))?;
    if pattern.chars().count() != layers {
        let help =
            format!("this architecture expects a layer for each letter of `hybrid_override_pattern` ({pattern:?})");
        return Err(f.unsupported("num_hidden_layers", layers.to_string(), help));
    }
    let known = [KIND_MIXER, KIND_ATTENTION, KIND_MLP, KIND_EXPERTS];
    if !pattern.chars().all(|c| known.contains(&c)) {
        let help = "this architecture supports M (a mixer), * (attention), - (an MLP) and E (experts)".to_string();
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
        let help = format!("this architecture expects groups that divide its {heads} heads");
        return Err(f.unsupported("n_groups", groups.to_string(), help));
    }
    let conv = common::conv_width(f, "conv_kernel", 4)?;
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
        factors: None,
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
