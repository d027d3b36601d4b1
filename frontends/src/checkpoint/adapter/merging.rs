//! The tensors of an adapter, and a merge of them into a checkpoint.

use crate::checkpoint::Checkpoint;
use crate::checkpoint::views::View;
use llmcc_text::adapter::settings::Settings;
use std::collections::BTreeMap;

/// The tensors of an adapter.
#[derive(Default)]
pub(super) struct Sorted {
    /// By the base's names.
    pub(super) whole: BTreeMap<String, View>,
    /// By module.
    pub(super) factors: BTreeMap<String, LowRank>,
    /// Rows of tables (`trainable_token_indices`), by module.
    pub(super) rows: BTreeMap<String, View>,
}

/// An adapter's factors of a module.
#[derive(Default)]
pub(super) struct LowRank {
    pub(super) a: Option<View>,
    pub(super) b: Option<View>,
    pub(super) magnitudes: Option<View>,
    /// Factors of looked-up rows.
    pub(super) looked_up: bool,
}

/// Merging into a checkpoint.
pub(super) struct Merging<'c> {
    pub(super) ckpt: &'c mut Checkpoint,
    pub(super) settings: Settings,
    /// Matrices of the base are stored `[in, out]`.
    pub(super) turned: bool,
    pub(super) scale: f32,
    pub(super) replaced: usize,
    pub(super) merged: usize,
    pub(super) decoded: usize,
}
