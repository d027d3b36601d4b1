//! Persistence of importance (Scissorhands, Liu et al. 2023, arXiv 2305.17118): tokens leave whose weights were most
//! often below the mean in the last queries, several at once; the last tokens stay.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET, DROP, RECENT};
use llmcc_ir::graph::{Criterion, Eviction};

/// See the file's text.
pub(super) const SCISSORHANDS: Policy = Policy {
    name: "scissorhands",
    about: "the last tokens, and those whose weights were seldom below the mean in the last queries",
    source: "Scissorhands, Liu et al. 2023, arXiv 2305.17118",
    settings: &[BUDGET, RECENT, DROP, ("window", "last queries that count, at most as many as leave at once"), LAYERS],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let count = |key| given.count(key, Eviction::MOST);
    let (budget, recent, drop, window) = (count("budget")?, count("recent")?, count("drop")?, count("window")?);
    scored::apply(model, given, Eviction { recent, drop, window, ..Eviction::new(Criterion::Rare, budget) })
}
