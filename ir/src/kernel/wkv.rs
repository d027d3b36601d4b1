//! Means with weights that decay.

use super::family::channel_items;
use super::part::family;
use super::{Family, Outcome, Param, ParamId, Use};
use crate::eval::{EvalError, KernelRun, weighted_means};
use crate::state::FixedSpec;
use crate::verify::KernelVerifier;

family! {
    /// The mean of a channel's values with weights `e^key` that decay, as `wkv` of the graph level.
    /// Work items are [`CHANNELS`](super::CHANNELS) channels each, for all tokens in order.
    Wkv {
        /// Keys, f32 `[T, …]`.
        k: ParamId as Use::READ,
        /// First column of the keys.
        k_start: usize,
        /// Values, as the keys.
        v: ParamId as Use::READ,
        /// First column of the values.
        v_start: usize,
        /// Added to the logarithms of all weights from token to token, f32 `[channels]`.
        decay: ParamId as Use::READ,
        /// Added to the key of a token where its own mean is taken, f32 `[channels]`.
        bonus: ParamId as Use::READ,
        /// f32 `[1, 3, channels]`: weighted values, weights, and the maxima of their logarithms.
        state: ParamId as Use::WRITE,
        /// f32 `[T, channels]`.
        out: ParamId as Use::WRITE,
    }
}

impl Family for Wkv {
    fn items(&self, params: &[Param]) -> (usize, bool) {
        channel_items(params, self.state)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        let [k, values, out] = [self.k, self.v, self.out].map(|p| v.f32_rows(p, rows));
        let vectors = [self.decay, self.bonus].map(|p| v.vector(p));
        let Some(channels) = out else { return };
        v.fixed(self.state, FixedSpec { heads: 1, rows: 3, cols: channels });
        for (p, start, cols) in [(self.k, self.k_start, k), (self.v, self.v_start, values)] {
            if let Some(cols) = cols {
                v.range("recurrence-columns", p, start, channels, cols);
            }
        }
        for len in vectors.into_iter().flatten().filter(|len| *len != channels) {
            v.error("vector-length", format!("has {len} numbers for {channels} channels"));
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let mut state = x.fixed(self.state).clone();
        let channels = state.spec.cols;
        let (k, v) = (x.columns(self.k, self.k_start, channels), x.columns(self.v, self.v_start, channels));
        let [decay, bonus] =
            [self.decay, self.bonus].map(|p| x.vector(p).iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
        let rows = weighted_means(&mut state, &x.batch.seqs, [&k, &v], [&decay, &bonus]);
        Ok(Outcome::recurrent((self.out, rows), (self.state, state)))
    }
}
