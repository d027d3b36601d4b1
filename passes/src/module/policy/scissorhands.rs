//! Persistence of importance (Scissorhands, Liu et al. 2023, arXiv 2305.17118): tokens leave whose weights were most
//! often below the mean in the last queries, several at once; the last tokens stay.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET, DROP, RECENT};
use llmcc_ir::graph::{Criterion, Eviction, F32};

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
    let (criterion, level) = (Criterion::Rare, F32::new(0.0));
    let of = Eviction { criterion, budget, recent, drop, window, level, together: false };
    scored::apply(model, given, of)
}
