//! A budget of predicted damage: how much worse a model's predictions become by the forms of its weights.
//!
//! Rounding errors of different weights do different damage. To second order the Kullback-Leibler divergence that the
//! error of a matrix causes is proportional to the squared error (its derivative is 0 where both models are the
//! same), and small damages add up. Whoever has measured the divergences of single matrices therefore knows a factor
//! for each, and [`Options::damage`](crate::Options::damage) makes [`choose`](crate::choose) keep the sum below a
//! bound, in place of [`Options::error_budget`](crate::Options::error_budget).

use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::{BLOCK, Format};
use std::collections::{BTreeMap, BTreeSet};

/// The damage of stored forms, the most that is allowed, and forms that are excluded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Damage {
    /// Most that the damages of all stored forms may add up to.
    pub most: f64,
    /// By index of the module's weight. Weights that are not mentioned are not damaged by any form.
    pub weights: BTreeMap<usize, Sensitivity>,
    /// The only formats of these weights, in any packing. Weights that are not mentioned may have any format of
    /// [`Options::formats`](crate::Options::formats).
    pub only: BTreeMap<usize, Vec<Format>>,
    /// Whether tables that are only looked up may be rounded, too. Else they keep the checkpoint's type.
    pub tables: bool,
    /// The program that is taken.
    pub aim: Aim,
}

/// The least of a program, of all within the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aim {
    /// Predicted time.
    #[default]
    Fastest,
    /// Bytes of weights.
    Smallest,
    /// Damage, within bytes of the weights whose forms are chosen ([`Offer::bytes`]): these are the bound in place of
    /// [`Damage::most`].
    LeastDamage {
        /// The most bytes.
        bytes: f64,
    },
}

/// Damage by rounding a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sensitivity {
    /// For each element, times the squared relative error of its matrix.
    pub per_square: f64,
    /// For each element that is stored in a quantized format: products with such matrices round their other operand,
    /// too.
    pub of_operands: f64,
}

/// A matrix, or several that are stored alike, with the forms that it may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Function and parameter.
    pub subject: String,
    /// The tensors.
    pub weights: BTreeSet<WeightExpr>,
    /// Elements of all of them.
    pub elements: f64,
    /// Elements of a row.
    pub columns: usize,
    /// Formats with their relative errors, by ascending error.
    pub forms: Vec<(Format, f64)>,
}

impl Offer {
    /// Bytes of the matrices in a format, but for rows that fill up the last block.
    pub fn bytes(&self, format: Format) -> f64 {
        bytes(self.elements, self.columns, format)
    }
}

/// Bytes of elements in rows of so many columns, in a format.
pub(crate) fn bytes(elements: f64, columns: usize, format: Format) -> f64 {
    elements * format.block_bytes(columns) as f64 / (BLOCK * columns) as f64
}

impl Damage {
    /// The damage of storing matrices with `elements` elements in all in a format, `error` being their relative error.
    /// Where a matrix is made of several weights, the most sensitive one counts.
    pub fn of(&self, weights: &BTreeSet<WeightExpr>, format: Format, error: f64, elements: f64) -> f64 {
        let mut most = 0f64;
        let quantized = format.is_quantized();
        let mut add = |i: usize| {
            if let Some(s) = self.weights.get(&i) {
                most = most.max(s.per_square * error * error + if quantized { s.of_operands } else { 0.0 });
            }
        };
        weights.iter().for_each(|w| w.leaves(&mut add));
        most * elements
    }

    /// Whether matrices may have a format.
    pub fn allows(&self, weights: &BTreeSet<WeightExpr>, format: Format) -> bool {
        let same = |f: &Format| f.has_codes_of(format);
        let mut allowed = true;
        weights.iter().for_each(|w| {
            w.leaves(&mut |i| allowed &= self.only.get(&i).is_none_or(|formats| formats.iter().any(same)));
        });
        allowed
    }

    /// The share of the bound that a damage takes: infinite where nothing is allowed.
    pub fn share(&self, damage: f64) -> f64 {
        if damage > 0.0 { damage / self.most.max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_sensitive_weight_counts() {
        let of = |per_square, of_operands| Sensitivity { per_square, of_operands };
        let only = BTreeMap::from([(1, vec![Format::BF16])]);
        let weights = BTreeMap::from([(1, of(2.0, 0.5)), (2, of(3.0, 0.0))]);
        let damage = Damage { most: 4.0, weights, only, ..Damage::default() };
        let set = |all: &[usize]| all.iter().map(|i| WeightExpr::Weight(*i)).collect::<BTreeSet<_>>();
        let four = Format::parse("w4g32").expect("a format");
        assert_eq!(damage.of(&set(&[1]), four, 0.5, 10.0), 10.0);
        assert_eq!(damage.of(&set(&[1]), Format::BF16, 0.5, 10.0), 5.0);
        assert_eq!(damage.of(&set(&[1, 2]), four, 2.0, 1.0), 12.0);
        assert_eq!(damage.of(&set(&[7]), four, 2.0, 1.0), 0.0);
        assert!(damage.allows(&set(&[1, 2]), Format::BF16) && !damage.allows(&set(&[1, 2]), four));
        assert!(damage.allows(&set(&[2]), four));
        assert_eq!((damage.share(2.0), damage.share(0.0)), (0.5, 0.0));
        assert_eq!(Damage::default().share(1e-300), f64::INFINITY);
    }
}
