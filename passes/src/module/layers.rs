//! Matrices of a model's layers: those that multiply a row for each token.

use super::scales::bound;
use llmcc_ir::graph::{Call, Func, Module, Node, Reads};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::ty::Dim;
use std::collections::BTreeSet;

/// Weights of a module that are matrices of its layers.
pub struct LayerMatrices(BTreeSet<usize>);

impl LayerMatrices {
    /// The matrices by which each token's row is multiplied. Neither tables whose rows are looked up are among them,
    /// nor matrices that are multiplied by rows that a caller asks for, which make logits or scores.
    pub fn of(module: &Module) -> LayerMatrices {
        let (mut layers, mut others) = (BTreeSet::new(), BTreeSet::new());
        for call in module.calls() {
            let Some(f) = module.funcs.get(call.func) else { continue };
            for node in &f.nodes {
                read(module, (f, call), node, &mut layers, &mut others);
            }
        }
        LayerMatrices(layers.difference(&others).copied().collect())
    }

    /// Whether a weight is computed from a matrix of a layer, and from no other matrix.
    pub fn have(&self, e: &WeightExpr, module: &Module) -> bool {
        let (mut some, mut all) = (false, true);
        e.leaves(&mut |i| {
            some |= self.0.contains(&i);
            all &= self.0.contains(&i) || !is_matrix(module, i);
        });
        some && all
    }
}

/// Adds the matrices that an operation of a call reads: to `layers` where its result has a row for each token, to
/// `others` where it has not, or only looks rows up.
fn read(
    module: &Module,
    (f, call): (&Func, &Call),
    node: &Node,
    layers: &mut BTreeSet<usize>,
    others: &mut BTreeSet<usize>,
) {
    let by_token = node.ty.tensor().is_some_and(|t| t.shape.first() == Some(&Dim::Tokens));
    for (arg, (_, reads)) in node.args.iter().zip(node.op.facts().each_arg()) {
        if !matches!(reads, Reads::Matrix | Reads::Table) {
            continue;
        }
        let to = if reads == Reads::Matrix && by_token { &mut *layers } else { &mut *others };
        if let Some(e) = bound(f, call, *arg) {
            e.leaves(&mut |i| _ = is_matrix(module, i) && to.insert(i));
        }
    }
}

/// Whether a weight of a module is a matrix, or several.
fn is_matrix(module: &Module, i: usize) -> bool {
    module.weights.get(i).is_some_and(|w| w.ty.shape.len() > 1)
}
