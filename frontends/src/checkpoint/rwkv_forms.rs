//! Tensors of RWKV in other programs' forms, converted to the authors': matrices of low rank as
//! they are multiplied from the right, vectors as `[1, 1, n]`, logarithms of decays.

use super::gguf::blocks::{self, BlockType};
use super::safetensors::TensorInfo;
use super::shard::Shard;
use super::stored::{Blocks, Entry, Kept, Layout, Order, like_it};
use super::views::View;
use llmcc_ir::quant::CodedRow;
use std::ops::Range;
use std::sync::Arc;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(super) struct StoredTensor {
    pub ty: &'static BlockType,
    /// Outermost first.
    pub shape: Vec<usize>,
    pub bytes: Range<usize>,
}

/// A converter's change to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Same,
    /// A vector that the authors have as `[1, 1, n]`.
    Row,
    /// A vector that the authors have as heads of so many numbers.
    Heads(usize),
    /// Heads, and columns of each, with a dimension of 1 behind.
    OfHeads,
    /// The same of rows for the whole model.
    RowOfHeads,
    /// A number for each channel, as `−eˣ` of the authors' logarithm.
    Rate,
    /// The same as `e^(−eˣ)`.
    Decay,
    /// The last two dimensions are exchanged.
    Turned,
    /// Halved so many times.
    Halved(u8),
}

/// A tensor as the authors have it; `None` if it has not the dimensions, or the type, for that.
pub(super) fn entry(tensor: &StoredTensor, form: Form, shard: usize) -> Option<Entry> {
    let StoredTensor { ty, shape, bytes } = tensor;
    let elements = shape.iter().product::<usize>();
    let floats = ty.read.is_none();
    let info = |shape: Vec<usize>| TensorInfo { dtype: &ty.stored, shape, bytes: bytes.clone() };
    let plain = |shape: Vec<usize>| floats.then(|| Entry::plain(shard, info(shape)));
    let changed = |shape: Vec<usize>, kept: Kept, columns: usize| {
        let layout = Blocks { shard, bytes: bytes.clone(), ty, columns, order: Order::Stored, kept };
        Entry { layout: Some(Arc::new(layout)), ..Entry::plain(shard, info(shape)) }
    };
    let kept = |shape: Vec<usize>, kept: Kept, columns: usize| floats.then(|| changed(shape, kept, columns));
    match (form, &shape[..]) {
        (Form::Same | Form::Halved(0), _) if floats => plain(shape.clone()),
        (Form::Same | Form::Halved(0), [_, columns]) => Some(changed(shape.clone(), Kept::Same, *columns)),
        (Form::Halved(n), [_, columns]) => Some(changed(shape.clone(), Kept::Halved(n), *columns)),
        (Form::Row, [n]) => plain(vec![1, 1, *n]),
        (Form::Heads(size), [n]) if size > 0 && n.is_multiple_of(size) => plain(vec![n / size, size]),
        (Form::OfHeads, [heads, n, 1]) => plain(vec![*heads, *n]),
        (Form::RowOfHeads, [_, _, 1]) => plain(vec![1, 1, elements]),
        (Form::Rate, [n]) => kept(vec![*n], Kept::Rate, 1),
        (Form::Decay, [heads, n, 1]) => kept(vec![*heads, *n], Kept::Decay, *n),
        (Form::Turned, [.., n, k]) => {
            let mut turned = shape.clone();
            let last = turned.len();
            turned.swap(last - 2, last - 1);
            if !floats {
                return (last == 2).then(|| decoded(tensor, turned, shard));
            }
            let strides = if last == 2 { vec![1, *k] } else { vec![n * k, 1, *k] };
            Some(View { shard, info: info(turned), strides: Some(strides) }.entry())
        }
        _ => None,
    }
}

/// The vectors that are one tensor: `None` if it is not so many, or no floats.
pub(super) fn vectors(all: &StoredTensor, count: usize, shard: usize) -> Option<Vec<Entry>> {
    let (first, n) = (all.shape.first()?, *all.shape.last()?);
    if all.ty.read.is_some()
        || *first != count
        || all.shape.len() < 2
        || all.shape.iter().product::<usize>() != count * n
    {
        return None;
    }
    let bytes = all.bytes.len() / count;
    let one = |i: usize| {
        let from = all.bytes.start + i * bytes;
        let info = TensorInfo { dtype: &all.ty.stored, shape: vec![1, 1, n], bytes: from..from + bytes };
        Entry::plain(shard, info)
    };
    Some((0..count).map(one).collect())
}

/// Whether a tensor cannot stay in its own type.
pub(super) fn is_widened(tensor: &StoredTensor, form: Form) -> bool {
    form == Form::Turned && tensor.ty.read.is_some()
}

/// A note for the user about these tensors.
pub(super) fn note(widened: &[String]) -> Option<String> {
    let name = widened.first()?;
    let others = like_it(widened.len() - 1);
    Some(format!("`{name}` is stored transposed, in blocks of what are columns here: it is read as f32{others}"))
}

/// A matrix of blocks along the model's columns.
fn decoded(tensor: &StoredTensor, turned: Vec<usize>, shard: usize) -> Entry {
    let StoredTensor { ty, shape, bytes } = tensor;
    let columns = shape.last().copied().unwrap_or(1);
    let of = Blocks { shard, bytes: bytes.clone(), ty, columns, order: Order::Stored, kept: Kept::Same };
    let info = TensorInfo { dtype: blocks::floats(), shape: turned, bytes: bytes.clone() };
    Entry { layout: Some(Arc::new(Turned(of))), ..Entry::plain(shard, info) }
}

/// A matrix whose columns are rows of blocks.
#[derive(Debug)]
struct Turned(Blocks);

impl Layout for Turned {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.0.parts()
    }

    /// It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        let mut stored = vec![0f32; self.0.columns];
        for (i, v) in out.iter_mut().enumerate() {
            self.0.numbers(shards, i, &mut stored);
            *v = stored.get(row).copied().unwrap_or_default();
        }
    }
}
