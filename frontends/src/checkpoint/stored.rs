//! How the rows of a tensor lie in the files: as elements one after the other, or in one of these
//! ways.

use super::gguf::blocks::BlockType;
use super::safetensors::TensorInfo;
use super::shard::Shard;
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::quant::{CodedRow, StoredRows};
use llmcc_ir::ty::DType;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// How a checkpoint rounds the input `x` of a product: to `scale·(number(x / scale + zero) − zero)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputRounding {
    /// The nearest number of those that there are.
    pub number: UnaryOp,
    /// The divisor before it.
    pub scale: InputScale,
    /// A whole number; 0 of floats, and of scales that tokens have.
    pub zero: f32,
    /// It is normalized first, with this added to the mean square, and the gain that the matrix has
    /// beside it ([`GAIN`]).
    pub norm: Option<f32>,
}

/// Name of the gain of the input of `STEM.weight`, behind `STEM.`.
pub const GAIN: &str = "rms_norm.weight";

/// The divisor of a product's input before it is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InputScale {
    /// A positive number that was fixed when the checkpoint was quantized.
    Fixed(f32),
    /// For each token the largest magnitude, at least `least`, over `most`.
    OfToken {
        /// The largest number that there is.
        most: f32,
        /// Positive.
        least: f32,
    },
}

impl InputScale {
    /// That a checkpoint fixed.
    pub fn fixed(self) -> Option<f32> {
        match self {
            InputScale::Fixed(scale) => Some(scale),
            InputScale::OfToken { .. } => None,
        }
    }
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub shard: usize,
    /// As the model sees it.
    pub info: TensorInfo,
    /// `None`: its elements, one after the other.
    pub layout: Option<Arc<dyn Layout>>,
    /// Rows hold the columns of the matrix in another order: which column each element is.
    pub order: Option<Arc<Vec<u32>>>,
    /// How the input of products with the matrix is rounded.
    pub input: Option<InputRounding>,
}

impl Entry {
    pub fn plain(shard: usize, info: TensorInfo) -> Entry {
        Entry { shard, info, layout: None, order: None, input: None }
    }

    /// Where its bytes are.
    pub fn parts(&self) -> Vec<(usize, Range<usize>)> {
        let own = || vec![(self.shard, self.info.bytes.clone())];
        self.layout.as_ref().map_or_else(own, |l| l.parts())
    }
}

/// How rows lie in the files.
pub(super) trait Layout: fmt::Debug + Send + Sync {
    /// Where their bytes are: shards and ranges.
    fn parts(&self) -> Vec<(usize, Range<usize>)>;
    /// Writes the codes of a row; only of tensors that are codes.
    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow);
    /// Writes the values of a row of a tensor that is no codes.
    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]);
}

/// Rows of a tensor, in one of these ways.
pub(super) struct Rows<'a> {
    pub layout: &'a dyn Layout,
    pub shards: &'a [Shard],
    pub dtype: DType,
    pub columns: usize,
}

impl StoredRows for Rows<'_> {
    fn values(&self, from: usize, out: &mut [f32]) {
        let rows = out.chunks_mut(self.columns.max(1)).enumerate();
        let Some(format) = self.dtype.coded() else {
            rows.for_each(|(i, out)| self.layout.values(self.shards, from + i, out));
            return;
        };
        let e = format.encoding();
        let mut row = CodedRow::new(&e, self.columns);
        for (i, out) in rows {
            self.layout.codes(self.shards, from + i, &mut row);
            row.decode(&e, out);
        }
    }

    fn codes(&self, row: usize, out: &mut CodedRow) {
        self.layout.codes(self.shards, row, out);
    }
}

/// The order of the rows of a matrix, or of the elements of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As stored.
    Stored,
    /// In each head the two that are rotated together are neighbours; the model has them half a
    /// head apart.
    Neighbours { head_dim: usize },
    /// Among the first rows of each head, the two rows rotated together lie half of these rows
    /// apart; the model has them as neighbours.
    Halves { head_dim: usize, rotated: usize },
}

impl Order {
    /// Where the row is that the model calls `row`.
    pub fn place(self, row: usize) -> usize {
        match self {
            Order::Stored => row,
            Order::Neighbours { head_dim } => {
                let (head, i, half) = (row / head_dim.max(1), row % head_dim.max(1), head_dim / 2);
                head * head_dim + if i < half { 2 * i } else { 2 * (i - half) + 1 }
            }
            Order::Halves { head_dim, rotated } => {
                let i = row % head_dim.max(1);
                let turned = if i < rotated { i / 2 + i % 2 * (rotated / 2) } else { i };
                row - i + turned
            }
        }
    }
}

/// Rows of blocks, as GGUF has them.
#[derive(Debug)]
pub(super) struct Blocks {
    pub shard: usize,
    pub bytes: Range<usize>,
    pub ty: &'static BlockType,
    /// Columns of a row; 1 for a vector.
    pub columns: usize,
    pub order: Order,
    pub kept: Kept,
}

/// A file's form of a number of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Itself.
    Same,
    /// One more: a norm's factor.
    OneMore,
    /// `−eˣ`: the rate itself, of the model's logarithm.
    Rate,
    /// `eˣ`: the same without the sign.
    Slope,
    /// Itself, halved so many times.
    Halved(u8),
    /// `e^(−eˣ)`: the share left after a step, of the model's logarithm of the rate.
    Decay,
}

impl Kept {
    /// The number of the model.
    fn undone(self, v: f32) -> f32 {
        // (A rate of infinity would be one of the largest number.)
        if !v.is_finite() {
            return f32::NAN;
        }
        match self {
            Kept::Same => v,
            Kept::OneMore => v - 1.0,
            Kept::Halved(n) => v * f32::from(n).exp2(),
            // A rate of none, or one that leaves nothing, is a number too.
            Kept::Rate => (-v).ln().clamp(-104.0, 88.0),
            Kept::Slope => v.ln().clamp(-104.0, 88.0),
            Kept::Decay => (-f64::from(v).ln()).ln().clamp(-104.0, 88.0) as f32,
        }
    }
}

impl Blocks {
    /// The bytes of a row; none where there is no such row, which no caller asks for.
    fn row<'a>(&self, shards: &'a [Shard], row: usize) -> &'a [u8] {
        let size = self.columns / self.ty.columns * self.ty.bytes;
        let of_tensor = shards.get(self.shard).and_then(|s| s.map.get(self.bytes.clone())).unwrap_or_default();
        let from = self.order.place(row).saturating_mul(size);
        of_tensor.get(from..from.saturating_add(size)).unwrap_or_default()
    }
}

impl Layout for Blocks {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![(self.shard, self.bytes.clone())]
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        let Some(read) = self.ty.read else { return };
        let blocks = self.row(shards, row).chunks_exact(self.ty.bytes);
        blocks.enumerate().for_each(|(i, block)| read(block, out, i * self.ty.columns));
        if let Kept::Halved(n) = self.kept {
            let scales = if out.above.is_empty() { &mut out.factors } else { &mut out.above };
            let times = f32::from(n).exp2();
            scales.iter_mut().for_each(|(scale, min)| (*scale, *min) = (*scale * times, *min * times));
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        if let Some(dtype) = self.ty.stored.dtype {
            read_f32(dtype, self.row(shards, row), out);
        }
        if self.kept != Kept::Same {
            out.iter_mut().for_each(|v| *v = self.kept.undone(*v));
        }
    }
}

impl Blocks {
    /// Rows, which are the elements of a vector.
    pub fn rows(&self) -> usize {
        self.bytes.len() / (self.columns / self.ty.columns * self.ty.bytes).max(1)
    }

    /// The numbers that a row stands for.
    pub fn numbers(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let Some(format) = self.ty.stored.dtype.and_then(DType::coded) else {
            return self.values(shards, row, out);
        };
        let e = format.encoding();
        let mut codes = CodedRow::new(&e, self.columns);
        self.codes(shards, row, &mut codes);
        codes.decode(&e, out);
    }
}

/// The end of a note about a tensor that holds for so many others too.
pub(super) fn like_it(others: usize) -> String {
    if others > 0 { format!(", and {others} like it") } else { String::new() }
}

/// A vector, or a matrix row by row, that no tensor of a file is.
#[derive(Debug)]
pub(super) struct Constant(pub Vec<f32>);

impl Layout for Constant {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        vec![]
    }

    /// It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, _: &[Shard], row: usize, out: &mut [f32]) {
        let own = row.checked_mul(out.len()).and_then(|at| self.0.get(at..)?.get(..out.len()));
        if let Some(own) = own {
            out.copy_from_slice(own);
        }
    }
}

/// Rows that lie part by part in a file, and in the model group by group, of each group all parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    /// Rows before the groups, in their order.
    pub before: usize,
    /// How many groups there are.
    pub groups: usize,
    /// Rows of each part of a group.
    pub parts: Vec<usize>,
}

impl Turns {
    /// Rows of all groups and before.
    pub fn rows(&self) -> usize {
        self.before.saturating_add(self.groups.saturating_mul(self.width()))
    }

    /// Rows of a group.
    fn width(&self) -> usize {
        self.parts.iter().fold(0, |n, part| n.saturating_add(*part))
    }

    /// Where the row is that the model calls `row`, one of [`Turns::rows`].
    pub fn place(&self, row: usize) -> usize {
        let width = self.width();
        let Some(i) = row.checked_sub(self.before).filter(|_| width > 0) else { return row };
        let (group, mut inside) = (i / width, i % width);
        let mut first = self.before;
        for part in &self.parts {
            if inside < *part {
                return first + group * part + inside;
            }
            inside -= part;
            first += self.groups * part;
        }
        row
    }
}

/// Rows of several tensors, one below the other, in turns.
#[derive(Debug)]
pub(super) struct Joined {
    pub sources: Vec<Blocks>,
    pub turns: Turns,
}

impl Joined {
    /// The tensor, and the row in it.
    fn source(&self, row: usize) -> Option<(&Blocks, usize)> {
        let mut row = self.turns.place(row);
        for source in &self.sources {
            let rows = source.rows();
            if row < rows {
                return Some((source, row));
            }
            row -= rows;
        }
        None
    }
}

impl Layout for Joined {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.sources.iter().flat_map(Blocks::parts).collect()
    }

    fn codes(&self, shards: &[Shard], row: usize, out: &mut CodedRow) {
        if let Some((source, row)) = self.source(row) {
            source.codes(shards, row, out);
        }
    }

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        if let Some((source, row)) = self.source(row) {
            source.numbers(shards, row, out);
        }
    }
}

/// Converts elements to f32, exactly; `false` if they are not F32, F16 or BF16.
pub(super) fn read_f32(dtype: DType, bytes: &[u8], out: &mut [f32]) -> bool {
    let pairs = bytes.as_chunks::<2>().0;
    match dtype {
        DType::F32 => out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(o, b)| *o = f32::from_le_bytes(*b)),
        DType::F16 => out.iter_mut().zip(pairs).for_each(|(o, b)| *o = half::f16::from_le_bytes(*b).to_f32()),
        DType::Bf16 => out.iter_mut().zip(pairs).for_each(|(o, b)| *o = half::bf16::from_le_bytes(*b).to_f32()),
        DType::F64 | DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Coded(_) => return false,
    }
    true
}
