//! Convolutions over time, a channel at a time.

use super::family::channel_items;
use super::part::family;
use super::{Family, Outcome, Param, ParamId, Use};
use crate::eval::{EvalError, FixedState, KernelRun, RowValues, convolve};
use crate::state::FixedSpec;
use crate::verify::KernelVerifier;

family! {
    /// Depthwise causal convolution over the tokens of each sequence, whose last inputs are its state.
    /// Work items are [`CHANNELS`](super::CHANNELS) channels each, for all tokens in order.
    CausalConv {
        /// f32 `[T, …]`.
        x: ParamId as Use::READ,
        /// First column of the channels in `x`.
        start: usize,
        /// f32 `[width · channels]`: a row per token, the oldest first.
        taps: ParamId as Use::READ,
        /// Tokens that a result sees.
        width: usize,
        /// f32 `[1, width − 1, channels]`, the oldest input first.
        state: ParamId as Use::WRITE,
        /// f32 `[T, channels]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for CausalConv {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        channel_items(params, self.state)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let (x, taps, out) = (v.f32_rows(self.x, rows), v.vector(self.taps), v.f32_rows(self.out, rows));
        if self.width < 2 {
            return v.error("conv-width", format!("a convolution over {} tokens keeps none", self.width));
        }
        let Some(channels) = out else { return };
        v.fixed(self.state, FixedSpec { heads: 1, rows: self.width - 1, cols: channels });
        if let Some(cols) = x {
            v.range("conv-columns", self.x, self.start, channels, cols);
        }
        if taps.is_some_and(|n| n != self.width.saturating_mul(channels)) {
            v.error("conv-taps", format!("{channels} channels over {} tokens have other taps", self.width));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let (rows, state) = self.run(x);
        Ok(Outcome::recurrent((self.out, rows), (self.state, state)))
    }
}

impl CausalConv {
    fn run(&self, x: &KernelRun<'_, '_>) -> (RowValues, FixedState) {
        let mut state = x.fixed(self.state).clone();
        let channels = state.spec.cols;
        let rows: RowValues = (0..x.m).map(|i| x.row(self.x, i)[self.start..][..channels].to_vec()).collect();
        let taps: Vec<f64> = x.vector(self.taps).iter().map(|w| f64::from(*w)).collect();
        let out = convolve(&mut state, &x.batch.seqs, &rows, &taps);
        (out, state)
    }
}
