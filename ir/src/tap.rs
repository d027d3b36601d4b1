//! Taps: inputs of products that a caller observes. Calibration stands on their moments.

use crate::ty::{Dim, TensorType};

/// The rows that some products of an entry multiply. The caller sees them when the call they belong to has ended;
/// rows of earlier calls may be gone by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Their place: the index of a value of the entry in a module, of a slot in a plan.
    pub at: usize,
    /// The call of the entry at whose end they are there.
    pub call: usize,
    /// `T` or `R`.
    pub rows: Dim,
    /// Columns of a product's input.
    pub columns: usize,
    /// The experts that each row is for; `None`: the products are the same for all tokens.
    pub routes: Option<Routes>,
    /// The weights that multiply them, by their names in the checkpoint, each once.
    pub weights: Vec<TappedWeight>,
}

/// The experts that the rows of a tap are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Place of the routes `[T, 2·top]`: numbers of experts, then their weights.
    pub at: usize,
    /// Experts.
    pub experts: usize,
    /// Experts of a token.
    pub top: usize,
    /// A row has an input for each of the token's experts, side by side, instead of one for all.
    pub apart: bool,
}

/// A weight that multiplies a tap's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TappedWeight {
    /// Its name in the checkpoint.
    pub name: String,
    /// The only expert that it belongs to; `None`: it belongs to none, or has the matrices of all.
    pub expert: Option<usize>,
}

impl Tap {
    /// Columns of the rows.
    pub fn width(&self) -> usize {
        let inputs = self.routes.filter(|r| r.apart).map_or(1, |r| r.top);
        self.columns.saturating_mul(inputs)
    }

    /// Type of the rows.
    pub fn ty(&self) -> TensorType {
        TensorType::rows(self.rows, self.width())
    }
}

impl Routes {
    /// Columns of the routes.
    pub fn width(&self) -> usize {
        self.top.saturating_mul(2)
    }
}
