//! MiMo-V2-Flash (Xiaomi, arXiv 2601.02780): keys wider than values, windows in most layers, with
//! twice the heads of keys and values and with sinks there, experts as DeepSeek-V3 chooses them.
//!
//! The layers after the last, which predict further tokens, are left out.

use crate::arch::blocks::families::latent_experts::sigmoids;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "mimo_v2_flash",
    class: "MiMoV2FlashForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, PARTIAL_ROTARY_OF_KINDS, ATTENTION_BIAS, WINDOW, OWN],
    // The last ones are in files of the authors' own class.
    fixed: fixed! {
        Words(&["sigmoid"]) => scoring_func;
        Words(&["noaux_tc"]) => topk_method;
        Off => n_shared_experts add_full_attention_sink_bias;
        Same("num_attention_heads") => swa_num_attention_heads;
        Same("head_dim") => swa_head_dim;
        Same("v_head_dim") => swa_v_head_dim;
        On => add_swa_attention_sink_bias;
        Any => attention_chunk_size;
        Words(&["split"]) => attention_projection_layout;
    },
    goldens: &["mimo_v2_flash"],
    names: Names(&[NAMES, DEEPSEEK_EXPERTS, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 152_576, heads: 64, kv_heads: 4, head_dim: 192, max_position: 131_072, eps: 1e-5, ..LLAMA
        };
        let d = Decoder::read_with(f, &defaults, |heads, max| {
            let class = TwoRopes { parts: [0.334; 2], part: 0.334, partial: true, ..TwoRopes::new([5e6, 1e4]) };
            read_two(f, heads.dim, max, class)
        })?;
        let layers = d.facts.layers;
        let kv = d.layers.first().map_or(0, |l| l.attention.heads.kv.saturating_mul(2));
        if let Some(n) = f.size(WINDOWED_HEADS).value().filter(|n| *n != kv) {
            let help = format!("this architecture expects twice `num_key_value_heads` ({kv})");
            return Err(f.unsupported(WINDOWED_HEADS, n.to_string(), help));
        }
        let sliding = sliding(f, layers)?;
        let window = match f.size("sliding_window_size").value() {
            // Besides the token itself.
            Some(others) => others.saturating_add(1),
            None => f.size("sliding_window").or(129),
        };
        let (bias, value_dim) = (f.flag("attention_bias"), f.size("v_head_dim").or(128));
        let value_scale = match f.get("attention_value_scale") {
            Given::Null => None,
            Given::Value(_) | Given::Absent => Some(f.factor_or("attention_value_scale", 0.707)? as f32),
        };
        let d = d.with_heads(|i, a, h| {
            (h.qkv_bias, h.values.dim, h.values.scale) = (bias, Some(value_dim), value_scale);
            (a.window, a.sinks, a.rotary) = (sliding[i].then_some(window), sliding[i], Some(usize::from(sliding[i])));
            if sliding[i] {
                a.heads.kv *= 2;
            }
        });
        let experts = Experts {
            ffn: f.size("moe_intermediate_size").or(2048),
            correction: Some(CORRECTION),
            ..Experts::like(&d, sigmoids(f, 8, 1.0)?, f.size("n_routed_experts").or(256))
        };
        let experts = experts.checked(f, ["n_routed_experts", "num_experts_per_tok"])?;
        let sparse = match common::layer_flags(f, "moe_layer_freq", layers)? {
            Some(sparse) => sparse,
            None => sparse_by_types(f, layers, 1)?,
        };
        Ok(Box::new(d.with_experts(|i| sparse[i].then_some(experts))))
    },
};

/// Which layers have a window.
fn sliding(f: &Fields, layers: usize) -> Result<Vec<bool>, ConfigError> {
    if let Some(sliding) = common::sliding_layers(f, layers)? {
        return Ok(sliding);
    }
    let by_default = |i: usize| i > 0 && !(i + 1).is_multiple_of(6);
    let listed = common::layer_flags(f, "hybrid_layer_pattern", layers)?;
    Ok(listed.unwrap_or_else(|| (0..layers).map(by_default).collect()))
}

const WINDOWED_HEADS: &str = "swa_num_key_value_heads";

const OWN: &[Field] = fields! {
    intermediate_size, hidden_act, rms_norm_eps | layernorm_epsilon, rope_local_base_freq | swa_rope_theta,
    sliding_window_size, hybrid_layer_pattern, moe_layer_freq: Accepts::Numbers, swa_num_key_value_heads,
    v_head_dim, attention_value_scale, mlp_layer_types, n_routed_experts | num_local_experts, num_experts_per_tok,
    moe_intermediate_size, routed_scaling_factor, n_group, topk_group, norm_topk_prob,
};

const NAMES: Table = names! {
    "model.layers.{}." {
        ATTN_SINKS => "self_attn.attention_sink_bias", ATTN_SINKS => "self_attn.sinks",
        CORRECTION => "mlp.gate.e_score_correction_bias",
    }
};
