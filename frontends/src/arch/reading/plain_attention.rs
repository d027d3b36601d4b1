//! Configurations of DeepSeek-V2 that say that attention is not latent, as DeepSeek-OCR's does.

use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Their fields of latent attention, which they do not have.
const LATENT: [&str; 6] =
    ["use_mla", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"];

/// Such a configuration as Transformers has it, as that of the text model of DeepSeek-OCR 2; others as they are.
pub(crate) fn translated(config: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    let second =
        config.get("model_type").and_then(Value::as_str).and_then(|of| of.strip_prefix("deepseek_v")) == Some("2");
    let latent = config.get("kv_lora_rank").is_some_and(|rank| !rank.is_null());
    if !second || latent || config.get("use_mla") != Some(&Value::Bool(false)) {
        return Cow::Borrowed(config);
    }
    let kept = config.iter().filter(|(name, _)| !LATENT.contains(&name.as_str()) && *name != "architectures");
    let mut fields: Map<String, Value> = kept.map(|(name, v)| (name.clone(), v.clone())).collect();
    fields.insert("model_type".into(), json!("deepseek_plain"));
    // 0 is written where there are no groups.
    fields.retain(|name, v| !["n_group", "topk_group"].contains(&name.as_str()) || *v != json!(0));
    Cow::Owned(fields)
}
