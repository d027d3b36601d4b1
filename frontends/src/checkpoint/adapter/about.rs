//! Description of an adapter, without its base.

use super::merging::LowRank;
use super::{AGAIN, CONFIG, FILES, sorted};
use crate::checkpoint::load::{self, Opened};
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::views::View;
use crate::error::FrontendError;
use crate::input;
use llmcc_text::adapter::settings::{self, Settings};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The settings and contents of an adapter's folder.
#[derive(Clone, Debug, PartialEq)]
pub struct AboutAdapter {
    /// The base that it names.
    pub base: Option<String>,
    /// LoRA, rsLoRA, DoRA, or the value of `peft_type`.
    pub method: String,
    /// Ranks of its factors.
    pub ranks: BTreeSet<usize>,
    /// Kinds of modules with factors, with how many there are.
    pub modules: BTreeMap<String, usize>,
    /// Tensors of the base, or rows of them, that it replaces.
    pub replaced: Vec<String>,
    /// Types of its tensors, with how many of them there are and their bytes.
    pub types: BTreeMap<&'static str, (usize, usize)>,
    /// Why it cannot be loaded at run time.
    pub only_merged: Option<String>,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// Describes a folder that holds an adapter and no model; `None` for any other.
///
/// # Errors
/// Its settings are no JSON.
pub fn about(dir: &Path) -> Result<Option<AboutAdapter>, FrontendError> {
    if super::not_alone(dir).is_ok() {
        return Ok(None);
    }
    let Some(config) = input::read_json(&dir.join(CONFIG))? else { return Ok(None) };
    let mut about = AboutAdapter {
        base: settings::base(&config).map(str::to_string),
        method: method(&config),
        ranks: BTreeSet::new(),
        modules: BTreeMap::new(),
        replaced: vec![],
        types: BTreeMap::new(),
        only_merged: None,
        problem: None,
    };
    let said = |path: &Path, (what, help): (String, &str)| format!("{}: {what}; {help}", path.display());
    match Settings::parse(&config) {
        Ok(settings) => about.only_merged = settings.only_merged().map(str::to_string),
        Err(e) => about.problem = Some(said(&dir.join(CONFIG), e)),
    }
    let file = FILES.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok());
    let Some(file) = file else {
        let none = || said(dir, (format!("holds neither {} nor {}", FILES[0], FILES[1]), AGAIN));
        about.problem.get_or_insert_with(none);
        return Ok(Some(about));
    };
    let mut opened = Opened::default();
    let found = load::open_shard(&file, &mut opened).map_err(|e| e.to_string());
    let tensors: Vec<(String, View)> = opened.tensors.into_iter().flatten().collect();
    tensors.iter().for_each(|(_, view)| count(&mut about.types, &view.info));
    match found.and_then(|()| sorted(tensors.into_iter()).map_err(|e| said(&file, e))) {
        Ok(parts) => {
            for (module, factors) in parts.factors {
                about.ranks.extend(rank(&factors));
                let kind = module.trim_end_matches(".base_layer").rsplit('.').next().unwrap_or_default();
                *about.modules.entry(kind.to_string()).or_insert(0) += 1;
            }
            about.replaced = parts.whole.into_keys().chain(parts.rows.into_keys()).collect();
        }
        Err(problem) => drop(about.problem.get_or_insert(problem)),
    }
    if about.only_merged.is_none() && !about.replaced.is_empty() {
        about.only_merged = Some("it replaces tensors of the base model".into());
    }
    Ok(Some(about))
}

fn rank(factors: &LowRank) -> Option<usize> {
    factors.b.as_ref().filter(|b| b.info.shape.len() == 2).map(View::columns)
}

fn count(types: &mut BTreeMap<&'static str, (usize, usize)>, info: &TensorInfo) {
    let entry = types.entry(info.dtype.name).or_insert((0, 0));
    *entry = (entry.0 + 1, entry.1 + info.bytes.len());
}

fn method(config: &Value) -> String {
    let on = |key: &str| config[key] == true;
    match config["peft_type"].as_str() {
        Some("LORA") if on("use_dora") => "DoRA".into(),
        Some("LORA") if on("use_rslora") => "rsLoRA".into(),
        Some("LORA") => "LoRA".into(),
        Some(other) => other.into(),
        None => "unknown".into(),
    }
}
