//! From a function to its e-graph, and from classes of weights to weight expressions.

use super::{Facts, Graph, Term, provenance};
use crate::PassError;
use egg::Id;
use llmcc_ir::graph::{Func, Op};

/// A function in its e-graph.
pub struct Converted {
    /// The e-graph.
    pub graph: Graph,
    /// Classes that must be computed: the results, then the updated attention states.
    pub roots: Vec<Id>,
    /// How many of `roots` are results.
    pub results: usize,
    /// The class of each value of the function.
    pub values: Vec<Id>,
}

/// Adds all operations of `func` to a new e-graph. `may_change_weights`: see [`Facts`].
///
/// # Errors
/// A function that refers to undefined values or breaks typing.
pub fn convert(func: &Func, may_change_weights: bool) -> Result<Converted, PassError> {
    let mut graph = Graph::new(Facts::new(func, may_change_weights));
    let mut ids: Vec<Id> = (0..func.params.len()).map(|i| graph.add(Term::Param(i as u32))).collect();
    let mut states = vec![];
    for node in &func.nodes {
        let args: Option<Vec<Id>> = node.args.iter().map(|v| ids.get(v.0 as usize).copied()).collect();
        let args =
            args.ok_or_else(|| PassError::invalid(func, format!("`{}` reads an undefined value", node.op.name())))?;
        let id = add_op(&mut graph, &node.op, &args);
        if graph[id].data.ty.as_ref() != Some(&node.ty) {
            return Err(PassError::invalid(
                func,
                format!("`{}` is not of its declared type {}", node.op.name(), node.ty),
            ));
        }
        if node.op.facts().replaces().is_some() {
            states.push(id);
        }
        ids.push(id);
    }
    let mut roots: Vec<Id> = vec![];
    for v in &func.results {
        roots.push(*ids.get(v.0 as usize).ok_or_else(|| PassError::invalid(func, "a result is undefined".into()))?);
    }
    let results = roots.len();
    roots.extend(states);
    provenance::note(&mut graph, "model");
    graph.rebuild();
    Ok(Converted { graph, roots, results, values: ids })
}

/// Adds one operation; operations of any number of operands nest to the right.
fn add_op(g: &mut Graph, op: &Op, args: &[Id]) -> Id {
    if let Op::Const { value } = op {
        return g.add(Term::Float(*value));
    }
    let attrs: Vec<Id> = op.attributes().into_iter().map(|(_, value)| g.add(Term::attribute(value))).collect();
    let mut add = |operands: &[Id]| g.add(Term::Op(op.head(), [&attrs, operands].concat().into()));
    match args.split_last() {
        Some((last, rest)) if op.facts().variadic => rest.iter().rev().fold(*last, |tail, x| add(&[*x, tail])),
        _ => add(args),
    }
}
