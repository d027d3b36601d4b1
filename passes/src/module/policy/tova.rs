//! Token omission via attention (TOVA, Oren et al. 2024, arXiv 2401.06104): the token with the least weight in the last
//! query leaves. All heads of a layer keep the same tokens, by the mean of their weights.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET};
use llmcc_ir::graph::{Criterion, Eviction};

/// See the file's text.
pub(super) const TOVA: Policy = Policy {
    name: "tova",
    about: "the tokens with the largest weights in the last query",
    source: "TOVA, Oren et al. 2024, arXiv 2401.06104",
    settings: &[BUDGET, LAYERS],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let budget = given.count("budget", Eviction::MOST)?;
    scored::apply(model, given, Eviction { together: true, ..Eviction::new(Criterion::Last, budget) })
}
