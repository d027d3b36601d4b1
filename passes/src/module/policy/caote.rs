//! Attention output error (CAOTE, Goel et al. 2025, arXiv 2504.14051): the token leaves without which the last query's
//! result would have moved least. The last query's weights count, as in TOVA; each KV head keeps its own tokens.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET, RECENT};
use llmcc_ir::graph::{Criterion, Eviction};

/// See the file's text.
pub(super) const CAOTE: Policy = Policy {
    name: "caote",
    about: "the last tokens, and those that change the last query's result most",
    source: "CAOTE, Goel et al. 2025, arXiv 2504.14051",
    settings: &[BUDGET, RECENT, LAYERS],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let (budget, recent) = (given.count("budget", Eviction::MOST)?, given.count("recent", Eviction::MOST)?);
    scored::apply(model, given, Eviction { recent, ..Eviction::new(Criterion::Shift, budget) })
}
