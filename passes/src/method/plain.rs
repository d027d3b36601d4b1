//! Methods that code each group of columns by itself.

use super::job::{Method, Needs};

/// Scales from the extremes of a group, codes that are nearest.
pub const NEAREST: Method = Method {
    name: "nearest",
    about: "scales from the extremes of each group, and the nearest codes",
    source: "round to nearest",
    needs: Needs::Nothing,
    moves: None,
    prepare: None,
    rows: |job| job.x.chunks_exact(job.k).map(|x| job.fit.own_row(x)).collect(),
};

/// Scales of least squares, weighted by the inputs' mean squares where these are known.
pub const LEAST_SQUARES: Method = Method {
    name: "least-squares",
    about: "scales that make the squared error least, each column weighted by the mean square of its inputs",
    source: "the diagonal of the Hessian, as in the importance matrices of llama.cpp",
    needs: Needs::Squares,
    moves: None,
    prepare: None,
    rows: |job| job.x.chunks_exact(job.k).map(|x| job.fit.row(x, &job.inputs.importance)).collect(),
};
