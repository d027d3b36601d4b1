//! A compiled module, and what is told of how it came to be.

use crate::damage::Offer;
use crate::measure::Measured;
use llmcc_ir::plan::{Plan, WeightExpr};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

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
    /// The fastest other program within the budget: what it stores otherwise. Empty when there is
    /// none.
    pub runner_up: String,
    /// Seconds of a decoded token by which that is slower.
    pub gap: f64,
}

/// Sizes of the work done for one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FuncStats {
    /// Function.
    pub func: String,
    /// E-nodes after saturation.
    pub saturated: usize,
    /// Rewrite iterations.
    pub iterations: usize,
    /// How often each rewrite was applied, those that never were left out.
    pub applied: BTreeMap<String, usize>,
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
    /// One entry per kernel, function and regime, if [`Explain::alternatives`](crate::Explain::alternatives) asks for them.
    pub explain: Vec<Choice>,
    /// Dump of the e-graphs, if [`Explain::egraph`](crate::Explain::egraph) asks for it.
    pub egraph: String,
    /// The same as a graph, in DOT.
    pub egraph_dot: String,
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
    /// Predicted damage of the forms taken, where [`Options::damage`](crate::Options::damage) bounds it and there was a
    /// choice.
    pub damage: Option<f64>,
    /// Everything that could have been chosen for matrices, where there was a choice.
    pub offers: Vec<Offer>,
    /// Errors of weights in all formats that they may have, where there was a choice.
    pub measured: Measured,
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
