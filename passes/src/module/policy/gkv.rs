//! Global scores (G-KV, Liao et al. 2025, arXiv 2512.00504): tokens leave with the lowest weights in a window of last
//! queries, or `decay` times their score at earlier times where that is larger. The tokens of the window stay.

use super::given::{Given, LAYERS, Policy};
use super::model::{Applied, Model};
use super::scored::{self, BUDGET, DROP};
use llmcc_ir::graph::{Criterion, Eviction, F32};

/// See the file's text.
pub(super) const GKV: Policy = Policy {
    name: "gkv",
    about: "the last tokens, and those with the largest weights in the last queries or, decaying, before",
    source: "G-KV, Liao et al. 2025, arXiv 2512.00504",
    settings: &[
        BUDGET,
        DROP,
        ("window", "last queries that count, whose tokens stay: at most as many as leave at once"),
        ("decay", "factor of earlier scores, 0 to 1"),
        LAYERS,
    ],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let count = |key| given.count(key, Eviction::MOST);
    let (budget, drop, window) = (count("budget")?, count("drop")?, count("window")?);
    let level = F32::new(given.share("decay")? as f32);
    let of = Eviction { recent: window, drop, window, level, ..Eviction::new(Criterion::Peak, budget) };
    scored::apply(model, given, of)
}
