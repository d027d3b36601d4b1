//! Decoders with latent attention: DeepSeek's, and those after them.

use super::super::file::{CONVERT_AGAIN, Config, File, Wrong, without};
use super::super::names::{DEEPSEEK_EXPERTS, LATENT_NAMES, Names};
use super::{EXPERTS, Family, Keys, LATENT, PLAIN, Reading, SIGMOID, has_experts};
use serde_json::{Value, json};

pub(in super::super) const FAMILIES: &[Family] = &[
    Family { name: "mistral4", ..MISTRAL4 },
    // As Mistral's own layout is converted.
    Family { name: "deepseek2", suits: |f| f.get(GROWTH).is_some(), ..MISTRAL4 },
    Family {
        name: "deepseek2",
        model_type: ("deepseek_v2", "DeepseekV2ForCausalLM"),
        // GLM-4.7-Flash, whose files do not say how experts are chosen, corrects the choice as V3 does.
        suits: |f| {
            let sigmoid = f.size("expert_gating_func") == Some(SIGMOID) || f.has("blk.{}.exp_probs_b.bias");
            has_experts(f) && !sigmoid
        },
        keys: &[LATENT, EXPERTS],
        quiet: &["attention.key_length_mla", "attention.value_length_mla"],
        names: &[LATENT_NAMES, DEEPSEEK_EXPERTS],
        adapt: |f, config| {
            latent(f, config)?;
            // Older files do not say it; the small models have no groups.
            let groups = match f.size("expert_group_count") {
                Some(n) => n,
                None if f.size("expert_count").unwrap_or(0) <= 64 => 1,
                None => return Err(groups_missing(f)),
            };
            let method = if groups > 1 { "group_limited_greedy" } else { "greedy" };
            config.insert("topk_method".into(), method.into());
            Ok(())
        },
        ..PLAIN
    },
    // Also models without experts (Youtu), and GLM's lighter one.
    Family {
        name: "deepseek2",
        model_type: ("deepseek_v3", "DeepseekV3ForCausalLM"),
        keys: &[LATENT, EXPERTS],
        quiet: &["attention.key_length_mla", "attention.value_length_mla"],
        names: &[LATENT_NAMES, DEEPSEEK_EXPERTS],
        found: &[("attention_bias", "blk.0.attn_kv_a_mqa.bias")],
        reading: Reading::SIGMOIDS,
        adapt: |f, config| {
            latent(f, config)?;
            if !has_experts(f) {
                config.insert("first_k_dense_replace".into(), f.required("block_count")?.into());
                return without(config, &["n_shared_experts", "moe_intermediate_size"]);
            }
            if f.get("expert_group_count").is_none() {
                return Err(groups_missing(f));
            }
            config.entry("norm_topk_prob").or_insert(false.into());
            config.entry("topk_group").or_insert(1.into());
            Ok(())
        },
        ..PLAIN
    },
    Family { name: "deepseek32", model_type: ("deepseek_v32", "DeepseekV32ForCausalLM"), ..SELECTING },
    SELECTING,
];

/// Key about the layers that have indexers of their own: the others read the tokens that one before has selected.
pub(super) const INDEXER_TYPES: &str = "attention.indexer.types";

/// Keys about the indexer.
pub(super) const INDEXER_KEYS: Keys = &[
    ("attention.indexer.top_k", "index_topk"),
    ("attention.indexer.head_count", "index_n_heads"),
    ("attention.indexer.key_length", "index_head_dim"),
];

/// Latent attention to selected tokens.
const SELECTING: Family = Family {
    name: "glm-dsa",
    model_type: ("glm_moe_dsa", "GlmMoeDsaForCausalLM"),
    keys: &[LATENT, EXPERTS, INDEXER_KEYS],
    quiet: &["attention.key_length_mla", "attention.value_length_mla", INDEXER_TYPES],
    names: &[LATENT_NAMES, INDEXER, DEEPSEEK_EXPERTS],
    found: &[("attention_bias", "blk.0.attn_kv_a_mqa.bias")],
    reading: Reading::SIGMOIDS,
    adapt: |f, config| {
        latent(f, config)?;
        config.entry("norm_topk_prob").or_insert(false.into());
        // All layers have one where files do not say it.
        let own = f.layers(INDEXER_TYPES);
        if f.get(INDEXER_TYPES).is_some() && own.contains(&false) {
            let kind = |own: &bool| if *own { "full" } else { "shared" };
            config.insert("indexer_types".into(), json!(own.iter().map(kind).collect::<Vec<_>>()));
        }
        Ok(())
    },
    ..PLAIN
};

const MISTRAL4: Family = Family {
    model_type: ("mistral4", "Mistral4ForCausalLM"),
    keys: &[LATENT, EXPERTS],
    quiet: &["attention.key_length_mla", "attention.value_length_mla", "attention.temperature_length", GROWTH],
    names: &[LATENT_NAMES, GATE_AND_UP, DEEPSEEK_EXPERTS],
    adapt: |f, config| {
        latent(f, config)?;
        if let Some(scaling) = config.get_mut("rope_scaling") {
            scaling["llama_4_scaling_beta"] = f.number(GROWTH).unwrap_or(0.0).into();
        }
        Ok(())
    },
    note: |f| {
        let what = format!(
            "queries do not grow with the position, as `{}.{GROWTH}` is absent, which llama.cpp's converter \
                leaves out: beyond the original context the results differ from the safetensors checkpoint's",
            f.name
        );
        f.get(GROWTH).is_none().then_some(what)
    },
    ..PLAIN
};

/// How much queries grow.
const GROWTH: &str = "attention.temperature_scale";

fn groups_missing(f: &File) -> Wrong {
    (format!("`{}.expert_group_count` is missing, as old versions of llama.cpp left it", f.name), CONVERT_AGAIN)
}

/// Widths of latent attention, which files have as the widths of one head of keys and values, and
/// YaRN.
pub(super) fn latent(f: &File, config: &mut Config) -> Result<(), Wrong> {
    let width =
        |part: &str| f.size(&format!("attention.{part}_length_mla")).or(f.size(&format!("attention.{part}_length")));
    let rope = f.required("rope.dimension_count")?;
    let (Some(keys), Some(values)) = (width("key"), width("value")) else {
        return f.refused("has no `attention.key_length` and `attention.value_length`");
    };
    let Some(rest) = keys.checked_sub(rope) else { return f.refused("rotates more elements than its keys have") };
    for (field, n) in [("qk_nope_head_dim", rest), ("qk_rope_head_dim", rope), ("v_head_dim", values)] {
        config.insert(field.into(), n.into());
    }
    config.entry("q_lora_rank").or_insert(Value::Null);
    // Where nothing is said, all layers have experts, whatever a class makes of it.
    if has_experts(f) {
        config.entry("first_k_dense_replace").or_insert(0.into());
    }
    if let (Some(scaling), Some(magnitude)) =
        (config.get_mut("rope_scaling"), f.number("rope.scaling.yarn_log_multiplier"))
    {
        // A tenth is in files; both are the same in all models.
        let magnitude = (magnitude * 10.0 * 1e6).round() / 1e6;
        (scaling["mscale"], scaling["mscale_all_dim"]) = (json!(magnitude), json!(magnitude));
    }
    without(config, &["head_dim", "num_key_value_heads", "partial_rotary_factor"])
}

/// Names of the indexer.
pub(super) const INDEXER: Names = &[
    ("blk.{}.indexer.k_norm", "model.layers.{}.self_attn.indexer.k_norm"),
    ("blk.{}.indexer.proj", "model.layers.{}.self_attn.indexer.weights_proj"),
    ("blk.{}.indexer.attn_k", "model.layers.{}.self_attn.indexer.wk"),
    ("blk.{}.indexer.attn_q_b", "model.layers.{}.self_attn.indexer.wq_b"),
];

/// Gate and up of each expert as one matrix.
const GATE_AND_UP: Names = &[(
    "blk.{}.ffn_gate_up_exps.weight",
    "model.layers.{}.mlp.experts.{e}.gate_proj.weight|model.layers.{}.mlp.experts.{e}.up_proj.weight",
)];
