//! Operations on weights alone, evaluated when packing.

use super::of::{
    ConcatRows, FillRows, Flatten, LookUp, MulTransposed, PickRows, RepeatEach, Row, ScaleCols, ScaleRows, SliceRows,
    StandardRows, Transpose, UnitRows,
};
use super::rule::{Operands, Rule, Types};
use crate::eval::{EvalError, Tensor, Value, dot};
use crate::graph::value::ValueType;
use crate::ty::{DType, Dim, TensorType};

/// The divisor of a row in `unit_rows`.
pub fn row_norm(row: impl Iterator<Item = f64>) -> f64 {
    row.map(|x| x * x).sum::<f64>().sqrt().max(1e-12)
}

impl Rule for Transpose {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let t = a.tensor(0)?;
        if let [Dim::Static(_), n @ Dim::Static(_), k @ Dim::Static(_)] = t.shape[..] {
            return Ok(TensorType::new(t.dtype, [t.shape[0], k, n]).into());
        }
        let (n, k) = a.weight_matrix(0)?;
        // Codes share scales along a row, which is none any more.
        let dtype = if t.dtype.coded().is_some() { DType::F32 } else { t.dtype };
        Ok(TensorType::new(dtype, [k.into(), n.into()]).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let mut shape = x.shape.clone();
        let last = shape.len() - 1;
        let (n, k) = (shape[last - 1], shape[last]);
        shape.swap(last - 1, last);
        let turned = |m: &[f64]| (0..k).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| m[i * k + j]).collect();
        let data: Vec<Vec<f64>> = x.data.chunks((n * k).max(1)).map(turned).collect();
        Ok(Value::tensor(Tensor { shape, data: data.concat() }))
    }
}

impl Rule for ScaleCols {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        scaled(a, n, k, k)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, g) = (a.tensor(0)?, a.tensor(1)?);
        Ok(Value::tensor(w.map_rows(w.cols(), |_, row| row.iter().zip(&g.data).map(|(a, b)| a * b).collect())))
    }
}

impl Rule for ScaleRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        scaled(a, n, k, n)
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, g) = (a.tensor(0)?, a.tensor(1)?);
        Ok(Value::tensor(w.map_rows(w.cols(), |i, row| row.iter().map(|a| a * g.data[i]).collect())))
    }
}

/// `[n, k]`; the dimension of `dim` is scaled by the vector.
fn scaled(a: &Types<'_>, n: usize, k: usize, dim: usize) -> Result<ValueType, String> {
    a.same("scaled dimension and vector", dim, a.vector(1)?)?;
    Ok(TensorType::rows(n.into(), k).into())
}

impl Rule for RepeatEach {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let n = a.vector(0)?;
        match n.checked_mul(self.times).filter(|n| *n > 0) {
            Some(n) => Ok(TensorType::new(a.tensor(0)?.dtype, [n.into()]).into()),
            None => Err(format!("`{}`: {n} elements {} times are none, or too many", a.name, self.times)),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let data: Vec<f64> = x.data.iter().flat_map(|v| std::iter::repeat_n(*v, self.times)).collect();
        Ok(Value::tensor(Tensor { shape: vec![data.len()], data }))
    }
}

impl Rule for LookUp {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        a.vector(0)?;
        Ok(TensorType::new(a.tensor(0)?.dtype, [a.vector(1)?.into()]).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, order) = (a.tensor(0)?, a.tensor(1)?);
        let at = |at: &f64| x.data.get(*at as usize).copied().filter(|_| *at >= 0.0);
        match order.data.iter().map(at).collect::<Option<Vec<f64>>>() {
            Some(data) => Ok(Value::tensor(Tensor { shape: vec![data.len()], data })),
            None => Err(EvalError::malformed("", format!("`look_up` of more than {} elements", x.data.len()))),
        }
    }
}

impl Rule for UnitRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        Ok(TensorType::rows(n.into(), k).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let w = a.tensor(0)?;
        let unit = |_: usize, row: &[f64]| {
            let norm = row_norm(row.iter().copied());
            row.iter().map(|x| x / norm).collect()
        };
        Ok(Value::tensor(w.map_rows(w.cols(), unit)))
    }
}

impl Rule for StandardRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        if self.eps.get() <= 0.0 {
            return Err(format!("`{}`: eps {} is not positive", a.name, self.eps));
        }
        Ok(TensorType::rows(n.into(), k).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (w, eps) = (a.tensor(0)?, f64::from(self.eps.get()));
        let standard = |_: usize, row: &[f64]| {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let square = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
            row.iter().map(|x| (x - mean) / (square + eps).sqrt()).collect()
        };
        Ok(Value::tensor(w.map_rows(w.cols(), standard)))
    }
}

impl Rule for MulTransposed {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let ((m, k), (n, other)) = (a.weight_matrix(0)?, a.weight_matrix(1)?);
        a.same("columns of both", other, k)?;
        Ok(TensorType::rows(m.into(), n).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let (x, w) = (a.tensor(0)?, a.tensor(1)?);
        let product = |row: &[f64]| w.rows().map(|w| dot(row, w)).collect::<Vec<f64>>();
        let data: Vec<f64> = x.rows().flat_map(product).collect();
        Ok(Value::tensor(Tensor { shape: vec![x.shape[0], w.shape[0]], data }))
    }
}

impl Rule for ConcatRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let first = a.tensor(0)?;
        let mut n = 0usize;
        for i in 0..a.len() {
            let t = a.tensor(i)?;
            if t.shape.len() != first.shape.len() || t.shape.get(1..) != first.shape.get(1..) || t.dtype != first.dtype
            {
                return Err(format!("`concat_rows`: {t} does not continue {first}"));
            }
            n = n.saturating_add(rows(t).ok_or("`concat_rows` needs weights")?);
        }
        Ok(with_rows(first, n))
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let mut x = Tensor::clone(a.tensor(0)?);
        for i in 1..a.args.len() {
            x.shape[0] += a.tensor(i)?.shape[0];
            x.data.extend_from_slice(&a.tensor(i)?.data);
        }
        Ok(Value::tensor(x))
    }
}

impl Rule for SliceRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let t = a.tensor(0)?;
        a.range(self.start, self.len, rows(t).ok_or("`slice_rows` needs a weight")?)?;
        Ok(with_rows(t, self.len))
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let row: usize = x.shape[1..].iter().product();
        let mut shape = x.shape.clone();
        shape[0] = self.len;
        Ok(Value::tensor(Tensor { shape, data: x.data[self.start * row..(self.start + self.len) * row].to_vec() }))
    }
}

impl Rule for Row {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let (n, k) = a.weight_matrix(0)?;
        a.range(self.index, 1, n)?;
        Ok(TensorType::new(a.tensor(0)?.dtype, [k.into()]).into())
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let row = &x.data[self.index * x.cols()..][..x.cols()];
        Ok(Value::tensor(Tensor { shape: vec![x.cols()], data: row.to_vec() }))
    }
}

impl Rule for PickRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let t = a.tensor(0)?;
        let n = rows(t).ok_or("`pick_rows` needs a weight")?;
        a.multiple("run", n, self.run)?;
        a.range(self.start, self.len, self.run)?;
        if !self.pairs.is_multiple_of(2) || self.pairs > self.len {
            return Err(format!("`pick_rows`: {} of {} rows are no pairs", self.pairs, self.len));
        }
        Ok(with_rows(t, n / self.run * self.len))
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let PickRows { run, start, len, pairs } = *self;
        let row: usize = x.shape[1..].iter().product();
        let mut shape = x.shape.clone();
        shape[0] = x.shape[0] / run * len;
        let from = |i: usize| &x.data[picked_row([run, start, len, pairs], i) * row..][..row];
        let data = (0..shape[0]).flat_map(from).copied().collect();
        Ok(Value::tensor(Tensor { shape, data }))
    }
}

impl Rule for FillRows {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let t = a.tensor(0)?;
        let n = rows(t).ok_or("`fill_rows` needs a weight")?;
        a.multiple("run", n, self.run)?;
        if self.to < self.run {
            return Err(format!("`fill_rows`: runs of {} rows do not fit in {}", self.run, self.to));
        }
        Ok(with_rows(t, (n / self.run).saturating_mul(self.to)))
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let row: usize = x.shape[1..].iter().product();
        let mut shape = x.shape.clone();
        shape[0] = x.shape[0] / self.run * self.to;
        let mut data = vec![0.0; shape[0] * row];
        for (to, from) in data.chunks_exact_mut(self.to * row).zip(x.data.chunks_exact(self.run * row)) {
            to[..from.len()].copy_from_slice(from);
        }
        Ok(Value::tensor(Tensor { shape, data }))
    }
}

impl Rule for Flatten {
    fn infer(&self, a: &Types<'_>) -> Result<ValueType, String> {
        let t = a.tensor(0)?;
        match t.shape[..] {
            [Dim::Static(e), Dim::Static(n), ref rest @ ..] if rest.len() <= 1 => {
                let shape = std::iter::once(Dim::Static(e.saturating_mul(n))).chain(rest.iter().copied());
                Ok(TensorType::new(t.dtype, shape).into())
            }
            _ => Err(format!("`flatten` needs a weight of two or three dimensions, not {t}")),
        }
    }

    fn eval(&self, a: Operands<'_>) -> Result<Value, EvalError> {
        let x = a.tensor(0)?;
        let shape = std::iter::once(x.shape[0] * x.shape[1]).chain(x.shape[2..].iter().copied()).collect();
        Ok(Value::tensor(Tensor { shape, data: x.data.clone() }))
    }
}

/// The row that row `i` of [`Op::PickRows`](super::Op::PickRows) with the attributes
/// `[run, start, len, pairs]` is.
pub fn picked_row([run, start, len, pairs]: [usize; 4], i: usize) -> usize {
    let (of, j) = (i / len, i % len);
    let half = pairs / 2;
    let j = if j < half {
        2 * j
    } else if j < pairs {
        2 * (j - half) + 1
    } else {
        j
    };
    of * run + start + j
}

/// Rows of a weight; elements of a vector.
fn rows(t: &TensorType) -> Option<usize> {
    t.shape.first().and_then(|d| d.known())
}

/// `t` with `n` rows.
fn with_rows(t: &TensorType, n: usize) -> ValueType {
    let shape = std::iter::once(Dim::Static(n)).chain(t.shape.iter().skip(1).copied());
    TensorType::new(t.dtype, shape).into()
}

#[cfg(test)]
mod tests {
    use crate::eval::{WeightTensor, eval_weight_op};
    use crate::graph::{F32, Op};

    #[test]
    fn runs_are_filled_up_with_zeros() {
        let fill = |shape: &[usize], run, to| {
            let data = (1..=shape.iter().product::<usize>()).map(|i| i as f32).collect();
            let filled = eval_weight_op(&Op::FillRows { run, to }, vec![WeightTensor { shape: shape.to_vec(), data }]);
            filled.map(|t| (t.shape, t.data)).map_err(|e| e.to_string())
        };
        assert_eq!(fill(&[4], 2, 3), Ok((vec![6], vec![1.0, 2.0, 0.0, 3.0, 4.0, 0.0])));
        assert_eq!(fill(&[2, 2], 1, 2), Ok((vec![4, 2], vec![1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0])));
        assert_eq!(fill(&[2, 1], 2, 2), Ok((vec![2, 1], vec![1.0, 2.0])));
        assert!(fill(&[4], 3, 4).is_err() && fill(&[4], 2, 1).is_err() && fill(&[4], 0, 1).is_err());
    }

    #[test]
    fn rows_are_standardized_and_multiplied() {
        let w = || WeightTensor { shape: vec![3, 2], data: vec![1.0, 0.0, 0.0, 1.0, 2.0, -1.0] };
        // Means of 1/2, and deviations from them of 1/2, or of 3/2.
        let standard = eval_weight_op(&Op::StandardRows { eps: F32::new(0.75) }, vec![w()]).unwrap();
        let large = (1.5 / 3f64.sqrt()) as f32;
        assert_eq!(standard, WeightTensor { shape: vec![3, 2], data: vec![0.5, -0.5, -0.5, 0.5, large, -large] });
        assert!(eval_weight_op(&Op::StandardRows { eps: F32::new(0.0) }, vec![w()]).is_err());
        let two = || WeightTensor { shape: vec![2, 2], data: vec![1.0, 0.0, 2.0, -1.0] };
        let product = eval_weight_op(&Op::MulTransposed, vec![w(), two()]).unwrap();
        assert_eq!(product, WeightTensor { shape: vec![3, 2], data: vec![1.0, 2.0, 0.0, -1.0, 2.0, 5.0] });
        let wide = WeightTensor { shape: vec![1, 3], data: vec![0.0; 3] };
        assert!(eval_weight_op(&Op::MulTransposed, vec![w(), wide]).is_err());
    }
}
