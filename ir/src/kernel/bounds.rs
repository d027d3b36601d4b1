//! Bounds of windows of tokens.

use super::family::channel_items;
use super::part::family;
use super::{Family, Outcome, Param, ParamId, Use};
use crate::eval::{EvalError, KernelRun, bounds_of_windows};
use crate::state::FixedSpec;
use crate::verify::KernelVerifier;

family! {
    /// The least and the largest value of a channel in a window so far, as `window_bounds` of the graph level. Work
    /// items are [`CHANNELS`](super::CHANNELS) channels each, for all tokens in order.
    WindowBounds {
        /// Rows, f32 `[T, …]`.
        x: ParamId as Use::READ,
        /// First column.
        start: usize,
        /// Tokens of a window.
        width: usize,
        /// f32 `[1, 2, channels]`: the bounds of the window at hand.
        state: ParamId as Use::WRITE,
        /// f32 `[T, 2 · channels]`: the least, then the largest.
        out: ParamId as Use::WRITE,
    }
}

impl Family for WindowBounds {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        channel_items(params, self.state)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        if self.width < 2 {
            v.error("attribute", format!("windows of {} tokens have no bounds", self.width));
        }
        let rows = v.kernel.rows;
        let [x, out] = [self.x, self.out].map(|p| v.f32_rows(p, rows));
        let Some(state) = v.any_fixed(self.state) else { return };
        let channels = state.cols;
        v.fixed(self.state, FixedSpec { heads: 1, rows: 2, cols: channels });
        if let Some(have) = x {
            v.range("recurrence-columns", self.x, self.start, channels, have);
        }
        if let Some(have) = out {
            v.columns(self.out, have, channels.saturating_mul(2));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let mut state = x.fixed(self.state).clone();
        let rows = x.columns(self.x, self.start, state.spec.cols);
        let out = bounds_of_windows(&mut state, x.batch, &rows, self.width);
        Ok(Outcome::recurrent((self.out, out), (self.state, state)))
    }
}
