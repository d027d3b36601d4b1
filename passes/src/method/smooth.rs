//! SmoothQuant: columns whose inputs have outliers are multiplied, so that inputs divided by the same round well.
//!
//! Xiao et al. 2022, arXiv 2211.10438, equation 4: `s = max|x|^α / max|w|^(1−α)` by column, with α = 1/2.

use super::job::{Columns, Method, Moves, Needs};
use super::plain::LEAST_SQUARES;

/// Scales of SmoothQuant, then least squares.
pub(super) const SMOOTHQUANT: Method = Method {
    name: "smoothquant",
    about: "the range of inputs moved by half into columns, for int8 activations, then least squares",
    source: "Xiao et al. 2022, arXiv 2211.10438",
    needs: Needs::Squares,
    moves: Some(Moves { candidates, then: &LEAST_SQUARES, ranges: true }),
    prepare: None,
    rows: LEAST_SQUARES.rows,
};

/// The part of the range that moves.
const ALPHA: f64 = 0.5;
/// The least range of weights, and the least scale, as in the authors' code.
const LEAST: f64 = 1e-5;

fn candidates(columns: &Columns) -> Vec<Vec<f64>> {
    let scale = |(x, w): (&f64, &f64)| (x.powf(ALPHA) / w.max(LEAST).powf(1.0 - ALPHA)).max(LEAST);
    vec![columns.largest.iter().zip(&columns.weights).map(scale).collect()]
}
