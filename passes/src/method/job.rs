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
    /// Codes rows.
    pub(super) rows: fn(&Job<'_>) -> Vec<CodedRow>,
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
}

/// Statistics of inputs, as methods read them.
pub(super) struct Prepared {
    /// By column, at least 0; of mean 1.
    pub importance: Vec<f32>,
    /// From the products of columns, where they are wanted and known.
    pub feedback: Option<Feedback>,
}

impl Prepared {
    /// Where nothing is known of inputs: all `k` columns count alike.
    pub fn equal(k: usize) -> Prepared {
        Prepared { importance: vec![1.0; k], feedback: None }
    }
}
