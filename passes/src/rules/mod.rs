//! Equalities. See `README.md` of this folder.
//!
//! [`THEMES`] is the table: one file per theme, each with its rules. A rule is text on both sides
//! where attributes allow; a right side that computes attributes is a function. Guards keep a rule
//! off matches where it would be false, would round again, or could only make code worse.

mod activation;
mod attention;
mod columns;
mod constant;
mod gather;
mod rule;
mod scale;
mod slice;
mod transpose;

#[cfg(test)]
mod tests;

use crate::egraph::{Graph, Term};
use crate::trial::Trial;
use egg::{Rewrite, Runner, SimpleScheduler, StopReason};
use rule::always;
use std::collections::BTreeMap;
use std::time::Duration;

pub use rule::{Builder, Match, Right, Rule, Sample};

/// All rules by theme.
pub const THEMES: &[(&str, &[Rule])] = &[
    ("scale", scale::RULES),
    ("slice", slice::RULES),
    ("transpose", transpose::RULES),
    ("columns", columns::RULES),
    ("gather", gather::RULES),
    ("constant", constant::RULES),
    ("activation", activation::RULES),
    ("attention", attention::RULES),
];

/// Every rule in order.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    THEMES.iter().flat_map(|(_, rules)| rules.iter())
}

/// Iterations of saturation.
const MAX_ITERATIONS: usize = 16;
/// E-nodes of one function.
const MAX_NODES: usize = 20_000;

/// Applies all rules but those that a trial leaves out until nothing changes or a limit is reached. Limits count nodes
/// and iterations, never time.
pub fn saturate(graph: Graph, trial: &Trial) -> Applied {
    let rules = all().filter(|rule| !trial.leaves_out(rule.name));
    applied(runner(graph, rules.chain(trial.planted()), MAX_ITERATIONS))
}

/// An e-graph after some rules.
pub struct Applied {
    /// The e-graph.
    pub graph: Graph,
    /// How often each rule was applied, those that never were left out.
    pub applied: BTreeMap<String, usize>,
    /// Iterations.
    pub iterations: usize,
    /// Whether nothing more could be applied.
    pub saturated: bool,
}

/// Applies some rules within the same limits as [`saturate`].
pub fn apply(graph: Graph, rules: &[&'static Rule]) -> Applied {
    applied(runner(graph, rules.iter().copied(), MAX_ITERATIONS))
}

fn applied(runner: Runner<Term, crate::egraph::Facts, ()>) -> Applied {
    let mut applied = BTreeMap::new();
    for (name, count) in runner.iterations.iter().flat_map(|i| &i.applied) {
        *applied.entry(name.to_string()).or_insert(0) += count;
    }
    let saturated = matches!(runner.stop_reason, Some(StopReason::Saturated));
    Applied { iterations: runner.iterations.len(), graph: runner.egraph, applied, saturated }
}

fn runner(
    graph: Graph,
    rules: impl Iterator<Item = &'static Rule>,
    iterations: usize,
) -> Runner<Term, crate::egraph::Facts, ()> {
    let rewrites: Vec<Rewrite<Term, crate::egraph::Facts>> = rules.filter_map(Rule::rewrite).collect();
    let facts = graph.analysis.clone();
    Runner::<Term, crate::egraph::Facts, ()>::new(facts)
        .with_egraph(graph)
        .with_scheduler(SimpleScheduler)
        .with_iter_limit(iterations)
        .with_node_limit(MAX_NODES)
        .with_time_limit(Duration::from_secs(1 << 30))
        .run(&rewrites)
}
