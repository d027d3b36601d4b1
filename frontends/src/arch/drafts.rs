//! The draft heads that a decoder has, as data.

use super::draft_names::DraftNames;
use super::layer::Layer;

/// The draft heads that a decoder's checkpoints have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drafts {
    /// What files call them.
    pub names: DraftNames,
    /// Their layer.
    pub layer: Layer,
}
