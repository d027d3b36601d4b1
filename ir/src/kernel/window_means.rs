//! Means of windows of tokens.

use super::family::channel_items;
use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Use};
use crate::eval::{EvalError, KernelRun, means_of_windows};
use crate::state::FixedSpec;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// The mean of a channel's values in a window so far, with weights `e^(key + place)`, as `window_means`
/// of the graph level. Work items are [`CHANNELS`](super::CHANNELS) channels each, for all tokens in
/// order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowMeans {
    /// Keys, f32 `[T, …]`: of each series `channels`.
    pub k: ParamId,
    /// First column of the keys.
    pub k_start: usize,
    /// Values, as the keys.
    pub v: ParamId,
    /// First column of the values.
    pub v_start: usize,
    /// Added to keys by the place of a token in its window, f32 `[width·series·channels]`.
    pub places: ParamId,
    /// Tokens of a window.
    pub width: usize,
    /// f32 `[1, 3·series, channels]`: weighted values, weights, and what their logarithms are less, of
    /// the window at hand, and with two series of the next one.
    pub state: ParamId,
    /// f32 `[T, channels]`.
    pub out: ParamId,
}

impl WindowMeans {
    /// Series of values: with two of them the first counts in the next window.
    pub fn series(&self, params: &[Param]) -> usize {
        let rows = params.get(self.state).and_then(|p| p.kind.state()?.fixed()).map_or(3, |s| s.rows);
        (rows / 3).clamp(1, 2)
    }
}

impl Family for WindowMeans {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.k, Use::READ);
        f(&mut self.v, Use::READ);
        f(&mut self.places, Use::READ);
        f(&mut self.state, Use::WRITE);
        f(&mut self.out, Use::WRITE);
    }

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

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("k", Field::Operand(self.k)),
            ("k_start", Field::Size(self.k_start)),
            ("v", Field::Operand(self.v)),
            ("v_start", Field::Size(self.v_start)),
            ("places", Field::Operand(self.places)),
            ("width", Field::Size(self.width)),
            ("state", Field::Operand(self.state)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for WindowMeans {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<WindowMeans> {
        Ok(WindowMeans {
            k: r.field(p, "k")?,
            k_start: p.field_size("k_start")?,
            v: r.field(p, "v")?,
            v_start: p.field_size("v_start")?,
            places: r.field(p, "places")?,
            width: p.field_size("width")?,
            state: r.field(p, "state")?,
            out: r.field(p, "out")?,
        })
    }
}
