//! Mixers with a selective scan (Mamba, arXiv 2312.00752): each channel has a state of a few
//! numbers, whose decays depend on the token, on the channel and on the number.

use crate::arch::blocks::attention::{Norm, linear, norm};
use crate::arch::blocks::lifter::Draft;
use crate::arch::blocks::names::{Kind, Part};
use crate::arch::blocks::recurrent::{SSM_A, SSM_CONV, SSM_D, SSM_IN, SSM_OUT, short_conv};
use crate::arch::blocks::weight_forms::{filled, run_parts, split_rows};
use crate::config::ConfigError;
use crate::config::dictionary::fields;
use crate::config::fields::{Accepts, Field, Fields, Given};
use llmcc_ir::graph::{Op, UnaryOp, Update, Value};

/// Time steps (of low rank), input and output vectors, in one matrix.
pub(crate) const SSM_X: Part = Part("ssm.x");
/// Time steps of all channels.
pub(crate) const SSM_STEPS: Part = Part("ssm.steps");
/// Their addend, where it is no module's bias.
pub(crate) const SSM_STEPS_BIAS: Part = Part("ssm.steps_bias");
/// Norm of the time steps of low rank.
pub(crate) const SSM_STEPS_NORM: Part = Part("ssm.steps_norm");
/// Norm of the input vectors.
pub(crate) const SSM_B_NORM: Part = Part("ssm.b_norm");
/// Norm of the output vectors.
pub(crate) const SSM_C_NORM: Part = Part("ssm.c_norm");

/// A mixer of Mamba.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mamba1 {
    /// Channels.
    pub inner: usize,
    /// Numbers that each has.
    pub state: usize,
    /// Rank of the time steps.
    pub rank: usize,
    /// Tokens that the convolution sees.
    pub conv: usize,
    /// Biases on the input and output projections.
    pub bias: bool,
    /// A bias on the convolution.
    pub conv_bias: bool,
    /// Activation of the convolution.
    pub act: UnaryOp,
    /// Norms of the time steps and of the input and output vectors.
    pub norms: Option<Norm>,
    /// Channels belong to so many heads; each makes its own time steps, input and output vectors
    /// from its own channels; input and gate alternate in the input matrix.
    pub heads: Option<usize>,
}

/// The rank of the time steps that `field` has: a number, or `"auto"` for a sixteenth of the width.
pub(crate) fn rank(f: &Fields, field: &str, hidden: usize) -> Result<usize, ConfigError> {
    let Given::Value(v) = f.get(field) else { return Ok(hidden.div_ceil(16)) };
    let given = v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=1 << 20).contains(n));
    match (v.as_str(), given) {
        (Some("auto"), _) => Ok(hidden.div_ceil(16)),
        (_, Some(n)) => Ok(n),
        (_, None) => Err(f.invalid_value(field, v, "\"auto\", or a whole number from 1 to 1048576".into())),
    }
}

/// Fields of a model of nothing but such mixers.
pub(crate) const MIXERS: &[Field] = fields! {
    state_size, expand: Accepts::Size(64), intermediate_size, conv_kernel, use_bias, use_conv_bias,
    layer_norm_epsilon, time_step_rank,
};

/// Its output for `h`, a row per token.
#[track_caller]
pub(crate) fn mamba1(f: &mut Draft, m: &Mamba1, h: Value) -> Value {
    let hidden = f.facts().hidden;
    let w = f.matrix(SSM_IN, [2 * m.inner, hidden]);
    let b = m.bias.then(|| f.bias(SSM_IN, 2 * m.inner));
    let of_both = |f: &mut Draft, v| match m.heads {
        None => split_rows(f, v, [m.inner; 2]),
        Some(_) => [0, 1].map(|start| run_parts(f, v, 2, start, 1)),
    };
    let (w, b) = (of_both(f, w), b.map(|b| of_both(f, b)));
    let [x, gate] = [0, 1].map(|i| {
        let y = f.matmul(h, w[i]);
        b.map_or(y, |b| f.add(y, b[i]))
    });
    let x = short_conv(f, SSM_CONV, [m.conv, m.inner], m.conv_bias, x);
    let x = f.unary(m.act, x);
    let [dt, k, q] = match m.heads {
        None => steps_of_all(f, m, x),
        Some(heads) => steps_by_heads(f, m, heads, x),
    };
    let dt = f.unary(UnaryOp::Softplus, dt);
    let a = rates(f, m);
    let v = f.mul(dt, x);
    let heads = m.heads.unwrap_or(1);
    let state = f.fixed("ssm", [heads, m.state, m.inner / heads.max(1)]);
    let y = f.op(Op::Recurrence { update: Update::Scan }, &[q, k, v, dt, a, state]);
    let d = match m.heads {
        None => f.weight(SSM_D, Kind::Bare, &[m.inner]),
        Some(heads) => flat(f, SSM_D, &[heads, m.inner / heads.max(1)]),
    };
    let passed = f.mul(x, d);
    let y = f.add(y, passed);
    let gate = f.unary(UnaryOp::Silu, gate);
    let y = f.mul(y, gate);
    linear(f, SSM_OUT, [hidden, m.inner], m.bias, y)
}

/// Time steps before their softplus, input and output vectors.
#[track_caller]
fn steps_of_all(f: &mut Draft, m: &Mamba1, x: Value) -> [Value; 3] {
    let w = f.matrix(SSM_X, [m.rank + 2 * m.state, m.inner]);
    let w = split_rows(f, w, [m.rank, m.state, m.state]);
    let parts = [(SSM_STEPS_NORM, m.rank), (SSM_B_NORM, m.state), (SSM_C_NORM, m.state)];
    let [dt, k, q] = [0, 1, 2].map(|i| {
        let y = f.matmul(x, w[i]);
        m.norms.map_or(y, |spec| norm(f, parts[i].0, spec, y, parts[i].1))
    });
    [linear(f, SSM_STEPS, [m.inner, m.rank], true, dt), k, q]
}

/// The same head by head.
#[track_caller]
fn steps_by_heads(f: &mut Draft, m: &Mamba1, heads: usize, x: Value) -> [Value; 3] {
    let (head, run) = (m.inner / heads.max(1), m.rank + 2 * m.state);
    let product = |f: &mut Draft, x, w, cols| {
        let w = filled(f, w, cols);
        f.op(Op::HeadMatMul { heads, cols }, &[x, w])
    };
    let w = flat(f, SSM_X, &[heads, run, head]);
    let [dt, k, q] = [(0, m.rank), (m.rank, m.state), (m.rank + m.state, m.state)].map(|(start, len)| {
        let w = run_parts(f, w, run, start, len);
        product(f, x, w, len)
    });
    let w = flat(f, SSM_STEPS, &[heads, head, m.rank]);
    let dt = product(f, dt, w, head);
    let b = flat(f, SSM_STEPS_BIAS, &[heads, head]);
    [f.add(dt, b), k, q]
}

/// A part's tensors of all heads, one below the other.
#[track_caller]
fn flat(f: &mut Draft, part: Part, shape: &[usize]) -> Value {
    let w = f.weight(part, Kind::Bare, shape);
    f.op(Op::Flatten, &[w])
}

/// How fast each number of the channels decays, less than 0.
#[track_caller]
fn rates(f: &mut Draft, m: &Mamba1) -> Value {
    let Some(heads) = m.heads else {
        let a = f.weight(SSM_A, Kind::Bare, &[m.inner, m.state]);
        let a = f.unary(UnaryOp::Exp, a);
        let a = f.unary(UnaryOp::Neg, a);
        return f.op(Op::Transpose, &[a]);
    };
    let a = f.weight(SSM_A, Kind::Bare, &[heads, m.inner / heads.max(1), m.state]);
    let a = f.op(Op::Transpose, &[a]);
    let a = f.op(Op::Flatten, &[a]);
    let a = f.unary(UnaryOp::Exp, a);
    f.unary(UnaryOp::Neg, a)
}
