//! The manifest inside every artifact: its source, the choices made, its requirements, its
//! exactness.
//!
//! Nothing in it depends on the day, the machine or the folder: same input and options give the
//! same bytes. Its text is JSON whose members have the names of the fields here. Readers take
//! members that are missing as empty and leave those aside that they do not know, so that manifests
//! of other versions can be shown.

mod build;

pub use build::{Facts, bytes_by_format, kv_bytes_per_token, largest_error, read_per_step};

use crate::Error;
use crate::certificate::Budget;
use crate::digest::SourceFile;
use crate::golden::Golden;
use crate::loaded::Model;
use crate::measured::Measured;
use crate::predicted::Predicted;
use crate::pruned::{Pruned, Zeros};
use crate::statistics::Record;
use llmcc_frontends::slots::AdapterTable;
use llmcc_ir::target::{self, TargetSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the manifest's own layout.
pub const FORMAT_VERSION: u32 = 2;

/// A manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the compiler.
    pub manifest_version: u32,
    /// Version of the compiler.
    pub llmcc: String,
    /// Version of the C API that the artifact speaks, `major.minor` (`LLMCC_ABI_VERSION` of the header).
    pub abi: String,
    /// Name of the model.
    pub model: String,
    /// Files of the checkpoint.
    pub source: Vec<SourceFile>,
    /// Options of the compilation.
    pub options: Options,
    /// Sizes.
    pub info: Info,
    /// Generated code, with the kernels of the preferred version.
    pub code: Code,
    /// Weights of the preferred version.
    pub weights: Weights,
    /// One per target, the preferred first.
    pub versions: Vec<Version>,
    /// Attention states, by layer.
    pub kv: Vec<String>,
    /// Room for adapters that are loaded while the model runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterTable>,
    /// Defaults of generations, by their names in `generation_config.json`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub generation: Map<String, Value>,
    /// Prompts of an embedder, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prompts: BTreeMap<String, String>,
    /// The prompt that texts get if none is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_prompt: Option<String>,
    /// How two rows of an embedder are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<String>,
    /// Names of a classifier's classes, in the order of its scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// How a classifier's scores become probabilities, by its `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem_type: Option<String>,
    /// The activation of the scores of pairs, by its `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_activation: Option<String>,
    /// Memory that the preferred version needs.
    pub memory: Memory,
    /// How exact the preferred version is.
    pub certificate: Certificate,
    /// Results where it was made.
    pub golden: GoldenRecord,
}

/// Options of the compilation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The preferred target.
    pub target: String,
    /// Storage of the matrix weights.
    pub weights: String,
    /// How weights became codes, where they were rounded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// How weights were pruned, where some were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pruned: Option<Pruned>,
    /// The texts by which rounding errors were weighed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Record>,
    /// Scales that the method moved, of one that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scales: Option<MovedScales>,
    /// Activations of the preferred version.
    pub activations: String,
    /// Activations that were asked for.
    pub activations_wanted: Option<String>,
    /// Further targets.
    pub also: Vec<String>,
    /// Whether versions for GPUs give a sequence the same bits in any batch and any pieces.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub invariant: bool,
    /// How many tensors the checkpoint has as codes of these formats, which were decoded and rounded anew.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requantized: BTreeMap<String, usize>,
    /// Where the weights are: `embed`, `external`, `absent`.
    pub place: String,
    /// Name for the system's loader (`DT_SONAME`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
}

/// Scales moved between the columns of products and the producers of their inputs. Products that read one value are a
/// group, in each call of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedScales {
    /// Groups with scales.
    pub moved: usize,
    /// Groups for which no scales were better than ones.
    pub ones: usize,
    /// Groups whose inputs nothing can divide exactly, or whose moments are not known.
    pub left_alone: usize,
    /// Statistic of the inputs that scales are made of.
    pub inputs: String,
    /// Format whose rounding errors they were chosen by; none where nothing was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// Sizes of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Kind of the output: `logits`, or rows as in the text of plans.
    pub output: String,
    /// Outputs of the entries beside the first one, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub more_entries: BTreeMap<String, String>,
    /// The published draft that became entries: its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// The entry that reads the source, of a model that writes texts about sources: its encoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Whether the source is a clip of sound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hears: bool,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Columns of the residual stream.
    pub hidden: usize,
    /// Longest sequence.
    pub max_context: usize,
    /// Layers with a cache.
    pub attention_layers: usize,
    /// Which factors of LongRoPE all positions have, of models that have two sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_rope: Option<LongRope>,
}

/// The choice between the two sets of factors of LongRoPE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LongRope {
    /// The longest sequence that the short factors are for.
    pub original_context: usize,
    /// `short`, or `long` where the artifact has a longer context.
    pub factors: String,
}

impl LongRope {
    /// The choice for a context.
    pub fn choose(original_context: usize, context: usize) -> LongRope {
        let factors = if context > original_context { "long" } else { "short" };
        LongRope { original_context, factors: factors.into() }
    }
}

/// Generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Code {
    /// Total over all versions.
    pub bytes: usize,
    /// Names of the kernels.
    pub kernels: Vec<String>,
    /// Those that take a slow path, and why.
    pub generic: BTreeMap<String, String>,
}

/// Packed weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Weights {
    /// Total over all weights.
    pub bytes: usize,
    /// Bytes that a step of one token reads: all but tables that are only looked up; of experts,
    /// only the chosen ones.
    pub read_per_step: usize,
    /// Elements of all matrices.
    pub parameters: usize,
    /// Elements of those that products of one token read: of experts, of the chosen ones.
    pub active_parameters: usize,
    /// Bytes by storage format.
    pub by_format: BTreeMap<String, usize>,
    /// Each of them.
    pub tensors: Vec<Tensor>,
}

/// A packed weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tensor {
    /// An expression over names of the checkpoint.
    pub name: String,
    /// Format and shape.
    pub storage: String,
    /// Where it begins in the weights of its version.
    pub offset: u64,
    /// Size.
    pub bytes: usize,
    /// Root mean square error of storing it, relative to the values', where it is not exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_rms_error: Option<f64>,
    /// Share of its values that are zero, where it was pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zeros: Option<f64>,
}

/// The model for one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Version {
    /// Name of the target.
    pub target: String,
    /// How activations enter products.
    pub activations: String,
    /// Bytes of its weights.
    pub weights: usize,
    /// As [`Weights::read_per_step`].
    pub read_per_step: usize,
    /// Names of its kernels.
    pub kernels: Vec<String>,
    /// Those that take a slow path, and why.
    pub generic: BTreeMap<String, String>,
    /// Everything that is an approximation of the checkpoint.
    pub lossy: Vec<String>,
    /// How far its logits may be from exact ones, relative to the largest.
    pub tolerance: f64,
    /// Predictions of the cost model.
    pub predicted: Predicted,
}

/// Bytes of memory: `weights + sequences + adapters + per_token·T + per_row·R` with `T` tokens and
/// `R` rows of logits in a step. A sequence takes `per_token·min(its tokens, most_tokens)` in each
/// group of `kv_groups`, and `per_sequence` for itself and each of its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Memory {
    pub formula: String,
    pub weights: usize,
    pub kv_per_token: usize,
    pub kv_groups: Vec<StateGroup>,
    /// Bytes of states that do not grow; each snapshot of a sequence takes as much again.
    #[serde(skip_serializing_if = "is_zero")]
    pub per_sequence: usize,
    /// Bytes of adapters, when all there is room for are loaded.
    #[serde(skip_serializing_if = "is_zero")]
    pub adapters: usize,
    pub per_token: usize,
    pub per_row: usize,
    /// Bytes of a sequence of the longest context, with its snapshots.
    pub sequence: usize,
    /// Tokens of the largest step by default.
    pub step_tokens: usize,
    /// Bytes of that step's activations, and of its kernels' own memory.
    pub step: usize,
    /// Bytes in all, with one sequence of the longest context.
    pub total: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Attention states of one lifetime (the same window): a sequence keeps no more than the window, a
/// chunk and some pages of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateGroup {
    /// Sliding window in tokens; `None`: they keep everything.
    pub window: Option<usize>,
    /// How many tokens have a row in common; `None`: each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<usize>,
    /// How many tokens have rows, where the first ones alone do; `None`: all have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<usize>,
    /// States.
    pub layers: usize,
    /// Bytes of all of them per token.
    pub per_token: usize,
    /// The most tokens that a sequence keeps in them: a window, a step, some pages; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_tokens: Option<usize>,
}

/// How exact an artifact is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// The largest relative root mean square error of a matrix; `None` where no weights were packed, so
    /// that none was measured.
    pub largest_relative_rms_error: Option<f64>,
    /// √(Σ nᵢ·eᵢ² / Σ nᵢ) over the matrices that products read; `None` likewise.
    pub rms_error: Option<f64>,
    /// The choices within a budget; `None` where there was no choice.
    pub budget: Option<Budget>,
    /// Everything that is an approximation of the checkpoint.
    pub lossy: Vec<String>,
    /// Zeros among the weights of matrices that were pruned, where some were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zeros: Option<Zeros>,
    /// Measured damage, of artifacts made with `--budget`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Largest relative difference of the golden logits to the evaluator's, where the model is
    /// small enough for that.
    pub golden_difference_to_evaluator: Option<f64>,
}

/// Golden vectors, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GoldenRecord {
    /// Golden vectors.
    Vectors(Golden),
    /// None.
    Absent {
        /// Why.
        absent: String,
    },
}

impl Default for GoldenRecord {
    fn default() -> GoldenRecord {
        GoldenRecord::Absent { absent: "not mentioned".into() }
    }
}

impl Manifest {
    /// The manifest as JSON text.
    pub fn text(&self) -> Vec<u8> {
        // A value sorts its members.
        serde_json::to_value(self).and_then(|v| serde_json::to_vec_pretty(&v)).unwrap_or_default()
    }

    /// Reads a manifest's text.
    ///
    /// # Errors
    /// No JSON, or a member of another type.
    pub fn parse(text: &[u8]) -> Result<Manifest, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The manifest in the artifact at `path`, whatever machine it is for: none of its code runs.
    ///
    /// # Errors
    /// Not an artifact, or damaged.
    pub fn of(path: &Path) -> Result<Manifest, Error> {
        let text = llmcc_codegen::locate::manifest(path)?;
        let unreadable =
            |e| Error::Artifact { path: path.to_owned(), message: format!("its manifest is unreadable: {e}") };
        Manifest::parse(&text).map_err(unreadable)
    }
}

impl Manifest {
    /// The manifest of an open model.
    ///
    /// # Errors
    /// It is unreadable.
    pub fn of_model(model: &Model) -> Result<Manifest, Error> {
        Manifest::parse(model.manifest().as_bytes()).map_err(|e| Error::Artifact {
            path: model.path().to_owned(),
            message: format!("its manifest is unreadable: {e}"),
        })
    }
}

impl Version {
    /// Its target; `None` if this llmcc knows no such one.
    pub fn spec(&self) -> Option<&'static TargetSpec> {
        target::find(&self.target)
    }
}
