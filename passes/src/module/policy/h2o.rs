//! Heavy hitters (H2O, Zhang et al. 2023, arXiv 2306.14048): tokens with the largest sums of weights stay, and the last
//! ones. Each KV head keeps its own.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET, RECENT};
use llmcc_ir::graph::{Criterion, Eviction, F32};

/// See the file's text.
pub(super) const H2O: Policy = Policy {
    name: "h2o",
    about: "the last tokens, and those with the largest sums of weights",
    source: "H2O, Zhang et al. 2023, arXiv 2306.14048",
    settings: &[BUDGET, RECENT, LAYERS],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let (budget, recent) = (given.count("budget", Eviction::MOST)?, given.count("recent", Eviction::MOST)?);
    let (criterion, level) = (Criterion::Sum, F32::new(0.0));
    let of = Eviction { criterion, budget, recent, drop: 1, window: 1, level, together: false };
    scored::apply(model, given, of)
}
