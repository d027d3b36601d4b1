//! Means with weights that decay.

use super::family::channel_items;
use super::{Family, Field, Outcome, Param, ParamId, ReadFamily, Use};
use crate::eval::{EvalError, KernelRun, weighted_means};
use crate::state::FixedSpec;
use crate::text::{KernelReader, Parsed, Parser};
use crate::verify::KernelVerifier;

/// The mean of a channel's values with weights `e^key` that decay, as `wkv` of the graph level.
/// Work items are [`CHANNELS`](super::CHANNELS) channels each, for all tokens in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wkv {
    /// Keys, f32 `[T, …]`.
    pub k: ParamId,
    /// First column of the keys.
    pub k_start: usize,
    /// Values, as the keys.
    pub v: ParamId,
    /// First column of the values.
    pub v_start: usize,
    /// Added to the logarithms of all weights from token to token, f32 `[channels]`.
    pub decay: ParamId,
    /// Added to the key of a token where its own mean is taken, f32 `[channels]`.
    pub bonus: ParamId,
    /// f32 `[1, 3, channels]`: weighted values, weights, and what their logarithms are less.
    pub state: ParamId,
    /// f32 `[T, channels]`.
    pub out: ParamId,
}

impl Family for Wkv {
    fn operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        f(&mut self.k, Use::READ);
        f(&mut self.v, Use::READ);
        f(&mut self.decay, Use::READ);
        f(&mut self.bonus, Use::READ);
        f(&mut self.state, Use::WRITE);
        f(&mut self.out, Use::WRITE);
    }

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

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("k", Field::Operand(self.k)),
            ("k_start", Field::Size(self.k_start)),
            ("v", Field::Operand(self.v)),
            ("v_start", Field::Size(self.v_start)),
            ("decay", Field::Operand(self.decay)),
            ("bonus", Field::Operand(self.bonus)),
            ("state", Field::Operand(self.state)),
            ("out", Field::Operand(self.out)),
        ]
    }
}

impl ReadFamily for Wkv {
    fn read<'a>(r: &KernelReader<'a>, p: &mut Parser<'a>) -> Parsed<Wkv> {
        Ok(Wkv {
            k: r.field(p, "k")?,
            k_start: p.field_size("k_start")?,
            v: r.field(p, "v")?,
            v_start: p.field_size("v_start")?,
            decay: r.field(p, "decay")?,
            bonus: r.field(p, "bonus")?,
            state: r.field(p, "state")?,
            out: r.field(p, "out")?,
        })
    }
}
