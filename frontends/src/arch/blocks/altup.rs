//! Several residual streams, one of them active in a layer (AltUp, arXiv 2301.13310): before it
//! each is predicted from all, after it each is corrected by the layer's change to its own.

use crate::arch::blocks::attention::{linear, scaled};
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{Kind, Part, Table, names};
use crate::arch::blocks::row_statistics::mean_square;
use crate::error::FrontendError;
use llmcc_ir::graph::{BinaryOp, F32, Op, UnaryOp, Value};

/// Makes a stream of embeddings, `{e}` its number less one.
const STREAM: Part = Part("altup.stream");
/// A stream's contribution to the output.
const STREAM_OUT: Part = Part("altup.stream_out");
/// Norm before the router.
const ROUTER_NORM: Part = Part("altup.router.norm");
/// Router of the kind of row, `[streams, hidden]`.
const ROUTER: Part = Part("altup.router");
/// Weights of predictions, `[streams², streams]`.
const PREDICTION: Part = Part("altup.prediction");
/// Weights of corrections, `[streams, streams]`.
const CORRECTION: Part = Part("altup.correction");
/// Multiplies the corrected stream where a layer's embeddings are added.
const CORRECTED: Part = Part("altup.corrected");

pub(crate) const ALTUP: Table = names! {
    "model." { STREAM => "altup_projections.{e}", STREAM_OUT => "altup_unembed_projections.{e}" }
    "model.layers.{}." {
        ROUTER_NORM => "altup.router_norm", ROUTER => "altup.modality_router", PREDICTION => "altup.prediction_coefs",
        CORRECTION => "altup.correction_coefs", CORRECTED => "altup.correct_output_scale",
    }
};

/// Mean squares are at least this where streams are brought to one magnitude.
const LEAST: f32 = 1e-5;

/// The streams of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AltUp {
    /// How many there are, at least one.
    pub streams: usize,
    /// The one that layers compute with.
    pub active: usize,
    /// The corrected stream is multiplied by learned numbers where a layer's embeddings are added.
    pub corrected_scale: bool,
}

impl AltUp {
    /// `streams`: all of them, of the embeddings `x`, with its magnitude.
    pub(crate) fn begin(self, l: &mut Lifter, x: &Carried) -> Result<Vec<Carried>, FrontendError> {
        let mut f = l.func("streams");
        let first = f.carried("x", x);
        let made: Vec<Value> = (1..self.streams).map(|_| first).collect();
        let made = alike(&mut f, STREAM, first, &made);
        let mut all = vec![x.clone()];
        if self.streams > 1 {
            all.extend(f.call(&made)?);
        }
        Ok(all)
    }

    /// The mean of the streams' contributions to the output, from rows of each.
    pub(crate) fn end(self, f: &mut Draft, x: &[Value]) -> Value {
        let Some((first, others)) = x.split_first() else { return f.stop() };
        let others = alike(f, STREAM_OUT, *first, others);
        let sum = others.into_iter().fold(*first, |sum, x| f.add(sum, x));
        scaled(f, sum, Some((1.0 / self.streams as f64) as f32))
    }

    /// The router of a layer, which adds `eps` to mean squares.
    pub(crate) fn kinds(self, f: &mut Draft, eps: f32) -> Kinds {
        let hidden = f.facts().hidden;
        let gain = f.shared_weight(ROUTER_NORM, Kind::Gain, &[hidden]);
        let router = f.shared_weight(ROUTER, Kind::Matrix, &[self.streams, hidden]);
        Kinds { gain, router, eps: F32::new(eps) }
    }

    /// Predicted streams before the layer: `x_j + Σ_i c_ji·x_i`.
    pub(crate) fn predict(self, f: &mut Draft, kinds: Kinds, x: &[Value]) -> Vec<Value> {
        let n = self.streams;
        let kinds = kinds.of(f, x[self.active]);
        let weights = linear(f, PREDICTION, [n * n, n], false, kinds);
        // The stream itself, with a weight of 1.
        let own = (0..n * n).map(|k| if k.is_multiple_of(n + 1) { 1.0 } else { 0.0 }).collect();
        let own = f.shared_constant("altup.own", "$altup.own", own);
        let weights = f.add(weights, own);
        (0..n)
            .map(|j| {
                let parts: Vec<Value> = (0..n).map(|i| weighted(f, weights, n * j + i, x[i])).collect();
                parts.into_iter().reduce(|sum, part| f.add(sum, part)).unwrap_or_else(|| f.stop())
            })
            .collect()
    }

    /// The streams after the layer, which made `y` of the active one: `x_j + c_j·(y − x_active)`.
    pub(crate) fn correct(self, f: &mut Draft, kinds: Kinds, x: &[Value], y: Value) -> Vec<Value> {
        let kinds = kinds.of(f, y);
        let weights = linear(f, CORRECTION, [self.streams; 2], false, kinds);
        let one = f.scalar(1.0);
        let weights = f.add(weights, one);
        let change = f.op(Op::Binary(BinaryOp::Sub), &[y, x[self.active]]);
        let corrected = x.iter().enumerate().map(|(j, x)| {
            let by = weighted(f, weights, j, change);
            f.add(*x, by)
        });
        corrected.collect()
    }

    /// The corrected streams' input to the gate of a layer's embeddings.
    pub(crate) fn gate_input(self, f: &mut Draft, x: &[Value]) -> Value {
        let x = x[self.active];
        if !self.corrected_scale {
            return x;
        }
        let by = f.weight(CORRECTED, Kind::Bare, &[f.facts().hidden]);
        f.mul(x, by)
    }
}

/// Weights of the kinds of rows, for predictions and for corrections.
#[derive(Clone, Copy)]
pub(crate) struct Kinds {
    gain: Value,
    router: Value,
    eps: F32,
}

impl Kinds {
    /// `tanh` of the router's numbers of the norm of `x`, divided by its width.
    fn of(self, f: &mut Draft, x: Value) -> Value {
        let width = f.facts().hidden;
        let x = f.op(Op::Normalize { eps: self.eps, width }, &[x]);
        let x = f.mul(x, self.gain);
        let x = scaled(f, x, Some((1.0 / width as f64) as f32));
        let x = f.matmul(x, self.router);
        f.unary(UnaryOp::Tanh, x)
    }
}

/// Column `at` of `weights` times each row of `x`.
fn weighted(f: &mut Draft, weights: Value, at: usize, x: Value) -> Value {
    let weight = f.op(Op::SliceCols { start: at, len: 1 }, &[weights]);
    f.op(Op::Combine, &[weight, x])
}

/// Products of each of `x` with a matrix of its own, with the magnitude of `like`.
fn alike(f: &mut Draft, part: Part, like: Value, x: &[Value]) -> Vec<Value> {
    let hidden = f.facts().hidden;
    let wanted = mean_square(f, like, hidden);
    let wanted = f.unary(UnaryOp::Sqrt, wanted);
    let least = f.scalar(LEAST);
    let mut made = vec![];
    for (e, x) in x.iter().enumerate() {
        let w = f.expert(part, e, [hidden; 2]);
        let y = f.matmul(*x, w);
        let found = mean_square(f, y, hidden);
        let found = f.op(Op::Binary(BinaryOp::Max), &[found, least]);
        let found = f.unary(UnaryOp::Sqrt, found);
        let ratio = f.op(Op::Binary(BinaryOp::Div), &[wanted, found]);
        made.push(f.op(Op::Combine, &[ratio, y]));
    }
    made
}
