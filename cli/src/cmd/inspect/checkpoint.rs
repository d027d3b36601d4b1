//! The contents of a checkpoint, without compiling it: its headers are read, not its weights.

use crate::Error;
use crate::report::{bytes, count, plain};
use llmcc_frontends::checkpoint::adapter::about::{AboutAdapter, about};
use llmcc_frontends::{Checkpoint, Options, TextAssets, arch, lift, unused};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The contents, and the reasons why it does not compile.
///
/// # Errors
/// When it cannot be opened.
pub fn describe(path: &Path) -> Result<Value, Error> {
    if let Some(about) = about(path)? {
        return Ok(adapter(&about));
    }
    let checkpoint = Checkpoint::open(path)?;
    let mut types: BTreeMap<&str, (usize, usize, String)> = BTreeMap::new();
    for info in checkpoint.names().filter_map(|name| checkpoint.info(name)) {
        let own = || info.dtype.dtype.map_or_else(String::new, |t| t.to_string());
        let entry = types.entry(info.dtype.name).or_insert_with(|| (0, 0, own()));
        (entry.0, entry.1) = (entry.0 + 1, entry.1 + info.bytes.len());
    }
    let types: Vec<Value> = types
        .into_iter()
        .map(|(name, (tensors, bytes, own))| json!({ "type": name, "tensors": tensors, "bytes": bytes, "as": own }))
        .collect();
    let mut problems: Vec<String> = vec![];
    let model = arch::config(&checkpoint).map_err(|e| problems.push(e.to_string())).ok();
    if model.is_some() {
        let found = lift(&checkpoint, &Options::default()).and_then(|module| unused::find(&checkpoint, &module));
        problems.extend(found.map_or_else(|e| Some(e.to_string()), |unused| unused.map(|u| u.to_string())));
    }
    let texts =
        model.as_ref().and_then(|_| TextAssets::load(&checkpoint).map_err(|e| problems.push(e.to_string())).ok());
    let model = model.map(|m| {
        let f = m.facts();
        json!({
            "architecture": m.arch.model_type, "class": m.arch.class, "name": f.name, "layers": f.layers,
            "hidden": f.hidden, "vocabulary": f.vocab, "context": f.max_position, "tied": f.tied, "unread": m.unread,
            "original_context": m.original_context,
            "draft_heads": m.draft_heads(&checkpoint),
        })
    });
    Ok(json!({
        "model": model,
        "types": types,
        "tokenizer": texts.as_ref().map(|t| t.tokenizer_json.is_some()),
        "chat_template": texts.as_ref().map(|t| !t.text_config["chat_template"].is_null()),
        "notes": checkpoint.notes(),
        "problems": problems,
    }))
}

/// An adapter without its base.
fn adapter(about: &AboutAdapter) -> Value {
    let types =
        about.types.iter().map(|(name, (n, bytes))| json!({ "type": name, "tensors": n, "bytes": bytes, "as": "" }));
    let slots = about.only_merged.as_ref().map(|why| format!("it can only be merged (`llmcc compile --lora`): {why}"));
    let changed = json!({
        "base": about.base, "method": about.method, "ranks": about.ranks, "modules": about.modules,
        "replaced": about.replaced,
    });
    json!({
        "adapter": changed,
        "types": types.collect::<Vec<_>>(),
        "notes": slots.into_iter().collect::<Vec<_>>(),
        "problems": about.problem.iter().collect::<Vec<_>>(),
    })
}

/// An adapter in words.
fn adapter_words(of: &Value) -> String {
    let base = of["base"].as_str().map_or_else(|| "a base that it does not name".into(), |name| format!("`{name}`"));
    let mut s = format!("adapter     {} of {base}\n", of["method"].as_str().unwrap_or_default());
    let ranks: Vec<String> = of["ranks"].as_array().into_iter().flatten().map(Value::to_string).collect();
    if !ranks.is_empty() {
        let _ = writeln!(s, "rank        {}", ranks.join(", "));
    }
    let kinds = of["modules"].as_object().into_iter().flatten().map(|(kind, n)| format!("{kind} ({n})"));
    let kinds: Vec<String> = kinds.collect();
    if !kinds.is_empty() {
        let _ = writeln!(s, "modules     {}", kinds.join(", "));
    }
    let replaced: Vec<&str> = of["replaced"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !replaced.is_empty() {
        let _ = writeln!(s, "replaces    {}", replaced.join(", "));
    }
    s
}

/// The same in words.
pub fn words(about: &Value) -> String {
    let mut s = String::new();
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), String::from);
    let model = &about["model"];
    if !model.is_null() {
        let [arch, class] = ["architecture", "class"].map(|name| text(&model[name]));
        let name = model["name"].as_str().map_or_else(String::new, |name| format!(", {name}"));
        let _ = writeln!(s, "model       {arch} ({class}){name}");
        let [layers, hidden, vocabulary, context] =
            ["layers", "hidden", "vocabulary", "context"].map(|name| text(&model[name]));
        let layers = layers.parse().map_or_else(|_| format!("{layers} layers"), |n| count(n, "layer"));
        let _ = writeln!(s, "sizes       {layers}, hidden {hidden}, vocabulary {vocabulary}, context {context}");
    }
    if let Some(original) = model["original_context"].as_u64() {
        let _ =
            writeln!(s, "positions   short factors of LongRoPE with --max-context {original} and less, else long ones");
    }
    if model["draft_heads"].as_u64().is_some_and(|n| n > 0) {
        let _ = writeln!(s, "draft heads {} (--draft-head)", model["draft_heads"]);
    }
    if about["adapter"].is_object() {
        s += &adapter_words(&about["adapter"]);
    }
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    for t in list(&about["types"]) {
        let size = bytes(t["bytes"].as_f64().unwrap_or(0.0));
        let (name, own) = (text(&t["type"]), text(&t["as"]));
        let own = if own.is_empty() || own.eq_ignore_ascii_case(&name) { String::new() } else { format!(" as {own}") };
        let tensors = count(t["tensors"].as_u64().unwrap_or(0) as usize, "tensor");
        let _ = writeln!(s, "weights     {name}: {tensors}, {size}{own}");
    }
    for (label, name) in [("tokenizer", "tokenizer"), ("template", "chat_template")] {
        if let Some(there) = about[name].as_bool() {
            let _ = writeln!(s, "{label:<11} {}", if there { "yes" } else { "none" });
        }
    }
    let unread = list(&model["unread"]);
    let lines = [("not read", unread), ("note", list(&about["notes"])), ("problem", list(&about["problems"]))];
    for (label, lines) in lines {
        lines.iter().for_each(|line| s += &format!("{label:<11} {}\n", text(line)));
    }
    plain(&s)
}
