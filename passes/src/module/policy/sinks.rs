//! Sinks and a window (StreamingLLM, Xiao et al. 2023, arXiv 2309.17453): of a sequence the first tokens stay, and the
//! last ones.
//!
//! Positions are places in the cache: a token sees the `window` last tokens at their distances, and the first tokens
//! as if they stood before the window. So angles belong to `first + window` positions, however long the text. Keys in
//! the window keep the angles of their positions, since distances alone count; the queries of the first tokens have
//! the angles of the last place.
//!
//! While nothing has left the window, no token sees the state of the first tokens, so results equal the whole cache's.

use super::caches::fixed;
use super::given::{Given, LAYERS, Policy};
use super::kept::{Kept, Part};
use super::model::{Applied, Chosen, Model};
use super::work;

/// See the file's text.
pub(super) const SINKS: Policy = Policy {
    name: "sinks",
    about: "the first tokens and the last ones, at their places in the cache",
    source: "StreamingLLM, Xiao et al. 2023, arXiv 2309.17453",
    settings: &[("first", "first tokens that stay"), ("window", "last tokens that stay"), LAYERS],
    files: &[],
    apply,
};

fn apply(model: &mut Model<'_>, given: &Given) -> Result<Applied, String> {
    let kept = Kept { first: given.count("first", 1 << 20)?, window: given.count("window", 1 << 30)?, places: true };
    let Chosen { states, applied } =
        model.chosen(&given.layers()?, |m, state| fixed(m, state, kept.first + kept.window))?;
    let parts = states.into_iter().map(|(_, state)| (state, Part::All)).collect();
    work::apply(model.module, kept, parts).map_err(|mistake| mistake.to_string())?;
    Ok(applied)
}
