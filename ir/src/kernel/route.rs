//! The choice of experts.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Store, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::Router;
use crate::verify::KernelVerifier;

family! {
    /// The experts of each token: a row of the output has the numbers of the chosen ones in the order
    /// of their ranking, as f32, then their weights. Work items are rows.
    Route {
        /// Logits of the experts, f32.
        x: ParamId as Use::READ,
        /// The addend to the scores for the choice only, one per expert.
        bias: ParamId as Use::READ,
        /// How experts are chosen.
        router: Router,
        /// Output, f32 `[T, 2·top]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for Route {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, true)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        let rows = v.kernel.rows;
        let (x, bias, out) = (v.f32_rows(self.x, rows), v.vector(self.bias), v.f32_rows(self.out, rows));
        let Some(experts) = x else { return };
        if let Some(what) = self.router.misfit(experts) {
            v.error("experts", what);
        }
        if let Some(len) = bias.filter(|len| *len != experts) {
            v.error("vector-length", format!("has {len} biases for {experts} experts"));
        }
        if let Some(have) = out {
            v.columns(self.out, have, self.router.top.saturating_mul(2));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let bias: Vec<f64> = x.vector(self.bias).iter().map(|b| f64::from(*b)).collect();
        let row = |i: usize| {
            let (chosen, weights) = self.router.choose(&x.row(self.x, i), &bias);
            chosen.into_iter().map(|e| e as f64).chain(weights).collect()
        };
        Ok(Outcome::rows(vec![(Store::all(self.out), (0..x.m).map(row).collect())]))
    }
}
