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
use egg::{Rewrite, Runner, SimpleScheduler};
use rule::always;
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

/// Applies all rules until nothing changes or a limit is reached; returns the iterations. Limits
/// count nodes and iterations, never time.
pub fn saturate(graph: Graph) -> (Graph, usize) {
    run(graph, all(), MAX_ITERATIONS)
}

fn run(graph: Graph, rules: impl Iterator<Item = &'static Rule>, iterations: usize) -> (Graph, usize) {
    let rewrites: Vec<Rewrite<Term, crate::egraph::Facts>> = rules.filter_map(Rule::rewrite).collect();
    let facts = graph.analysis.clone();
    let runner = Runner::<Term, crate::egraph::Facts, ()>::new(facts)
        .with_egraph(graph)
        .with_scheduler(SimpleScheduler)
        .with_iter_limit(iterations)
        .with_node_limit(MAX_NODES)
        .with_time_limit(Duration::from_secs(1 << 30))
        .run(&rewrites);
    (runner.egraph, runner.iterations.len())
}
