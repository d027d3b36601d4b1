//! Moments of the inputs that rows multiply.

use std::sync::Arc;

/// Sums over the inputs of a tensor of a checkpoint, by expert: 1 where there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments<'a> {
    /// Inputs, `[experts]`.
    pub count: &'a [u64],
    /// Sums of squares, `[experts, columns]`.
    pub squares: &'a [f64],
    /// The least number of each column, `[experts, columns]`; empty where it is not known.
    pub min: &'a [f32],
    /// The largest number of each column, the same way.
    pub max: &'a [f32],
    /// Sums of products of two columns, `[experts, columns, columns]`; empty where they are not known.
    pub products: &'a [f64],
}

/// Moments of the inputs of some rows.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    pub(super) count: u64,
    pub(super) squares: &'a [f64],
    pub(super) min: &'a [f32],
    pub(super) max: &'a [f32],
    pub(super) products: &'a [f64],
    /// For each column the tensor's, and the factor by which the column is multiplied.
    pub(super) columns: Arc<[(usize, f64)]>,
}

impl PartialEq for Inputs<'_> {
    fn eq(&self, other: &Inputs<'_>) -> bool {
        let same = std::ptr::eq(self.squares, other.squares) && self.count == other.count;
        same && self.columns == other.columns
    }
}

/// Adjacent rows with the same inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Run<'a> {
    /// Rows.
    pub rows: usize,
    /// Their inputs, where they are known.
    pub inputs: Option<Inputs<'a>>,
}

impl<'a> Inputs<'a> {
    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Sums of squares of the columns.
    pub(super) fn sums(&self) -> impl Iterator<Item = f64> {
        self.columns.iter().map(|(of, by)| if *by == 0.0 { 0.0 } else { self.squares[*of] / (by * by) })
    }

    /// The largest magnitude of each column, 0 where it is not known.
    pub(super) fn largest(&self) -> impl Iterator<Item = f64> {
        let known = |all: &[f32], of: usize| all.get(of).map_or(0.0, |x| f64::from(x.abs()));
        let magnitude = move |of: usize| known(self.min, of).max(known(self.max, of));
        self.columns.iter().map(move |(of, by)| if *by == 0.0 { 0.0 } else { magnitude(*of) / by.abs() })
    }

    /// Mean squares of the columns, divided by their mean. `None` where there were no inputs, or only zeros.
    pub fn importance(&self) -> Option<Vec<f32>> {
        let squares: Vec<f64> = self.sums().collect();
        let mean = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
        (self.count > 0 && mean > 0.0 && mean.is_finite()).then(|| squares.iter().map(|s| (s / mean) as f32).collect())
    }

    /// Means of the products of two columns, `[columns, columns]`; `None` where they are not known.
    pub fn hessian(&self) -> Option<Vec<f64>> {
        if self.count == 0 || self.products.len() != self.squares.len() * self.squares.len() {
            return None;
        }
        let (n, of) = (self.columns.len(), self.squares.len());
        let inverse = |by: f64| if by == 0.0 { 0.0 } else { 1.0 / by };
        let mut out = vec![0f64; n * n];
        for (row, (i, by)) in out.chunks_exact_mut(n.max(1)).zip(self.columns.iter()) {
            let by = inverse(*by) / self.count as f64;
            let sums = &self.products[i * of..(i + 1) * of];
            row.iter_mut().zip(self.columns.iter()).for_each(|(v, (j, g))| *v = sums[*j] * by * inverse(*g));
        }
        Some(out)
    }

    /// With columns changed.
    pub(super) fn with_columns(&self, change: impl Fn(&mut [(usize, f64)]) -> Vec<(usize, f64)>) -> Inputs<'a> {
        let mut columns = self.columns.to_vec();
        Inputs { columns: change(&mut columns).into(), ..*self }
    }
}
