//! Dividing values by scales, and multiplying the columns that read them: the module computes the same.

use super::scales::{Group, Operand, Part};
use llmcc_ir::graph::{Arg, BinaryOp};
use llmcc_ir::graph::{Call, Func, FuncBuilder, Mistake, Module, Op, Role, Value, Weight};
use llmcc_ir::ty::{DType, TensorType};
use std::collections::BTreeMap;

/// A vector that a function gets as a weight: scales of a group, or their inverses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vector {
    /// Index of the group.
    group: usize,
    inverse: bool,
    /// The scale of each element.
    scales: Vec<usize>,
}

/// Changes a weight that an operation reads.
struct Edit {
    part: Part,
    /// Index of the function's vector.
    vector: usize,
}

/// Weights by a function's vector and the weights that a call binds: calls that bind the same ones share vectors.
type Made = BTreeMap<(usize, Vec<usize>), usize>;

/// Edits by operation and argument.
type Edits = BTreeMap<(usize, usize), Vec<Edit>>;

/// Multiplies the columns of each group's matrices by the scales that a call has for it, and divides the value. A call
/// without scales has ones. Scales are above 0 and finite, as are their inverses.
///
/// # Errors
/// The first operation that is not well typed, which is a bug of the compiler.
pub fn apply(
    module: &mut Module,
    groups: &[Group],
    scales: &dyn Fn(usize, &Call) -> Option<Vec<f32>>,
) -> Result<(), Mistake> {
    let mut made = Made::new();
    for func in 0..module.funcs.len() {
        let (vectors, edits) = planned(groups, func);
        if vectors.is_empty() {
            continue;
        }
        let rebuilt = rebuilt(&module.funcs[func], &vectors, &edits)?;
        let Module { weights, entries, .. } = module;
        for call in entries.iter_mut().flat_map(|e| &mut e.calls).filter(|c| c.func == func) {
            let known: BTreeMap<usize, Option<Vec<f32>>> =
                vectors.iter().map(|v| (v.group, scales(v.group, call))).collect();
            let weight_of = |arg: &Arg| if let Arg::Weight(w) = arg { Some(*w) } else { None };
            let bound: Vec<usize> = call.args.iter().filter_map(weight_of).collect();
            for (at, vector) in vectors.iter().enumerate() {
                let own = known.get(&vector.group).and_then(Option::as_deref);
                let made = made.entry((at, bound.clone()));
                call.args.push(Arg::Weight(*made.or_insert_with(|| add(weights, vector.values(own)))));
            }
        }
        module.funcs[func] = rebuilt;
    }
    Ok(())
}

impl Vector {
    fn values(&self, scales: Option<&[f32]>) -> Vec<f32> {
        let of = |at: &usize| scales.and_then(|s| s.get(*at)).map_or(1.0, |s| if self.inverse { 1.0 / s } else { *s });
        self.scales.iter().map(of).collect()
    }
}

/// Adds a weight with these values.
fn add(weights: &mut Vec<Weight>, values: Vec<f32>) -> usize {
    let ty = TensorType::new(DType::F32, [values.len().into()]);
    let name = format!("$scale.{}", weights.iter().filter(|w| w.name.starts_with("$scale.")).count());
    weights.push(Weight { name, ty, data: Some(values) });
    weights.len() - 1
}

/// The vectors of a function, and where they are used.
fn planned(groups: &[Group], func: usize) -> (Vec<Vector>, Edits) {
    let (mut vectors, mut edits) = (vec![], Edits::new());
    for (group, of) in groups.iter().enumerate().filter(|(_, g)| g.func == func) {
        for Operand { node, arg, part, scales, .. } in of.readers.iter().chain(&of.producers) {
            let vector = Vector { group, inverse: *part != Part::Columns, scales: scales.clone() };
            let known = vectors.iter().position(|v| *v == vector);
            let at = known.unwrap_or_else(|| {
                vectors.push(vector);
                vectors.len() - 1
            });
            edits.entry((*node, *arg)).or_default().push(Edit { part: *part, vector: at });
        }
    }
    (vectors, edits)
}

/// A function with its edits.
fn rebuilt(f: &Func, vectors: &[Vector], edits: &Edits) -> Result<Func, Mistake> {
    let mut b = FuncBuilder::new(&f.name);
    let mut values: Vec<Value> = f.params.iter().map(|p| b.param(&p.name, p.ty.clone(), p.role)).collect();
    let vector = |(at, v): (usize, &Vector)| {
        let mut name = format!("scale.{at}");
        while f.params.iter().any(|p| p.name == name) {
            name.push('x');
        }
        b.param(name, TensorType::new(DType::F32, [v.scales.len().into()]), Role::Weight)
    };
    let vectors: Vec<Value> = vectors.iter().enumerate().map(vector).collect();
    for (at, node) in f.nodes.iter().enumerate() {
        let mut args = vec![];
        for (arg, v) in node.args.iter().enumerate() {
            let of = edits.get(&(at, arg)).into_iter().flatten();
            let changed = of.fold(values[v.0 as usize], |w, edit| {
                let op = match edit.part {
                    Part::Columns => Op::ScaleCols,
                    Part::Rows => Op::ScaleRows,
                    Part::Elements => Op::Binary(BinaryOp::Mul),
                };
                b.op(op, &[w, vectors[edit.vector]])
            });
            args.push(changed);
        }
        values.push(b.op(node.op.clone(), &args));
    }
    let results: Vec<Value> = f.results.iter().map(|v| values[v.0 as usize]).collect();
    b.try_finish(&results)
}
