//! The passes of the compiler: from a [`Module`] to a [`Plan`], and packing of its weights.
//!
//! For each *distinct* function: [`egraph`] (conversion), [`rules`] (equalities, to saturation), [`implement`] (kernels and their fusions, to a bounded
//! fixpoint), then for each regime [`extract`] (the cheapest set of kernels by [`cost`]) and [`schedule`]; calls of the
//! functions are then put together by [`plan`], and [`memory`] assigns buffers to slots. [`pack`] reads a checkpoint and writes the packed weights.
//!
//! # Invariants
//!
//! - No clock, no randomness, no iteration over hash tables: the same module and options give the same plan.
//! - Regimes differ in fusion and tiles only. Weight expressions, formats and the rounding of activations are decided by the first.
//! - Equalities know nothing of kernels, kernels nothing of rules; both meet only in the e-graph.

pub mod cost;
pub mod egraph;
mod error;
mod explain;
pub mod extract;
pub mod implement;
mod memory;
pub mod pack;
pub mod plan;
pub mod rules;
pub mod schedule;
pub mod spec;
pub mod weights;

pub use error::PassError;

use egraph::convert::{Converted, convert};
use egraph::Graph;
use extract::{How, Matrices, Problem, Solved};
use llmcc_ir::graph::{Func, Module};
use llmcc_ir::plan::Plan;
use llmcc_ir::quant::Format;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Env;
use schedule::FuncSchedule;
use std::collections::BTreeSet;
use std::fmt;

/// Arithmetic of activations in products with quantized weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActPolicy {
    /// f32 activations everywhere.
    F32,
    /// Activations are rounded to int8 with the weight's group before every product with a quantized weight.
    Int8,
}

/// What to compile for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The machine.
    pub target: &'static TargetSpec,
    /// Storage of matmul weights.
    pub weights: Format,
    /// Rounding of activations.
    pub act: ActPolicy,
}

impl Options {
    /// The usual options for weights of a format: int8 activations when it is quantized.
    pub fn new(target: &'static TargetSpec, weights: Format) -> Options {
        Options { target, weights, act: if weights.is_quantized() { ActPolicy::Int8 } else { ActPolicy::F32 } }
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

/// The regimes of every plan.
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
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// One entry per kernel, function and regime.
    pub explain: Vec<Choice>,
    /// Dump of the e-graphs.
    pub egraph: String,
    /// Predicted seconds of each launch, per regime.
    pub costs: Vec<Vec<f64>>,
    /// Per function.
    pub stats: Vec<FuncStats>,
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

/// Compiles a module.
///
/// # Errors
/// A module that breaks the rules of the graph level, or a function without implementation.
pub fn compile(module: &Module, opts: &Options) -> Result<Compiled, PassError> {
    let mut funcs = vec![];
    for (i, func) in module.funcs.iter().enumerate() {
        funcs.push(FuncState::new(module, i, func, opts)?);
    }
    let mut assembler = plan::Assembler::new(module);
    let (mut explain, mut costs) = (vec![], vec![]);
    for (index, regime) in REGIMES.iter().enumerate() {
        let mut schedules = vec![];
        for f in &mut funcs {
            schedules.push(f.regime(index, regime, opts, &mut explain)?);
        }
        assembler.regime(regime.max_tokens, &schedules)?;
        let of_call = |func: usize| schedules[func].steps.iter().map(|s| s.seconds);
        costs.push(module.step.iter().flat_map(|c| of_call(c.func)).collect());
    }
    let plan = assembler.finish()?;
    let egraph = funcs.iter().map(FuncState::dump).collect();
    let stats = funcs.into_iter().map(|f| f.stats).collect();
    Ok(Compiled { plan, explain, egraph, costs, stats })
}

/// A function on its way through the passes.
struct FuncState<'a> {
    func: &'a Func,
    graph: Graph,
    roots: Vec<egg::Id>,
    results: usize,
    matrices: Option<Matrices>,
    stats: FuncStats,
}

impl<'a> FuncState<'a> {
    fn new(module: &Module, index: usize, func: &'a Func, opts: &Options) -> Result<FuncState<'a>, PassError> {
        let may_change = opts.weights.is_quantized() || opts.weights == Format::F32;
        let Converted { graph, params: _, roots, results, read_often } = convert(func, may_change)?;
        let (mut graph, iterations) = rules::saturate(graph);
        let saturated = graph.total_number_of_nodes();
        let embed = weights::embed_formats(module, index, opts);
        implement::implement(&mut graph, opts, &|i| embed.get(i).copied().unwrap_or(opts.weights), &read_often);
        let nodes = graph.total_number_of_nodes();
        let stats = FuncStats { func: func.name.clone(), saturated, iterations, nodes, candidates: 0 };
        Ok(FuncState { func, graph, roots, results, matrices: None, stats })
    }

    fn regime(&mut self, index: usize, r: &RegimeSpec, opts: &Options, explain: &mut Vec<Choice>) -> Result<FuncSchedule, PassError> {
        let problem = Problem::new(&self.graph, &self.roots, opts.target, r.env, self.matrices.as_ref());
        let solved = problem.solve(&BTreeSet::new())?;
        if self.matrices.is_none() {
            self.matrices = Some(used_matrices(&self.graph, &problem, &solved));
            self.stats.candidates = problem.size();
        }
        let schedule = schedule::schedule(&self.graph, self.func, &problem, &solved, &self.roots[..self.results])?;
        explain.extend(explain::explain(&self.func.name, index, &problem, &solved, &schedule)?);
        Ok(schedule)
    }

    fn dump(&self) -> String {
        let mut out = format!("func {} ({} nodes)\n", self.func.name, self.stats.nodes);
        let mut classes: Vec<_> = self.graph.classes().collect();
        classes.sort_by_key(|c| c.id);
        for c in classes {
            let ty = c.data.ty.as_ref().map_or(String::new(), |t| format!(": {t}"));
            out.push_str(&format!("  {}{ty}\n", c.id));
            let mut nodes: Vec<_> = c.nodes.iter().collect();
            nodes.sort();
            for n in nodes {
                let children: Vec<String> = egg::Language::children(n).iter().map(|i| i.to_string()).collect();
                out.push_str(&format!("    {n}({})\n", children.join(" ")));
            }
        }
        out
    }
}

/// Matrices that the chosen kernels read.
fn used_matrices(g: &Graph, problem: &Problem, solved: &Solved) -> Matrices {
    let mut out = Matrices::new();
    for (class, i) in &solved.chosen {
        let c = &problem.classes[class][*i];
        if let How::Kernel(kernel) = &c.how {
            out.extend(extract::matrices(g, kernel, &c.children));
        }
    }
    out
}
