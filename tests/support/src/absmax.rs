//! Scales of rows.

use crate::{Case, Gen, ULP};
use llmcc_ir::eval::OperandData;
use llmcc_ir::graph::{F32, RowScale};
use llmcc_ir::kernel::{AbsMaxScale, Body, RowElem};

impl Gen {
    /// A kernel that finds the scales of `runs` runs of `width` columns.
    pub fn absmax(&mut self, runs: usize, width: usize) -> Body {
        let [most, least] = [self.rng.pick(&[127.0, 448.0]), self.rng.pick(&[1e-5, 0.5])].map(F32::new);
        let (x, out) = (self.input(self.rows, runs * width), self.output(2 * runs, RowElem::F32));
        Body::AbsMaxScale(AbsMaxScale { x, scale: RowScale { width, most, least }, out })
    }
}

impl Case {
    /// Scales a kernel found for some numbers that are NaN and some that are infinite.
    ///
    /// # Panics
    /// It is further from the evaluator's than a division rounds.
    pub fn check_absmax(&self, got: &[OperandData]) {
        let Body::AbsMaxScale(AbsMaxScale { out, .. }) = self.kernel.body else { panic!("another kernel") };
        let wanted = self.expected();
        let (OperandData::Rows(got), OperandData::Rows(wanted)) = (&got[out], &wanted[out]) else { panic!("no rows") };
        assert_eq!(got.data.len(), wanted.data.len());
        for (a, b) in got.data.iter().zip(&wanted.data) {
            let near = (f64::from(*a) - f64::from(*b)).abs() <= 2.0 * ULP * f64::from(*b);
            assert!(near || a == b || a.is_nan() && b.is_nan(), "{a}, not {b}");
        }
    }

    /// Puts numbers that are none, or without end, here and there into `x`.
    pub fn with_specials(mut self, seed: u64) -> Case {
        let Body::AbsMaxScale(AbsMaxScale { x, .. }) = self.kernel.body else { panic!("another kernel") };
        let OperandData::Rows(rows) = &mut self.operands[x] else { panic!("no rows") };
        for (i, v) in rows.data.iter_mut().enumerate().filter(|(i, _)| seed.rotate_left(*i as u32) & 63 == 0) {
            *v = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, -1e30][i % 5];
        }
        self
    }
}
