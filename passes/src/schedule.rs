//! From chosen terms to launches: the order of a function's kernels, and their operands.

use crate::PassError;
use crate::egraph::{Graph, Term, store_of};
use crate::extract::{How, Problem, Solved};
use crate::spec::Output;
use crate::weights::WeightTerms;
use egg::Id;
use llmcc_ir::graph::Func;
use llmcc_ir::kernel::{Kernel, ParamKind};
use llmcc_ir::plan::{Storage, WeightExpr};
use petgraph::algo::toposort;
use petgraph::graph::DiGraph;
use std::collections::{BTreeMap, BTreeSet};

/// The argument of a launch for an operand of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Rows bound to a parameter.
    Param(usize),
    /// Output `.1` of launch `.0`.
    Result(usize, usize),
    /// State bound to a parameter.
    State(usize),
    /// A weight, over the function's parameters.
    Weight(WeightExpr, Storage),
}

/// One launch of a function.
#[derive(Clone, Debug)]
pub struct Step {
    /// The kernel, not yet named.
    pub kernel: Kernel,
    /// Its inputs; the operands after them are the launch's outputs.
    pub inputs: Vec<Source>,
    /// Predicted seconds.
    pub seconds: f64,
    /// Class and candidate in the extraction problem, for explanations.
    pub origin: (Id, usize),
}

/// The launches of a function in one regime.
#[derive(Clone, Debug)]
pub struct FuncSchedule {
    /// In order.
    pub steps: Vec<Step>,
    /// Where the function's results are.
    pub results: Vec<Source>,
}

/// Orders the chosen kernels of a function and resolves their operands.
///
/// # Errors
/// A value that cannot be an operand (a compiler bug, or an input of the function used as a result
/// in a way no kernel can serve).
pub fn schedule(
    g: &Graph,
    func: &Func,
    problem: &Problem,
    solved: &Solved,
    results: &[Id],
) -> Result<FuncSchedule, PassError> {
    let order = order(problem, solved);
    let position: BTreeMap<Id, usize> = order.iter().enumerate().map(|(i, c)| (*c, i)).collect();
    let terms = WeightTerms::new(g);
    let cx = Resolver { g, func, problem, solved, position: &position, terms: &terms };
    let steps: Result<Vec<Step>, PassError> = order.iter().filter_map(|class| cx.step(*class).transpose()).collect();
    let results: Result<Vec<Source>, PassError> = results.iter().map(|r| cx.value(*r)).collect();
    Ok(FuncSchedule { steps: steps?, results: results? })
}

/// Classes that hold a chosen kernel, each after the classes it needs.
fn order(problem: &Problem, solved: &Solved) -> Vec<Id> {
    let mut graph: DiGraph<Id, ()> = DiGraph::new();
    // Nodes are added from the roots in reverse depth-first order, so that the order follows the
    // function.
    let mut nodes = BTreeMap::new();
    let mut visited = vec![];
    for root in &problem.roots {
        post_order(problem, solved, *root, &mut visited);
    }
    for class in &visited {
        nodes.insert(*class, graph.add_node(*class));
    }
    for class in &visited {
        for need in &problem.classes[class][solved.chosen[class]].needs {
            graph.add_edge(nodes[need], nodes[class], ());
        }
    }
    let sorted = toposort(&graph, None).unwrap_or_default();
    let is_kernel = |c: &Id| matches!(problem.classes[c][solved.chosen[c]].how, How::Kernel(_));
    sorted.into_iter().map(|n| graph[n]).filter(is_kernel).collect()
}

fn post_order(p: &Problem, s: &Solved, at: Id, visited: &mut Vec<Id>) {
    if visited.contains(&at) {
        return;
    }
    for need in &p.classes[&at][s.chosen[&at]].needs {
        post_order(p, s, *need, visited);
    }
    if !visited.contains(&at) {
        visited.push(at);
    }
}

struct Resolver<'a> {
    g: &'a Graph,
    func: &'a Func,
    problem: &'a Problem,
    solved: &'a Solved,
    position: &'a BTreeMap<Id, usize>,
    terms: &'a WeightTerms,
}

impl Resolver<'_> {
    fn step(&self, class: Id) -> Result<Option<Step>, PassError> {
        let index = self.solved.chosen[&class];
        let candidate = &self.problem.classes[&class][index];
        let How::Kernel(kernel) = &candidate.how else { return Ok(None) };
        let kinds = kernel.params.iter().map(|p| &p.kind);
        let inputs: Result<Vec<Source>, PassError> =
            kinds.zip(&candidate.children).map(|(k, c)| self.operand(k, *c)).collect();
        Ok(Some(Step {
            kernel: (**kernel).clone(),
            inputs: inputs?,
            seconds: candidate.seconds,
            origin: (class, index),
        }))
    }

    fn operand(&self, kind: &ParamKind, class: Id) -> Result<Source, PassError> {
        let storage = match *kind {
            ParamKind::Rows { .. } => return self.value(class),
            ParamKind::State(_) => return self.state(class),
            ParamKind::Matrix { n, k, format } => Storage::Matrix { n, k, format },
            ParamKind::Vector { len } => Storage::Vector { len },
        };
        let class = store_of(self.g, class).map_or(class, |(_, _, of)| of);
        let expr = self.terms.get(self.g, class).ok_or_else(|| self.bug("a weight has no expression"))?;
        Ok(Source::Weight(expr.clone(), storage))
    }

    /// Where the rows of a class are.
    fn value(&self, class: Id) -> Result<Source, PassError> {
        let class = self.g.find(class);
        if let Some(i) = self.param(class) {
            return Ok(Source::Param(i));
        }
        let index = self.solved.chosen.get(&class).ok_or_else(|| self.bug("a value is not computed"))?;
        let candidate = &self.problem.classes[&class][*index];
        let (kernel_class, result) = match candidate.how {
            How::Kernel(_) => (class, 0),
            How::Proj(i) => (candidate.children[0], i),
            How::Stored => return Err(self.bug("a state is used as rows")),
        };
        let launch = self.position.get(&kernel_class).ok_or_else(|| self.bug("a kernel is not scheduled"))?;
        Ok(Source::Result(*launch, result))
    }

    /// The parameter that holds the state of a class.
    fn state(&self, class: Id) -> Result<Source, PassError> {
        state_param(self.g, class).map(Source::State).ok_or_else(|| self.bug("a state has no origin"))
    }

    fn param(&self, class: Id) -> Option<usize> {
        param(self.g, class)
    }

    fn bug(&self, what: &str) -> PassError {
        PassError::Schedule { func: self.func.name.clone(), what: what.to_string() }
    }
}

fn param(g: &Graph, class: Id) -> Option<usize> {
    g[class].nodes.iter().filter_map(|t| if let Term::Param(i) = t { Some(*i as usize) } else { None }).min()
}

/// The parameter that an attention state, however often updated and however cached, was before.
pub fn state_param(g: &Graph, class: Id) -> Option<usize> {
    let mut at = g.find(class);
    let mut seen = BTreeSet::new();
    while seen.insert(at) {
        if let Some(i) = param(g, at) {
            return Some(i);
        }
        let before = g[at].nodes.iter().find_map(|t| match t {
            Term::Op(..) => {
                let (head, _, operands) = t.operation()?;
                operands.get(head.facts().replaces()?).copied()
            }
            Term::Store(_, _, [of]) => Some(*of),
            Term::Param(_)
            | Term::Int(_)
            | Term::Float(_)
            | Term::Attr(_)
            | Term::Quant(_)
            | Term::Kernel(..)
            | Term::Proj(..) => None,
        });
        at = g.find(before?);
    }
    None
}

/// Outputs of a scheduled kernel: operands that are matrices of rows after the inputs.
pub fn output_params(step: &Step) -> Vec<usize> {
    let spec = crate::spec::Spec { kernel: step.kernel.clone(), inputs: step.inputs.len() };
    let rows = |o: Output| if let Output::Rows(p) = o { Some(p) } else { None };
    spec.outputs().into_iter().filter_map(rows).collect()
}
