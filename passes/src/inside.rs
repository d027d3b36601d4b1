//! Weights that an artifact has: the only ones that may be stored where a module is compiled again without its
//! checkpoint.
//!
//! Rewrites join matrices, slice them and fold gains into them; the form of a packed matrix is that of its codes. So
//! without the checkpoint a plan may have the weights that are inside, and those that are computed from weights that
//! lost nothing when they were packed.

use crate::measure::Measured;
use llmcc_ir::graph::Module;
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::Format;
use std::collections::BTreeSet;

/// The weights of an artifact.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// Matrices by format, as the target orders it, with the errors of storing them so.
    pub matrices: Measured,
    /// Weights of the module whose values are all known.
    pub whole: BTreeSet<usize>,
}

impl Inside {
    /// Whether a matrix can be had in a format: as it is inside, or by rounding what is known to floats.
    pub fn has(&self, expr: &WeightExpr, format: Format, module: &Module) -> bool {
        let stored = self.matrices.get(expr).is_some_and(|forms| forms.contains_key(&format));
        stored || !format.is_quantized() && self.knows(expr, module)
    }

    /// Whether every value that an expression is computed from is known.
    pub fn knows(&self, expr: &WeightExpr, module: &Module) -> bool {
        let mut all = true;
        let computed = |i: usize| module.weights.get(i).is_some_and(|w| w.data.is_some());
        expr.leaves(&mut |i| all &= self.whole.contains(&i) || computed(i));
        all
    }

    /// The formats that all of these weights have.
    pub fn forms<'a>(&self, weights: impl IntoIterator<Item = &'a WeightExpr>) -> Vec<Format> {
        let mut all: Option<BTreeSet<Format>> = None;
        for w in weights {
            let own: BTreeSet<Format> = self.matrices.get(w).into_iter().flat_map(|f| f.keys().copied()).collect();
            all = Some(all.map_or_else(|| own.clone(), |all| all.intersection(&own).copied().collect()));
        }
        all.into_iter().flatten().collect()
    }
}
