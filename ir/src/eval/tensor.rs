//! Values of the graph level.

use std::sync::Arc;

/// A tensor in f64, row-major. Integers are exact.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Vec<f64>,
}

/// The value of a parameter or a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor.
    Tensor(Arc<Tensor>),
    /// Index in the array of states.
    State(usize),
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
    pub(super) fn ints(values: impl Iterator<Item = i32>) -> Tensor {
        let data: Vec<f64> = values.map(f64::from).collect();
        Tensor { shape: vec![data.len()], data }
    }

    pub(crate) fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1).max(1)
    }

    pub(crate) fn rows(&self) -> std::slice::Chunks<'_, f64> {
        self.data.chunks(self.cols())
    }

    pub(crate) fn to_rows(&self) -> Vec<Vec<f64>> {
        self.rows().map(<[f64]>::to_vec).collect()
    }

    pub(crate) fn int(&self, i: usize) -> i32 {
        self.data[i] as i32
    }

    /// Same shape, elements through `f`.
    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Tensor {
        Tensor { shape: self.shape.clone(), data: self.data.iter().map(|v| f(*v)).collect() }
    }

    /// Each row through `f`, which may change its length to `cols`.
    pub(crate) fn map_rows(&self, cols: usize, f: impl Fn(usize, &[f64]) -> Vec<f64>) -> Tensor {
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
}
