//! Adapters of PEFT beside a checkpoint, merged into its weights before anything else sees them: LoRA
//! (arXiv 2106.09685), rsLoRA (arXiv 2312.03732) and DoRA (arXiv 2402.09353), also of all experts
//! (`experts`), rows of tables, and modules that were trained as a whole.

pub mod about;
mod complete;
mod experts;
mod merged;
mod merging;
mod tied;

use super::load::{self, Opened};
use super::quantized::{COMPUTED, Wrong};
use super::safetensors::TensorInfo;
use super::stored::Entry;
use super::views::View;
use super::{Adapter, Checkpoint, file_name};
use crate::embedding;
use crate::error::FrontendError;
use crate::input;
use llmcc_ir::ty::DType;
use llmcc_text::adapter::names::names;
use llmcc_text::adapter::settings::{self, AGAIN, Settings};
use merged::{Merged, Replaced};
use merging::{LowRank, Merging, Sorted};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

const BASE: &str = "give the base that the adapter was trained for";

/// The file with the settings.
const CONFIG: &str = "adapter_config.json";
/// Files with the tensors.
const FILES: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];
/// PEFT's prefix of the names of the base's modules.
const PREFIX: &str = "base_model.model.";

/// Refuses a folder that holds an adapter and no model.
///
/// # Errors
/// It is one; its settings cannot be read.
pub(super) fn not_alone(dir: &Path) -> Result<(), FrontendError> {
    if !dir.is_dir() || ["config.json", "params.json"].iter().any(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let Some(config) = input::read_json(&dir.join(CONFIG))? else { return Ok(()) };
    let base = settings::base(&config).map_or_else(|| "its base".into(), |name| format!("`{name}`"));
    let path = dir.display();
    Err(FrontendError::NotACheckpoint {
        path: dir.to_path_buf(),
        what: format!("holds an adapter of {base}, not a model"),
        help: format!(
            "give the base too: `llmcc compile {path} --base FOLDER`, or `llmcc compile FOLDER --lora {path}`"
        )
        .into(),
    })
}

/// Fuzz target: a file of settings.
pub(crate) fn fuzz(config: &Value) {
    if let Ok(settings) = Settings::parse(config)
        && let Ok(scale) = settings.scale("model.layers.0.self_attn.q_proj", 8)
    {
        assert!(scale >= 0.0, "{scale}");
    }
}

/// Adds an adapter to the weights of a checkpoint; `turned`: its model's matrices are `Conv1D`, stored `[in, out]`.
///
/// # Errors
/// It is missing, malformed, of another kind, or belongs to another base.
pub(crate) fn merge(ckpt: &mut Checkpoint, adapter: &Adapter, turned: bool) -> Result<(), FrontendError> {
    let dir = &adapter.path;
    let path = dir.join(CONFIG);
    let wrong = |path: &Path, (what, help): Wrong| FrontendError::NotACheckpoint {
        path: path.to_path_buf(),
        what,
        help: help.into(),
    };
    let config = input::read_json(&path)?.ok_or_else(|| {
        wrong(&path, ("the file is missing".into(), "--lora takes the folder of an adapter that PEFT saved"))
    })?;
    let settings = Settings::parse(&config).map_err(|e| wrong(&path, e))?;
    let file = FILES.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok());
    let file = file.ok_or_else(|| wrong(dir, (format!("holds neither {} nor {}", FILES[0], FILES[1]), AGAIN)))?;
    let mut opened = Opened { first: ckpt.shards.len(), ..Opened::default() };
    load::open_shard(&file, &mut opened)?;
    let Opened { shards, tensors, notes, .. } = opened;
    ckpt.sources.extend([path.clone(), file.clone()]);
    ckpt.shards.extend(shards);
    ckpt.notes.extend(notes);
    let parts = sorted(tensors.into_iter().flatten()).map_err(|e| wrong(&file, e))?;
    let mut merge = Merging { ckpt, settings, turned, scale: adapter.scale, replaced: 0, merged: 0, decoded: 0 };
    merge.check(&parts).map_err(|e| wrong(&file, e))?;
    let left = merge.left(&parts);
    // A head that is the table has its rows, too, unless it has some of its own.
    let own = parts.rows.keys().any(|module| tied::is_head(module));
    if own {
        merge.untie(&parts);
    }
    for (module, view) in &parts.rows {
        merge.replace_rows(module, view.clone()).map_err(|e| wrong(&file, e))?;
    }
    if !own {
        merge.untie(&parts);
    }
    // Modules that are replaced may have factors too.
    for (name, view) in parts.whole {
        merge.replace(&name, view).map_err(|e| wrong(&file, e))?;
    }
    for (module, factors) in parts.factors {
        let of = module.trim_end_matches(".base_layer");
        let added = match merge.is_parameter(&module) {
            true => merge.add_parameter(of, factors),
            false => merge.add(&module, factors),
        };
        added.map_err(|e| wrong(&file, e))?;
    }
    merge.note(dir, &left);
    let list = dir.join(embedding::LIST);
    if ckpt.metadata.is_none() && list.symlink_metadata().is_ok() {
        // As sentence-transformers saves it: the adapter of an embedder has its other modules, too.
        ckpt.index.retain(|name, _| !embedding::of_modules(name));
        load::open_modules(dir, &mut ckpt.shards, &mut ckpt.index)?;
        ckpt.sources.push(list);
        ckpt.modules = Some(dir.clone());
    }
    Ok(())
}

fn sorted(tensors: impl Iterator<Item = (String, View)>) -> Result<Sorted, Wrong> {
    let mut out = Sorted::default();
    for (full, view) in tensors {
        let Some(name) = full.strip_prefix(PREFIX) else {
            return Err((format!("tensor `{full}` does not begin with `{PREFIX}`"), "save the adapter with PEFT"));
        };
        let stem = |ending: &str| name.strip_suffix(".weight").unwrap_or(name).strip_suffix(ending);
        if let Some(module) = stem(".token_adapter.trainable_tokens_delta") {
            out.rows.insert(module.to_string(), view);
            continue;
        }
        let mut of = |module: &str| std::mem::take(out.factors.entry(module.to_string()).or_default());
        let found = if let Some(module) = stem(".lora_A") {
            Some((module, LowRank { a: Some(view.clone()), ..of(module) }))
        } else if let Some(module) = stem(".lora_B") {
            Some((module, LowRank { b: Some(view.clone()), ..of(module) }))
        } else if let Some(module) = stem(".lora_embedding_A") {
            Some((module, LowRank { a: Some(view.clone()), looked_up: true, ..of(module) }))
        } else if let Some(module) = stem(".lora_embedding_B") {
            Some((module, LowRank { b: Some(view.clone()), looked_up: true, ..of(module) }))
        } else {
            stem(".lora_magnitude_vector")
                .map(|module| (module, LowRank { magnitudes: Some(view.clone()), ..of(module) }))
        };
        match found {
            Some((module, factors)) => drop(out.factors.insert(module.to_string(), factors)),
            None if name.contains("lora_") => {
                return Err((format!("tensor `{full}` is of an unsupported kind"), "merge the adapter in Python"));
            }
            None => {
                let name = name.replace(".base_layer.", ".").replace(".modules_to_save.", ".");
                out.whole.insert(name, view);
            }
        }
    }
    Ok(out)
}

/// Whether factors are of this type.
fn is_float(t: DType) -> bool {
    t.is_float() && t != DType::F64
}

impl Merging<'_> {
    /// Whether factors of a module belong to a parameter of all experts.
    fn is_parameter(&self, module: &str) -> bool {
        let of = module.trim_end_matches(".base_layer");
        self.settings.targets.parameters() && (of != module || self.found(&format!("{of}.weight")).is_none())
    }

    /// The base's name of a tensor.
    fn found(&self, name: &str) -> Option<String> {
        names(name).into_iter().find(|name| self.ckpt.index.contains_key(name))
    }

    /// Puts a tensor in the place of the base's.
    fn replace(&mut self, name: &str, view: View) -> Result<(), Wrong> {
        let there = self.found(name).and_then(|found| Some((found.clone(), self.ckpt.index.get(&found)?)));
        let Some((found, base)) = there else {
            return Err((format!("the adapter replaces tensor `{name}`, which the base lacks"), BASE));
        };
        if base.info.shape != view.info.shape {
            let (ours, theirs) = (&base.info.shape, &view.info.shape);
            return Err((format!("tensor `{name}` is {theirs:?}, but {ours:?} in the base"), BASE));
        }
        self.ckpt.index.insert(found, view.entry());
        self.replaced += 1;
        Ok(())
    }

    /// Puts rows in the place of some of a table's.
    fn replace_rows(&mut self, module: &str, view: View) -> Result<(), Wrong> {
        let name = format!("{module}.weight");
        let rows = self.settings.rows_of(module).unwrap_or_default().to_vec();
        let there = self.found(&name).and_then(|found| Some((found.clone(), self.ckpt.index.get(&found)?.clone())));
        let Some((found, base)) = there else {
            return Err((format!("the adapter replaces rows of table `{name}`, which the base lacks"), BASE));
        };
        let (dtype, info) = self.float(&name, &base)?;
        let [tokens, columns] = info.shape[..] else {
            return Err((format!("tensor `{name}` of the base is not a table"), BASE));
        };
        if view.info.shape != [rows.len(), columns] || !view.info.dtype.dtype.is_some_and(is_float) {
            let (type_, shape) = (view.info.dtype.name, &view.info.shape);
            let what = format!("module `{module}`: {} tokens have rows {type_} {shape:?}", rows.len());
            return Err((what, AGAIN));
        }
        if let Some(token) = rows.iter().find(|token| **token >= tokens) {
            return Err((format!("module `{module}`: token {token} is outside the vocabulary of {tokens}"), BASE));
        }
        let shard = base.shard;
        let rows = rows.into_iter().enumerate().map(|(i, token)| (token, i)).collect();
        let table = Replaced { base, rows, view, dtype };
        self.ckpt.index.insert(found, Entry { layout: Some(Arc::new(table)), ..Entry::plain(shard, info) });
        self.merged += 1;
        Ok(())
    }

    /// The type of a merged matrix of the base: floats keep theirs, codes become f32.
    fn float(&mut self, name: &str, base: &Entry) -> Result<(DType, TensorInfo), Wrong> {
        let info = match base.info.dtype.dtype {
            Some(DType::F32 | DType::F16 | DType::Bf16) => base.info.clone(),
            Some(DType::Coded(_)) => {
                self.decoded += 1;
                TensorInfo { dtype: &COMPUTED, ..base.info.clone() }
            }
            Some(DType::F64 | DType::I8 | DType::U8 | DType::I32 | DType::I64) | None => {
                return Err((format!("matrix `{name}` of the base is stored as {}", base.info.dtype.name), BASE));
            }
        };
        Ok((info.dtype.dtype.unwrap_or(DType::F32), info))
    }

    /// Adds the product of two factors to a matrix of the base.
    fn add(&mut self, module: &str, factors: LowRank) -> Result<(), Wrong> {
        let name = format!("{module}.weight");
        let LowRank { a: Some(a), b: Some(b), magnitudes, looked_up } = factors else {
            return Err((format!("module `{module}` does not have both of its factors"), AGAIN));
        };
        let there = self.found(&name).and_then(|found| Some((found.clone(), self.ckpt.index.get(&found)?.clone())));
        let Some((found, base)) = there else {
            return Err((format!("the adapter changes matrix `{name}`, which the base lacks"), BASE));
        };
        let transposed = transposed(module, &base, (&a, &b), looked_up || self.is_turned(module, &base))?;
        if magnitudes.is_some() != self.settings.magnitudes {
            return Err((format!("module `{module}`: `use_dora` does not tell whether it has magnitudes"), AGAIN));
        }
        let outputs = b.rows();
        if let Some(m) = magnitudes.as_ref().filter(|m| m.info.shape.iter().product::<usize>() != outputs) {
            return Err((format!("module `{module}` has {:?} magnitudes for {outputs} outputs", m.info.shape), AGAIN));
        }
        let floats = [Some(&a), Some(&b), magnitudes.as_ref()];
        if let Some(v) = floats.into_iter().flatten().find(|v| !v.info.dtype.dtype.is_some_and(is_float)) {
            return Err((format!("a factor of module `{module}` is stored as {}", v.info.dtype.name), AGAIN));
        }
        let scale = self.settings.scale(module, b.columns())? * self.scale;
        let (dtype, info) = self.float(&name, &base)?;
        // Magnitudes are of shape [out], or [out, 1] and the like.
        let magnitudes = magnitudes.map(|m| View { info: TensorInfo { shape: vec![outputs], ..m.info }, ..m });
        let shard = base.shard;
        let mut matrix = Merged { base, a, b, scale, transposed, magnitudes, lengths: vec![], dtype };
        if matrix.transposed && matrix.magnitudes.is_some() {
            matrix.lengths = self.lengths(&matrix);
        }
        let entry = Entry { layout: Some(Arc::new(matrix)), ..Entry::plain(shard, info) };
        self.ckpt.index.insert(found, entry);
        self.merged += 1;
        Ok(())
    }

    /// Whether a matrix of the base is stored `[in, out]`: `Conv1D` of Transformers, whose methods that quantize
    /// turn it first. PEFT decides by the module's class, whatever `fan_in_fan_out` says.
    fn is_turned(&self, module: &str, base: &Entry) -> bool {
        let own = module.rsplit('.').next().unwrap_or_default();
        let coded =
            base.info.dtype.dtype.is_some_and(|t| t.coded().is_some()) || std::ptr::eq(base.info.dtype, &COMPUTED);
        self.turned && !coded && (own.starts_with("c_") || own == "q_attn")
    }

    /// Lengths of the columns of a matrix that is stored `[in, out]`.
    fn lengths(&self, matrix: &Merged) -> Vec<f32> {
        let [rows, columns] = matrix.base.info.shape[..] else { return vec![] };
        let (mut squares, mut row) = (vec![0f64; columns], vec![0f32; columns]);
        for i in 0..rows {
            matrix.sum(&self.ckpt.shards, i, &mut row);
            squares.iter_mut().zip(&row).for_each(|(sum, x)| *sum += f64::from(*x).powi(2));
        }
        squares.into_iter().map(|sum| sum.sqrt() as f32).collect()
    }

    /// Notes the changes, and the modules `left` unchanged.
    fn note(&mut self, dir: &Path, left: &[String]) {
        let mut note = format!("adapter {}: {} matrices merged", file_name(dir), self.merged);
        if self.scale != 1.0 {
            note += &format!(" at {} times its strength", self.scale);
        }
        if self.replaced > 0 {
            note += &format!(", {} tensors replaced as a whole", self.replaced);
        }
        if self.decoded > 0 {
            note += &format!("; {} of the matrices were quantized in the base and are floats now", self.decoded);
        }
        if let Some(first) = left.first() {
            note += &format!(
                "; {} modules that its settings name have no factors in the file and stay unchanged, as with \
                    PEFT (the first is `{first}`)",
                left.len()
            );
        }
        self.ckpt.notes.push(note);
    }
}

/// Holds factors against a matrix of the base, which is stored `[in, out]` if `turned`; returns that.
fn transposed(module: &str, base: &Entry, (a, b): (&View, &View), turned: bool) -> Result<bool, Wrong> {
    let (inputs, outputs, rank) = (a.columns(), b.rows(), b.columns());
    let matrices = [&base.info.shape, &a.info.shape, &b.info.shape].into_iter().all(|s| s.len() == 2);
    let made = if turned { [inputs, outputs] } else { [outputs, inputs] };
    if !matrices || a.rows() != rank || base.info.shape != made {
        return Err((
            format!(
                "module `{module}`: factors {:?} and {:?} do not make the base's {:?}",
                b.info.shape, a.info.shape, base.info.shape
            ),
            BASE,
        ));
    }
    Ok(turned)
}

#[cfg(test)]
mod tests;
