//! Decoders with attention and an MLP one after the other; and those families whose experts are
//! named as theirs.

use super::super::file::{Config, File, Wrong, head_dim, without};
use super::super::names::{
    APERTUS, BITNET, FUSED_MLP, GLM4, HUNYUAN, LATENT_NAMES, MIXTRAL_EXPERTS, PHI, POST_NORMS, QWEN_EXPERTS,
    QWEN2_EXPERTS, SANDWICH_NORMS, SEED, STARCODER2,
};
use super::{
    ATTENTION_BIAS, Constants, Family, Heads, Keys, LATENT, LAYER_NORM, PLAIN, Q_BIAS, Reading, Stored, WINDOW,
    has_experts,
};
use serde_json::json;

/// Parts of positions, which are all the same for texts, and layers that only images are added to.
const OF_IMAGES: &[&str] = &["rope.dimension_sections", "n_deepstack_layers"];

/// HunYuan's base of frequencies is multiplied by a power of this number.
const ALPHA: &str = "rope.scaling.alpha";

const QWEN3_EXPERTS: Keys = &[
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "llama",
        model_type: ("llama", "LlamaForCausalLM"),
        suits: |f| !has_experts(f),
        stored: Stored::NEIGHBOURS,
        found: &[("attention_bias", Q_BIAS), ("mlp_bias", "blk.0.ffn_up.bias")],
        ..PLAIN
    },
    Family {
        name: "llama",
        model_type: ("mixtral", "MixtralForCausalLM"),
        keys: &[&[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")]],
        names: &[MIXTRAL_EXPERTS],
        stored: Stored::NEIGHBOURS,
        suits: has_experts,
        ..PLAIN
    },
    Family {
        name: "granite",
        model_type: ("granite", "GraniteForCausalLM"),
        keys: &[&[
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("attention.scale", "attention_multiplier"),
            ("logit_scale", "logits_scaling"),
        ]],
        stored: Stored::NEIGHBOURS,
        found: ATTENTION_BIAS,
        // The key says there whether positions count.
        adapt: |f, _| match f.get("rope.scaling.finetuned").and_then(|v| v.flag()) {
            Some(false) => f.refused("has no positions by `rope.scaling.finetuned`"),
            _ => Ok(()),
        },
        ..PLAIN
    },
    // With windows it is the third generation, which scales frequencies in the other layers only.
    Family {
        name: "olmo2",
        model_type: ("olmo3", "Olmo3ForCausalLM"),
        suits: |f| f.get("attention.sliding_window").is_some(),
        keys: &[WINDOW],
        names: &[POST_NORMS],
        adapt: |f, config| {
            let base = f.number("rope.freq_base").unwrap_or(1e4);
            let each = json!({ "rope_type": "default", "rope_theta": base });
            config.insert("rope_parameters".into(), json!({ "full_attention": each, "sliding_attention": each }));
            without(config, &["rope_theta"])
        },
        ..PLAIN
    },
    Family { name: "olmo2", model_type: ("olmo2", "Olmo2ForCausalLM"), names: &[POST_NORMS], ..PLAIN },
    Family {
        name: "qwen3moe",
        model_type: ("qwen3_moe", "Qwen3MoeForCausalLM"),
        keys: &[QWEN3_EXPERTS],
        fixed: &[("norm_topk_prob", true)],
        names: &[QWEN_EXPERTS],
        suits: has_experts,
        ..PLAIN
    },
    Family { name: "qwen2", model_type: ("qwen2", "Qwen2ForCausalLM"), ..PLAIN },
    Family { name: "qwen3", model_type: ("qwen3", "Qwen3ForCausalLM"), ..PLAIN },
    // Text models of models that see images: the other parts are in files of their own.
    Family { name: "qwen2vl", model_type: ("qwen2", "Qwen2ForCausalLM"), quiet: OF_IMAGES, ..PLAIN },
    Family { name: "qwen3vl", model_type: ("qwen3", "Qwen3ForCausalLM"), quiet: OF_IMAGES, ..PLAIN },
    Family {
        name: "qwen3vlmoe",
        model_type: ("qwen3_moe", "Qwen3MoeForCausalLM"),
        keys: &[QWEN3_EXPERTS],
        fixed: &[("norm_topk_prob", true)],
        names: &[QWEN_EXPERTS],
        quiet: OF_IMAGES,
        suits: has_experts,
        ..PLAIN
    },
    Family {
        name: "phi3",
        model_type: ("phi3", "Phi3ForCausalLM"),
        keys: &[WINDOW],
        names: &[FUSED_MLP],
        // Phi-4 says 0 where there is no window.
        adapt: |f, config| {
            if f.size("attention.sliding_window") == Some(0) {
                config.insert("sliding_window".into(), serde_json::Value::Null);
            }
            Ok(())
        },
        ..PLAIN
    },
    Family { name: "gemma", model_type: ("gemma", "GemmaForCausalLM"), stored: Stored::ONE_MORE, ..PLAIN },
    Family {
        name: "gemma3",
        model_type: ("gemma3_text", "Gemma3ForCausalLM"),
        keys: &[&[
            ("attention.sliding_window", "sliding_window"),
            ("rope.freq_base_swa", "rope_local_base_freq"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ]],
        names: &[SANDWICH_NORMS],
        stored: Stored::ONE_MORE,
        reading: Reading { unscaled: Some(62), ..Reading::PLAIN },
        ..PLAIN
    },
    Family {
        name: "gemma2",
        model_type: ("gemma2", "Gemma2ForCausalLM"),
        keys: &[&[
            ("attention.sliding_window", "sliding_window"),
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ]],
        names: &[SANDWICH_NORMS],
        stored: Stored::ONE_MORE,
        reading: Reading { unscaled: Some(46), ..Reading::PLAIN },
        ..PLAIN
    },
    Family {
        name: "arcee",
        model_type: ("arcee", "ArceeForCausalLM"),
        stored: Stored::NEIGHBOURS,
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    // As llama.cpp computes it, after the models of 1bitLLM; later ones activate the gate by ReLU².
    Family {
        name: "bitnet",
        model_type: ("bitnet", "BitNetForCausalLM"),
        names: &[BITNET],
        found: ATTENTION_BIAS,
        adapt: |_, config| {
            config.insert("hidden_act".into(), json!("silu"));
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "command-r",
        model_type: ("cohere", "CohereForCausalLM"),
        keys: &[&[LAYER_NORM, ("logit_scale", "logit_scale")]],
        found: &[("use_qk_norm", "blk.0.attn_q_norm.weight")],
        ..PLAIN
    },
    Family {
        name: "cohere2",
        model_type: ("cohere2", "Cohere2ForCausalLM"),
        keys: &[&[LAYER_NORM, ("logit_scale", "logit_scale"), ("attention.sliding_window", "sliding_window")]],
        ..PLAIN
    },
    Family {
        name: "ernie4_5",
        model_type: ("ernie4_5", "Ernie4_5ForCausalLM"),
        found: &[("use_bias", Q_BIAS)],
        ..PLAIN
    },
    Family {
        name: "exaone4",
        model_type: ("exaone4", "Exaone4ForCausalLM"),
        keys: &[&[("attention.sliding_window", "sliding_window")]],
        names: &[POST_NORMS],
        ..PLAIN
    },
    // The dense models up to 2024, as Transformers has them or as their authors do: with queries, keys and
    // values as one matrix.
    Family {
        name: "chatglm",
        model_type: ("glm", "GlmForCausalLM"),
        names: &[FUSED_MLP],
        adapt: |f, config| {
            let biased = f.has(Q_BIAS) || f.has("blk.0.attn_qkv.bias");
            config.insert("attention_bias".into(), biased.into());
            // Files leave it to llama.cpp.
            if let Some(dim) = head_dim(config) {
                config.insert("head_dim".into(), dim.into());
            }
            Ok(())
        },
        ..PLAIN
    },
    // Those that see images have rows as other models; the sections are all the same for texts.
    Family {
        name: "glm4",
        model_type: ("glm4", "Glm4ForCausalLM"),
        suits: |f| f.get(OF_IMAGES[0]).is_some(),
        quiet: OF_IMAGES,
        names: &[GLM4],
        stored: Stored { heads: Heads::Halves, ..Stored::SAME },
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family { name: "glm4", model_type: ("glm4", "Glm4ForCausalLM"), names: &[GLM4], found: ATTENTION_BIAS, ..PLAIN },
    Family {
        name: "hunyuan-dense",
        model_type: ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
        quiet: &[ALPHA],
        names: &[HUNYUAN],
        found: ATTENTION_BIAS,
        adapt: alpha,
        ..PLAIN
    },
    Family {
        name: "hunyuan_vl",
        model_type: ("hunyuan_vl_text", "HunYuanVLForConditionalGeneration"),
        quiet: &["rope.dimension_sections", ALPHA],
        names: &[HUNYUAN],
        found: ATTENTION_BIAS,
        adapt: alpha,
        ..PLAIN
    },
    Family {
        name: "paddleocr",
        model_type: ("paddleocr_vl_text", "PaddleOCRVLForConditionalGeneration"),
        quiet: OF_IMAGES,
        found: &[("use_bias", Q_BIAS)],
        ..PLAIN
    },
    // It is a Llama in other names.
    Family { name: "internlm2", model_type: ("llama", "LlamaForCausalLM"), stored: Stored::NEIGHBOURS, ..PLAIN },
    // The multipliers are named as Granite's.
    Family {
        name: "minicpm",
        model_type: ("granite", "GraniteForCausalLM"),
        keys: &[&[
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("logit_scale", "logits_scaling"),
        ]],
        stored: Stored::NEIGHBOURS,
        ..PLAIN
    },
    Family {
        name: "nemotron",
        model_type: ("nemotron", "NemotronForCausalLM"),
        keys: &[&[("attention.layer_norm_epsilon", "norm_eps")]],
        stored: Stored::ONE_MORE,
        found: ATTENTION_BIAS,
        // Files have it under the name of other norms, too.
        adapt: |_, config| without(config, &["rms_norm_eps"]),
        ..PLAIN
    },
    Family {
        name: "olmo",
        model_type: ("olmo", "OlmoForCausalLM"),
        keys: &[&[("attention.clamp_kqv", "clip_qkv")]],
        stored: Stored::NEIGHBOURS,
        ..PLAIN
    },
    Family {
        name: "olmoe",
        model_type: ("olmoe", "OlmoeForCausalLM"),
        keys: &[&[("expert_count", "num_experts"), ("expert_used_count", "num_experts_per_tok")]],
        fixed: &[("norm_topk_prob", false)],
        names: &[QWEN_EXPERTS],
        suits: has_experts,
        ..PLAIN
    },
    Family { name: "phi2", model_type: ("phi", "PhiForCausalLM"), keys: &[&[LAYER_NORM]], names: &[PHI], ..PLAIN },
    Family {
        name: "qwen2moe",
        model_type: ("qwen2_moe", "Qwen2MoeForCausalLM"),
        keys: &[&[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ]],
        fixed: &[("norm_topk_prob", false)],
        names: &[QWEN2_EXPERTS],
        suits: has_experts,
        ..PLAIN
    },
    Family {
        name: "seed_oss",
        model_type: ("seed_oss", "SeedOssForCausalLM"),
        names: &[SEED],
        found: ATTENTION_BIAS,
        ..PLAIN
    },
    Family { name: "smollm3", model_type: ("smollm3", "SmolLM3ForCausalLM"), stored: Stored::NEIGHBOURS, ..PLAIN },
    Family {
        name: "stablelm",
        model_type: ("stablelm", "StableLmForCausalLM"),
        keys: &[&[LAYER_NORM, ("use_parallel_residual", "use_parallel_residual")]],
        found: &[("use_qkv_bias", Q_BIAS)],
        ..PLAIN
    },
    Family {
        name: "starcoder2",
        model_type: ("starcoder2", "Starcoder2ForCausalLM"),
        keys: &[&[("attention.layer_norm_epsilon", "norm_epsilon")]],
        names: &[STARCODER2],
        found: &[("use_bias", Q_BIAS)],
        ..PLAIN
    },
    // EXAONE 3 is a Llama in other names, whose heads rotate halves.
    Family { name: "exaone", model_type: ("llama", "LlamaForCausalLM"), ..PLAIN },
    // So are XVERSE, and openPangu, which has biases.
    Family { name: "xverse", model_type: ("llama", "LlamaForCausalLM"), stored: Stored::NEIGHBOURS, ..PLAIN },
    Family { name: "pangu-embedded", model_type: ("llama", "LlamaForCausalLM"), found: ATTENTION_BIAS, ..PLAIN },
    // So is the first Baichuan of 7 B.
    Family {
        name: "baichuan",
        model_type: ("llama", "LlamaForCausalLM"),
        stored: Stored::NEIGHBOURS,
        adapt: |f, config| match (f.size("block_count"), config.get("vocab_size").and_then(|v| v.as_u64())) {
            (Some(40), _) => f.refused("is the 13 B model, whose scores have slopes instead of positions"),
            (_, Some(125_696)) => f.refused("is Baichuan 2, whose head is normalized in some files and not in others"),
            _ => Ok(()),
        },
        ..PLAIN
    },
    Family {
        name: "jais2",
        model_type: ("jais2", "Jais2ForCausalLM"),
        keys: &[&[LAYER_NORM]],
        found: &[("attention_bias", Q_BIAS), ("mlp_bias", "blk.0.ffn_up.bias")],
        ..PLAIN
    },
    Family {
        name: "mistral3",
        model_type: ("ministral3", "Ministral3ForCausalLM"),
        suits: |f| !has_experts(f),
        stored: Stored::NEIGHBOURS,
        quiet: &["attention.temperature_scale", "attention.temperature_length"],
        adapt: grown,
        ..PLAIN
    },
    Family {
        name: "apertus",
        model_type: ("apertus", "ApertusForCausalLM"),
        names: &[APERTUS],
        found: ATTENTION_BIAS,
        adapt: |_, config| {
            // Its class scales frequencies where nothing is said.
            config.entry("rope_scaling").or_insert(json!({ "rope_type": "default" }));
            Ok(())
        },
        stored: Stored { values: activations, ..Stored::SAME },
        ..PLAIN
    },
    Family {
        name: "minicpm3",
        model_type: ("minicpm3", "MiniCPM3ForCausalLM"),
        keys: &[LATENT],
        names: &[LATENT_NAMES],
        adapt: |f, config| {
            let rope = f.required("rope.dimension_count")?;
            let Some(rest) = f.required("attention.key_length")?.checked_sub(rope) else {
                return f.refused("rotates more elements than its keys have");
            };
            config.insert("qk_nope_head_dim".into(), rest.into());
            config.insert("qk_rope_head_dim".into(), rope.into());
            for field in ["head_dim", "partial_rotary_factor"] {
                config.remove(field);
            }
            Ok(())
        },
        ..PLAIN
    },
];

/// HunYuan's base of frequencies, which older files have multiplied already.
fn alpha(f: &File, config: &mut Config) -> Result<(), Wrong> {
    if let Some(alpha) = f.number(ALPHA).filter(|alpha| *alpha > 0.0) {
        config.insert("rope_scaling".into(), json!({ "rope_type": "dynamic", "alpha": alpha }));
    }
    Ok(())
}

/// Ministral 3: queries that grow with the position, and YaRN.
fn grown(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let (Some(beta), Some(factor)) = (f.number("attention.temperature_scale"), f.number("rope.scaling.factor")) else {
        return f.refused("has no `attention.temperature_scale` with `rope.scaling.factor`");
    };
    config.remove("rope_scaling");
    let magnitude = f.number("rope.scaling.yarn_log_multiplier").unwrap_or(1.0);
    let rope = json!({
        "rope_type": "yarn",
        "rope_theta": f.number("rope.freq_base"),
        "factor": factor,
        "original_max_position_embeddings": f.required("rope.scaling.original_context_length")?,
        "beta_fast": f.number("rope.scaling.yarn_beta_fast").unwrap_or(32.0),
        "beta_slow": f.number("rope.scaling.yarn_beta_slow").unwrap_or(1.0),
        "mscale": magnitude,
        "mscale_all_dim": magnitude,
        "llama_4_scaling_beta": beta,
    });
    config.remove("rope_theta");
    config.insert("rope_parameters".into(), rope);
    Ok(())
}

/// Learned numbers of the activations of Apertus, which are metadata.
fn activations(f: &File) -> Result<Constants, Wrong> {
    let list = |key: &str| {
        let list = f.metadata.get(&format!("xielu.{key}")).and_then(|v| v.list());
        list.map(|list| list.iter().filter_map(|v| v.number()).map(|x| x as f32).collect::<Vec<f32>>())
    };
    let layers = f.required("block_count")?;
    let given = |key: &str| list(key).filter(|list| list.len() as u64 == layers);
    let (Some(positive), Some(negative)) = (given("alpha_p"), given("alpha_n")) else {
        return f.refused("does not have `xielu.alpha_p` and `xielu.alpha_n` for each layer");
    };
    for (key, usual) in [("beta", 0.5), ("eps", -1e-6)] {
        if list(key).unwrap_or_default().iter().any(|x| (x / usual - 1.0f32).abs() > 0.01) {
            return f.refused(format_args!("has an `xielu.{key}` other than {usual}"));
        }
    }
    let named = |kind: &'static str, values: Vec<f32>| {
        let name = move |(i, x): (usize, f32)| (format!("model.layers.{i}.mlp.act_fn.{kind}"), vec![x]);
        values.into_iter().enumerate().map(name)
    };
    Ok(named("alpha_p", positive).chain(named("alpha_n", negative)).collect())
}
