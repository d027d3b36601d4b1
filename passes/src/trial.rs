//! Parts of a compilation that are left out, or planted, to find the one behind a difference
//! ([`bisect`](crate::bisect)). Nothing else uses them.

use crate::rules::Rule;
use llmcc_ir::plan::WeightExpr;
use std::collections::BTreeSet;
use std::fmt;

/// Changes of a compilation.
#[derive(Clone, Default)]
pub struct Trial {
    /// Names of [rules](crate::rules) and of [phases](crate::implement::PHASES) that are not applied.
    pub without: BTreeSet<String>,
    /// Weights of the module that are stored in f32.
    pub plain: BTreeSet<usize>,
    /// Rules beside the table's own: faulty ones, for tests.
    pub planted: &'static [Rule],
}

impl Trial {
    /// Whether a rule or phase is not applied.
    pub fn leaves_out(&self, name: &str) -> bool {
        self.without.contains(name)
    }

    /// The planted rules that are applied.
    pub fn planted(&self) -> impl Iterator<Item = &'static Rule> + '_ {
        self.planted.iter().filter(|rule| !self.leaves_out(rule.name))
    }

    /// Whether one of these is computed from a weight that is stored in f32.
    pub fn stores_plain(&self, weights: &BTreeSet<WeightExpr>) -> bool {
        let mut any = false;
        weights.iter().for_each(|w| w.leaves(&mut |i| any |= self.plain.contains(&i)));
        any
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let planted: Vec<&str> = self.planted.iter().map(|rule| rule.name).collect();
        f.debug_struct("Trial")
            .field("without", &self.without)
            .field("plain", &self.plain)
            .field("planted", &planted)
            .finish()
    }
}
