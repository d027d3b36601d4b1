//! The manifest inside every artifact: where it comes from, what was chosen, what it needs, how exact it is.
//!
//! Nothing in it depends on the day, the machine or the folder: same input and options give the same bytes.

use crate::Error;
use crate::certificate;
use crate::golden::{self, Outcome};
use crate::predicted;
use crate::session::{CompileOptions, Lowered, VersionRef};
use llmcc_codegen::Object;
use llmcc_codegen::link::WeightsPlace;
use llmcc_frontends::Checkpoint;
use llmcc_ir::kv::{self, KvSpec};
use llmcc_ir::plan::{Plan, Storage, WeightExpr};
use llmcc_ir::quant::Format;
use llmcc_ir::target::{self, TargetSpec};
use llmcc_passes::pack::PackReport;
use llmcc_passes::{ActPolicy, Compiled};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the manifest's own layout.
pub const FORMAT_VERSION: u32 = 2;

/// A file of the checkpoint.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Name within the checkpoint.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256, hex.
    pub sha256: String,
}

/// Everything the manifest reports.
pub struct Facts<'a> {
    /// The compiled model.
    pub lowered: &'a Lowered,
    /// Options.
    pub options: &'a CompileOptions,
    /// Size of the code segment.
    pub code_bytes: usize,
    /// Packing results.
    pub packed: &'a PackReport,
    /// Source files.
    pub files: Vec<SourceFile>,
    /// Offset of each packed weight.
    pub weight_offsets: Vec<u64>,
    /// What the artifact computed here.
    pub golden: Outcome,
}

/// The manifest as JSON text.
pub fn build(f: &Facts<'_>) -> Vec<u8> {
    let plan = &f.lowered.compiled.plan;
    let tensors: Vec<Value> = plan
        .weights
        .iter()
        .zip(&f.weight_offsets)
        .enumerate()
        .map(|(i, (w, offset))| {
            let mut t = json!({
                "name": weight_name(&w.expr, f.lowered),
                "storage": storage_name(&w.storage),
                "offset": offset,
                "bytes": w.storage.bytes(),
            });
            if let Some(e) = f.packed.tensors.get(i).and_then(|t| t.error) {
                t["relative_rms_error"] = json!(e.relative_rms);
            }
            t
        })
        .collect();
    let (per_token, per_row) = plan.arena();
    let manifest = json!({
        "manifest_version": FORMAT_VERSION,
        "llmcc": env!("CARGO_PKG_VERSION"),
        "model": plan.name,
        "source": f.files.iter().map(|s| json!({ "file": s.name, "bytes": s.bytes, "sha256": s.sha256 })).collect::<Vec<_>>(),
        "options": {
            "target": f.options.target.name,
            "weights": match f.options.choose.error_budget {
                Some(budget) => format!("within an error of {budget}"),
                None => f.lowered.format.to_string(),
            },
            "activations": f.lowered.act.to_string(),
            "activations_wanted": f.options.act.map(|a| a.to_string()),
            "also": f.options.also.iter().map(|t| t.name).collect::<Vec<_>>(),
            "place": match f.options.place {
                WeightsPlace::Embed => "embed",
                WeightsPlace::External => "external",
                WeightsPlace::Absent => "absent",
            },
        },
        "info": {
            "vocab": plan.info.vocab,
            "hidden": plan.info.hidden,
            "max_context": plan.info.max_context,
            "attention_layers": plan.kv.len(),
        },
        "code": {
            "bytes": f.code_bytes,
            "kernels": plan.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(),
            "generic": generic(&f.lowered.compiled.plan, &f.lowered.objects),
        },
        "weights": {
            "bytes": plan.weight_bytes(),
            "read_per_step": read_per_step(plan),
            "by_format": bytes_by_format(plan),
            "tensors": tensors,
        },
        "versions": f.lowered.versions(f.options).iter().map(|v| version(f.lowered, v)).collect::<Vec<_>>(),
        "kv": plan.kv.iter().map(|k| k.to_string()).collect::<Vec<_>>(),
        "memory": {
            "formula": "weights + kv_per_token·cached tokens + per_token·T + per_row·R  (T tokens and R logits rows in a step)",
            "weights": plan.weight_bytes(),
            "kv_per_token": kv_bytes_per_token(plan),
            "kv_groups": kv_groups(plan),
            "per_token": per_token,
            "per_row": per_row,
        },
        "certificate": {
            "largest_relative_rms_error": largest_error(f.packed),
            "rms_error": certificate::rms_error(plan, f.packed),
            "budget": certificate::budget(f.lowered, f.options, f.packed),
            "lossy": lossy(f.lowered, &f.lowered.compiled, f.lowered.act),
            "golden_difference_to_evaluator": match f.golden {
                Outcome::Vectors(_, difference) => difference,
                Outcome::Absent(_) => None,
            },
        },
        "golden": match &f.golden {
            Outcome::Vectors(g, _) => json!(g),
            Outcome::Absent(why) => json!({ "absent": why }),
        },
    });
    serde_json::to_vec_pretty(&manifest).unwrap_or_default()
}

/// The largest relative RMS error that storing made in a matrix; 0 when nothing was quantized.
pub fn largest_error(packed: &PackReport) -> f64 {
    packed.tensors.iter().filter_map(|t| t.error).map(|e| e.relative_rms).fold(0.0, f64::max)
}

/// What one version of the model is.
fn version(l: &Lowered, v: &VersionRef<'_>) -> Value {
    let plan = &v.compiled.plan;
    json!({
        "target": v.target.name,
        "activations": v.act.to_string(),
        "weights": plan.weight_bytes(),
        "read_per_step": read_per_step(plan),
        "kernels": plan.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(),
        "generic": generic(plan, v.objects),
        "lossy": lossy(l, v.compiled, v.act),
        "tolerance": golden::bound(plan),
        "predicted": predicted::predict(plan, v.target, v.compiled.predicted_decode_seconds()),
    })
}

/// A version of the model as a manifest tells of it.
pub struct Version<'a> {
    /// Name of its target.
    pub target: &'a str,
    /// What it is; `None` if this llmcc knows no such target.
    pub spec: Option<&'static TargetSpec>,
    /// The manifest's entry.
    pub facts: &'a Value,
}

/// The versions that a manifest lists.
pub fn versions(manifest: &Value) -> Vec<Version<'_>> {
    let all = manifest["versions"].as_array().into_iter().flatten();
    let named = all.map(|facts| (facts["target"].as_str().unwrap_or("?"), facts));
    named.map(|(target, facts)| Version { target, spec: target::find(target), facts }).collect()
}

/// Everything in a version that is an approximation of the checkpoint.
fn lossy(l: &Lowered, compiled: &Compiled, act: ActPolicy) -> Vec<String> {
    let mut list = vec![];
    let quantized: Vec<Format> = formats(&compiled.plan).into_iter().filter(|f| f.is_quantized()).collect();
    if compiled.error.is_some() {
        if !quantized.is_empty() {
            list.push(format!("matrices stored as {}", words(quantized.iter().map(ToString::to_string))));
            if act == ActPolicy::Int8 {
                let groups: BTreeSet<u16> = quantized.iter().map(|f| f.group).collect();
                list.push(format!("activations entering them as int8 in groups of {}", words(groups.iter().map(ToString::to_string))));
            }
        }
    } else if l.format.is_quantized() {
        list.push(format!("matrices stored as {}", l.format));
        if act == ActPolicy::Int8 {
            list.push(format!("activations entering them as int8 in groups of {}", l.format.group));
        }
        if act == ActPolicy::Fp8 {
            list.push("activations entering them as fp8, a scale per token".into());
        }
    } else if l.format != crate::session::stored_format(&l.module) {
        list.push(format!("matrices rounded to {}", l.format));
    }
    if let Some(kv) = compiled.plan.kv.first().filter(|k| k.dtype != kv::KvDType::F32) {
        list.push(format!("keys and values cached as {}", kv.dtype));
    }
    list
}

/// Formats of the matrices of a plan.
fn formats(plan: &Plan) -> BTreeSet<Format> {
    plan.weights.iter().filter_map(|w| if let Storage::Matrix { format, .. } = w.storage { Some(format) } else { None }).collect()
}

fn words(list: impl Iterator<Item = String>) -> String {
    list.collect::<Vec<_>>().join(", ")
}

fn generic<'a>(plan: &'a Plan, objects: &'a [Object]) -> BTreeMap<&'a str, &'a str> {
    plan.kernels.iter().zip(objects).filter_map(|(k, o)| Some((k.name.as_str(), o.generic?))).collect()
}

/// Bytes of the packed weights by storage format.
pub fn bytes_by_format(plan: &Plan) -> BTreeMap<String, usize> {
    let mut by = BTreeMap::new();
    for w in &plan.weights {
        let format = match w.storage {
            Storage::Matrix { format, .. } => format.to_string(),
            Storage::Vector { .. } => "f32".into(),
        };
        *by.entry(format).or_default() += w.storage.bytes();
    }
    by
}

/// Bytes of weights that every step reads in full: all but tables that are only looked up.
pub fn read_per_step(plan: &Plan) -> usize {
    let mut read = vec![false; plan.weights.len()];
    for l in plan.regimes.iter().flat_map(|r| &r.launches) {
        if matches!(plan.kernels[l.kernel].body, llmcc_ir::kernel::Body::Embed(_)) {
            continue;
        }
        for o in &l.operands {
            if let llmcc_ir::plan::Operand::Weight(w) = o {
                read[*w] = true;
            }
        }
    }
    plan.weights.iter().zip(read).filter(|(_, r)| *r).map(|(w, _)| w.storage.bytes()).sum()
}

/// Bytes of cached keys and values per token, over all layers.
pub fn kv_bytes_per_token(plan: &Plan) -> usize {
    plan.kv.iter().map(page_bytes).sum::<usize>() / llmcc_abi::PAGE_TOKENS
}

fn page_bytes(k: &KvSpec) -> usize {
    llmcc_abi::layout::page(k.kv_heads, k.head_dim, k.dtype.bytes()).bytes
}

/// Attention states by lifetime: those with the same window, of which a sequence keeps no more than the window, a chunk and some pages.
fn kv_groups(plan: &Plan) -> Vec<Value> {
    let groups = kv::groups(&plan.kv);
    let members = |g: usize| plan.kv.iter().zip(&groups).filter(move |(_, of)| **of == g).map(|(k, _)| k);
    let group = |g: usize| {
        json!({
            "window": members(g).next().and_then(|k| k.window),
            "layers": members(g).count(),
            "per_token": members(g).map(page_bytes).sum::<usize>() / llmcc_abi::PAGE_TOKENS,
        })
    };
    (0..groups.iter().max().map_or(0, |g| g + 1)).map(group).collect()
}

fn storage_name(s: &Storage) -> String {
    match s {
        Storage::Matrix { n, k, format } => format!("{format}[{n}, {k}]"),
        Storage::Vector { len } => format!("f32[{len}]"),
    }
}

/// A weight expression with tensor names, e.g. `scale_cols(model.layers.0.mlp.up_proj.weight, …)`.
fn weight_name(expr: &WeightExpr, l: &Lowered) -> String {
    let name = |x: &WeightExpr| weight_name(x, l);
    match expr {
        WeightExpr::Weight(i) => l.module.weights.get(*i).map_or_else(|| "?".into(), |w| w.name.clone()),
        WeightExpr::Transpose(x) => format!("transpose({})", name(x)),
        WeightExpr::ScaleCols(w, g) => format!("scale_cols({}, {})", name(w), name(g)),
        WeightExpr::ScaleRows(w, g) => format!("scale_rows({}, {})", name(w), name(g)),
        WeightExpr::ConcatRows(xs) => format!("concat_rows({})", xs.iter().map(name).collect::<Vec<_>>().join(", ")),
        WeightExpr::SliceRows(start, len, x) => format!("slice_rows{{{start}, {len}}}({})", name(x)),
        WeightExpr::Binary(op, a, b) => format!("{}({}, {})", op.name(), name(a), name(b)),
        WeightExpr::Unary(op, x) => format!("{}({})", op.name(), name(x)),
        WeightExpr::Const(c) => c.to_string(),
    }
}

/// Hashes the files of a checkpoint.
///
/// # Errors
/// A file that cannot be read.
pub fn hash_sources(checkpoint: &Checkpoint) -> Result<Vec<SourceFile>, Error> {
    let mut files = vec![];
    for f in checkpoint.source_files()? {
        files.push(SourceFile { name: f.name.clone(), bytes: f.bytes, sha256: hex(&f.sha256()?) });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}
