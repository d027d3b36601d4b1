//! Means of windows of tokens.

use super::family::channel_items;
use super::part::family;
use super::{Family, Outcome, Param, ParamId, Use};
use crate::eval::{EvalError, KernelRun, means_of_windows};
use crate::state::FixedSpec;
use crate::verify::KernelVerifier;

family! {
    /// The mean of a channel's values in a window so far, with weights `e^(key + place)`, as `window_means`
    /// of the graph level. Work items are [`CHANNELS`](super::CHANNELS) channels each, for all tokens in
    /// order.
    WindowMeans {
        /// Keys, f32 `[T, …]`: of each series `channels`.
        k: ParamId as Use::READ,
        /// First column of the keys.
        k_start: usize,
        /// Values, as the keys.
        v: ParamId as Use::READ,
        /// First column of the values.
        v_start: usize,
        /// Added to keys by the place of a token in its window, f32 `[width·series·channels]`.
        places: ParamId as Use::READ,
        /// Tokens of a window.
        width: usize,
        /// f32 `[1, 3·series, channels]`: weighted values, weights, and the maxima of their
        /// logarithms, of the window at hand, and with two series of the next one.
        state: ParamId as Use::WRITE,
        /// f32 `[T, channels]`.
        out: ParamId as Use::WRITE,
    }
}

impl WindowMeans {
    /// Series of values: with two of them the first counts in the next window.
    pub fn series(&self, params: &[Param]) -> usize {
        let rows = params.get(self.state).and_then(|p| p.kind.state()?.fixed()).map_or(3, |s| s.rows);
        (rows / 3).clamp(1, 2)
    }
}

impl Family for WindowMeans {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        channel_items(params, self.state)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        if self.width < 2 {
            v.error("attribute", format!("windows of {} tokens have no mean", self.width));
        }
        let rows = v.kernel.rows;
        let [k, values, out] = [self.k, self.v, self.out].map(|p| v.f32_rows(p, rows));
        let (places, series) = (v.vector(self.places), self.series(&v.kernel.params));
        let Some(channels) = out else { return };
        v.fixed(self.state, FixedSpec { heads: 1, rows: 3 * series, cols: channels });
        let all = channels.saturating_mul(series);
        for (p, start, cols) in [(self.k, self.k_start, k), (self.v, self.v_start, values)] {
            if let Some(cols) = cols {
                v.range("recurrence-columns", p, start, all, cols);
            }
        }
        if let Some(len) = places.filter(|len| *len != all.saturating_mul(self.width)) {
            v.error("vector-length", format!("has {len} numbers for {} places of {all} columns", self.width));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let mut state = x.fixed(self.state).clone();
        let all = state.spec.cols * (state.spec.rows / 3);
        let (k, v) = (x.columns(self.k, self.k_start, all), x.columns(self.v, self.v_start, all));
        let places: Vec<f64> = x.vector(self.places).iter().map(|v| f64::from(*v)).collect();
        let tokens = (&x.batch.seqs[..], &x.batch.positions[..]);
        let rows = means_of_windows(&mut state, tokens, [&k, &v], &places);
        Ok(Outcome::recurrent((self.out, rows), (self.state, state)))
    }
}
