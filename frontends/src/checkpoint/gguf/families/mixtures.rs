//! Decoders with experts, and DeepSeek's, with latent attention.

use super::super::file::{Config, File, MOST_LAYERS, Wrong, set_layer_types, size, without};
use super::super::names::{DEEPSEEK_EXPERTS, HUNYUAN, MIXTRAL_EXPERTS, Names, QWEN_EXPERTS, numbered};
use super::{
    ATTENTION_BIAS, EXPERTS, Family, Heads, Keys, LAYER_NORM, PLAIN, Q_BIAS, Reading, Recipe, Stored, WINDOW, below,
    has_experts, rows,
};
use serde_json::{Value, json};

/// As most call them.
pub(super) const LOCAL: Keys = &[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")];

/// Experts that are as wide as the MLP of other models.
const WIDTH: Keys = &[("expert_feed_forward_length", "intermediate_size")];

pub(in super::super) const FAMILIES: &[Family] = &[
    Family {
        name: "gpt-oss",
        model_type: ("gpt_oss", "GptOssForCausalLM"),
        keys: &[WINDOW, LOCAL, WIDTH],
        names: &[GPT_OSS],
        found: ATTENTION_BIAS,
        reading: Reading { gating: 3, ..Reading::PLAIN },
        adapt: |f, config| match config.get_mut("rope_scaling") {
            // As its class has it; llama.cpp rounds where frequencies begin to be scaled.
            Some(scaling) => {
                scaling["truncate"] = false.into();
                Ok(())
            }
            None => f.refused("has no `rope.scaling.type`"),
        },
        ..PLAIN
    },
    Family {
        name: "glm4moe",
        model_type: ("glm4_moe", "Glm4MoeForCausalLM"),
        keys: &[EXPERTS],
        names: &[GLM4_NORMS, DEEPSEEK_EXPERTS],
        found: &[("attention_bias", Q_BIAS), ("use_qk_norm", "blk.0.attn_q_norm.weight")],
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            // In old files without the key, half of each head is rotated.
            if f.size("rope.dimension_count").is_some() {
                config.entry("partial_rotary_factor").or_insert(1.0.into());
            }
            // Models without an MLP (Solar Open) need not say how wide it is.
            if let Some(width) = f.size("expert_feed_forward_length") {
                config.entry("intermediate_size").or_insert(width.into());
            }
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "hy_v3",
        model_type: ("hy_v3", "HYV3ForCausalLM"),
        keys: &[&[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_weights_scale", "router_scaling_factor"),
            ("expert_weights_norm", "route_norm"),
        ]],
        quiet: &["expert_shared_feed_forward_length"],
        names: &[HY_V3, QWEN_EXPERTS],
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            set_sparse(f, config)?;
            let width = f.required("expert_feed_forward_length")?;
            let beside = f.size("expert_shared_feed_forward_length").unwrap_or(width);
            match beside.checked_div(width) {
                Some(count) if count * width == beside => config.insert("num_shared_experts".into(), count.into()),
                _ => return f.refused("has shared experts with another width than the others"),
            };
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "mellum",
        model_type: ("mellum", "MellumForCausalLM"),
        keys: &[
            WINDOW,
            &[
                ("expert_count", "num_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_feed_forward_length", "moe_intermediate_size"),
            ],
        ],
        quiet: &["rope.freq_base_swa"],
        fixed: &[("norm_topk_prob", true)],
        names: &[QWEN_EXPERTS],
        found: ATTENTION_BIAS,
        adapt: mellum,
        ..PLAIN
    },
    Family {
        name: "granitemoe",
        model_type: ("granitemoeshared", "GraniteMoeSharedForCausalLM"),
        suits: |f| f.size("expert_shared_feed_forward_length").unwrap_or(0) > 0,
        keys: &[LOCAL, MULTIPLIERS],
        names: &[GRANITE_EXPERTS],
        stored: Stored { heads: Heads::Neighbours, joins: GRANITE_SHARED, ..Stored::SAME },
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family {
        name: "granitemoe",
        model_type: ("granitemoe", "GraniteMoeForCausalLM"),
        suits: has_experts,
        keys: &[LOCAL, MULTIPLIERS],
        names: &[GRANITE_EXPERTS],
        stored: Stored::NEIGHBOURS,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family {
        name: "phimoe",
        model_type: ("phimoe", "PhimoeForCausalLM"),
        keys: &[WINDOW, LOCAL],
        names: &[MIXTRAL_EXPERTS],
        found: &[("attention_bias", Q_BIAS), ("lm_head_bias", "output.bias")],
        adapt: |f, config| {
            if f.size("attention.sliding_window").unwrap_or(0) == 0 {
                config.insert("sliding_window".into(), Value::Null);
            }
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "ernie4_5-moe",
        model_type: ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM"),
        keys: &[&[
            ("expert_count", "moe_num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_count", "moe_num_shared_experts"),
            ("leading_dense_block_count", "moe_layer_start_index"),
            ("interleave_moe_layer_step", "moe_layer_interval"),
        ]],
        quiet: &["expert_shared_feed_forward_length"],
        names: &[ERNIE, DEEPSEEK_EXPERTS],
        found: &[("use_bias", Q_BIAS)],
        ..PLAIN
    },
    Family {
        name: "hunyuan-moe",
        model_type: ("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"),
        keys: &[&[("expert_count", "num_experts"), ("expert_used_count", "moe_topk")], WIDTH],
        quiet: &["expert_shared_feed_forward_length", "expert_shared_count"],
        names: &[HUNYUAN, HUNYUAN_EXPERTS, DEEPSEEK_EXPERTS],
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family {
        name: "dots1",
        model_type: ("dots1", "Dots1ForCausalLM"),
        keys: &[EXPERTS],
        names: &[DEEPSEEK_EXPERTS],
        found: ATTENTION_BIAS,
        reading: Reading::SIGMOIDS,
        adapt: |_, config| {
            config.insert("sliding_window".into(), Value::Null);
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "exaone-moe",
        model_type: ("exaone_moe", "ExaoneMoeForCausalLM"),
        keys: &[WINDOW, EXPERTS],
        quiet: &["expert_shared_feed_forward_length"],
        names: &[EXAONE, DEEPSEEK_EXPERTS],
        reading: Reading::SIGMOIDS,
        ..PLAIN
    },
    Family {
        name: "afmoe",
        model_type: ("afmoe", "AfmoeForCausalLM"),
        keys: &[
            WINDOW,
            &[
                ("expert_count", "num_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_shared_count", "num_shared_experts"),
                ("expert_feed_forward_length", "moe_intermediate_size"),
                ("leading_dense_block_count", "num_dense_layers"),
                ("expert_weights_norm", "route_norm"),
                ("expert_weights_scale", "route_scale"),
            ],
        ],
        // As llama.cpp takes for granted.
        fixed: &[("mup_enabled", true)],
        names: &[AFMOE, DEEPSEEK_EXPERTS],
        reading: Reading::SIGMOIDS,
        adapt: |_, config| {
            config.entry("global_attn_every_n_layers").or_insert(4.into());
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "dbrx",
        model_type: ("dbrx", "DbrxForCausalLM"),
        quiet: &["attention.layer_norm_epsilon", "attention.clamp_kqv", "expert_count", "expert_used_count"],
        names: &[DBRX],
        adapt: dbrx,
        ..PLAIN
    },
    Family {
        name: "minimax-m2",
        model_type: ("minimax_m2", "MiniMaxM2ForCausalLM"),
        keys: &[LOCAL, WIDTH],
        names: &[MINIMAX, MIXTRAL_EXPERTS],
        reading: Reading::SIGMOIDS,
        ..PLAIN
    },
    Family {
        name: "llama4",
        model_type: ("llama4_text", "Llama4ForCausalLM"),
        keys: &[
            &[
                ("feed_forward_length", "intermediate_size_mlp"),
                ("interleave_moe_layer_step", "interleave_moe_layer_step"),
            ],
            LOCAL,
            WIDTH,
        ],
        quiet: &["leading_dense_block_count", "expert_swa", "attention.sliding_window"],
        names: &[LLAMA4, FEED_FORWARD],
        found: ATTENTION_BIAS,
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            // As llama.cpp: of its two models the one of 128 experts has no norms.
            config.insert("use_qk_norm".into(), (f.size("expert_count") != Some(128)).into());
            // A window of 0 says that there are none, and that all layers rotate.
            if f.size("attention.sliding_window") == Some(0) {
                let layers = f.layers("block_count").len();
                config.insert("no_rope_layers".into(), vec![1; layers].into());
                config.insert("attn_temperature_tuning".into(), false.into());
                set_layer_types(config, &vec![true; layers], ["full_attention", "chunked_attention"]);
            }
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "cohere2moe",
        model_type: ("cohere2_moe", "Cohere2MoeForCausalLM"),
        suits: has_experts,
        keys: &[
            WINDOW,
            WIDTH,
            &[
                LAYER_NORM,
                ("logit_scale", "logit_scale"),
                ("feed_forward_length", "prefix_dense_intermediate_size"),
                ("leading_dense_block_count", "first_k_dense_replace"),
                ("expert_count", "num_experts"),
                ("expert_used_count", "num_experts_per_tok"),
                ("expert_shared_count", "num_shared_experts"),
                ("expert_weights_norm", "norm_topk_prob"),
            ],
        ],
        quiet: &["expert_shared_feed_forward_length"],
        names: &[DEEPSEEK_EXPERTS],
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            if !config.contains_key("layer_types") {
                return f.refused("does not tell which layers have a window");
            }
            config.insert("expert_selection_fn".into(), "sigmoid".into());
            config.entry("norm_topk_prob").or_insert(false.into());
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "minimax-m3",
        model_type: ("minimax_m3_vl_text", "MiniMaxM3VLForCausalLM"),
        keys: &[
            LOCAL,
            WIDTH,
            &[
                ("feed_forward_length", "dense_intermediate_size"),
                ("expert_weights_scale", "routed_scaling_factor"),
                ("attention.indexer.top_k", "index_topk_blocks"),
                ("attention.indexer.block_size", "index_block_size"),
            ],
        ],
        quiet: &[
            "leading_dense_block_count",
            "expert_shared_count",
            "expert_weights_norm",
            "attention.indexer.head_count",
            "attention.indexer.key_length",
            "attention.indexer.local_blocks",
        ],
        names: &[MINIMAX_M3, MINIMAX, MIXTRAL_EXPERTS],
        stored: Stored::ONE_MORE,
        reading: Reading::SIGMOIDS,
        adapt: minimax_m3,
        ..PLAIN
    },
];

/// The indexer of blocks of tokens, and the MLP for all tokens.
const MINIMAX_M3: Names = &[
    ("blk.{}.indexer.q_proj", "model.layers.{}.self_attn.index_q_proj"),
    ("blk.{}.indexer.k_proj", "model.layers.{}.self_attn.index_k_proj"),
    ("blk.{}.indexer.q_norm", "model.layers.{}.self_attn.index_q_norm"),
    ("blk.{}.indexer.k_norm", "model.layers.{}.self_attn.index_k_norm"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.block_sparse_moe.shared_experts.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.block_sparse_moe.shared_experts.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.block_sparse_moe.shared_experts.down_proj"),
];

/// Which layers have experts and which select, by their tensors.
fn minimax_m3(f: &File, config: &mut Config) -> Result<(), Wrong> {
    set_sparse(f, config)?;
    let selects: Vec<bool> = (0..size(config, "num_hidden_layers").min(MOST_LAYERS))
        .map(|i| f.has(&format!("blk.{i}.indexer.q_proj.weight")))
        .collect();
    set_layer_types(config, &selects, ["minimax_m3_sparse", "full_attention"]);
    let of_all = f.tensors.iter().find(|(name, _)| numbered(name, "blk.{}.ffn_gate_shexp.weight").is_some());
    if let Some(rows) = of_all.and_then(|(_, (_, info))| info.shape.first()) {
        config.insert("shared_intermediate_size".into(), (*rows).into());
    }
    Ok(())
}

/// AFMoE's gates, norms and router.
const AFMOE: Names = &[
    ("blk.{}.attn_gate", "model.layers.{}.self_attn.gate_proj"),
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_mlp_layernorm"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router.gate"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.expert_bias"),
];

const DBRX: Names = &[
    ("token_embd", "transformer.wte"),
    ("output_norm", "transformer.norm_f"),
    ("blk.{}.attn_norm", "transformer.blocks.{}.norm_attn_norm.norm_1"),
    ("blk.{}.attn_output_norm", "transformer.blocks.{}.norm_attn_norm.norm_2"),
    ("blk.{}.attn_qkv", "transformer.blocks.{}.norm_attn_norm.attn.Wqkv"),
    ("blk.{}.attn_output", "transformer.blocks.{}.norm_attn_norm.attn.out_proj"),
    ("blk.{}.ffn_gate_inp", "transformer.blocks.{}.ffn.router.layer"),
    ("blk.{}.ffn_gate_exps", "transformer.blocks.{}.ffn.experts.{e}.w1"),
    ("blk.{}.ffn_up_exps", "transformer.blocks.{}.ffn.experts.{e}.v1"),
    ("blk.{}.ffn_down_exps", "transformer.blocks.{}.ffn.experts.{e}.w2"),
];

/// Nested fields: the converter writes some as keys and omits those common to all models.
fn dbrx(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if f.number("attention.layer_norm_epsilon").is_some_and(|eps| (eps / 1e-5 - 1.0).abs() > 1e-3) {
        return f.refused("has another epsilon than DBRX");
    }
    let attention = json!({
        "clip_qkv": f.number("attention.clamp_kqv"),
        "kv_n_heads": f.required("attention.head_count_kv")?,
        "rope_theta": f.number("rope.freq_base"),
    });
    let experts = json!({
        "ffn_hidden_size": f.required("feed_forward_length")?,
        "moe_num_experts": f.required("expert_count")?,
        "moe_top_k": f.required("expert_used_count")?,
    });
    config.insert("attn_config".into(), attention);
    config.insert("ffn_config".into(), experts);
    without(config, &["intermediate_size", "rms_norm_eps", "rope_theta"])
}

/// Which layers have experts, by whether they have a router; of layers that a file of a draft head leaves out, those
/// behind the dense ones.
pub(super) fn set_sparse(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let dense = f.size("leading_dense_block_count").unwrap_or(0);
    let kind = |layer: usize| {
        let router = || f.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
        let routed = if f.has_layer(layer) { router() } else { layer as u64 >= dense };
        if routed { "sparse" } else { "dense" }
    };
    config.insert("mlp_layer_types".into(), (0..f.own_layers()?).map(kind).collect());
    Ok(())
}

/// Frequencies of layers with a window equal the others', unless a file gives its own; they are not
/// scaled.
fn mellum(f: &File, config: &mut Config) -> Result<(), Wrong> {
    set_sparse(f, config)?;
    if f.size("attention.sliding_window").unwrap_or(0) == 0 {
        let layers = f.required("block_count")?;
        config.insert("layer_types".into(), (0..layers).take(MOST_LAYERS).map(|_| "full_attention").collect());
    } else if !config.contains_key("layer_types") {
        return f.refused("has a window, but does not tell in which layers");
    }
    let theta = f.number("rope.freq_base");
    let mut full = config.remove("rope_scaling").unwrap_or_else(|| json!({ "rope_type": "default" }));
    full["rope_theta"] = json!(theta);
    let local = json!({ "rope_type": "default", "rope_theta": f.number("rope.freq_base_swa").or(theta) });
    config.insert("rope_parameters".into(), json!({ "full_attention": full, "sliding_attention": local }));
    without(config, &["rope_theta"])
}

const HY_V3: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router.gate"),
    ("blk.{}.exp_probs_b", "model.layers.{}.mlp.expert_bias"),
    ("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.expert_bias"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj"),
];

pub(super) const MULTIPLIERS: Keys = &[
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("attention.scale", "attention_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("expert_shared_feed_forward_length", "shared_intermediate_size"),
];

const GPT_OSS: Names = &[
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"),
    ("blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_proj"),
    ("blk.{}.ffn_gate_exps.bias", "model.layers.{}.mlp.experts.gate_proj_bias"),
    ("blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.up_proj"),
    ("blk.{}.ffn_up_exps.bias", "model.layers.{}.mlp.experts.up_proj_bias"),
    ("blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_rows"),
    ("blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias"),
];

const GLM4_NORMS: Names = &[("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm")];

pub(super) const GRANITE_EXPERTS: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{e}.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{e}.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{e}.down_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"),
];

pub(super) const GRANITE_SHARED: &[Recipe] = &[rows(
    "model.layers.{}.shared_mlp.input_linear.weight",
    &["blk.{}.ffn_gate_shexp.weight", "blk.{}.ffn_up_shexp.weight"],
    below,
)];

const ERNIE: Names = &[("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.moe_statics.e_score_correction_bias")];

const HUNYUAN_EXPERTS: Names = &[
    ("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate.wg"),
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_mlp.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_mlp.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_mlp.down_proj"),
];

const EXAONE: Names = &[("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.e_score_correction_bias")];

const MINIMAX: Names = &[("blk.{}.exp_probs_b.bias", "model.layers.{}.block_sparse_moe.e_score_correction_bias")];

/// MLPs or experts that are called `feed_forward`.
pub(super) const FEED_FORWARD: Names = &[
    ("blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"),
    ("blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"),
    ("blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{e}.gate_proj"),
    ("blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{e}.up_proj"),
    ("blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{e}.down_proj"),
];

const LLAMA4: Names = &[
    ("blk.{}.ffn_gate_shexp", "model.layers.{}.feed_forward.shared_expert.gate_proj"),
    ("blk.{}.ffn_up_shexp", "model.layers.{}.feed_forward.shared_expert.up_proj"),
    ("blk.{}.ffn_down_shexp", "model.layers.{}.feed_forward.shared_expert.down_proj"),
];
