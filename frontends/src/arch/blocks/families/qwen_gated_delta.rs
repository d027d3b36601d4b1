//! Common parts of Qwen's models with the gated delta rule.

use crate::arch::blocks::attention::QkNorm;
use crate::arch::blocks::attention_gates::Gate;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::experts::{Experts, Shared};
use crate::arch::blocks::families::draft_names::DraftNames;
use crate::arch::blocks::names::{Table, names};
use crate::arch::blocks::recurrent::{
    DELTA_DECAY, DELTA_GATE, DELTA_QKV, DELTA_RATE, GatedDelta, Projections, SSM_A, SSM_CONV, SSM_DT, SSM_NORM, SSM_OUT,
};
use crate::arch::blocks::recurrent_mixer::Mixer;
use crate::config::ConfigError;
use crate::config::common::{self};
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields};
use crate::config::known::Neutral;
use llmcc_ir::graph::{Router, UnaryOp};

/// A decoder of these two kinds of layers, without experts.
pub(crate) fn decoder(f: &Fields, defaults: &Defaults, delta: GatedDelta) -> Result<Decoder, ConfigError> {
    let bias = f.flag("attention_bias");
    let mut d = Decoder::read(f, defaults)?;
    d.norm.from_one = true;
    let linear = linear_layers(f, d.facts.layers)?;
    let d = d.with_mixers(|i| linear.get(i).copied().unwrap_or(false).then_some(Mixer::Delta(delta)));
    Ok(d.with_heads(|_, a, h| {
        (a.gate, h.qk_norm, h.qkv_bias, h.out_bias) = (Some(Gate::BesideQueries), Some(QkNorm::Head), bias, bias);
    }))
}

/// The model, with draft heads that are as its layers with attention are.
pub(crate) fn drafted(d: Decoder) -> Decoder {
    d.with_drafts(DraftNames::Apart, |layer| layer.mixer.is_none())
}

/// The activation of the gates of the gated delta rule, which files of Qwen3.6 name.
pub(crate) const GATE: (&str, Neutral) = ("output_gate_type", Neutral::Words(&["swish", "silu"]));

/// Fields of [`delta`].
pub(crate) const DELTA: &[Field] = fields! {
    linear_conv_kernel_dim, linear_key_head_dim, linear_value_head_dim, linear_num_key_heads,
    linear_num_value_heads,
};

/// Fields of [`linear_layers`].
pub(crate) const LAYERS: &[Field] = fields! { full_attention_interval, layer_types: Accepts::ListOf(LAYER_TYPES) };

/// The last is refused with a word of its own.
const LAYER_TYPES: &[&str] = &["linear_attention", "full_attention", "sliding_attention"];

/// Names of the layers with the gated delta rule.
pub(crate) const NAMES: Table = names! {
    "model.layers.{}." {
        DELTA_QKV => "linear_attn.in_proj_qkv", DELTA_GATE => "linear_attn.in_proj_z",
        DELTA_RATE => "linear_attn.in_proj_b", DELTA_DECAY => "linear_attn.in_proj_a",
        SSM_CONV => "linear_attn.conv1d", SSM_DT => "linear_attn.dt_bias", SSM_A => "linear_attn.A_log",
        SSM_NORM => "linear_attn.norm", SSM_OUT => "linear_attn.out_proj",
    }
};

/// The settings of the gated delta rule.
pub(crate) fn delta(f: &Fields) -> Result<GatedDelta, ConfigError> {
    let size = |name: &str, default: usize| f.size(name).or(default);
    let conv = common::conv_width(f, "linear_conv_kernel_dim", 4)?;
    let delta = GatedDelta {
        key_heads: size("linear_num_key_heads", 16),
        key_dim: size("linear_key_head_dim", 128),
        value_heads: size("linear_num_value_heads", 32),
        value_dim: size("linear_value_head_dim", 128),
        conv,
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        stored: Projections::Joined,
        twice: false,
        gate_act: UnaryOp::Silu,
        eps: None,
    };
    if !delta.value_heads.is_multiple_of(delta.key_heads) {
        let name = "linear_num_key_heads";
        let help = format!("this architecture expects key heads that divide its {} value heads", delta.value_heads);
        return Err(f.unsupported(name, delta.key_heads.to_string(), help));
    }
    Ok(delta)
}

/// Which layers have the delta rule.
pub(crate) fn linear_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let every = f.size("full_attention_interval").or(4);
    let Some(types) = common::layer_types(f, layers)? else {
        return Ok((0..layers).map(|i| !(i + 1).is_multiple_of(every)).collect());
    };
    if types.contains(&"sliding_attention") {
        let help = "this architecture supports full and linear attention".to_string();
        return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
    }
    Ok(types.into_iter().map(|t| t == "linear_attention").collect())
}

/// Fields of [`experts`].
pub(crate) const EXPERTS: &[Field] = fields! {
    num_experts | num_local_experts, num_experts_per_tok, moe_intermediate_size, shared_expert_intermediate_size,
};

/// The experts; `default`: how many there are and how many of each token, where nothing is said.
pub(crate) fn experts(f: &Fields, d: &Decoder, default: [usize; 2], normalize: bool) -> Result<Experts, ConfigError> {
    let router = Router::softmax(f.size("num_experts_per_tok").or(default[1]), normalize);
    let shared = f.size("shared_expert_intermediate_size").or(512);
    let experts = Experts {
        ffn: f.size("moe_intermediate_size").or(512),
        shared: Some(Shared { mixed: true, ..Shared::plain(shared) }),
        ..Experts::like(d, router, f.size("num_experts").or(default[0]))
    };
    experts.checked(f, ["num_experts", "num_experts_per_tok"])
}
