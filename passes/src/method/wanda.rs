//! Wanda: pruning of the weights that matter least for their row's products, each taken by itself.

use super::job::Needs;
use super::pruner::Pruner;

/// The weights of least `|w|·‖x‖` of a row become zero, `‖x‖` being the norm of a column's inputs.
pub(super) const WANDA: Pruner = Pruner {
    name: "wanda",
    about: "the weights of each row whose products with typical inputs are smallest",
    source: "Sun et al. 2023, arXiv 2306.11695",
    needs: Needs::Squares,
    prepare: None,
    by_rows: false,
    rows: |dense| dense.without_least(|w, importance| w * w * importance),
};
