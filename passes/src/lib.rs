//! The passes of the compiler: from a [`Module`] to a [`Plan`](llmcc_ir::plan::Plan), and packing of its weights.
//!
//! For each *distinct* function: [`egraph`] (conversion), [`rules`] (equalities, to saturation),
//! [`storage`] (the forms in which weights and states may be stored, with their errors as
//! [`measure`]d), [`implement`] (kernels and their fusions, to a bounded fixpoint). [`choose`]
//! takes one form of everything within the error budget, for all functions at once. Then for each
//! regime [`extract`] (the cheapest set of kernels by [`cost`]) and [`schedule`]; calls of the
//! functions are then put together by [`plan`], and [`memory`] assigns buffers to slots.
//! [`pipeline`] is the table of these passes; [`module`] has passes that come before it. [`pack`] reads a checkpoint
//! and writes the packed weights.
//!
//! # Invariants
//!
//! - No clock, no randomness, no iteration over hash tables: the same module and options give the
//!   same plan.
//! - Regimes differ in fusion and tiles only. Weight expressions, formats, cache types and the
//!   rounding of activations are decided by the first, and on CPUs all operations ([`rounding`]).
//! - Equalities know nothing of kernels, kernels nothing of rules; both meet only in the e-graph.

pub mod bisect;
pub mod budget;
pub mod candidates;
pub mod choose;
mod compiled;
pub mod cost;
mod cost_gpu;
pub mod damage;
mod delta;
mod dump;
pub mod egraph;
mod error;
mod explain;
pub mod extract;
pub mod implement;
pub mod inside;
pub mod measure;
pub mod memory;
pub mod method;
pub mod module;
mod observers;
mod options;
pub mod pack;
pub mod pipeline;
pub mod plan;
pub mod rewrite;
pub mod rounding;
pub mod rules;
pub mod schedule;
pub mod spec;
pub mod storage;
mod threads;
pub mod trial;
pub mod weights;
pub mod work;

pub use compiled::{Choice, Compiled, FuncStats, Stored};
pub use error::PassError;
pub use options::{ActPolicy, Explain, GPU_REGIMES, INVARIANT, Options, REGIMES, RegimeSpec, of_codes, regimes};

use llmcc_ir::graph::Module;

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
    compile_by_samples(module, opts, source, &mut measure::Measured::new())
}

/// As [`compile_measured`]. `samples` has errors of earlier calls for the same weights and method, which are not
/// measured again, and gets the errors of this call.
///
/// # Errors
/// As [`compile_measured`].
pub fn compile_by_samples(
    module: &Module,
    opts: &Options,
    source: &dyn pack::WeightSource,
    samples: &mut measure::Measured,
) -> Result<Compiled, PassError> {
    let known = pipeline::Known { source, whole: samples };
    let mut compiled = pipeline::run(module, opts, Some(known))?;
    for (weight, errors) in std::mem::take(&mut compiled.measured) {
        samples.entry(weight).or_default().extend(errors);
    }
    Ok(compiled)
}
