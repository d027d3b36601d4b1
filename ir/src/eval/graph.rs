//! Graph level.

use super::kernel::attention;
use super::kv::KvState;
use super::scalar::{binary, dot, normalize, rope, rope_row, unary};
use super::{Batch, EvalError};
use crate::graph::{Arg, Func, Input, Module, Node, Op, ValueType};
use crate::ty::{DType, TensorType};
use std::sync::Arc;

/// A tensor in f64, row-major. Integers are exact.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Vec<f64>,
}

/// What a parameter is bound to, or a node yields.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor.
    Tensor(Arc<Tensor>),
    /// Index in the array of attention states.
    Kv(usize),
}

impl Tensor {
    /// A tensor from its parts; `None` if the shape does not hold as many elements.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f64>) -> Option<Tensor> {
        let shape = shape.into();
        (shape.iter().product::<usize>() == data.len()).then_some(Tensor { shape, data })
    }

    /// From f32 elements; `None` if the shape does not hold as many.
    pub fn from_f32(shape: impl Into<Vec<usize>>, data: &[f32]) -> Option<Tensor> {
        Tensor::new(shape, data.iter().map(|v| f64::from(*v)).collect())
    }

    /// `i32 [n]`.
    fn ints(values: impl Iterator<Item = i32>) -> Tensor {
        let data: Vec<f64> = values.map(f64::from).collect();
        Tensor { shape: vec![data.len()], data }
    }

    fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1).max(1)
    }

    fn rows(&self) -> std::slice::Chunks<'_, f64> {
        self.data.chunks(self.cols())
    }

    fn int(&self, i: usize) -> i32 {
        self.data[i] as i32
    }

    /// Same shape, elements through `f`.
    fn map(&self, f: impl Fn(f64) -> f64) -> Tensor {
        Tensor { shape: self.shape.clone(), data: self.data.iter().map(|v| f(*v)).collect() }
    }

    /// Each row through `f`, which may change its length to `cols`.
    fn map_rows(&self, cols: usize, f: impl Fn(usize, &[f64]) -> Vec<f64>) -> Tensor {
        let mut shape = self.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = cols;
        }
        Tensor { shape, data: self.rows().enumerate().flat_map(|(i, r)| f(i, r)).collect() }
    }
}

impl Value {
    /// A tensor argument.
    pub fn tensor(t: Tensor) -> Value {
        Value::Tensor(Arc::new(t))
    }

    /// An input array of the step.
    pub fn input(input: Input, batch: &Batch) -> Value {
        Value::tensor(match input {
            Input::Tokens => Tensor::ints(batch.tokens.iter().copied()),
            Input::Positions => Tensor::ints(batch.positions.iter().copied()),
            Input::OutRows => Tensor::ints(batch.out_rows.iter().map(|r| *r as i32)),
        })
    }
}

/// Evaluates a function in f64. Returns its results; states in `kv` are updated in place.
///
/// Nothing is rounded, except what the definition of an operation rounds (the angle of RoPE) and what a cache narrower than f32 stores.
///
/// # Errors
/// [`EvalError`] when the function is ill-typed, an argument is not what its parameter says, or the batch names tokens, rows or positions that do not exist.
pub fn eval_func(func: &Func, args: &[Value], kv: &mut [KvState], batch: &Batch) -> Result<Vec<Tensor>, EvalError> {
    batch.check()?;
    check_args(func, args, kv, batch)?;
    let mut values = args.to_vec();
    for (i, node) in func.nodes.iter().enumerate() {
        let place = || format!("{}, node {i} (`{}`)", func.name, node.op.name());
        check_node(func, node, values.len()).map_err(|m| EvalError::malformed(place(), m))?;
        let operands: Vec<Value> = node.args.iter().map(|v| values[v.0 as usize].clone()).collect();
        let value = eval_op(&node.op, &operands, kv, batch).map_err(|e| match e {
            EvalError::Malformed { message, .. } => EvalError::malformed(place(), message),
            e => e,
        })?;
        values.push(value);
    }
    let result = |i: usize| match values.get(i) {
        Some(Value::Tensor(t)) => Ok(Tensor::clone(t)),
        _ => Err(EvalError::malformed(&func.name, format!("result {i} is not a tensor"))),
    };
    func.results.iter().map(|v| result(v.0 as usize)).collect()
}

/// Evaluates a step: logits `[R, vocab]`, row-major. `weights(i)` yields module weight `i` in f32 (not asked for weights with data in the module); `kv` has a state per attention state
/// of the module.
///
/// # Errors
/// As [`eval_func`].
pub fn eval_module(module: &Module, weights: &dyn Fn(usize) -> Vec<f32>, kv: &mut [KvState], batch: &Batch) -> Result<Vec<f64>, EvalError> {
    let mut results: Vec<Value> = vec![];
    for (i, call) in module.step.iter().enumerate() {
        let place = || format!("call {i} of `{}`", module.name);
        let func = module.funcs.get(call.func).ok_or_else(|| EvalError::malformed(place(), format!("no function {}", call.func)))?;
        let arg = |a: &Arg| -> Option<Value> {
            Some(match *a {
                Arg::Value(v) => results.get(v)?.clone(),
                Arg::Weight(w) => {
                    let weight = module.weights.get(w)?;
                    let data = weight.data.clone().unwrap_or_else(|| weights(w));
                    let shape: Option<Vec<usize>> = weight.ty.shape.iter().map(|d| d.known()).collect();
                    Value::tensor(Tensor::from_f32(shape?, &data)?)
                }
                Arg::Kv(k) => Value::Kv(k),
                Arg::Input(input) => Value::input(input, batch),
            })
        };
        let mut args = vec![];
        for (j, a) in call.args.iter().enumerate() {
            args.push(
                arg(a).ok_or_else(|| EvalError::operand(place(), j.to_string(), format!("{a:?} does not exist or has the wrong size")))?,
            );
        }
        results.extend(eval_func(func, &args, kv, batch)?.into_iter().map(Value::tensor));
    }
    match results.get(module.logits) {
        Some(Value::Tensor(t)) => Ok(t.data.clone()),
        _ => Err(EvalError::malformed(&module.name, format!("the step has no value {}", module.logits))),
    }
}

fn check_args(func: &Func, args: &[Value], kv: &[KvState], batch: &Batch) -> Result<(), EvalError> {
    if args.len() != func.params.len() {
        return Err(EvalError::malformed(&func.name, format!("{} arguments for {} parameters", args.len(), func.params.len())));
    }
    for (p, a) in func.params.iter().zip(args) {
        let fits = match (&p.ty, a) {
            (ValueType::Tensor(t), Value::Tensor(v)) => has_type(v, t, batch),
            (ValueType::Kv(spec), Value::Kv(i)) => kv.get(*i).is_some_and(|k| k.spec == *spec),
            _ => false,
        };
        if !fits {
            return Err(EvalError::operand(&func.name, &p.name, format!("is not of type {}", p.ty)));
        }
    }
    Ok(())
}

fn has_type(t: &Tensor, ty: &TensorType, batch: &Batch) -> bool {
    let shape: Vec<usize> = ty.shape.iter().map(|d| d.eval(batch.env())).collect();
    let int = |v: &f64| *v == f64::from(*v as i32);
    t.shape == shape && t.data.len() == shape.iter().product::<usize>() && (ty.dtype != DType::I32 || t.data.iter().all(int))
}

/// The node is typed as its operation says: from then on shapes can be relied on.
fn check_node(func: &Func, node: &Node, defined: usize) -> Result<(), String> {
    let mut types = vec![];
    for v in &node.args {
        match func.ty(*v).filter(|_| (v.0 as usize) < defined) {
            Some(t) => types.push(t.clone()),
            None => return Err(format!("value {} is not defined yet", v.0)),
        }
    }
    let ty = node.op.infer(&types)?;
    if ty == node.ty { Ok(()) } else { Err(format!("has type {ty}, not {}", node.ty)) }
}

fn eval_op(op: &Op, args: &[Value], kv: &mut [KvState], batch: &Batch) -> Result<Value, EvalError> {
    let t = |i: usize| match args.get(i) {
        Some(Value::Tensor(t)) => Ok(t),
        _ => Err(EvalError::malformed("", format!("argument {} must be a tensor", i + 1))),
    };
    let state = |i: usize| match args.get(i) {
        Some(Value::Kv(k)) => Ok(*k),
        _ => Err(EvalError::malformed("", format!("argument {} must be an attention state", i + 1))),
    };
    let tensor = match op {
        Op::Embed => gather(t(0)?, t(1)?, "token")?,
        Op::GatherRows => gather(t(0)?, t(1)?, "row")?,
        Op::MatMul => {
            let (x, w) = (t(0)?, t(1)?);
            x.map_rows(w.shape[0], |_, row| w.rows().map(|w| dot(row, w)).collect())
        }
        Op::Unary(u) => t(0)?.map(|v| unary(*u, v)),
        Op::Binary(b) => {
            let (x, y) = (t(0)?, t(1)?);
            // The width of a tiled vector divides the columns, so that the flat index runs through it.
            let data = x.data.iter().enumerate().map(|(i, v)| binary(*b, *v, y.data[i % y.data.len()])).collect();
            Tensor { shape: x.shape.clone(), data }
        }
        Op::Const(c) => Tensor { shape: vec![], data: vec![c.get().into()] },
        Op::Normalize { eps, width } => {
            let mut x = Tensor::clone(t(0)?);
            normalize(&mut x.data, *width, eps.get().into());
            x
        }
        Op::RopeTable { scale } => {
            let (positions, freq) = (t(0)?, t(1)?);
            let freq: Vec<f32> = freq.data.iter().map(|v| *v as f32).collect();
            let n = positions.data.len();
            let data = (0..n).flat_map(|i| rope_row(positions.int(i), &freq, scale.get().into())).collect();
            Tensor { shape: vec![n, 2 * freq.len()], data }
        }
        Op::Rope { head_dim } => {
            let (x, table) = (t(0)?, t(1)?);
            x.map_rows(x.cols(), |i, row| {
                let mut row = row.to_vec();
                rope(&mut row, *head_dim, &table.data[i * table.cols()..][..table.cols()]);
                row
            })
        }
        Op::KvAppend => {
            let at = state(0)?;
            append(&mut kv[at], t(1)?, t(2)?, t(3)?, batch);
            return Ok(Value::Kv(at));
        }
        Op::Attention { heads, scale } => {
            let (q, positions) = (t(0)?, t(2)?);
            let positions: Vec<i32> = (0..positions.data.len()).map(|i| positions.int(i)).collect();
            let rows = q.rows().map(<[f64]>::to_vec).collect();
            let out = attention(&kv[state(1)?], &batch.seqs, &positions, &rows, *heads, *scale)?;
            Tensor { shape: q.shape.clone(), data: out.concat() }
        }
        Op::SliceCols { start, len } => t(0)?.map_rows(*len, |_, row| row[*start..start + len].to_vec()),
        Op::ConcatCols => {
            let parts: Result<Vec<&Arc<Tensor>>, EvalError> = (0..args.len()).map(t).collect();
            let parts = parts?;
            let cols = parts.iter().map(|p| p.cols()).sum();
            let row = |i: usize| parts.iter().flat_map(|p| p.data[i * p.cols()..][..p.cols()].to_vec()).collect();
            parts[0].map_rows(cols, |i, _| row(i))
        }
        Op::Transpose => {
            let x = t(0)?;
            let (n, k) = (x.shape[0], x.shape[1]);
            Tensor { shape: vec![k, n], data: (0..k).flat_map(|j| (0..n).map(move |i| x.data[i * k + j])).collect() }
        }
        Op::ScaleCols => {
            let (w, g) = (t(0)?, t(1)?);
            w.map_rows(w.cols(), |_, row| row.iter().zip(&g.data).map(|(a, b)| a * b).collect())
        }
        Op::ScaleRows => {
            let (w, g) = (t(0)?, t(1)?);
            w.map_rows(w.cols(), |i, row| row.iter().map(|a| a * g.data[i]).collect())
        }
        Op::ConcatRows => {
            let mut x = Tensor::clone(t(0)?);
            for i in 1..args.len() {
                x.shape[0] += t(i)?.shape[0];
                x.data.extend_from_slice(&t(i)?.data);
            }
            x
        }
        Op::SliceRows { start, len } => {
            let x = t(0)?;
            let row: usize = x.shape[1..].iter().product();
            let mut shape = x.shape.clone();
            shape[0] = *len;
            Tensor { shape, data: x.data[start * row..(start + len) * row].to_vec() }
        }
    };
    Ok(Value::tensor(tensor))
}

/// Rows of `x` by number.
fn gather(x: &Tensor, numbers: &Tensor, what: &str) -> Result<Tensor, EvalError> {
    let mut data = vec![];
    for i in 0..numbers.data.len() {
        let n = numbers.int(i);
        let row = usize::try_from(n).ok().and_then(|r| x.rows().nth(r));
        data.extend_from_slice(row.ok_or_else(|| EvalError::batch(format!("{what} {n} of {}", x.shape[0])))?);
    }
    Ok(Tensor { shape: vec![numbers.data.len(), x.cols()], data })
}

fn append(kv: &mut KvState, k: &Tensor, v: &Tensor, positions: &Tensor, batch: &Batch) {
    for (i, (k, v)) in k.rows().zip(v.rows()).enumerate() {
        let position = positions.int(i).max(0) as usize;
        kv.store_key(batch.seqs[i], position, k);
        kv.store_value(batch.seqs[i], position, v);
    }
}
