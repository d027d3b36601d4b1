//! Square matrices in rows whose sums are brought near one.

use super::of::Sinkhorn;
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Value};
use crate::graph::value::{F32, ValueType};
use crate::ty::TensorType;

/// How any matrix is made positive, and its rows and columns are brought near a sum of one by
/// dividing them by their sums in turns (Sinkhorn and Knopp, 1967): this mixes residual streams
/// without letting them grow (mHC, arXiv 2512.24880).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Balance {
    /// Rows of the matrix, and columns.
    pub side: usize,
    /// How often rows are divided; columns are in between.
    pub rounds: usize,
    /// Added to every element first, and to every sum.
    pub eps: F32,
}

impl Balance {
    /// The largest matrix: one that registers hold.
    pub const MOST_SIDE: usize = 8;
    /// The most rounds.
    pub const MOST_ROUNDS: usize = 1000;

    /// Why the attributes do not fit rows of so many columns.
    pub fn misfit(&self, cols: usize) -> Option<String> {
        let Balance { side, rounds, eps } = *self;
        let (most_side, most_rounds) = (Balance::MOST_SIDE, Balance::MOST_ROUNDS);
        if !(1..=most_side).contains(&side) {
            Some(format!("matrices of {side} rows are not supported: a matrix has 1 to {most_side} rows"))
        } else if cols != side * side {
            Some(format!("{cols} columns do not make a matrix of {side} rows and columns"))
        } else if !(1..=most_rounds).contains(&rounds) {
            Some(format!("{rounds} rounds are not supported: `rounds` is 1 to {most_rounds}"))
        } else if !eps.get().is_finite() || eps.get() < 0.0 {
            Some("`eps` is not finite, or negative".into())
        } else {
            None
        }
    }

    /// The balanced matrix, row by row, of one that fits.
    pub fn balanced(&self, x: &[f64]) -> Vec<f64> {
        let (n, eps) = (self.side, f64::from(self.eps.get()));
        let mut x = x.to_vec();
        let column = |x: &[f64], j: usize| x.iter().skip(j).step_by(n).copied().collect::<Vec<f64>>();
        for j in 0..n {
            let most = column(&x, j).into_iter().fold(f64::NEG_INFINITY, f64::max);
            x.iter_mut().skip(j).step_by(n).for_each(|x| *x = (*x - most).exp());
            let sum: f64 = column(&x, j).iter().sum();
            x.iter_mut().skip(j).step_by(n).for_each(|x| *x = *x / sum + eps);
        }
        for round in 0..self.rounds {
            for j in (0..n).filter(|_| round > 0) {
                let sum = column(&x, j).iter().sum::<f64>() + eps;
                x.iter_mut().skip(j).step_by(n).for_each(|x| *x /= sum);
            }
            for row in x.chunks_mut(n) {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|x| *x /= sum);
            }
        }
        x
    }
}

impl Sinkhorn {
    fn balance(&self) -> Balance {
        let Sinkhorn { side, rounds, eps } = *self;
        Balance { side, rounds, eps }
    }
}

impl Rule for Sinkhorn {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (m, cols) = a.activation(0)?;
        match self.balance().misfit(cols) {
            Some(what) => Err(format!("`sinkhorn`: {what}")),
            None => Ok(TensorType::rows(m, cols).into()),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        Ok(Value::tensor(x.map_rows(x.cols(), |_, row| self.balance().balanced(row))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(side: usize, rounds: usize) -> Balance {
        Balance { side, rounds, eps: F32::new(0.0) }
    }

    #[test]
    fn sums_come_near_one() {
        let x: Vec<f64> = (0..16).map(|i| f64::from(i * 7 % 11) / 3.0 - 1.0).collect();
        let sums = |y: &[f64]| -> Vec<f64> {
            let columns = (0..4).map(|j| y.iter().skip(j).step_by(4).sum());
            y.chunks(4).map(|row| row.iter().sum()).chain(columns).collect()
        };
        let once = sums(&balance(4, 1).balanced(&x));
        // Rows come last.
        assert!(once[..4].iter().all(|s| (s - 1.0).abs() < 1e-12), "{once:?}");
        assert!(once[4..].iter().any(|s| (s - 1.0).abs() > 1e-2), "{once:?}");
        let often = sums(&balance(4, 200).balanced(&x));
        assert!(often.iter().all(|s| (s - 1.0).abs() < 1e-9), "{often:?}");
    }

    /// By hand: softmax of columns, then of two rounds rows, columns, rows.
    #[test]
    fn two_rounds_of_a_small_matrix() {
        let ln = f64::ln;
        let y = balance(2, 2).balanced(&[ln(3.0), ln(1.0), ln(1.0), ln(1.0)]);
        // [3/4 1/2; 1/4 1/2], rows [3/5 2/5; 1/3 2/3], columns [9/14 3/8; 5/14 5/8]
        let want = [9.0 / 14.0, 3.0 / 8.0, 5.0 / 14.0, 5.0 / 8.0];
        let rows = [want[0] + want[1], want[2] + want[3]];
        let want = [want[0] / rows[0], want[1] / rows[0], want[2] / rows[1], want[3] / rows[1]];
        assert!(y.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{y:?} {want:?}");
    }

    #[test]
    fn attributes_that_fit_no_matrix_are_refused() {
        assert_eq!(balance(3, 20).misfit(9), None);
        for (wrong, cols, what) in [
            (balance(0, 20), 0, "matrices of 0 rows"),
            (balance(9, 20), 81, "matrices of 9 rows"),
            (balance(3, 20), 8, "8 columns do not make a matrix"),
            (balance(3, 0), 9, "0 rounds"),
            (balance(3, 1001), 9, "1001 rounds"),
            (Balance { eps: F32::new(-1.0), ..balance(3, 1) }, 9, "`eps`"),
            (Balance { eps: F32::new(f32::NAN), ..balance(3, 1) }, 9, "`eps`"),
        ] {
            assert!(wrong.misfit(cols).is_some_and(|m| m.starts_with(what)), "{what}: {:?}", wrong.misfit(cols));
        }
    }
}
