//! Modules of sentence-transformers, one by one: their kinds, and their settings.

use super::files::{Dense, LIST, MOST, bad, beside, prompt, transformer};
use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::output::Pool;
use serde_json::Value;

/// The kind of a module, whatever name its version has; empty: none of sentence-transformers' own.
pub(super) fn kind_of(module: &Value) -> &str {
    let kind = module["type"].as_str().unwrap_or_default();
    kind.strip_prefix("sentence_transformers.").and_then(|kind| kind.rsplit('.').next()).unwrap_or_default()
}

/// Checks that the transformer gives the rows of its last layer.
pub(super) fn of_transformer(ckpt: &Checkpoint) -> Result<(), FrontendError> {
    let (file, settings) = transformer(ckpt)?;
    let text = &settings["modality_config"]["text"];
    let fixed = [
        ("transformer_task", &settings["transformer_task"], "feature-extraction"),
        ("module_output_name", &settings["module_output_name"], "token_embeddings"),
        ("method", &text["method"], "forward"),
        ("method_output_name", &text["method_output_name"], "last_hidden_state"),
    ];
    match fixed.iter().find(|(_, value, usual)| !value.is_null() && *value != usual) {
        Some((name, value, usual)) => Err(bad(ckpt, file, format!("`{name}` is {value}, not \"{usual}\""))),
        None => Ok(()),
    }
}

/// Checks that a module takes and gives the pooled row.
fn of_rows(ckpt: &Checkpoint, file: &str, settings: &Value) -> Result<(), FrontendError> {
    for name in ["module_input_name", "module_output_name"] {
        let value = &settings[name];
        if !value.is_null() && value != "sentence_embedding" {
            return Err(bad(ckpt, file, format!("`{name}` is {value}, not \"sentence_embedding\"")));
        }
    }
    Ok(())
}

/// That a module normalizes the pooled row; older versions write no settings for it.
pub(super) fn normalizes(ckpt: &Checkpoint, folder: &str) -> Result<bool, FrontendError> {
    let file = format!("{folder}/config.json");
    let settings = if folder.is_empty() { None } else { ckpt.json(&file)? };
    of_rows(ckpt, &file, &settings.unwrap_or(Value::Null))?;
    Ok(true)
}

/// The settings of a module.
fn settings(ckpt: &Checkpoint, folder: &str) -> Result<(String, Value), FrontendError> {
    let file = format!("{folder}/config.json");
    match ckpt.json(&file)? {
        Some(settings) => Ok((file, settings)),
        None => Err(bad(ckpt, LIST, format!("`{file}` is missing, which has the settings of a module"))),
    }
}

/// Names of the ways of pooling, in older settings and in newer ones.
const MODES: [(&str, &str, Pool); 6] = [
    ("pooling_mode_mean_tokens", "mean", Pool::Mean),
    ("pooling_mode_cls_token", "cls", Pool::First),
    ("pooling_mode_lasttoken", "lasttoken", Pool::Last),
    ("pooling_mode_max_tokens", "max", Pool::Max),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pool::Root),
    ("pooling_mode_weightedmean_tokens", "weightedmean", Pool::Weighted),
];

/// How a pooling module pools.
pub(super) fn pooling(ckpt: &Checkpoint, folder: &str) -> Result<Pool, FrontendError> {
    let (file, settings) = settings(ckpt, folder)?;
    if settings["include_prompt"] == false && !prompt(ckpt)?.is_empty() {
        let what = "`include_prompt` is false, and the model has a prompt by default, which is pooled here";
        return Err(bad(ckpt, &file, what.into()));
    }
    let on: Vec<&str> = match &settings["pooling_mode"] {
        Value::Null => settings
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, v)| name.starts_with("pooling_mode_") && **v == Value::Bool(true))
            .map(|(name, _)| name.as_str())
            .collect(),
        Value::String(one) => vec![one],
        Value::Array(several) if !several.is_empty() && several.iter().all(Value::is_string) => {
            several.iter().filter_map(Value::as_str).collect()
        }
        other => return Err(bad(ckpt, &file, format!("`pooling_mode` is {other}"))),
    };
    match on[..] {
        [one] => {
            let known = MODES.iter().find(|(old, new, _)| [old, new].contains(&&one)).map(|(.., pool)| *pool);
            known.ok_or_else(|| bad(ckpt, &file, format!("pooling is `{one}`")))
        }
        // The module's own default.
        [] => Ok(Pool::Mean),
        _ => Err(bad(ckpt, &file, format!("several ways of pooling are asked for: {}", on.join(", ")))),
    }
}

/// Whether tokens of prompts are seen and not pooled, as the list's module that pools says.
pub(super) fn leaves_prompts_out(ckpt: &Checkpoint, list: &Value) -> Result<bool, FrontendError> {
    let mut pooling = list.as_array().into_iter().flatten().filter(|m| kind_of(m) == "Pooling");
    let Some(folder) = pooling.find_map(|m| m["path"].as_str()).filter(|folder| beside(folder)) else {
        return Ok(false);
    };
    let settings = ckpt.json(&format!("{folder}/config.json"))?.unwrap_or(Value::Null);
    Ok(settings["include_prompt"] == false)
}

/// A linear layer of its own.
pub(super) fn dense(ckpt: &Checkpoint, folder: &str) -> Result<Dense, FrontendError> {
    let (file, settings) = settings(ckpt, folder)?;
    let size = |name: &str| match settings[name].as_u64() {
        Some(n) if (1..=MOST).contains(&n) => Ok(n as usize),
        _ => Err(bad(ckpt, &file, format!("`{name}` is {}", settings[name]))),
    };
    of_rows(ckpt, &file, &settings)?;
    if settings["use_residual"] == true {
        return Err(bad(ckpt, &file, "`use_residual` is true: its input is added to its result".into()));
    }
    let name = match &settings["activation_function"] {
        Value::Null => "torch.nn.Tanh",
        name => name.as_str().unwrap_or_default(),
    };
    // (Another's class of the same name would be another function.)
    let act = match name.strip_prefix("torch.nn.").and_then(|name| name.rsplit('.').next()) {
        Some("Identity") => None,
        Some("Tanh") => Some(UnaryOp::Tanh),
        Some("ReLU") => Some(UnaryOp::Relu),
        Some("SiLU") => Some(UnaryOp::Silu),
        Some("GELU") => Some(UnaryOp::Gelu),
        Some("Sigmoid") => Some(UnaryOp::Sigmoid),
        _ => {
            let known = "none of torch.nn's Identity, Tanh, ReLU, SiLU, GELU and Sigmoid";
            return Err(bad(ckpt, &file, format!("`activation_function` is \"{name}\", {known}")));
        }
    };
    let (inner, out) = (size("in_features")?, size("out_features")?);
    Ok(Dense { folder: folder.to_owned(), inner, out, bias: settings["bias"].as_bool().unwrap_or(true), act })
}
