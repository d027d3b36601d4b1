//! Tensors whose elements do not lie one after the other in one file: views of PyTorch's, and slices
//! of a matrix in several files.

use super::safetensors::TensorInfo;
use super::shard::Shard;
use super::stored::{Entry, Layout, Order, Rows, read_f32};
use llmcc_ir::quant::{CodedRow, StoredRows};
use llmcc_ir::ty::DType;
use std::ops::Range;
use std::sync::Arc;

/// Elements with a distance between neighbours of each dimension.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub shard: usize,
    pub info: TensorInfo,
    /// Elements; `None`: one after the other.
    pub strides: Option<Vec<usize>>,
}

impl View {
    /// The tensor as it is.
    pub fn entry(self) -> Entry {
        let entry = Entry::plain(self.shard, self.info.clone());
        match self.strides {
            None => entry,
            Some(_) => Entry { layout: Some(Arc::new(Slices::one(self))), ..entry },
        }
    }

    /// Rows, which are the elements of a vector.
    pub fn rows(&self) -> usize {
        let leading = self.info.shape.split_last().filter(|(_, rest)| !rest.is_empty());
        leading.map_or(self.info.shape.first().copied().unwrap_or(1), |(_, rest)| rest.iter().product())
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        if self.info.shape.len() > 1 { self.info.shape.last().copied().unwrap_or(1) } else { 1 }
    }

    /// The part of a matrix from an element on: so many rows, and of their columns so many, each `step`th.
    pub fn part(&self, [row, column]: [usize; 2], shape: [usize; 2], step: usize) -> View {
        let own = self.strides.clone().unwrap_or_else(|| vec![self.columns(), 1]);
        let [down, across] = [0, 1].map(|i| own.get(i).copied().unwrap_or(1));
        let size = self.info.dtype.dtype.and_then(DType::bytes).unwrap_or(1);
        let before = row.saturating_mul(down).saturating_add(column.saturating_mul(across)).saturating_mul(size);
        let bytes = self.info.bytes.start.saturating_add(before).min(self.info.bytes.end)..self.info.bytes.end;
        let info = TensorInfo { shape: shape.to_vec(), bytes, ..self.info.clone() };
        View { shard: self.shard, info, strides: Some(vec![down, across.saturating_mul(step)]) }
    }

    /// Writes a row. Places were checked when the file was opened.
    pub fn row(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let Some((dtype, size)) = self.info.dtype.dtype.and_then(|t| Some((t, t.bytes()?))) else { return };
        let all = shards.get(self.shard).and_then(|s| s.map.get(self.info.bytes.clone())).unwrap_or_default();
        let (from, step) = self.place(row);
        let (from, columns) = (from.saturating_mul(size), self.columns());
        let Some(rest) = all.get(from..) else { return };
        match step {
            1 => drop(rest.get(..columns.saturating_mul(size)).map(|bytes| read_f32(dtype, bytes, out))),
            _ => out.iter_mut().zip(rest.chunks(size.saturating_mul(step.max(1)))).for_each(|(o, chunk)| {
                read_element(dtype, chunk.get(..size).unwrap_or_default(), o);
            }),
        }
    }

    /// The first element of a row, and the distance of the next.
    fn place(&self, row: usize) -> (usize, usize) {
        let Some(strides) = &self.strides else { return (row.saturating_mul(self.columns()), 1) };
        let inner = usize::from(self.info.shape.len() > 1);
        let leading = self.info.shape.len() - inner.min(self.info.shape.len());
        let (mut row, mut from) = (row, 0usize);
        for (n, stride) in self.info.shape.iter().zip(strides).take(leading).rev() {
            from = from.saturating_add((row % n.max(&1)).saturating_mul(*stride));
            row /= n.max(&1);
        }
        (from, if inner == 1 { strides.last().copied().unwrap_or(1) } else { 1 })
    }
}

/// Writes the values of a row of a tensor, in the order of the matrix.
pub(super) fn row_of(tensor: &Entry, shards: &[Shard], row: usize, out: &mut [f32]) {
    let (Some(layout), Some(dtype)) = (&tensor.layout, tensor.info.dtype.dtype) else {
        let plain = View { shard: tensor.shard, info: tensor.info.clone(), strides: None };
        return plain.row(shards, row, out);
    };
    Rows { layout: layout.as_ref(), shards, dtype, columns: out.len() }.values(row, out);
    if let Some(order) = &tensor.order {
        let stored = out.to_vec();
        for (j, value) in order.iter().zip(stored) {
            if let Some(place) = out.get_mut(*j as usize) {
                *place = value;
            }
        }
    }
}

fn read_element(dtype: DType, bytes: &[u8], out: &mut f32) {
    read_f32(dtype, bytes, std::slice::from_mut(out));
}

/// How the slices of a matrix are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// One below the other.
    Rows,
    /// One beside the other.
    Columns,
}

/// The slices of a tensor.
#[derive(Debug)]
pub(super) struct Slices {
    pub views: Vec<View>,
    pub join: Join,
    pub order: Order,
}

impl Slices {
    fn one(view: View) -> Slices {
        Slices { views: vec![view], join: Join::Rows, order: Order::Stored }
    }
}

impl Layout for Slices {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.views.iter().map(|v| (v.shard, v.info.bytes.clone())).collect()
    }

    /// Views are of floats only.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let mut row = self.order.place(row);
        match self.join {
            Join::Rows => {
                for view in &self.views {
                    let rows = view.rows();
                    if row < rows {
                        return view.row(shards, row, out);
                    }
                    row -= rows;
                }
            }
            Join::Columns => {
                let mut rest = out;
                for view in &self.views {
                    let (own, others) = rest.split_at_mut(view.columns().min(rest.len()));
                    view.row(shards, row, own);
                    rest = others;
                }
            }
        }
    }
}
