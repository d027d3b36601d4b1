//! Weight expressions: the values that packing stores.

use super::{Batch, EvalError, Tensor, Value};
use crate::graph::{Op, Operands, ValueType};
use crate::plan::WeightExpr;
use crate::ty::{DType, Dim, TensorType};

/// A weight on its way from the checkpoint into a packed tensor: f32, row-major; rank 0, 1 or 2.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightTensor {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Vec<f32>,
}

impl WeightTensor {
    /// A tensor from its parts; `None` if the shape does not hold as many elements.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Option<WeightTensor> {
        let shape = shape.into();
        (shape.iter().product::<usize>() == data.len()).then_some(WeightTensor { shape, data })
    }
}

/// Evaluates a weight expression. `leaf(i)` is module weight `i` in f32 (exact for f16, bf16 and
/// f32 tensors).
///
/// Every element of every operation is rounded to f32 once: packing, which streams, must store
/// exactly these numbers.
///
/// # Errors
/// A shape does not fit its operation.
pub fn eval_weight(
    expr: &WeightExpr,
    leaf: &dyn Fn(usize) -> Result<WeightTensor, EvalError>,
) -> Result<WeightTensor, EvalError> {
    match expr {
        WeightExpr::Weight(i) => leaf(*i),
        WeightExpr::Op(op, args) => {
            let args: Result<Vec<_>, _> = args.iter().map(|x| eval_weight(x, leaf)).collect();
            eval_weight_op(op, args?)
        }
    }
}

/// Evaluates one operation on weights: in f64, rounded to f32 once.
///
/// # Errors
/// It is none on weights, or a shape does not fit it.
pub fn eval_weight_op(op: &Op, args: Vec<WeightTensor>) -> Result<WeightTensor, EvalError> {
    let misfit = |message: String| EvalError::malformed(format!("weight expression `{}`", op.name()), message);
    if !op.facts().packs() {
        return Err(misfit("it is computed when running, not when packing".into()));
    }
    let ty = |x: &WeightTensor| ValueType::Tensor(TensorType::new(DType::F32, x.shape.iter().map(|n| Dim::Static(*n))));
    op.infer(&args.iter().map(ty).collect::<Vec<_>>()).map_err(misfit)?;
    let wide =
        |x: WeightTensor| Value::tensor(Tensor { shape: x.shape, data: x.data.into_iter().map(f64::from).collect() });
    let args: Vec<Value> = args.into_iter().map(wide).collect();
    match op.eval(Operands { args: &args, states: &mut [], batch: &Batch::default() })? {
        Value::Tensor(t) => {
            Ok(WeightTensor { shape: t.shape.clone(), data: t.data.iter().map(|v| *v as f32).collect() })
        }
        Value::State(_) => Err(misfit("a weight cannot be a state".into())),
    }
}
