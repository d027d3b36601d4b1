//! Matrices that a checkpoint has as codes and that are to have another format: their numbers, exactly, as
//! f32, so that they are stored as matrices of floats are.

use super::Checkpoint;
use super::quantized::COMPUTED;
use super::safetensors::TensorInfo;
use super::shard::Shard;
use super::stored::{Entry, Layout};
use super::views::row_of;
use llmcc_ir::quant::{CodedRow, Format};
use llmcc_ir::ty::DType;
use std::ops::Range;
use std::sync::Arc;

/// A matrix of codes as floats, in the order of its columns.
#[derive(Debug)]
struct Decoded(Entry);

impl Layout for Decoded {
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        self.0.parts()
    }

    /// It is floats.
    fn codes(&self, _: &[Shard], _: usize, _: &mut CodedRow) {}

    fn values(&self, shards: &[Shard], row: usize, out: &mut [f32]) {
        row_of(&self.0, shards, row, out);
    }
}

impl Checkpoint {
    /// The tensors that are codes, and their formats.
    pub fn coded(&self) -> impl Iterator<Item = (&str, Format)> {
        self.index.iter().filter_map(|(name, entry)| Some((name.as_str(), format(entry)?)))
    }

    /// Makes floats of the codes of a tensor; nothing where it is none. The scale of its products' inputs that
    /// was fixed for these codes goes with them.
    pub fn decode(&mut self, name: &str) {
        let Some(entry) = self.index.get_mut(name).filter(|entry| format(entry).is_some()) else { return };
        let info = TensorInfo { dtype: &COMPUTED, ..entry.info.clone() };
        let input = entry.input.filter(|input| input.scale.fixed().is_none());
        let floats = Entry { input, ..Entry::plain(entry.shard, info) };
        let codes = std::mem::replace(entry, floats);
        entry.layout = Some(Arc::new(Decoded(codes)));
    }
}

fn format(entry: &Entry) -> Option<Format> {
    entry.info.dtype.dtype.and_then(DType::coded)
}
