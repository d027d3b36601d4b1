//! Heavy hitters (H2O, Zhang et al. 2023, arXiv 2306.14048): tokens with the largest sums of weights stay, and the last
//! ones. Each KV head keeps its own.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET, RECENT};
use llmcc_ir::graph::{Criterion, Eviction};

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
    scored::apply(model, given, Eviction { recent, ..Eviction::new(Criterion::Sum, budget) })
}
