//! Square matrices that are balanced, and how far from the evaluator's they may be.

use crate::{Case, Gen, ULP};
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::{Balance, F32};
use llmcc_ir::kernel::{Body, RowElem, Sinkhorn};

impl Gen {
    /// A kernel that balances matrices of `side` rows.
    pub fn sinkhorn(&mut self, side: usize) -> Body {
        let (rounds, eps) = (self.rng.below(1, 25), self.rng.pick(&[0.0, 1e-6, 0.1]));
        let (x, out) = (self.input(self.rows, side * side), self.output(side * side, RowElem::F32));
        Body::Sinkhorn(Sinkhorn { x, balance: Balance { side, rounds, eps: F32::new(eps) }, out })
    }
}

impl Case {
    /// Matrices that a kernel balanced.
    ///
    /// # Panics
    /// It is further from the evaluator's than rounding explains. Factors of a whole row or column
    /// change nothing in the end, so errors of sums do not grow, and errors of elements are added
    /// up over all divisions.
    pub fn check_sinkhorn(&self, got: &[OperandData]) {
        let Body::Sinkhorn(Sinkhorn { balance, out, .. }) = self.kernel.body else { panic!("another kernel") };
        let wanted = self.expected();
        let (OperandData::Rows(got), OperandData::Rows(wanted)) = (&got[out], &wanted[out]) else { panic!("no rows") };
        let bound = (16 + 4 * balance.rounds + 2 * balance.side) as f64 * ULP;
        for (a, b) in got.data.iter().zip(&wanted.data) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            assert!((a - b).abs() <= bound * b, "{a}, not {b}: {balance:?}");
        }
        assert_eq!(got.data.len(), wanted.data.len());
    }
}
