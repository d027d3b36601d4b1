//! Moments of tapped rows: the oracle of calibration.

use super::EvalError;
use crate::tap::Tap;

/// Rows of a tap, and the experts that they are for.
#[derive(Clone, Debug, PartialEq)]
pub struct TappedRows {
    /// `[T or R, width]`, row-major.
    pub rows: Vec<f64>,
    /// `[T, 2·top]`; empty without routes.
    pub routes: Vec<f64>,
}

/// Moments of the inputs of products, of each expert (of the only one where there are no routes).
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// Columns of an input.
    pub columns: usize,
    /// Inputs, by expert.
    pub count: Vec<u64>,
    /// `Σ x_i·x_j`, `[experts, columns, columns]`, row-major.
    pub products: Vec<f64>,
    /// Smallest number of each column, `[experts, columns]`; positive infinity of none.
    pub min: Vec<f64>,
    /// Largest number of each column, the same way; negative infinity of none.
    pub max: Vec<f64>,
}

impl Moments {
    /// Those of no rows.
    pub fn new(tap: &Tap) -> Moments {
        let (experts, columns) = (tap.routes.map_or(1, |r| r.experts), tap.columns);
        Moments {
            columns,
            count: vec![0; experts],
            products: vec![0.0; experts * columns * columns],
            min: vec![f64::INFINITY; experts * columns],
            max: vec![f64::NEG_INFINITY; experts * columns],
        }
    }

    /// Adds rows in their order, of each the inputs in the order of the experts.
    ///
    /// # Errors
    /// Routes that name experts which there are not, or are not as many as the rows.
    pub fn add(&mut self, tap: &Tap, tapped: &TappedRows) -> Result<(), EvalError> {
        let Some(routes) = tap.routes else {
            tapped.rows.chunks(self.columns).for_each(|x| self.input(0, x));
            return Ok(());
        };
        let (rows, of) = (tapped.rows.chunks(tap.width()), tapped.routes.chunks(routes.width()));
        if rows.len() != of.len() {
            return Err(EvalError::batch(format!("{} rows, but {} routes", rows.len(), of.len())));
        }
        for (row, chosen) in rows.zip(of) {
            for slot in 0..routes.top {
                let expert = crate::graph::expert(chosen, slot, routes.experts)?;
                let start = if routes.apart { slot * self.columns } else { 0 };
                self.input(expert, &row[start..][..self.columns]);
            }
        }
        Ok(())
    }

    /// The diagonal of [`Moments::products`]: sums of squares, `[experts, columns]`.
    pub fn squares(&self) -> Vec<f64> {
        let n = self.columns;
        (0..self.count.len())
            .flat_map(|e| (0..n).map(move |i| (e * n + i) * n + i))
            .map(|at| self.products[at])
            .collect()
    }

    fn input(&mut self, expert: usize, x: &[f64]) {
        let n = self.columns;
        self.count[expert] += 1;
        for (i, a) in x.iter().enumerate() {
            let at = expert * n + i;
            (self.min[at], self.max[at]) = (self.min[at].min(*a), self.max[at].max(*a));
            self.products[at * n..][..n].iter_mut().zip(x).for_each(|(sum, b)| *sum += a * b);
        }
    }
}
