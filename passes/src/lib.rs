//! The passes of the compiler: from a [`Module`] to a [`Plan`], and packing of its weights.
//!
//! For each *distinct* function: [`egraph`] (conversion), [`rules`] (equalities, to saturation),
//! [`storage`] (the forms in which weights and states may be stored, with their errors as
//! [`measure`]d), [`implement`] (kernels and their fusions, to a bounded fixpoint). [`choose`]
//! takes one form of everything within the error budget, for all functions at once. Then for each
//! regime [`extract`] (the cheapest set of kernels by [`cost`]) and [`schedule`]; calls of the
//! functions are then put together by [`plan`], and [`memory`] assigns buffers to slots.
//! [`pipeline`] is the table of these passes. [`pack`] reads a checkpoint and writes the packed
//! weights.
//!
//! # Invariants
//!
//! - No clock, no randomness, no iteration over hash tables: the same module and options give the
//!   same plan.
//! - Regimes differ in fusion and tiles only. Weight expressions, formats, cache types and the
//!   rounding of activations are decided by the first, and on CPUs all operations ([`rounding`]).
//! - Equalities know nothing of kernels, kernels nothing of rules; both meet only in the e-graph.

pub mod budget;
pub mod candidates;
pub mod choose;
pub mod cost;
mod cost_gpu;
pub mod egraph;
mod error;
mod explain;
pub mod extract;
pub mod implement;
pub mod measure;
pub mod memory;
pub mod pack;
pub mod pipeline;
pub mod plan;
pub mod rounding;
pub mod rules;
pub mod schedule;
pub mod spec;
pub mod storage;
mod threads;
pub mod weights;
pub mod work;

pub use error::PassError;

use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use llmcc_ir::plan::{Plan, WeightExpr};
use llmcc_ir::quant::{Float, Format};
use llmcc_ir::target::{Family, TargetSpec};
use llmcc_ir::ty::Env;
use std::collections::BTreeSet;
use std::fmt;

/// The type to which activations are rounded before every product that takes such rows:
/// [`rows`](ActPolicy::rows).
pub use llmcc_ir::target::RowKind as ActPolicy;

/// Options of a compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub target: &'static TargetSpec,
    /// Allowed storage of matmul weights; at least one. Among several the fastest combination
    /// within [`Options::error_budget`] is taken.
    pub formats: Vec<Format>,
    /// Rounding of activations.
    pub act: ActPolicy,
    /// Largest root mean square relative error of the weights that products read, weighted by
    /// parameters: √(Σ nᵢ·eᵢ² / Σ nᵢ). `None`: any. Applies where there are several formats. Cache
    /// types are allowed whose own error ([`storage::cache_error`]) is not larger.
    pub error_budget: Option<f64>,
    /// Whether matrices that the checkpoint has as codes are stored as these, instead of in one of
    /// [`Options::formats`].
    pub keep_codes: bool,
    /// Whether matrices that the checkpoint has in another float type than the one format keep that: nobody
    /// has asked for the format, which is that of most.
    pub keep_types: bool,
    /// Allowed types of cached keys and values; empty: as the module says.
    pub kv: Vec<KvDType>,
    /// The choices to explain.
    pub explain: Explain,
}

/// Explanations beside the plan, each at a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explain {
    /// The cost of the next best choice, in [`Compiled::stored`] and [`Compiled::explain`] (empty
    /// without): a further solution of the program for each entry.
    pub alternatives: bool,
    /// The e-graphs as text, in [`Compiled::egraph`].
    pub egraph: bool,
}

impl Options {
    /// The usual options for weights of a format. CPUs: int8 activations when it is quantized to
    /// integers, where the target multiplies such rows; bf16 ones with bf16 weights on processors
    /// that multiply them faster than f32. GPUs: activations of the weights' own type, bf16 with
    /// quantized ones.
    pub fn new(target: &'static TargetSpec, weights: Format) -> Options {
        let encoding = weights.encoding();
        let act = match (target.family(), encoding.float()) {
            (Family::Cpu, Some(Float::Bf16)) if target.macs(ActPolicy::Bf16) > target.macs(ActPolicy::F32) => {
                ActPolicy::Bf16
            }
            (_, Some(Float::F32)) | (Family::Cpu, Some(_)) => ActPolicy::F32,
            (Family::Cpu, None) if encoding.integer_group().is_some() => of_codes(target),
            (Family::Cpu, None) => ActPolicy::F32,
            (Family::Gpu, Some(Float::F16)) => ActPolicy::F16,
            (Family::Gpu, _) => ActPolicy::Bf16,
        };
        let formats = vec![weights.with_packing(target.packing())];
        Options {
            target,
            formats,
            act,
            error_budget: None,
            keep_codes: true,
            keep_types: false,
            kv: vec![],
            explain: Explain::default(),
        }
    }

    /// The fastest combination of formats within an error budget. Activations: int8 for products
    /// with quantized weights (CPUs that multiply them), bf16 (GPUs).
    pub fn within(target: &'static TargetSpec, formats: Vec<Format>, error_budget: f64) -> Options {
        let act = of_codes(target);
        let formats = formats.into_iter().map(|f| f.with_packing(target.packing())).collect();
        let (error_budget, explain) = (Some(error_budget), Explain::default());
        Options { target, formats, act, error_budget, keep_codes: true, keep_types: false, kv: vec![], explain }
    }
}

/// Default type to which inputs of products with codes are rounded: int8 on CPUs that multiply such
/// rows, bf16 on GPUs.
pub fn of_codes(target: &TargetSpec) -> ActPolicy {
    match target.family() {
        Family::Cpu if target.multiplies(ActPolicy::Int8) => ActPolicy::Int8,
        Family::Cpu => ActPolicy::F32,
        Family::Gpu => ActPolicy::Bf16,
    }
}

/// A range of step sizes with the size at which it is costed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegimeSpec {
    /// Largest `T`; `None` = any.
    pub max_tokens: Option<usize>,
    /// Step size for the cost model.
    pub env: Env,
}

/// The regimes of a plan for `target`.
pub fn regimes(target: &TargetSpec) -> &'static [RegimeSpec] {
    match target.family() {
        Family::Cpu => REGIMES,
        Family::Gpu => GPU_REGIMES,
    }
}

/// Regimes of GPUs: products that only read weights; products of few rows, each in one tile of
/// rows, so that weights are read once; products whose tiles would leave multiprocessors idle if
/// they were as large as for long prompts; and prompts.
///
/// Up to 64 tokens are taken to be of as many sequences. More may be a prompt with one row of
/// logits or so many sequences with a row each; tiles of 64 rows read the head's weights at most
/// four times for the latter, and no slower than need be for the former.
pub const GPU_REGIMES: &[RegimeSpec] = &[
    RegimeSpec { max_tokens: Some(8), env: Env { tokens: 1, rows: 1 } },
    RegimeSpec { max_tokens: Some(16), env: Env { tokens: 16, rows: 16 } },
    RegimeSpec { max_tokens: Some(32), env: Env { tokens: 32, rows: 32 } },
    RegimeSpec { max_tokens: Some(64), env: Env { tokens: 64, rows: 64 } },
    RegimeSpec { max_tokens: Some(128), env: Env { tokens: 128, rows: 64 } },
    RegimeSpec { max_tokens: Some(256), env: Env { tokens: 256, rows: 64 } },
    RegimeSpec { max_tokens: None, env: Env { tokens: 512, rows: 1 } },
];

/// Regimes of CPUs.
pub const REGIMES: &[RegimeSpec] = &[
    RegimeSpec { max_tokens: Some(4), env: Env { tokens: 1, rows: 1 } },
    RegimeSpec { max_tokens: Some(32), env: Env { tokens: 16, rows: 16 } },
    RegimeSpec { max_tokens: None, env: Env { tokens: 256, rows: 1 } },
];

/// Why a kernel was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Function.
    pub func: String,
    /// Regime number.
    pub regime: usize,
    /// The kernel.
    pub chosen: String,
    /// Its predicted seconds.
    pub seconds: f64,
    /// The cheapest program without it: the kernels that differ. Empty when there is none.
    pub runner_up: String,
    /// Seconds by which that program is slower.
    pub gap: f64,
}

/// A form chosen for the storage of a weight or a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Function and parameter.
    pub subject: String,
    /// Format or cache type.
    pub form: String,
    /// Relative error, root mean square over all tensors that the calls bind: as measured before
    /// packing.
    pub error: f64,
    /// Those tensors; none for a cache.
    pub weights: BTreeSet<WeightExpr>,
    /// The fastest other program within the budget: the forms it stores differently. Empty when
    /// there is none.
    pub runner_up: String,
    /// Seconds of a decoded token by which that is slower.
    pub gap: f64,
}

/// Sizes of the work done for one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FuncStats {
    /// Function.
    pub func: String,
    /// E-nodes after saturation.
    pub saturated: usize,
    /// Rewrite iterations.
    pub iterations: usize,
    /// E-nodes with all kernels.
    pub nodes: usize,
    /// Candidates that the first extraction chose from.
    pub candidates: usize,
}

/// A compiled module.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// One entry per kernel, function and regime, if [`Explain::alternatives`] asks for them.
    pub explain: Vec<Choice>,
    /// Dump of the e-graphs, if [`Explain::egraph`] asks for it.
    pub egraph: String,
    /// Extraction problems solved: one per function and regime, one more to choose stored forms, and
    /// those for explanations.
    pub solutions: usize,
    /// Predicted seconds of each launch, per regime.
    pub costs: Vec<Vec<f64>>,
    /// Per function.
    pub stats: Vec<FuncStats>,
    /// Forms of storage, where there was a choice.
    pub stored: Vec<Stored>,
    /// Predicted √(Σ nᵢ·eᵢ² / Σ nᵢ) over the parameters that products read, where there was a
    /// choice.
    pub error: Option<f64>,
}

impl Compiled {
    /// Predicted seconds of a step of one token of one sequence.
    pub fn predicted_decode_seconds(&self) -> f64 {
        self.costs.first().map_or(0.0, |c| c.iter().sum())
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (regime {}): {} {:.3} µs", self.func, self.regime, self.chosen, self.seconds * 1e6)?;
        if self.runner_up.is_empty() {
            f.write_str("; no alternative")
        } else {
            write!(f, "; next {} (+{:.3} µs)", self.runner_up, self.gap * 1e6)
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stored as {}, error {:.3} %", self.subject, self.form, self.error * 100.0)?;
        if self.runner_up.is_empty() {
            Ok(())
        } else {
            write!(f, "; next {} (+{:.3} µs)", self.runner_up, self.gap * 1e6)
        }
    }
}

/// Compiles a module with a single weight format.
///
/// # Errors
/// A module that breaks the rules of the graph level, or a function without implementation.
pub fn compile(module: &Module, opts: &Options) -> Result<Compiled, PassError> {
    pipeline::run(module, opts, None)
}

/// Compiles a module; errors of weight formats are measured on samples of the weights. Packed
/// weights may be less exact: see [`budget`].
///
/// # Errors
/// Errors of [`compile`]; weights that cannot be read; a budget that no allowed combination of
/// formats keeps.
pub fn compile_measured(
    module: &Module,
    opts: &Options,
    source: &dyn pack::WeightSource,
) -> Result<Compiled, PassError> {
    pipeline::run(module, opts, Some(pipeline::Known { source, whole: &measure::Measured::new() }))
}
