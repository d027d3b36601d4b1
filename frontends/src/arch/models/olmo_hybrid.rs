//! OLMo Hybrid (Allen Institute for AI, 2026): the gated delta rule in most layers, with norms
//! before the blocks; OLMo 3's attention in the others, with norms after them.

use crate::arch::blocks::prelude::*;
use crate::arch::blocks::recurrent::{
    CONV_K, CONV_Q, CONV_V, DELTA_DECAY, DELTA_GATE, DELTA_K, DELTA_Q, DELTA_RATE, DELTA_V, GatedDelta, Projections,
    SSM_A, SSM_DT, SSM_NORM, SSM_OUT,
};

pub(crate) const ARCH: Arch = Arch {
    model_type: "olmo_hybrid",
    class: "OlmoHybridForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, ROTARY, MLP, ATTENTION_BIAS, OWN],
    // About training.
    fixed: fixed! { Any => linear_a_log_min linear_a_log_max linear_dt_min linear_dt_max linear_dt_init_floor; },
    goldens: &["olmo_hybrid"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! { vocab: 100_352, heads: 30, max_position: 65_536, ..LLAMA };
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults)?;
        let queries = d.layers.first().map_or(1, |l| l.attention.heads.queries);
        let (delta, linear) = (delta(f, d.facts.hidden, queries)?, linear_layers(f, d.facts.layers)?);
        let mut d = d.with_mixers(|i| linear[i].then_some(Mixer::Delta(delta)));
        for (layer, linear) in d.layers.iter_mut().zip(&linear) {
            layer.norms = Some(if *linear { Norms::Before } else { Norms::After });
        }
        Ok(Box::new(d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.qk_norm) = (bias, bias, Some(QkNorm::Row)))))
    },
};

const OWN: &[Field] = fields! {
    linear_conv_kernel_dim, linear_key_head_dim, linear_value_head_dim, linear_num_key_heads,
    linear_num_value_heads, linear_allow_neg_eigval, layer_types: Accepts::ListOf(LAYER_TYPES),
};

/// The last is refused with a word of its own.
const LAYER_TYPES: &[&str] = &["linear_attention", "full_attention", "sliding_attention"];

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_NORM => "attention_layer_norm", ATTN_NORM => "input_layernorm",
        ATTN_POST_NORM => "post_attention_layernorm",
        // As Transformers saves it.
        ATTN_POST_NORM => "feedforward_layer_norm", MLP_NORM => "feedforward_layer_norm",
        MLP_NORM => "post_attention_layernorm", MLP_POST_NORM => "post_feedforward_layernorm",
        DELTA_Q => "linear_attn.q_proj", DELTA_K => "linear_attn.k_proj", DELTA_V => "linear_attn.v_proj",
        CONV_Q => "linear_attn.q_conv1d", CONV_K => "linear_attn.k_conv1d", CONV_V => "linear_attn.v_conv1d",
        DELTA_GATE => "linear_attn.g_proj", DELTA_RATE => "linear_attn.b_proj", DELTA_DECAY => "linear_attn.a_proj",
        SSM_DT => "linear_attn.dt_bias", SSM_A => "linear_attn.A_log", SSM_NORM => "linear_attn.o_norm",
        SSM_OUT => "linear_attn.o_proj",
    }
};

fn delta(f: &Fields, hidden: usize, queries: usize) -> Result<GatedDelta, ConfigError> {
    let size = |name: &str, default: usize| f.size(name).or(default);
    let (key_heads, value_heads) = (size("linear_num_key_heads", queries), size("linear_num_value_heads", queries));
    let key_dim = size("linear_key_head_dim", (3 * hidden / 4 / key_heads).max(1));
    if !value_heads.is_multiple_of(key_heads) {
        let help = format!("this architecture expects key heads that divide its {value_heads} value heads");
        return Err(f.unsupported("linear_num_key_heads", key_heads.to_string(), help));
    }
    let conv = common::conv_width(f, "linear_conv_kernel_dim", 4)?;
    Ok(GatedDelta {
        key_heads,
        key_dim,
        value_heads,
        value_dim: size("linear_value_head_dim", 2 * key_dim),
        conv,
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        stored: Projections::Apart,
        twice: f.flag_or("linear_allow_neg_eigval", true),
        gate_act: UnaryOp::Silu,
        eps: Some(1e-5),
    })
}

/// Which layers have the delta rule: all but each fourth where nothing is said.
fn linear_layers(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let Some(types) = common::layer_types(f, layers)? else {
        // There is attention in the last, if nowhere else.
        return Ok((0..layers).map(|i| i % 4 != 3 && !(layers < 4 && i + 1 == layers)).collect());
    };
    if types.contains(&"sliding_attention") {
        let help = "this architecture supports full and linear attention".to_string();
        return Err(f.unsupported("layer_types", "\"sliding_attention\"".into(), help));
    }
    Ok(types.into_iter().map(|t| t == "linear_attention").collect())
}
