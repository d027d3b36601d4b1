//! Graph level.

use super::moments::TappedRows;
use super::tensor::{Tensor, Value};
use super::{Batch, EvalError};
use crate::graph::{Arg, Entry, Func, Module, Node, Operands, ValueType};
use crate::state::State;
use crate::tap::Tap;
use crate::ty::{DType, TensorType};

/// Evaluates a function in f64. Returns its results; `states` are updated in place.
///
/// Nothing is rounded, except as an operation's definition requires (the angle of RoPE), and on the
/// way into a cache narrower than f32.
///
/// # Errors
/// [`EvalError`] when the function is ill-typed, an argument does not match its parameter, or the
/// batch names tokens, rows or positions that do not exist.
pub fn eval_func(func: &Func, args: &[Value], states: &mut [State], batch: &Batch) -> Result<Vec<Tensor>, EvalError> {
    batch.check()?;
    check_args(func, args, states, batch)?;
    let mut values = args.to_vec();
    for (i, node) in func.nodes.iter().enumerate() {
        let place = || format!("{}, node {i} (`{}`)", func.name, node.op.name());
        check_node(func, node, values.len()).map_err(|m| EvalError::malformed(place(), m))?;
        let operands: Vec<Value> = node.args.iter().map(|v| values[v.0 as usize].clone()).collect();
        let value = node.op.eval(Operands { args: &operands, states, batch }).map_err(|e| match e {
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

/// Evaluates the first entry of a module: its first output, `[R, columns]`, row-major. See [`eval_entry`].
///
/// # Errors
/// As [`eval_entry`].
pub fn eval_module(
    module: &Module,
    weights: &dyn Fn(usize) -> Vec<f32>,
    states: &mut [State],
    batch: &Batch,
) -> Result<Vec<f64>, EvalError> {
    let none = || EvalError::malformed(&module.name, "the module has no entry with an output");
    let entry = module.entries.first().ok_or_else(none)?;
    eval_entry(module, entry, weights, states, batch)?.into_iter().next().ok_or_else(none)
}

/// Evaluates an entry of a module: its outputs in order, row-major. `weights(i)` yields module weight `i` in f32
/// (not asked for weights with data in the module); there is one of `states` for each that the
/// module has.
///
/// # Errors
/// As [`eval_func`].
pub fn eval_entry(
    module: &Module,
    entry: &Entry,
    weights: &dyn Fn(usize) -> Vec<f32>,
    states: &mut [State],
    batch: &Batch,
) -> Result<Vec<Vec<f64>>, EvalError> {
    let results = eval_calls(module, entry, weights, states, batch)?;
    entry.outputs.iter().map(|o| rows(module, entry, &results, o.at)).collect()
}

/// Evaluates an entry of a module: the rows of its taps in order. See [`eval_entry`].
///
/// # Errors
/// As there.
pub fn eval_taps(
    module: &Module,
    entry: &Entry,
    weights: &dyn Fn(usize) -> Vec<f32>,
    states: &mut [State],
    batch: &Batch,
) -> Result<Vec<TappedRows>, EvalError> {
    let results = eval_calls(module, entry, weights, states, batch)?;
    let tapped = |tap: &Tap| {
        let routes = tap.routes.map(|r| rows(module, entry, &results, r.at)).transpose()?;
        Ok(TappedRows { rows: rows(module, entry, &results, tap.at)?, routes: routes.unwrap_or_default() })
    };
    entry.taps.iter().map(tapped).collect()
}

/// The numbers of a value of an entry.
fn rows(module: &Module, entry: &Entry, results: &[Value], at: usize) -> Result<Vec<f64>, EvalError> {
    match results.get(at) {
        Some(Value::Tensor(t)) => Ok(t.data.clone()),
        _ => Err(EvalError::malformed(&module.name, format!("`@{}` has no value {at}", entry.name))),
    }
}

/// The values of an entry: all results of its calls in order.
fn eval_calls(
    module: &Module,
    entry: &Entry,
    weights: &dyn Fn(usize) -> Vec<f32>,
    states: &mut [State],
    batch: &Batch,
) -> Result<Vec<Value>, EvalError> {
    let mut results: Vec<Value> = vec![];
    for (i, call) in entry.calls.iter().enumerate() {
        let place = || format!("call {i} of `{}`, `@{}`", module.name, entry.name);
        let func = module
            .funcs
            .get(call.func)
            .ok_or_else(|| EvalError::malformed(place(), format!("no function {}", call.func)))?;
        let arg = |a: &Arg| -> Option<Value> {
            Some(match *a {
                Arg::Value(v) => results.get(v)?.clone(),
                Arg::Weight(w) => {
                    let weight = module.weights.get(w)?;
                    let data = weight.data.clone().unwrap_or_else(|| weights(w));
                    let shape: Option<Vec<usize>> = weight.ty.shape.iter().map(|d| d.known()).collect();
                    Value::tensor(Tensor::from_f32(shape?, &data)?)
                }
                Arg::State(s) => Value::State(s),
                Arg::Input(input) => batch.input(input),
            })
        };
        let mut args = vec![];
        for (j, a) in call.args.iter().enumerate() {
            args.push(arg(a).ok_or_else(|| {
                EvalError::operand(place(), j.to_string(), format!("{a:?} does not exist or has the wrong size"))
            })?);
        }
        results.extend(eval_func(func, &args, states, batch)?.into_iter().map(Value::tensor));
    }
    Ok(results)
}

fn check_args(func: &Func, args: &[Value], states: &[State], batch: &Batch) -> Result<(), EvalError> {
    if args.len() != func.params.len() {
        return Err(EvalError::malformed(
            &func.name,
            format!("{} arguments for {} parameters", args.len(), func.params.len()),
        ));
    }
    for (p, a) in func.params.iter().zip(args) {
        let fits = match (&p.ty, a) {
            (ValueType::Tensor(t), Value::Tensor(v)) => has_type(v, t, batch),
            (ValueType::State(_), Value::State(i)) => states.get(*i).map(State::spec).as_ref() == p.ty.state(),
            (ValueType::Tensor(_) | ValueType::State(_), _) => false,
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
    t.shape == shape
        && t.data.len() == shape.iter().product::<usize>()
        && (ty.dtype != DType::I32 || t.data.iter().all(int))
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
