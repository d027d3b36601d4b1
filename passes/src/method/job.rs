//! Lines of the table of methods, and the rows that they code.

use super::cholesky::Feedback;
use llmcc_ir::quant::CodedRow;
use llmcc_ir::quant::fit::Fit;

/// A line of the table.
#[derive(Debug)]
pub struct Method {
    /// Its name in options and manifests.
    pub name: &'static str,
    /// A sentence about it.
    pub about: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The knowledge of a product's inputs that it uses.
    pub needs: Needs,
    /// Scales that it moves first, between the columns of products and the producers of their inputs.
    pub moves: Option<Moves>,
    /// Prepares means of products of two columns, of methods that read them when they code rows.
    pub(super) prepare: Option<Prepare>,
    /// Codes rows.
    pub(super) rows: fn(&Job<'_>) -> Vec<CodedRow>,
}

/// Adds means of products of two columns, `[columns, columns]`, to other statistics.
pub(super) type Prepare = fn(&Fit, Vec<f64>, Prepared) -> Prepared;

impl Method {
    /// The method that codes rows once scales are moved: itself where it moves none.
    pub(super) fn coding(&'static self) -> &'static Method {
        self.moves.map_or(self, |moves| moves.then)
    }
}

/// Scales that a method moves: the columns of a product are multiplied by them, and the inputs divided.
#[derive(Clone, Copy, Debug)]
pub struct Moves {
    /// Vectors of scales to choose from; of equally good ones the first is taken.
    pub(super) candidates: fn(&Columns) -> Vec<Vec<f64>>,
    /// The method that codes rows afterwards.
    pub(super) then: &'static Method,
    /// Whether they are for inputs that are rounded to int8: candidates read the ranges of inputs and weights.
    pub ranges: bool,
}

/// Statistics of the columns of products that read one input, by scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// Root mean squares of inputs.
    pub rms: Vec<f64>,
    /// Largest magnitudes of inputs; 0 where they are not known.
    pub largest: Vec<f64>,
    /// Largest magnitudes of weights, over all matrices; empty where [`Moves::ranges`] does not ask for them.
    pub weights: Vec<f64>,
}

/// Statistics of the inputs of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// None.
    Nothing,
    /// Mean squares of each column; without them, all columns count alike.
    Squares,
    /// Means of the products of two columns.
    Products,
}

impl PartialEq for Method {
    fn eq(&self, other: &Method) -> bool {
        self.name == other.name
    }
}

/// Rows to be coded, which multiply the same inputs.
pub(super) struct Job<'a> {
    pub fit: &'a Fit,
    /// Rows of `k` columns.
    pub x: &'a [f32],
    pub k: usize,
    pub inputs: &'a Prepared,
    /// Weights that are pruned, where some are: they are zero, and get its code.
    pub zeros: Option<&'a [bool]>,
}

impl<'a> Job<'a> {
    /// Rows that are not pruned.
    pub fn new(fit: &'a Fit, x: &'a [f32], k: usize, inputs: &'a Prepared) -> Job<'a> {
        Job { fit, x, k, inputs, zeros: None }
    }
}

/// Statistics of inputs, as methods read them.
pub(super) struct Prepared {
    /// By column, at least 0; of mean 1.
    pub importance: Vec<f32>,
    /// From the products of columns, where they are wanted and known.
    pub feedback: Option<Feedback>,
    /// The means of products of columns, the same way.
    pub products: Option<Vec<f64>>,
    /// The same for the columns in the order in which they are pruned.
    pub pruning: Option<Feedback>,
}

impl Prepared {
    /// Where nothing is known of inputs: all `k` columns count alike.
    pub fn equal(k: usize) -> Prepared {
        Prepared::of(vec![1.0; k])
    }

    /// Where no more is known of columns than their importance.
    pub fn of(importance: Vec<f32>) -> Prepared {
        Prepared { importance, feedback: None, products: None, pruning: None }
    }
}
