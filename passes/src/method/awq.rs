//! AWQ: columns that meet large inputs are multiplied before they are rounded, and their inputs divided.
//!
//! Lin et al. 2023, arXiv 2306.00978: `s = x^α`, `x` being the size of a column's inputs, normalized by
//! `√(max s · min s)`; of 20 exponents from 0 on, the one with the least squared error of the products. The paper's
//! size is the mean magnitude; moments have root mean squares. Scales of 1 are among the candidates.

use super::clip::CLIP;
use super::gptq::GPTQ;
use super::job::{Columns, Method, Moves, Needs};
use super::plain::LEAST_SQUARES;

/// Scales by AWQ, then least squares.
pub(super) const AWQ: Method = Method {
    name: "awq",
    about: "columns of large inputs multiplied by scales that the inputs are divided by, then least squares",
    source: "Lin et al. 2023, arXiv 2306.00978",
    needs: Needs::Products,
    moves: Some(Moves { candidates, then: &LEAST_SQUARES, ranges: false }),
    prepare: None,
    rows: LEAST_SQUARES.rows,
};

/// Scales by AWQ, then GPTQ.
pub(super) const AWQ_GPTQ: Method = Method {
    name: "awq+gptq",
    about: "scales as by awq, then gptq",
    source: "Lin et al. 2023, arXiv 2306.00978; Frantar et al. 2022, arXiv 2210.17323",
    needs: Needs::Products,
    moves: Some(Moves { candidates, then: &GPTQ, ranges: false }),
    prepare: None,
    rows: GPTQ.rows,
};

/// Scales by AWQ, then clipping: the two steps of the authors' code.
pub(super) const AWQ_CLIP: Method = Method {
    name: "awq+clip",
    about: "scales as by awq, then clip",
    source: "Lin et al. 2023, arXiv 2306.00978",
    needs: Needs::Products,
    moves: Some(Moves { candidates, then: &CLIP, ranges: false }),
    prepare: None,
    rows: CLIP.rows,
};

/// Exponents that are tried.
const GRID: usize = 20;
/// The least scale before they are normalized, as in the authors' code.
const LEAST: f64 = 1e-4;

fn candidates(columns: &Columns) -> Vec<Vec<f64>> {
    (0..GRID).map(|i| scales(&columns.rms, i as f64 / GRID as f64)).collect()
}

/// The scales of an exponent.
fn scales(sizes: &[f64], exponent: f64) -> Vec<f64> {
    let mut s: Vec<f64> = sizes.iter().map(|x| x.powf(exponent).max(LEAST)).collect();
    let (least, most) = s.iter().fold((f64::INFINITY, 0f64), |(l, m), v| (l.min(*v), m.max(*v)));
    let by = (least * most).sqrt();
    s.iter_mut().for_each(|v| *v /= by);
    s
}
