//! Decoders of 2026 with several residual streams, or means over their depth: HunYuan 4, GLM-5.3, Kimi K3,
//! DeepSeek V4.

use super::super::file::{Config, File, Wrong, set_layer_types, without};
use super::super::names::{DEEPSEEK_EXPERTS, LATENT_NAMES, MIXTRAL_EXPERTS, Names, UNREAD, numbered};
use super::latent::{INDEXER, INDEXER_KEYS, INDEXER_TYPES, latent};
use super::mixtures::set_sparse;
use super::recurrent::{ATTENDS, KIMI};
use super::{Constants, EXPERTS, Family, Keys, LATENT, PLAIN, Reading, Stored, WINDOW};
use serde_json::json;

const MLA: &[&str] = &["attention.key_length_mla", "attention.value_length_mla"];

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "hy_v4",
        model_type: ("hy_v4", "HYV4ForCausalLM"),
        keys: &[LATENT, EXPERTS, STREAMS, &[("hyper_connection.magnitude", "hc_magnitude")], INDEXER_KEYS],
        quiet: &[MLA[0], MLA[1], INDEXER_TYPES, LIMITS[0]],
        names: &[HY_V4, LATENT_NAMES, INDEXER, DEEPSEEK_EXPERTS],
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            latent(f, config)?;
            set_limit(f, config, &LIMITS[..1])?;
            // In files without an indexer all tokens are read.
            if let Some(all) = config.get("max_position_embeddings").cloned() {
                config.entry("index_topk").or_insert(all);
            }
            by_groups(f, config)
        },
        ..PLAIN
    },
    Family {
        name: "glm5-next",
        model_type: ("glm5_next_text", "Glm5NextForConditionalGeneration"),
        keys: &[
            LATENT,
            EXPERTS,
            STREAMS,
            INDEXER_KEYS,
            &[
                ("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"),
                ("attention.indexer.kpool", "index_kpool"),
                ("attention.indexer.kpool_select_tail", "index_kpool_always_select_tail"),
                ("ssm.conv_kernel", "linear_conv_kernel_dim"),
                ("kda.head_dim", "linear_head_dim"),
                ("kda.gate_lower_bound", "linear_lower_bound"),
            ],
        ],
        quiet: &[
            MLA[0],
            MLA[1],
            INDEXER_TYPES,
            LIMITS[0],
            LIMITS[1],
            // Addend in the norms of the indexer's keys.
            "attention.layer_norm_epsilon",
        ],
        names: &[GLM5_NEXT, KIMI, CONNECTIONS, LATENT_NAMES, INDEXER, DEEPSEEK_EXPERTS],
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            latent(f, config)?;
            set_limit(f, config, LIMITS)?;
            bounded(f)?;
            set_layer_types(config, &f.layers(ATTENDS), ["indexed_attention", "linear_attention"]);
            config.insert("linear_num_heads".into(), delta_heads(f)?.into());
            by_groups(f, config)
        },
        ..PLAIN
    },
    Family {
        name: "kimi-k3",
        model_type: ("kimi_k3_text", "KimiK3ForConditionalGeneration"),
        keys: &[
            LATENT,
            EXPERTS,
            &[
                ("expert_shared_count", "num_shared_experts"),
                ("expert_latent_length", "routed_expert_hidden_size"),
                ("activation.situ_beta", "activation_situ_beta"),
                ("activation.situ_linear_beta", "activation_situ_linear_beta"),
                ("attn_res.block_size", "attn_res_block_size"),
            ],
        ],
        quiet: &[MLA[0], MLA[1], "ssm.conv_kernel", "kda.head_dim", "kda.gate_lower_bound"],
        names: &[KIMI, KIMI_K3, LATENT_NAMES, MIXTRAL_EXPERTS],
        found: &[
            ("mla_use_output_gate", "blk.{}.attn_gate.weight"),
            ("latent_moe_use_norm", "blk.{}.ffn_routed_norm.weight"),
        ],
        reading: Reading::SIGMOIDS,
        adapt: kimi_k3,
        stored: Stored { values: queries_over_depth, ..Stored::SAME },
        ..PLAIN
    },
    Family {
        name: "deepseek4",
        model_type: ("deepseek_v4", "DeepseekV4ForCausalLM"),
        keys: &[
            EXPERTS,
            STREAMS,
            WINDOW,
            INDEXER_KEYS,
            &[
                ("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"),
                ("hash_layer_count", "num_hash_layers"),
                ("attention.q_lora_rank", "q_lora_rank"),
                ("attention.output_group_count", "o_groups"),
                ("attention.output_lora_rank", "o_lora_rank"),
                (RATIOS, "compress_ratios"),
                ("attention.compress_rope_freq_base", "compress_rope_theta"),
                ("rope.dimension_count", "qk_rope_head_dim"),
            ],
        ],
        reading: Reading { lists: &[RATIOS], gating: 4, ..Reading::PLAIN },
        quiet: &[LIMITS[0], LIMITS[1], "embedding_length_out"],
        names: &[DEEPSEEK4],
        adapt: |f, config| {
            set_limit(f, config, LIMITS)?;
            without(config, &["partial_rotary_factor"])
        },
        ..PLAIN
    },
    // Ling 3, which is of one stream.
    Family {
        name: "bailingmoe3",
        model_type: ("bailing_hybrid", "BailingHybridForCausalLM"),
        keys: &[
            LATENT,
            EXPERTS,
            &[
                ("ssm.conv_kernel", "short_conv_kernel_size"),
                ("kda.head_dim", "linear_head_dim"),
                ("kda.safe_gate", "kda_safe_gate"),
                ("kda.gate_lower_bound", "kda_lower_bound"),
            ],
        ],
        quiet: &[MLA[0], MLA[1], "expert_shared_feed_forward_length", "rope.dimension_sections"],
        names: &[BAILING, DEEPSEEK_EXPERTS],
        found: &[("attention_bias", "blk.{}.attn_kv_a_mqa.bias")],
        stored: Stored { slopes: true, ..Stored::SAME },
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            latent(f, config)?;
            bounded(f)?;
            set_layer_types(config, &f.layers(ATTENDS), ["full_attention", "linear_attention"]);
            by_groups(f, config)
        },
        ..PLAIN
    },
];

const BAILING: Names = &[
    ("token_embd", "model.word_embeddings"),
    ("blk.{}.attn_q", "model.layers.{}.attention.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.attention.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.attention.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.attention.dense"),
    ("blk.{}.attn_gate", "model.layers.{}.attention.g_proj"),
    ("blk.{}.attn_kv_a_mqa", "model.layers.{}.attention.kv_a_proj_with_mqa"),
    ("blk.{}.attn_kv_a_norm", "model.layers.{}.attention.kv_a_layernorm"),
    ("blk.{}.attn_k_b", "model.layers.{}.attention.k_b_proj"),
    ("blk.{}.attn_v_b", "model.layers.{}.attention.v_b_proj"),
    ("blk.{}.ssm_conv1d_q", "model.layers.{}.attention.q_conv1d"),
    ("blk.{}.ssm_conv1d_k", "model.layers.{}.attention.k_conv1d"),
    ("blk.{}.ssm_conv1d_v", "model.layers.{}.attention.v_conv1d"),
    ("blk.{}.ssm_f_a", "model.layers.{}.attention.f_proj"),
    ("blk.{}.ssm_g_a", "model.layers.{}.attention.g_proj"),
    ("blk.{}.ssm_beta", "model.layers.{}.attention.b_proj"),
    ("blk.{}.ssm_a", "model.layers.{}.attention.A_log"),
    ("blk.{}.ssm_dt.bias", "model.layers.{}.attention.dt_bias"),
    ("blk.{}.ssm_norm", "model.layers.{}.attention.o_norm"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.expert_bias"),
    ("blk.{}.layer_output_norm", "model.layers.{}.final_layernorm"),
];

/// Tokens of a window of each layer; each window makes a row.
const RATIOS: &str = "attention.compress_ratios";

/// As they were published.
const DEEPSEEK4: Names = &[
    ("token_embd", "embed"),
    ("output_norm", "norm"),
    ("output", "head"),
    ("output_hc_base.weight", "hc_head_base"),
    ("output_hc_fn.weight", "hc_head_fn"),
    ("output_hc_scale.weight", "hc_head_scale"),
    ("blk.{}.hc_attn_base.weight", "layers.{}.hc_attn_base"),
    ("blk.{}.hc_attn_fn.weight", "layers.{}.hc_attn_fn"),
    ("blk.{}.hc_attn_scale.weight", "layers.{}.hc_attn_scale"),
    ("blk.{}.hc_ffn_base.weight", "layers.{}.hc_ffn_base"),
    ("blk.{}.hc_ffn_fn.weight", "layers.{}.hc_ffn_fn"),
    ("blk.{}.hc_ffn_scale.weight", "layers.{}.hc_ffn_scale"),
    ("blk.{}.attn_norm", "layers.{}.attn_norm"),
    ("blk.{}.attn_q_a", "layers.{}.attn.wq_a"),
    ("blk.{}.attn_q_a_norm", "layers.{}.attn.q_norm"),
    ("blk.{}.attn_q_b", "layers.{}.attn.wq_b"),
    ("blk.{}.attn_kv", "layers.{}.attn.wkv"),
    ("blk.{}.attn_kv_a_norm", "layers.{}.attn.kv_norm"),
    ("blk.{}.attn_sinks.weight", "layers.{}.attn.attn_sink"),
    ("blk.{}.attn_output_a", "layers.{}.attn.wo_a"),
    ("blk.{}.attn_output_b", "layers.{}.attn.wo_b"),
    ("blk.{}.attn_compressor_ape.weight", "layers.{}.attn.compressor.ape"),
    ("blk.{}.attn_compressor_kv", "layers.{}.attn.compressor.wkv"),
    ("blk.{}.attn_compressor_gate", "layers.{}.attn.compressor.wgate"),
    ("blk.{}.attn_compressor_norm", "layers.{}.attn.compressor.norm"),
    ("blk.{}.indexer.attn_q_b", "layers.{}.attn.indexer.wq_b"),
    ("blk.{}.indexer.proj", "layers.{}.attn.indexer.weights_proj"),
    ("blk.{}.indexer_compressor_ape.weight", "layers.{}.attn.indexer.compressor.ape"),
    ("blk.{}.indexer_compressor_kv", "layers.{}.attn.indexer.compressor.wkv"),
    ("blk.{}.indexer_compressor_gate", "layers.{}.attn.indexer.compressor.wgate"),
    ("blk.{}.indexer_compressor_norm", "layers.{}.attn.indexer.compressor.norm"),
    ("blk.{}.ffn_norm", "layers.{}.ffn_norm"),
    ("blk.{}.ffn_gate_inp", "layers.{}.ffn.gate"),
    ("blk.{}.exp_probs_b.bias", "layers.{}.ffn.gate.bias"),
    // Tensors for tokens of images.
    ("blk.{}.exp_probs_b_vl.bias", UNREAD),
    ("blk.{}.ffn_gate_tid2eid.weight", "layers.{}.ffn.gate.tid2eid"),
    ("blk.{}.ffn_gate_exps", "layers.{}.ffn.experts.{e}.w1"),
    ("blk.{}.ffn_up_exps", "layers.{}.ffn.experts.{e}.w3"),
    ("blk.{}.ffn_down_exps", "layers.{}.ffn.experts.{e}.w2"),
    ("blk.{}.ffn_gate_shexp", "layers.{}.ffn.shared_experts.w1"),
    ("blk.{}.ffn_up_shexp", "layers.{}.ffn.shared_experts.w3"),
    ("blk.{}.ffn_down_shexp", "layers.{}.ffn.shared_experts.w2"),
];

const STREAMS: Keys = &[("hyper_connection.count", "hc_mult"), ("hyper_connection.epsilon", "hc_eps")];

/// Limits of the inputs of experts and of the MLP beside them, one for each layer.
const LIMITS: &[&str] = &["swiglu_clamp_exp", "swiglu_clamp_shexp"];

/// One limit for all layers and MLPs.
fn set_limit(f: &File, config: &mut Config, keys: &[&str]) -> Result<(), Wrong> {
    let list = |key: &&str| -> Vec<f64> {
        let value = f.get(key);
        let list = value.and_then(|v| v.list()).map(|list| list.iter().filter_map(|v| v.number()).collect());
        list.unwrap_or_else(|| value.and_then(|v| v.number()).into_iter().collect())
    };
    let lists: Vec<Vec<f64>> = keys.iter().map(list).collect();
    let first = lists.first().and_then(|list| list.first()).copied();
    match first.filter(|x| *x > 0.0) {
        Some(limit) if lists.iter().all(|l| !l.is_empty() && l.iter().all(|x| *x == limit)) => {
            config.insert("swiglu_limit".into(), limit.into());
            Ok(())
        }
        _ => f.refused(format_args!("has different limits of activations in its layers (`{}`)", keys.join("`, `"))),
    }
}

/// Experts of one group, where nothing is said of groups, and which layers have them.
fn by_groups(f: &File, config: &mut Config) -> Result<(), Wrong> {
    config.remove("first_k_dense_replace");
    for field in ["n_group", "topk_group"] {
        config.entry(field).or_insert(1.into());
    }
    config.entry("norm_topk_prob").or_insert(false.into());
    // Classes have other numbers where nothing is said.
    config.entry("routed_scaling_factor").or_insert(1.0.into());
    set_sparse(f, config)
}

const HY_V4: Names = &[
    ("output_hc_base.weight", "model.hc_head.hc_head_base"),
    ("output_hc_fn.weight", "model.hc_head.hc_head_fn"),
    ("output_hc_scale.weight", "model.hc_head.hc_head_scale"),
    ("blk.{}.hc_attn_base.weight", "model.layers.{}.hc_attn_layer.hc_pre.hc_base"),
    ("blk.{}.hc_attn_fn.weight", "model.layers.{}.hc_attn_layer.hc_pre.hc_fn"),
    ("blk.{}.hc_attn_scale.weight", "model.layers.{}.hc_attn_layer.hc_pre.hc_scale"),
    ("blk.{}.hc_ffn_base.weight", "model.layers.{}.hc_mlp_layer.hc_pre.hc_base"),
    ("blk.{}.hc_ffn_fn.weight", "model.layers.{}.hc_mlp_layer.hc_pre.hc_fn"),
    ("blk.{}.hc_ffn_scale.weight", "model.layers.{}.hc_mlp_layer.hc_pre.hc_scale"),
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.linear_gate"),
    ("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.learnable_sink_param"),
];

/// How streams are mixed.
pub(super) const CONNECTIONS: Names = &[
    ("blk.{}.hc_attn_base.weight", "model.layers.{}.hc_attn_base"),
    ("blk.{}.hc_attn_fn.weight", "model.layers.{}.hc_attn_fn"),
    ("blk.{}.hc_attn_scale.weight", "model.layers.{}.hc_attn_scale"),
    ("blk.{}.hc_ffn_base.weight", "model.layers.{}.hc_ffn_base"),
    ("blk.{}.hc_ffn_fn.weight", "model.layers.{}.hc_ffn_fn"),
    ("blk.{}.hc_ffn_scale.weight", "model.layers.{}.hc_ffn_scale"),
];

const GLM5_NEXT: Names = &[
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"),
    ("blk.{}.indexer_compressor_ape.weight", "model.layers.{}.self_attn.indexer.index_kpool_compress_ape"),
    ("blk.{}.indexer_compressor_gate.weight", "model.layers.{}.self_attn.indexer.index_kpool_compress_gate"),
];

/// Rates that no bound is said of are computed in another way, which these classes have not.
fn bounded(f: &File) -> Result<(), Wrong> {
    match f.number("kda.gate_lower_bound") {
        Some(_) => Ok(()),
        None => f.refused("has no `kda.gate_lower_bound`"),
    }
}

/// Heads of Kimi's delta rule, which have a rate each.
fn delta_heads(f: &File) -> Result<usize, Wrong> {
    let name = f.tensors.keys().find(|name| numbered(name, "blk.{}.ssm_beta.weight").is_some());
    match name.and_then(|name| f.rows(name)) {
        Some(heads) => Ok(heads),
        None => f.refused("has no layer with `ssm_beta.weight`"),
    }
}

const KIMI_K3: Names = &[
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.g_proj"),
    ("blk.{}.ssm_g", "model.layers.{}.self_attn.g_proj"),
    ("blk.{}.ffn_routed_down", "model.layers.{}.block_sparse_moe.routed_expert_down_proj"),
    ("blk.{}.ffn_routed_norm", "model.layers.{}.block_sparse_moe.routed_expert_norm"),
    ("blk.{}.ffn_routed_up", "model.layers.{}.block_sparse_moe.routed_expert_up_proj"),
    ("blk.{}.attn_res_score", "model.layers.{}.self_attention_res_norm"),
    ("blk.{}.ffn_res_score", "model.layers.{}.mlp_res_norm"),
    ("output_res_score", "model.output_attn_res_norm"),
];

fn kimi_k3(f: &File, config: &mut Config) -> Result<(), Wrong> {
    latent(f, config)?;
    let attends = f.layers(ATTENDS);
    let numbers = |which: bool| -> Vec<usize> {
        attends.iter().enumerate().filter(|(_, a)| **a == which).map(|(i, _)| i + 1).collect()
    };
    let linear = json!({
        "kda_layers": numbers(false),
        "full_attn_layers": numbers(true),
        "head_dim": f.required("kda.head_dim")?,
        "num_heads": delta_heads(f)?,
        "short_conv_kernel_size": f.required("ssm.conv_kernel")?,
        "gate_lower_bound": f.number("kda.gate_lower_bound"),
        "use_full_rank_gate": f.has("blk.{}.ssm_g.weight"),
    });
    config.insert("linear_attn_config".into(), linear);
    config.entry("norm_topk_prob").or_insert(false.into());
    without(config, &["n_shared_experts", "rope_theta"])
}

/// The queries of blocks that read means over the depth are in files as one vector: the gains times
/// the query. It is read as gains, which keep f32 in any model; the queries are ones then.
fn queries_over_depth(f: &File) -> Result<Constants, Wrong> {
    const SITES: [(&str, &str); 3] = [
        ("blk.{}.attn_res_score.weight", "model.layers.{}.self_attention_res_proj.weight"),
        ("blk.{}.ffn_res_score.weight", "model.layers.{}.mlp_res_proj.weight"),
        ("output_res_score.weight", "model.output_attn_res_proj.weight"),
    ];
    let width = usize::try_from(f.required("embedding_length")?).unwrap_or(usize::MAX);
    let ones = |(name, (_, info)): (&String, &(usize, crate::checkpoint::safetensors::TensorInfo))| {
        let (layer, to) = SITES.iter().find_map(|(from, to)| Some((numbered(name, from)?, *to)))?;
        // As wide as a tensor of the file, whatever is said.
        (info.shape == [width]).then(|| (to.replace("{}", &layer), vec![1.0; width]))
    };
    Ok(f.tensors.iter().filter_map(ones).collect())
}
