//! What is merged: the tensors of an adapter, and the checkpoint that gets them.

use super::low_rank::LowRank;
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

/// Merging into a checkpoint.
pub(super) struct Merging<'c> {
    pub(super) ckpt: &'c mut Checkpoint,
    pub(super) settings: Settings,
    pub(super) scale: f32,
    pub(super) replaced: usize,
    pub(super) merged: usize,
    pub(super) decoded: usize,
}
