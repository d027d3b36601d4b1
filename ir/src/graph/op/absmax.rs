//! Scales of rows that are rounded token by token.

use super::of::AbsMaxScale;
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Value};
use crate::graph::value::{F32, ValueType};
use crate::ty::TensorType;

/// Factors that bring the largest magnitude of each run of columns to a number, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowScale {
    /// Columns per run.
    pub width: usize,
    /// The largest magnitude that codes have, such as 127.
    pub most: F32,
    /// Runs whose largest magnitude is smaller are taken to have this one.
    pub least: F32,
}

impl RowScale {
    /// Why the attributes do not fit rows of so many columns.
    pub fn misfit(&self, cols: usize) -> Option<String> {
        let RowScale { width, most, least } = *self;
        let positive = |x: F32| x.get().is_finite() && x.get() > 0.0;
        if width == 0 || !cols.is_multiple_of(width) {
            Some(format!("runs of {width} columns do not divide {cols} columns"))
        } else if !positive(most) || !positive(least) {
            Some(format!("`most` and `least` are {} and {}, not positive", most.get(), least.get()))
        } else {
            None
        }
    }

    /// Columns of the result, of rows that fit.
    pub fn columns(&self, cols: usize) -> usize {
        2 * cols.checked_div(self.width).unwrap_or(0)
    }

    /// For each run its factor, then for each the factor back; NaN where a value is NaN.
    pub fn of(&self, x: &[f64]) -> Vec<f64> {
        let larger = |most: f64, v: &f64| if most.is_nan() || v.is_nan() { f64::NAN } else { most.max(v.abs()) };
        let (most, least) = (f64::from(self.most.get()), f64::from(self.least.get()));
        let largest: Vec<f64> = x.chunks(self.width.max(1)).map(|run| run.iter().fold(least, larger)).collect();
        largest.iter().map(|m| most / m).chain(largest.iter().map(|m| m / most)).collect()
    }
}

impl AbsMaxScale {
    fn scale(&self) -> RowScale {
        let AbsMaxScale { width, most, least } = *self;
        RowScale { width, most, least }
    }
}

impl Rule for AbsMaxScale {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, cols) = a.activation(0)?;
        match self.scale().misfit(cols) {
            Some(what) => Err(format!("`absmax_scale`: {what}")),
            None => Ok(TensorType::rows(m, self.scale().columns(cols)).into()),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        Ok(Value::tensor(x.map_rows(self.scale().columns(x.cols()), |_, row| self.scale().of(row))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: RowScale = RowScale { width: 2, most: F32::new(127.0), least: F32::new(0.5) };

    #[test]
    fn runs_are_brought_to_the_largest_code_and_back() {
        assert_eq!(BYTES.of(&[1.0, -2.0, 0.25, 0.0]), [63.5, 254.0, 2.0 / 127.0, 0.5 / 127.0]);
        assert!(BYTES.of(&[f64::NAN, 1.0]).iter().all(|x| x.is_nan()));
        assert_eq!(BYTES.columns(6), 6);
    }

    #[test]
    fn attributes_that_fit_no_rows_are_refused() {
        assert_eq!(BYTES.misfit(4), None);
        for (wrong, what) in [
            (RowScale { width: 0, ..BYTES }, "runs of 0 columns"),
            (RowScale { width: 3, ..BYTES }, "runs of 3 columns"),
            (RowScale { most: F32::new(f32::NAN), ..BYTES }, "`most` and `least`"),
            (RowScale { least: F32::new(0.0), ..BYTES }, "`most` and `least`"),
        ] {
            assert!(wrong.misfit(4).is_some_and(|m| m.starts_with(what)), "{what}: {:?}", wrong.misfit(4));
        }
    }
}
