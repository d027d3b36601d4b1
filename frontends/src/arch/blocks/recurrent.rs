//! Blocks that keep a state of fixed size.

use crate::arch::blocks::attention::{Norm, linear, norm, scaled};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part};
use crate::arch::blocks::weight_forms::{run_parts, split_rows};
use crate::config::ConfigError;
use crate::config::fields::{Fields, Given};
use llmcc_ir::graph::{BinaryOp, F32, Op, UnaryOp, Update, Value};

/// Gate, channels of the convolution and time steps, in one matrix.
pub(crate) const SSM_IN: Part = Part("ssm.in");
/// Convolution over time.
pub(crate) const SSM_CONV: Part = Part("ssm.conv");
/// Addend of the time steps.
pub(crate) const SSM_DT: Part = Part("ssm.dt_bias");
/// Logarithms of the decays' rates.
pub(crate) const SSM_A: Part = Part("ssm.a_log");
/// How much of its input a head passes on.
pub(crate) const SSM_D: Part = Part("ssm.d");
/// Norm of the state's output.
pub(crate) const SSM_NORM: Part = Part("ssm.norm");
/// Output.
pub(crate) const SSM_OUT: Part = Part("ssm.out");

/// Queries, keys and values, in one matrix.
pub(crate) const DELTA_QKV: Part = Part("delta.qkv");
/// Convolutions of queries, keys and values over time, where they are stored one by one.
pub(crate) const CONV_Q: Part = Part("delta.conv_q");
/// The same of keys.
pub(crate) const CONV_K: Part = Part("delta.conv_k");
/// The same of values.
pub(crate) const CONV_V: Part = Part("delta.conv_v");
/// Queries.
pub(crate) const DELTA_Q: Part = Part("delta.q");
/// Keys.
pub(crate) const DELTA_K: Part = Part("delta.k");
/// Values.
pub(crate) const DELTA_V: Part = Part("delta.v");
/// Gate of the state's output.
pub(crate) const DELTA_GATE: Part = Part("delta.gate");
/// How much of a value is written.
pub(crate) const DELTA_RATE: Part = Part("delta.rate");
/// How much of the state is kept.
pub(crate) const DELTA_DECAY: Part = Part("delta.decay");

/// A layer with the gated delta rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedDelta {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Columns of each.
    pub key_dim: usize,
    /// Heads of values; a multiple of the heads of keys.
    pub value_heads: usize,
    /// Columns of each.
    pub value_dim: usize,
    /// Tokens that the convolution sees.
    pub conv: usize,
    /// Activation of the convolution.
    pub act: UnaryOp,
    /// How its projections are stored.
    pub stored: Projections,
    /// Twice as much of a value is written.
    pub twice: bool,
    /// Activation of the output's gate.
    pub gate_act: UnaryOp,
    /// Added to the mean square of the output; `None` = as in the other norms.
    pub eps: Option<f32>,
}

/// How the projections of the gated delta rule are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projections {
    /// Queries, keys and values in one matrix; rates, decays and gates in one each.
    Joined,
    /// All in two: for each key head its query, its key, its values and their gates; their rates
    /// and their decays.
    ByHead,
    /// One each.
    Apart,
}

/// A gated convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortConv {
    /// Tokens that it sees.
    pub width: usize,
    /// Biases on the convolution and the projections.
    pub bias: bool,
}

/// A mixer of Mamba-2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mamba2 {
    /// Heads.
    pub heads: usize,
    /// Columns of a head.
    pub head_dim: usize,
    /// Rows of its state.
    pub state: usize,
    /// Groups of heads that share their states' input and output vectors.
    pub groups: usize,
    /// Tokens that the convolution sees.
    pub conv: usize,
    /// A bias on the input projection.
    pub bias: bool,
    /// A bias on the output projection.
    pub out_bias: bool,
    /// A bias on the convolution.
    pub conv_bias: bool,
    /// Activation of the convolution.
    pub act: UnaryOp,
    /// Bounds of the time steps; `None` = there is none.
    pub steps: [Option<f32>; 2],
    /// The output is normalized.
    pub norm: ReadNorm,
    /// Factors of its input and of what is made of that; `None` = they are 1.
    pub factors: Option<Factors>,
}

/// Factors in a mixer of Mamba-2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    /// Factor of the input.
    pub input: Option<f32>,
    /// Factors of the gate, the recurrence's input, keys, queries and time steps.
    pub parts: [f32; 5],
}

/// Where the norm of a Mamba-2 mixer's state output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadNorm {
    /// After the gate.
    Gated,
    /// Before the gate.
    BeforeGate,
    /// There is none.
    None,
}

/// State-space duality (Mamba-2, arXiv 2405.21060): a recurrence with one decay per head and token,
/// behind a convolution, with a gate before the norm.
#[track_caller]
pub(crate) fn mamba2(f: &mut Draft, m: &Mamba2, eps: Norm, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let (inner, shared) = (m.heads * m.head_dim, m.groups * m.state);
    let channels = inner + 2 * shared;
    let rows = [inner, channels, m.heads];
    let h = scaled(f, h, m.factors.and_then(|factors| factors.input));
    let w = f.matrix(SSM_IN, [rows.iter().sum(), hidden]);
    let b = m.bias.then(|| f.bias(SSM_IN, rows.iter().sum()));
    let (w, b) = (split_rows(f, w, rows), b.map(|b| split_rows(f, b, rows)));
    let part = |f: &mut Draft, i: usize| {
        let y = f.matmul(h, w[i]);
        b.map_or(y, |b| f.add(y, b[i]))
    };
    let (gate, x, dt) = (part(f, 0), part(f, 1), part(f, 2));
    let [gate, x, dt] = multiplied(f, m, [gate, x, dt]);
    let x = short_conv(f, SSM_CONV, [m.conv, channels], m.conv_bias, x);
    let x = f.unary(m.act, x);
    let [x, k, q] = split_cols(f, x, [inner, shared, shared]);
    let (rate, decay) = time_steps(f, m, dt);
    let state = f.fixed("ssm", [m.heads, m.state, m.head_dim]);
    let y = f.op(Op::Recurrence { update: Update::Plain }, &[q, k, x, decay, rate, state]);
    let d = f.weight(SSM_D, Kind::Bare, &[m.heads]);
    let d = f.op(Op::RepeatEach { times: m.head_dim }, &[d]);
    let passed = f.mul(x, d);
    let y = f.add(y, passed);
    let gate = f.unary(UnaryOp::Silu, gate);
    let y = gated_norm(f, m, eps, y, gate);
    let out = f.matrix(SSM_OUT, [hidden, inner]);
    let b = m.out_bias.then(|| f.bias(SSM_OUT, hidden));
    let y = f.matmul(y, out);
    b.map_or(y, |b| f.add(y, b))
}

/// The gate, the convolution's input and the time steps, each part times its number.
#[track_caller]
fn multiplied(f: &mut Draft, m: &Mamba2, [gate, x, dt]: [Value; 3]) -> [Value; 3] {
    let Some(parts @ [of_gate, of_x, of_k, of_q, of_dt]) = m.factors.map(|factors| factors.parts) else {
        return [gate, x, dt];
    };
    let (inner, shared) = (m.heads * m.head_dim, m.groups * m.state);
    let all = [vec![of_x; inner], vec![of_k; shared], vec![of_q; shared]].concat();
    let factors = f.shared_constant("ssm.parts", &format!("$ssm.parts{parts:?}"), all);
    let gate = scaled(f, gate, Some(of_gate));
    let x = f.mul(x, factors);
    [gate, x, scaled(f, dt, Some(of_dt))]
}

/// The state's output, times the gate, with the norm of each group before or after.
#[track_caller]
fn gated_norm(f: &mut Draft, m: &Mamba2, eps: Norm, y: Value, gate: Value) -> Value {
    let inner = m.heads * m.head_dim;
    let y = if m.norm == ReadNorm::BeforeGate { y } else { f.mul(y, gate) };
    if m.norm == ReadNorm::None {
        return y;
    }
    let y = f.op(Op::Normalize { eps: F32::new(eps.eps), width: inner / m.groups }, &[y]);
    let gain = f.weight(SSM_NORM, Kind::Gain, &[inner]);
    let y = f.mul(y, gain);
    if m.norm == ReadNorm::BeforeGate { f.mul(y, gate) } else { y }
}

/// Gated DeltaNet (arXiv 2412.06464): each token replaces a part of the state's value for its key,
/// after the state has decayed; the norm comes before the gate.
#[track_caller]
pub(crate) fn gated_delta(f: &mut Draft, m: &GatedDelta, eps: Norm, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let (keys, values) = (m.key_heads * m.key_dim, m.value_heads * m.value_dim);
    let w = delta_matrices(f, m, hidden);
    let x = f.matmul_all(h, &w.qkv);
    let taps: &[(Part, usize)] = match m.stored {
        Projections::Joined | Projections::ByHead => &[(SSM_CONV, 2 * keys + values)],
        Projections::Apart => &[(CONV_Q, keys), (CONV_K, keys), (CONV_V, values)],
    };
    let x = convolved(f, taps, m.conv, x);
    let x = f.unary(m.act, x);
    let [q, k, v] = split_cols(f, x, [keys, keys, values]);
    let [q, k] = of_length_one(f, [q, k], m.key_dim);
    let rate = w.rate.unwrap_or_else(|| f.matrix(DELTA_RATE, [m.value_heads, hidden]));
    let rate = f.matmul(h, rate);
    let rate = f.unary(UnaryOp::Sigmoid, rate);
    let rate = scaled(f, rate, m.twice.then_some(2.0));
    let dt = w.decay.unwrap_or_else(|| f.matrix(DELTA_DECAY, [m.value_heads, hidden]));
    let dt = f.matmul(h, dt);
    let bias = f.weight(SSM_DT, Kind::Bare, &[m.value_heads]);
    let dt = f.add(dt, bias);
    let dt = f.unary(UnaryOp::Softplus, dt);
    let decay = decays(f, m.value_heads, dt);
    let state = f.fixed("delta", [m.value_heads, m.key_dim, m.value_dim]);
    let y = f.op(Op::Recurrence { update: Update::Delta }, &[q, k, v, decay, rate, state]);
    let own = Norm { from_one: false, eps: m.eps.unwrap_or(eps.eps), ..eps };
    let y = norm(f, SSM_NORM, own, y, m.value_dim);
    let gate = w.gate.unwrap_or_else(|| f.matrix(DELTA_GATE, [values, hidden]));
    let gate = f.matmul(h, gate);
    let gate = f.unary(m.gate_act, gate);
    let y = f.mul(y, gate);
    linear(f, SSM_OUT, [hidden, values], false, y)
}

/// Queries and keys of length 1, head by head, queries divided by the root of their columns.
#[track_caller]
pub(crate) fn of_length_one(f: &mut Draft, [q, k]: [Value; 2], dim: usize) -> [Value; 2] {
    // x/√(Σx² + ε) is x/√(mean + ε/n), divided by √n; queries are divided by it once more.
    let n = dim as f64;
    let unit = Op::Normalize { eps: F32::new((1e-6 / n) as f32), width: dim };
    [(q, 1.0 / n), (k, 1.0 / n.sqrt())].map(|(x, scale)| {
        let x = f.op(unit.clone(), &[x]);
        scaled(f, x, Some(scale as f32))
    })
}

/// Matrices of the gated delta rule; `None` = it is stored by itself.
struct DeltaMatrices {
    qkv: Vec<Value>,
    gate: Option<Value>,
    rate: Option<Value>,
    decay: Option<Value>,
}

/// The matrix of queries, keys and values, and the tensors stored beside it.
#[track_caller]
fn delta_matrices(f: &mut Draft, m: &GatedDelta, hidden: usize) -> DeltaMatrices {
    let (keys, values) = (m.key_heads * m.key_dim, m.value_heads * m.value_dim);
    let alone = |qkv| DeltaMatrices { qkv, gate: None, rate: None, decay: None };
    match m.stored {
        Projections::Joined => alone(vec![f.matrix(DELTA_QKV, [2 * keys + values, hidden])]),
        Projections::Apart => {
            let each = [(DELTA_Q, keys), (DELTA_K, keys), (DELTA_V, values)];
            alone(each.map(|(part, rows)| f.matrix(part, [rows, hidden])).to_vec())
        }
        Projections::ByHead => {
            let heads = m.value_heads / m.key_heads.max(1);
            let (key, value) = (m.key_dim, heads * m.value_dim);
            let all = f.matrix(DELTA_QKV, [2 * (keys + values), hidden]);
            let parts = [(0, key), (key, key), (2 * key, value), (2 * key + value, value)];
            let [q, k, v, gate] = parts.map(|(start, len)| run_parts(f, all, 2 * (key + value), start, len));
            let both = f.matrix(DELTA_RATE, [2 * m.value_heads, hidden]);
            let [rate, decay] = [0, heads].map(|start| run_parts(f, both, 2 * heads, start, heads));
            let qkv = f.op(Op::ConcatRows, &[q, k, v]);
            DeltaMatrices { qkv: vec![qkv], gate: Some(gate), rate: Some(rate), decay: Some(decay) }
        }
    }
}

/// A convolution between two gates, as LFM2 has it.
#[track_caller]
pub(crate) fn gated_conv(f: &mut Draft, m: &ShortConv, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let w = f.matrix(SSM_IN, [3 * hidden, hidden]);
    let b = m.bias.then(|| f.bias(SSM_IN, 3 * hidden));
    let (w, b) = (split_rows(f, w, [hidden; 3]), b.map(|b| split_rows(f, b, [hidden; 3])));
    let [before, after, x] = [0, 1, 2].map(|i| {
        let y = f.matmul(h, w[i]);
        b.map_or(y, |b| f.add(y, b[i]))
    });
    let x = f.mul(before, x);
    let x = short_conv(f, SSM_CONV, [m.width, hidden], m.bias, x);
    let y = f.mul(after, x);
    linear(f, SSM_OUT, [hidden, hidden], m.bias, y)
}

/// The time steps of all heads, and the decays that follow from them.
#[track_caller]
fn time_steps(f: &mut Draft, m: &Mamba2, dt: Value) -> (Value, Value) {
    let bias = f.weight(SSM_DT, Kind::Bare, &[m.heads]);
    let dt = f.add(dt, bias);
    let mut dt = f.unary(UnaryOp::Softplus, dt);
    for (bound, op) in m.steps.into_iter().zip([BinaryOp::Max, BinaryOp::Min]) {
        if let Some(bound) = bound {
            let bound = f.scalar(bound);
            dt = f.op(Op::Binary(op), &[dt, bound]);
        }
    }
    (dt, decays(f, m.heads, dt))
}

/// `e^(Δ·A)`, `A = −e^(A_log)`.
#[track_caller]
fn decays(f: &mut Draft, heads: usize, dt: Value) -> Value {
    let a = f.weight(SSM_A, Kind::Bare, &[heads]);
    let a = f.unary(UnaryOp::Exp, a);
    let a = f.unary(UnaryOp::Neg, a);
    let decay = f.mul(dt, a);
    f.unary(UnaryOp::Exp, decay)
}

/// A depthwise convolution without a bias, whose taps are stored for so many channels each.
#[track_caller]
pub(crate) fn convolved(f: &mut Draft, parts: &[(Part, usize)], width: usize, x: Value) -> Value {
    let all: usize = parts.iter().map(|(_, n)| n).sum();
    // Transformers splits joined matrices in equal parts, whatever they were before: queries, keys
    // and wider values of OLMo-Hybrid.
    let most = all.div_ceil(parts.len().max(1));
    let cut = |i: usize| most.min(all.saturating_sub(i.saturating_mul(most)));
    let is_cut =
        parts.iter().enumerate().all(|(i, (part, _))| f.shape_of(*part, Kind::Taps) == Some(&[cut(i), 1, width][..]));
    let rows = parts.iter().enumerate().map(|(i, (part, n))| (*part, if is_cut { cut(i) } else { *n }));
    let taps: Vec<Value> = rows.map(|(part, n)| f.weight(part, Kind::Taps, &[n, width])).collect();
    let taps = if let [one] = taps[..] { one } else { f.op(Op::ConcatRows, &taps) };
    let taps = f.op(Op::Transpose, &[taps]);
    over_time(f, taps, [width, all], x)
}

/// The same of one part that sees every so many tokens, `apart`; between them there are taps of zeros.
#[track_caller]
pub(crate) fn dilated(f: &mut Draft, part: Part, [width, channels]: [usize; 2], apart: usize, x: Value) -> Value {
    let taps = f.weight(part, Kind::Taps, &[channels, width]);
    let taps = f.op(Op::Transpose, &[taps]);
    let seen = width.saturating_sub(1).saturating_mul(apart).saturating_add(1);
    let taps = f.op(Op::FillRows { run: 1, to: apart }, &[taps]);
    let taps = f.op(Op::SliceRows { start: 0, len: seen }, &[taps]);
    over_time(f, taps, [seen, channels], x)
}

/// A convolution with these taps `[width, channels]`, and a state of its own.
#[track_caller]
pub(crate) fn over_time(f: &mut Draft, taps: Value, [width, channels]: [usize; 2], x: Value) -> Value {
    let state = f.fixed("conv", [1, width.saturating_sub(1), channels]);
    f.op(Op::CausalConv, &[x, taps, state])
}

/// The columns of `x` at the token before; zeros at the first. `name`: its state's.
#[track_caller]
pub(crate) fn delayed(f: &mut Draft, name: &str, channels: usize, x: Value) -> Value {
    let taps = [vec![1.0; channels], vec![0.0; channels]].concat();
    let taps = f.shared_table(&format!("{name}.taps"), &format!("$before{channels}"), [2, channels], taps);
    let state = f.fixed(name, [1, 1, channels]);
    f.op(Op::CausalConv, &[x, taps, state])
}

/// A depthwise convolution over `width` tokens, with a state of its own.
#[track_caller]
pub(crate) fn short_conv(f: &mut Draft, part: Part, [width, channels]: [usize; 2], bias: bool, x: Value) -> Value {
    let y = convolved(f, &[(part, channels)], width, x);
    if bias {
        let b = f.bias(part, channels);
        return f.add(y, b);
    }
    y
}

/// Columns side by side: each of them.
#[track_caller]
pub(crate) fn split_cols<const N: usize>(f: &mut Draft, x: Value, cols: [usize; N]) -> [Value; N] {
    let mut start = 0usize;
    cols.map(|len| {
        let part = f.op(Op::SliceCols { start, len }, &[x]);
        start = start.saturating_add(len);
        part
    })
}

/// `count` parts of so many columns each, side by side: each of them.
#[track_caller]
pub(crate) fn split_each(f: &mut Draft, x: Value, cols: usize, count: usize) -> Vec<Value> {
    (0..count).map(|i| f.op(Op::SliceCols { start: i.saturating_mul(cols), len: cols }, &[x])).collect()
}

/// The bounds of `time_step_limit`; infinity, which JSON lacks, is written as Transformers does
/// (`{"__float__": "Infinity"}`), or as a word.
pub(crate) fn steps(f: &Fields) -> Result<[Option<f32>; 2], ConfigError> {
    let field = "time_step_limit";
    let Given::Value(v) = f.get(field) else { return Ok([Some(0.0), None]) };
    let infinite = |v: &serde_json::Value| {
        let word = v.as_object().and_then(|o| o.get("__float__")).unwrap_or(v);
        matches!(word.as_str(), Some("Infinity" | "inf"))
    };
    match v.as_array().map(Vec::as_slice) {
        Some([low, high]) => {
            let (least, most) = (low.as_f64(), high.as_f64());
            let fits = |x: f64| (0.0..=f64::from(f32::MAX)).contains(&x);
            match (least, most) {
                (Some(least), Some(most)) if fits(least) && fits(most) && least <= most => {
                    Ok([Some(least as f32), Some(most as f32)])
                }
                (Some(least), None) if fits(least) && infinite(high) => Ok([Some(least as f32), None]),
                _ => Err(f.invalid_value(field, v, "two numbers, the smaller one first".into())),
            }
        }
        _ => Err(f.invalid_value(field, v, "two numbers, the smaller one first".into())),
    }
}
