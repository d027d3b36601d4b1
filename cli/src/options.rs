//! The model to compile, its target machines, and the options.

use crate::Error;
use crate::advice;
use crate::builtin;
use crate::lowering;
use crate::measured::Measured;
use crate::statistics::Statistics;
use llmcc_codegen::artifact;
use llmcc_codegen::link::WeightsPlace;
use llmcc_frontends::slots::AdapterSlots;
use llmcc_frontends::{Adapter, Checkpoint, DraftHeads};
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target::{self, Family, Machine, TargetSpec};
use llmcc_passes::damage::Damage;
use llmcc_passes::method::{LEAST_SQUARES, Method, Needs, Pruning};
use llmcc_passes::module::policy;
use llmcc_passes::{ActPolicy, Explain};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The model to compile, and the options.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Folder or file.
    pub checkpoint: PathBuf,
    /// Adapters that are merged into its weights, in this order.
    pub adapters: Vec<Adapter>,
    /// Room for adapters that are loaded while the model runs.
    pub slots: Option<AdapterSlots>,
    /// Targets, at least one, the most wanted first: the artifact has a version of the model for
    /// each.
    pub targets: Vec<&'static TargetSpec>,
    /// Storage of the matrix weights; `None`: as in the checkpoint.
    pub weights: Option<Format>,
    /// Weights that the checkpoint has as codes and that keep these although a format is given: patterns of names
    /// of tensors, names of formats.
    pub keep_quantized: Option<Vec<String>>,
    /// Activations entering quantized products, on the targets that multiply such ones; `None` and
    /// elsewhere: the choice that suits weights and target.
    pub act: Option<ActPolicy>,
    /// KV cache type; `None`: as [`Choose::kv`] finds, else f32 for f32 weights, else f16.
    pub kv: Option<KvDType>,
    /// The choices left to the cost model.
    pub choose: Choose,
    /// How weights become codes.
    pub method: &'static Method,
    /// Weights of the layers' matrices that become zero, where they are rounded to codes.
    pub pruning: Option<Pruning>,
    /// The texts by which rounding errors are weighed.
    pub calibration: Option<Calibration>,
    /// Measured damage by weight and its bound, which forms of weights are chosen by.
    pub damage: Option<Damage>,
    /// The choices that passes explain.
    pub explain: Explain,
    /// Longest sequence; `None`: the model's.
    pub max_context: Option<usize>,
    /// Which tokens caches keep, by layers; of others all that attention sees.
    pub policies: Vec<policy::Given>,
    /// Compile a decoder for embeddings; checkpoints of embedders are such without it.
    pub embed: bool,
    /// Give the artifact an entry for embeddings beside the one that writes text.
    pub also_embed: bool,
    /// Give the artifact an entry that makes rows of images.
    pub with_image: bool,
    /// The draft heads that become entries beside the model.
    pub draft_heads: DraftHeads,
    /// Folder or file of a published draft, which becomes entries beside the model.
    pub draft: Option<PathBuf>,
    /// Give the artifact an entry that shows the inputs of products.
    pub tap: bool,
    /// Leave the hidden states to the caller.
    pub hidden_states: bool,
    /// Embedded or external weights.
    pub place: WeightsPlace,
    /// Name of the artifact for the system's loader (`DT_SONAME`).
    pub soname: Option<String>,
    /// Leave tensors aside that the model does not use, instead of refusing the checkpoint.
    pub ignore_unused: bool,
    /// Fail on generic kernels.
    pub deny_fallback: bool,
    /// Measurements of the artifact that these options make, for its manifest.
    pub measured: Option<Measured>,
    /// The `llmcc` program, to run the finished artifact for its golden vectors; `None`: do not.
    pub golden: Option<PathBuf>,
}

impl CompileOptions {
    /// Options for a checkpoint in its own types, with everything else as it is by default, and without golden vectors.
    pub fn new(checkpoint: &Path, targets: Vec<&'static TargetSpec>) -> CompileOptions {
        CompileOptions {
            checkpoint: checkpoint.to_owned(),
            adapters: vec![],
            slots: None,
            targets,
            weights: None,
            keep_quantized: None,
            act: None,
            kv: None,
            choose: Choose::default(),
            method: &LEAST_SQUARES,
            pruning: None,
            calibration: None,
            damage: None,
            explain: Explain::default(),
            max_context: None,
            policies: vec![],
            embed: false,
            also_embed: false,
            with_image: false,
            draft_heads: DraftHeads::None,
            draft: None,
            tap: false,
            hidden_states: false,
            place: WeightsPlace::Embed,
            soname: None,
            ignore_unused: false,
            deny_fallback: false,
            measured: None,
            golden: None,
        }
    }

    /// The checkpoint with the draft beside it.
    ///
    /// # Errors
    /// The draft's files are missing, unreadable or malformed.
    pub fn with_draft(&self, checkpoint: Checkpoint) -> Result<Checkpoint, Error> {
        match &self.draft {
            Some(path) => Ok(checkpoint.with_draft(path)?),
            None => Ok(checkpoint),
        }
    }

    /// Whether forms of weights are chosen within a budget.
    pub fn has_budget(&self) -> bool {
        self.choose.error_budget.is_some() || self.damage.is_some()
    }

    /// Whether weights are stored in other types than the checkpoint's.
    pub fn converts(&self) -> bool {
        self.weights.is_some() || self.has_budget()
    }

    /// Whether weights are rounded to codes.
    pub fn rounds(&self) -> bool {
        self.has_budget() || self.weights.is_some_and(|f| f.is_quantized())
    }

    /// Whether the method moves scales, and the statistics that it does so by are collected.
    pub fn moves_scales(&self) -> bool {
        self.method.moves.is_some() && self.statistics().is_some()
    }

    /// The knowledge of the inputs of products that method and pruning use.
    pub fn needs(&self) -> Needs {
        self.pruning.map_or(Needs::Nothing, |p| p.pruner.needs).max(self.method.needs)
    }

    /// Statistics of the inputs of products, where they were collected.
    pub fn statistics(&self) -> Option<&Statistics> {
        self.calibration.as_ref()?.found.as_deref()
    }
}

/// Chooses the documents of calibration, and their order, unless the user wants others.
pub const SEED: u64 = 39;

/// A source of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSource {
    /// File or folder; `None`: the text that the compiler has.
    pub path: Option<PathBuf>,
    /// Its share of the tokens, relative to the other shares.
    pub weight: f64,
}

impl TextSource {
    /// As an option has it.
    pub fn option(&self) -> OsString {
        let mut text = self.path.as_ref().map_or(builtin::NAME.into(), |p| p.as_os_str().to_owned());
        text.push(format!("={}", self.weight));
        text
    }

    /// `builtin`, or the last part of the path.
    pub fn name(&self) -> String {
        let last = |p: &PathBuf| p.file_name().map(|n| n.to_string_lossy().into_owned());
        self.path.as_ref().and_then(last).unwrap_or_else(|| builtin::NAME.into())
    }
}

/// Texts by which the inputs of products are measured.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// At least one.
    pub sources: Vec<TextSource>,
    /// Tokens of them to use.
    pub tokens: usize,
    /// Chooses documents.
    pub seed: u64,
    /// Where to keep the result.
    pub save: Option<PathBuf>,
    /// The `llmcc` program, which measures.
    pub program: PathBuf,
    /// The result, where it is at hand.
    pub found: Option<Arc<Statistics>>,
}

/// The choices made by cost and error, where no format is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choose {
    /// Choose weight formats, this being the largest root mean square relative error (see
    /// `llmcc_passes::Options::error_budget`).
    pub error_budget: Option<f64>,
    /// Choose the KV cache type.
    pub kv: bool,
}

/// The targets of one artifact for all processors of this one's architecture. (One that has AMX uses it in the version
/// for x86-64-v4, too.)
pub const EVERY_PROCESSOR: &str = match Machine::HERE {
    Machine::X86_64 => "x86-64-v4,x86-64-v3,x86-64",
    Machine::AArch64 => "aarch64",
};

/// The target called `name`.
///
/// # Errors
/// [`Error::Usage`] listing the targets.
pub fn find_target(name: &str) -> Result<&'static TargetSpec, Error> {
    target::find(name).ok_or_else(|| {
        let names = || target::all().map(|t| t.name);
        let meant = match machine(name) {
            Some(known) => Some(known),
            None => advice::nearest(name, names().chain(["native"])),
        };
        let meant = meant.map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
        let all = names().collect::<Vec<_>>().join(", ");
        Error::Usage(format!(
            "unknown target `{name}`{meant}; targets are native (this machine's), {all} (`llmcc targets`)"
        ))
    })
}

/// The same targets; GPUs with kernels that give a sequence the same bits in any batch and any pieces.
pub fn invariant(targets: Vec<&'static TargetSpec>) -> Vec<&'static TargetSpec> {
    let same = |t: &'static TargetSpec| match t.family() {
        Family::Cpu => t,
        // One for each run of the compiler.
        Family::Nvidia => Box::leak(Box::new(t.invariant())),
    };
    targets.into_iter().map(same).collect()
}

/// The target for a machine, or a set of instructions, by another name.
fn machine(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace(['_', ' '], "-");
    let known: &[(&str, &[&str])] = &[
        ("native", &["cpu", "host", "local", "auto"]),
        ("x86-64", &["x86", "x64", "amd64", "x86-64-v1", "sse2", "x86-64-v2"]),
        ("x86-64-v3", &["avx2", "avx", "haswell", "znver1", "znver2", "znver3"]),
        ("x86-64-v4", &["avx512", "avx-512", "skylake-avx512", "znver4", "znver5", "x86-64-v5"]),
        ("x86-64-v4-amx", &["amx", "sapphirerapids", "x86-64-amx"]),
        ("aarch64", &["arm64", "arm", "armv8", "neon", "graviton", "neoverse", "aarch64-linux", "android"]),
        ("sm80", &["a100", "ampere", "sm-80"]),
        ("sm86", &["a10", "a40", "rtx3090", "sm-86"]),
        ("sm89", &["l4", "l40", "l40s", "rtx4090", "ada", "sm-89"]),
        ("sm90", &["h200", "hopper", "cuda", "gpu", "sm-90", "sm90a"]),
        ("sm90:h100", &["h100", "sm90-h100"]),
        ("sm90:h200", &["sm90-h200"]),
        ("sm100", &["b200", "blackwell", "sm-100", "sm100a"]),
    ];
    known.iter().find(|(_, others)| others.contains(&name.as_str())).map(|(target, _)| *target)
}

/// The targets in a list of names with commas, without repetitions.
///
/// # Errors
/// [`Error::Usage`] listing the targets, or naming two of one instruction-set level, which the
/// runtime could not choose between, or of different architectures, whose systems load different files.
pub fn find_targets(names: &str) -> Result<Vec<&'static TargetSpec>, Error> {
    let mut found: Vec<(&str, &TargetSpec)> = vec![];
    for name in names.split(',').map(str::trim) {
        let target = find_target(name)?;
        match found.iter().find(|(_, t)| artifact::isa(t) == artifact::isa(target)) {
            None => found.push((name, target)),
            Some((_, same)) if same.name == target.name => {}
            Some(other) => return Err(one_level(names, *other, (name, target))),
        }
    }
    one_architecture(names, &found)?;
    Ok(found.into_iter().map(|(_, target)| target).collect())
}

/// Refuses processors of different architectures.
fn one_architecture(list: &str, found: &[(&str, &TargetSpec)]) -> Result<(), Error> {
    let mut cpus = found.iter().filter_map(|(name, t)| Some((name, t.cpu()?.machine())));
    let Some((first, machine)) = cpus.next() else { return Ok(()) };
    match cpus.find(|(_, other)| *other != machine) {
        None => Ok(()),
        Some((other, _)) => Err(Error::Usage(format!(
            "--target {list}: `{first}` and `{other}` are of different architectures, whose systems load different \
                files: compile once for each"
        ))),
    }
}

/// Two targets, each as it was called and found, whose code the same machines run.
fn one_level(list: &str, first: (&str, &TargetSpec), second: (&str, &TargetSpec)) -> Error {
    let called = |(name, target): (&str, &TargetSpec)| match name == target.name {
        true => format!("`{name}`"),
        false => format!("`{name}` (`{}` on this machine)", target.name),
    };
    Error::Usage(format!(
        "--target {list}: {} and {} have the same instruction-set level and are only tuned for different \
            processors, so an artifact with both would always run the first: leave one out (`llmcc targets` \
            describes them)",
        called(first),
        called(second)
    ))
}

/// Refuses targets that need LLVM where this compiler neither has it nor finds `llmcc-cuda`.
///
/// # Errors
/// [`Error::Usage`] saying how to get it.
pub fn check_llvm(options: &CompileOptions) -> Result<(), Error> {
    match options.targets.iter().find(|t| t.family() == Family::Nvidia) {
        Some(t) => lowering::check(&format!("target `{}`", t.name)),
        None => Ok(()),
    }
}
