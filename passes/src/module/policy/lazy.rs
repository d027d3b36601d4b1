//! Recurring importance (LazyEviction, Zhang et al. 2025, arXiv 2506.15969): tokens leave that have not been important
//! for longer than they ever were between two times before. `window` tokens leave at once, and the last `window` stay.
//!
//! A token is important to a query that gives it a weight of at least `threshold`. The score is the sum of the paper's
//! two terms, by the time since then and by the longest time between two such queries.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET};
use llmcc_ir::graph::{Criterion, Eviction, F32};

/// See the file's text.
pub(super) const LAZY: Policy = Policy {
    name: "lazy",
    about: "the last tokens, and those whose importance recurs",
    source: "LazyEviction, Zhang et al. 2025, arXiv 2506.15969",
    settings: &[
        BUDGET,
        ("window", "tokens that leave at once, and last ones that stay"),
        ("threshold", "weight of an important token, 0 to 1"),
        LAYERS,
    ],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let (budget, window) = (given.count("budget", Eviction::MOST)?, given.count("window", Eviction::MOST)?);
    let level = F32::new(given.share("threshold")? as f32);
    let of = Eviction { recent: window, drop: window, window, level, ..Eviction::new(Criterion::Recurrence, budget) };
    scored::apply(model, given, of)
}
