//! Decoders with layers that keep a state of fixed size.

use super::super::file::{Config, File, Wrong, set_layer_types, without};
use super::super::names::{DEEPSEEK_EXPERTS, LATENT_NAMES, MIXTRAL_EXPERTS, Names};
use super::mixtures::{FEED_FORWARD, GRANITE_EXPERTS, GRANITE_SHARED};
use super::{EXPERTS, Family, Heads, Keys, LATENT, PLAIN, Q_BIAS, Reading, Recipe, Stored, has_experts, rows};
use serde_json::json;

const EPSILON: Keys = &[("attention.layer_norm_rms_epsilon", "layer_norm_epsilon")];

/// Which layers attend, where the others keep a state.
pub(super) const ATTENDS: &str = "attention.head_count_kv";

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "granitehybrid",
        model_type: ("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
        suits: |f| f.get("embedding_scale").is_some(),
        keys: &[
            &[
                ("embedding_scale", "embedding_multiplier"),
                ("residual_scale", "residual_multiplier"),
                ("attention.scale", "attention_multiplier"),
                ("logit_scale", "logits_scaling"),
                ("expert_shared_feed_forward_length", "shared_intermediate_size"),
            ],
            MIXER,
        ],
        quiet: &["ssm.inner_size"],
        names: &[MIXER_NAMES, GRANITE_EXPERTS, GRANITE_DENSE],
        stored: Stored { heads: Heads::Neighbours, joins: GRANITE_JOINS, ..Stored::SAME },
        found: HYBRID_BIASES,
        adapt: granite,
        ..PLAIN
    },
    Family {
        name: "granitehybrid",
        model_type: ("bamba", "BambaForCausalLM"),
        keys: &[MIXER],
        quiet: &["ssm.inner_size"],
        names: &[MIXER_NAMES, BAMBA],
        stored: Stored::NEIGHBOURS,
        found: HYBRID_BIASES,
        adapt: bamba,
        ..PLAIN
    },
    Family {
        name: "nemotron_h",
        model_type: ("nemotron_h", "NemotronHForCausalLM"),
        keys: &[EPSILON, NEMOTRON],
        quiet: &["ssm.inner_size"],
        names: &[NEMOTRON_NAMES],
        found: NEMOTRON_BIASES,
        adapt: nemotron,
        ..PLAIN
    },
    Family {
        name: "nemotron_h_moe",
        model_type: ("nemotron_h", "NemotronHForCausalLM"),
        keys: &[EPSILON, NEMOTRON, EXPERTS, &[("expert_shared_feed_forward_length", SHARED), LATENT_ROWS]],
        quiet: &["ssm.inner_size"],
        names: &[NEMOTRON_NAMES],
        found: NEMOTRON_BIASES,
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            nemotron(f, config)?;
            config.entry("topk_group").or_insert(1.into());
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "lfm2",
        model_type: ("lfm2", "Lfm2ForCausalLM"),
        keys: &[CONVOLVED],
        fixed: &[("block_auto_adjust_ff_dim", false)],
        names: &[CONVOLVED_NAMES],
        found: &[("conv_bias", "blk.{}.shortconv.conv.bias")],
        adapt: convolved,
        ..PLAIN
    },
    Family {
        name: "lfm2moe",
        model_type: ("lfm2_moe", "Lfm2MoeForCausalLM"),
        keys: &[
            CONVOLVED,
            &[
                ("expert_count", "num_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_feed_forward_length", "moe_intermediate_size"),
                ("leading_dense_block_count", "num_dense_layers"),
            ],
        ],
        names: &[CONVOLVED_NAMES],
        found: &[("conv_bias", "blk.{}.shortconv.conv.bias"), ("use_expert_bias", "blk.{}.exp_probs_b.bias")],
        reading: Reading::SIGMOIDS,
        adapt: convolved,
        ..PLAIN
    },
    Family {
        name: "jamba",
        model_type: ("jamba", "JambaForCausalLM"),
        keys: &[&[
            ("ssm.conv_kernel", "mamba_d_conv"),
            ("ssm.state_size", "mamba_d_state"),
            ("ssm.time_step_rank", "mamba_dt_rank"),
        ]],
        quiet: &["ssm.inner_size"],
        names: &[JAMBA, FEED_FORWARD],
        found: &[("mamba_proj_bias", "blk.{}.ssm_in.bias"), ("mamba_conv_bias", "blk.{}.ssm_conv1d.bias")],
        adapt: jamba,
        ..PLAIN
    },
    Family {
        name: "mamba",
        model_type: ("falcon_mamba", "FalconMambaForCausalLM"),
        suits: |f| f.get("ssm.dt_b_c_rms").and_then(|v| v.flag()) == Some(true),
        keys: &[EPSILON, SELECTIVE],
        quiet: &["ssm.inner_size", "ssm.dt_b_c_rms"],
        names: &[MAMBA],
        found: MAMBA_BIASES,
        adapt: selective,
        ..PLAIN
    },
    Family {
        name: "mamba",
        model_type: ("mamba", "MambaForCausalLM"),
        keys: &[EPSILON, SELECTIVE],
        quiet: &["ssm.inner_size", "ssm.dt_b_c_rms"],
        names: &[MAMBA],
        found: MAMBA_BIASES,
        adapt: selective,
        ..PLAIN
    },
    Family {
        name: "mamba2",
        model_type: ("mamba2", "Mamba2ForCausalLM"),
        keys: &[
            EPSILON,
            &[
                ("ssm.conv_kernel", "conv_kernel"),
                ("ssm.state_size", "state_size"),
                ("ssm.group_count", "n_groups"),
                ("ssm.time_step_rank", "num_heads"),
            ],
        ],
        quiet: &["ssm.inner_size"],
        names: &[MAMBA2, MAMBA],
        found: MAMBA_BIASES,
        adapt: |f, config| {
            let columns = f.required("ssm.inner_size")?.checked_div(f.required("ssm.time_step_rank")?).unwrap_or(0);
            without(config, UNUSED)?;
            config.insert("head_dim".into(), columns.into());
            Ok(())
        },
        ..PLAIN
    },
    // The class's factors are part of the weights.
    Family {
        name: "falcon-h1",
        model_type: ("falcon_h1", "FalconH1ForCausalLM"),
        keys: &[MIXER, &[("ssm.inner_size", "mamba_d_ssm")]],
        fixed: &[("mamba_norm_before_gate", false)],
        names: &[MIXER_NAMES, FALCON_H1],
        found: &[
            ("attention_bias", Q_BIAS),
            ("mamba_rms_norm", "blk.0.ssm_norm.weight"),
            ("mamba_proj_bias", "blk.0.ssm_in.bias"),
            ("projectors_bias", "blk.0.ssm_out.bias"),
            ("mamba_conv_bias", "blk.0.ssm_conv1d.bias"),
        ],
        ..PLAIN
    },
    Family {
        name: "kimi-linear",
        model_type: ("kimi_linear", "KimiLinearForCausalLM"),
        keys: &[LATENT, EXPERTS],
        quiet: &["attention.key_length_mla", "attention.value_length_mla", "ssm.conv_kernel", "kda.head_dim"],
        names: &[KIMI, LATENT_NAMES, MIXTRAL_EXPERTS, DEEPSEEK_EXPERTS],
        reading: Reading::SIGMOIDS,
        adapt: kimi,
        ..PLAIN
    },
];

/// Mamba-2 beside attention.
const MIXER: Keys = &[
    ("ssm.conv_kernel", "mamba_d_conv"),
    ("ssm.state_size", "mamba_d_state"),
    ("ssm.group_count", "mamba_n_groups"),
    ("ssm.time_step_rank", "mamba_n_heads"),
];

const MIXER_NAMES: Names = &[
    ("blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"),
    ("blk.{}.ssm_conv1d", "model.layers.{}.mamba.conv1d"),
    ("blk.{}.ssm_dt.bias", "model.layers.{}.mamba.dt_bias"),
    ("blk.{}.ssm_a", "model.layers.{}.mamba.A_log"),
    ("blk.{}.ssm_d", "model.layers.{}.mamba.D"),
    ("blk.{}.ssm_norm", "model.layers.{}.mamba.norm"),
    ("blk.{}.ssm_out", "model.layers.{}.mamba.out_proj"),
];

/// Where there are no experts.
const GRANITE_DENSE: Names = &[("blk.{}.ffn_down", "model.layers.{}.shared_mlp.output_linear")];

const GRANITE_JOINS: &[Recipe] = &[
    Recipe { ..GRANITE_SHARED[0] },
    rows(
        "model.layers.{}.shared_mlp.input_linear.weight",
        &["blk.{}.ffn_gate.weight", "blk.{}.ffn_up.weight"],
        super::below,
    ),
];

const HYBRID_BIASES: &[(&str, &str)] = &[
    ("attention_bias", "blk.{}.attn_q.bias"),
    ("mamba_proj_bias", "blk.{}.ssm_in.bias"),
    ("mamba_conv_bias", "blk.{}.ssm_conv1d.bias"),
];

const BAMBA: Names = &[
    ("output_norm", "model.final_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"),
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"),
];

/// Whether positions count, as files say in this place.
fn rotates(f: &File) -> bool {
    f.get("rope.scaling.finetuned").and_then(|v| v.flag()).unwrap_or(true)
}

/// The converter puts rows of whole heads in the order for rotating neighbours, as Llama's, though half
/// of each is rotated: undone, they are as the model has them.
fn bamba(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if !rotates(f) {
        return f.refused("has no positions by `rope.scaling.finetuned`");
    }
    let attend = f.layers(ATTENDS).into_iter().enumerate().filter_map(|(i, is)| is.then_some(i));
    config.insert("attn_layer_indices".into(), attend.collect());
    config.insert("partial_rotary_factor".into(), 0.5.into());
    let expand = expansion(f)?;
    config.insert("mamba_expand".into(), expand.into());
    Ok(())
}

/// How many times as wide as the model its mixers are.
fn expansion(f: &File) -> Result<u64, Wrong> {
    let (inner, width) = (f.required("ssm.inner_size")?, f.required("embedding_length")?);
    match inner.checked_div(width) {
        Some(times) if times * width == inner => Ok(times),
        _ => f.refused("has mixers whose width is not a multiple of the model's"),
    }
}

fn granite(f: &File, config: &mut Config) -> Result<(), Wrong> {
    set_layer_types(config, &f.layers(ATTENDS), ["attention", "mamba"]);
    let rotates = rotates(f);
    config.insert("position_embedding_type".into(), if rotates { "rope" } else { "nope" }.into());
    config.insert("mamba_expand".into(), expansion(f)?.into());
    let (count, used) = if has_experts(f) {
        (f.required("expert_count")?, f.required("expert_used_count")?)
    } else {
        // The MLP of every layer is the shared one, as wide as its matrices whatever the file says.
        if let Some(n) = f.rows("blk.0.ffn_gate.weight") {
            config.insert("shared_intermediate_size".into(), n.into());
        }
        (0, 0)
    };
    config.insert("num_local_experts".into(), count.into());
    config.insert("num_experts_per_tok".into(), used.into());
    Ok(())
}

/// Columns of rows that experts see.
const LATENT_ROWS: (&str, &str) = ("moe_latent_size", "moe_latent_size");
const SHARED: &str = "moe_shared_expert_intermediate_size";

const NEMOTRON: Keys = &[
    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    ("ssm.conv_kernel", "conv_kernel"),
    ("ssm.state_size", "ssm_state_size"),
    ("ssm.group_count", "n_groups"),
    ("ssm.time_step_rank", "mamba_num_heads"),
];

const NEMOTRON_BIASES: &[(&str, &str)] = &[
    ("attention_bias", "blk.{}.attn_q.bias"),
    ("mlp_bias", "blk.{}.ffn_up.bias"),
    ("use_bias", "blk.{}.ssm_in.bias"),
    ("use_conv_bias", "blk.{}.ssm_conv1d.bias"),
];

const NEMOTRON_NAMES: Names = &[
    ("token_embd", "backbone.embeddings"),
    ("output_norm", "backbone.norm_f"),
    ("blk.{}.attn_norm", "backbone.layers.{}.norm"),
    ("blk.{}.attn_q", "backbone.layers.{}.mixer.q_proj"),
    ("blk.{}.attn_k", "backbone.layers.{}.mixer.k_proj"),
    ("blk.{}.attn_v", "backbone.layers.{}.mixer.v_proj"),
    ("blk.{}.attn_output", "backbone.layers.{}.mixer.o_proj"),
    ("blk.{}.ffn_up", "backbone.layers.{}.mixer.up_proj"),
    ("blk.{}.ffn_down", "backbone.layers.{}.mixer.down_proj"),
    ("blk.{}.ffn_gate_inp", "backbone.layers.{}.mixer.gate"),
    ("blk.{}.exp_probs_b.bias", "backbone.layers.{}.mixer.gate.e_score_correction_bias"),
    ("blk.{}.ffn_up_exps", "backbone.layers.{}.mixer.experts.{e}.up_proj"),
    ("blk.{}.ffn_down_exps", "backbone.layers.{}.mixer.experts.{e}.down_proj"),
    ("blk.{}.ffn_latent_down", "backbone.layers.{}.mixer.fc1_latent_proj"),
    ("blk.{}.ffn_latent_up", "backbone.layers.{}.mixer.fc2_latent_proj"),
    ("blk.{}.ffn_up_shexp", "backbone.layers.{}.mixer.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "backbone.layers.{}.mixer.shared_experts.down_proj"),
    ("blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"),
    ("blk.{}.ssm_conv1d", "backbone.layers.{}.mixer.conv1d"),
    ("blk.{}.ssm_dt.bias", "backbone.layers.{}.mixer.dt_bias"),
    ("blk.{}.ssm_a", "backbone.layers.{}.mixer.A_log"),
    ("blk.{}.ssm_d", "backbone.layers.{}.mixer.D"),
    ("blk.{}.ssm_norm", "backbone.layers.{}.mixer.norm"),
    ("blk.{}.ssm_out", "backbone.layers.{}.mixer.out_proj"),
];

/// Layers of one block, by their tensors: attention, an MLP, experts or a mixer.
fn nemotron(f: &File, config: &mut Config) -> Result<(), Wrong> {
    const KINDS: [(&str, char); 4] = [("attn_q", '*'), ("ssm_in", 'M'), ("ffn_gate_inp", 'E'), ("ffn_up", '-')];
    let letter = |i: usize| {
        let found = KINDS.iter().find(|(tensor, _)| f.has(&format!("blk.{i}.{tensor}.weight")));
        found.map(|(_, letter)| *letter)
    };
    let Some(pattern) = (0..f.layers(ATTENDS).len()).map(letter).collect::<Option<String>>() else {
        return f.refused("has layers without a known block");
    };
    // Files of models with experts have only the width of the experts, too.
    let dense = pattern.find('-').and_then(|i| f.rows(&format!("blk.{i}.ffn_up.weight")));
    config.extend(dense.map(|n| ("intermediate_size".to_string(), n.into())));
    config.insert("hybrid_override_pattern".into(), pattern.into());
    let columns = f.required("ssm.inner_size")?.checked_div(f.required("ssm.time_step_rank")?).unwrap_or(0);
    config.insert("mamba_head_dim".into(), columns.into());
    without(config, &["rms_norm_eps", "rope_theta", "partial_rotary_factor"])
}

const CONVOLVED: Keys = &[("shortconv.l_cache", "conv_L_cache"), ("attention.layer_norm_rms_epsilon", "norm_eps")];

const CONVOLVED_NAMES: Names = &[
    ("token_embd_norm", "model.embedding_norm"),
    ("output_norm", "model.embedding_norm"),
    ("blk.{}.attn_norm", "model.layers.{}.operator_norm"),
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"),
    ("blk.{}.shortconv.conv", "model.layers.{}.conv.conv"),
    ("blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj"),
    ("blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj"),
    ("blk.{}.ffn_norm", "model.layers.{}.ffn_norm"),
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.gate"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.feed_forward.expert_bias"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{e}.w1"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{e}.w2"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{e}.w3"),
];

fn convolved(f: &File, config: &mut Config) -> Result<(), Wrong> {
    set_layer_types(config, &f.layers(ATTENDS), ["full_attention", "conv"]);
    without(config, &["rms_norm_eps"])
}

const SELECTIVE: Keys =
    &[("ssm.conv_kernel", "conv_kernel"), ("ssm.state_size", "state_size"), ("ssm.time_step_rank", "time_step_rank")];

const MAMBA_BIASES: &[(&str, &str)] = &[("use_bias", "blk.0.ssm_in.bias"), ("use_conv_bias", "blk.0.ssm_conv1d.bias")];

/// Files have 0 there.
const UNUSED: &[&str] = &["intermediate_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps"];

const MAMBA: Names = &[
    ("token_embd", "backbone.embeddings"),
    ("output_norm", "backbone.norm_f"),
    ("blk.{}.attn_norm", "backbone.layers.{}.norm"),
    ("blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"),
    ("blk.{}.ssm_conv1d", "backbone.layers.{}.mixer.conv1d"),
    ("blk.{}.ssm_x", "backbone.layers.{}.mixer.x_proj"),
    ("blk.{}.ssm_dt", "backbone.layers.{}.mixer.dt_proj"),
    ("blk.{}.ssm_a", "backbone.layers.{}.mixer.A_log"),
    ("blk.{}.ssm_d", "backbone.layers.{}.mixer.D"),
    ("blk.{}.ssm_out", "backbone.layers.{}.mixer.out_proj"),
];

const MAMBA2: Names =
    &[("blk.{}.ssm_dt.bias", "backbone.layers.{}.mixer.dt_bias"), ("blk.{}.ssm_norm", "backbone.layers.{}.mixer.norm")];

fn selective(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let (inner, width) = (f.required("ssm.inner_size")?, f.required("embedding_length")?);
    if width == 0 || !inner.is_multiple_of(width) {
        return f.refused("has mixers whose width is not a multiple of the model's");
    }
    config.insert("expand".into(), (inner / width).into());
    without(config, UNUSED)
}

const JAMBA: Names = &[
    ("output_norm", "model.final_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"),
    ("blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"),
    ("blk.{}.ssm_conv1d", "model.layers.{}.mamba.conv1d"),
    ("blk.{}.ssm_x", "model.layers.{}.mamba.x_proj"),
    ("blk.{}.ssm_dt", "model.layers.{}.mamba.dt_proj"),
    ("blk.{}.ssm_dt_norm", "model.layers.{}.mamba.dt_layernorm"),
    ("blk.{}.ssm_b_norm", "model.layers.{}.mamba.b_layernorm"),
    ("blk.{}.ssm_c_norm", "model.layers.{}.mamba.c_layernorm"),
    ("blk.{}.ssm_a", "model.layers.{}.mamba.A_log"),
    ("blk.{}.ssm_d", "model.layers.{}.mamba.D"),
    ("blk.{}.ssm_out", "model.layers.{}.mamba.out_proj"),
];

/// Layers that attend, and layers with experts, each by a period and an offset.
fn jamba(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let (inner, width) = (f.required("ssm.inner_size")?, f.required("embedding_length")?);
    if width == 0 || !inner.is_multiple_of(width) {
        return f.refused("has mixers whose width is not a multiple of the model's");
    }
    config.insert("mamba_expand".into(), (inner / width).into());
    let attends = f.layers(ATTENDS);
    let routed: Vec<bool> = (0..attends.len()).map(|i| f.has(&format!("blk.{i}.ffn_gate_inp.weight"))).collect();
    for (name, layers) in [("attn", &attends), ("expert", &routed)] {
        let Some([period, offset]) = repeated(layers) else {
            return f.refused("has layers with attention or experts that do not recur periodically");
        };
        config.insert(format!("{name}_layer_period"), period.into());
        config.insert(format!("{name}_layer_offset"), offset.into());
    }
    if !routed.contains(&true) {
        config.insert("num_experts".into(), 1.into());
        return Ok(());
    }
    for (key, field) in [("expert_count", "num_experts"), ("expert_used_count", "num_experts_per_tok")] {
        config.insert(field.into(), f.required(key)?.into());
    }
    Ok(())
}

/// The period and the first of layers that are every so many.
fn repeated(layers: &[bool]) -> Option<[usize; 2]> {
    let mut which = layers.iter().enumerate().filter(|(_, is)| **is).map(|(i, _)| i);
    // None at all are after the last.
    let first = which.next().unwrap_or(layers.len());
    let period = which.next().map_or(layers.len() + 1, |second| second - first);
    let same = layers.iter().enumerate().all(|(i, is)| *is == (i % period == first));
    same.then_some([period, first])
}

const FALCON_H1: Names = &[
    ("output_norm", "model.final_layernorm"),
    // It has no ending in files.
    ("blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm.weight"),
    ("blk.{}.ffn_norm.weight", "model.layers.{}.pre_ff_layernorm.weight"),
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"),
];

pub(super) const KIMI: Names = &[
    ("blk.{}.ssm_conv1d_q", "model.layers.{}.self_attn.q_conv1d"),
    ("blk.{}.ssm_conv1d_k", "model.layers.{}.self_attn.k_conv1d"),
    ("blk.{}.ssm_conv1d_v", "model.layers.{}.self_attn.v_conv1d"),
    ("blk.{}.ssm_f_a", "model.layers.{}.self_attn.f_a_proj"),
    ("blk.{}.ssm_f_b", "model.layers.{}.self_attn.f_b_proj"),
    ("blk.{}.ssm_g_a", "model.layers.{}.self_attn.g_a_proj"),
    ("blk.{}.ssm_g_b", "model.layers.{}.self_attn.g_b_proj"),
    ("blk.{}.ssm_beta", "model.layers.{}.self_attn.b_proj"),
    ("blk.{}.ssm_a", "model.layers.{}.self_attn.A_log"),
    ("blk.{}.ssm_dt.bias", "model.layers.{}.self_attn.dt_bias"),
    ("blk.{}.ssm_norm", "model.layers.{}.self_attn.o_norm"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.block_sparse_moe.gate.e_score_correction_bias"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.block_sparse_moe.shared_experts.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.block_sparse_moe.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.block_sparse_moe.shared_experts.down_proj"),
];

/// Kimi's delta rule in layers that do not attend, latent attention without positions in the others.
fn kimi(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let rope = f.required("rope.dimension_count")?;
    let (keys, values) = (f.required("attention.key_length_mla")?, f.required("attention.value_length_mla")?);
    let Some(rest) = keys.checked_sub(rope) else { return f.refused("rotates more elements than its keys have") };
    for (field, n) in [("qk_nope_head_dim", rest), ("qk_rope_head_dim", rope), ("v_head_dim", values)] {
        config.insert(field.into(), n.into());
    }
    let attends = f.layers(ATTENDS);
    let numbers = |which: bool| -> Vec<usize> {
        attends.iter().enumerate().filter(|(_, a)| **a == which).map(|(i, _)| i + 1).collect()
    };
    let linear = json!({
        "kda_layers": numbers(false),
        "full_attn_layers": numbers(true),
        "head_dim": f.required("kda.head_dim")?,
        "num_heads": f.required("attention.head_count")?,
        "short_conv_kernel_size": f.required("ssm.conv_kernel")?,
    });
    config.insert("linear_attn_config".into(), linear);
    config.entry("q_lora_rank").or_insert(serde_json::Value::Null);
    without(config, &["head_dim", "num_key_value_heads", "partial_rotary_factor", "rope_theta"])
}
