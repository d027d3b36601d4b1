//! Pruning of the smallest weights.

use super::job::Needs;
use super::pruner::Pruner;

/// The weights of least magnitude of a row become zero.
pub(super) const MAGNITUDE: Pruner = Pruner {
    name: "magnitude",
    about: "the weights of least magnitude of each row",
    source: "Han et al. 2015, arXiv 1506.02626, by row",
    needs: Needs::Nothing,
    prepare: None,
    by_rows: false,
    rows: |dense| dense.without_least(|w, _| w.abs()),
};
