//! The draft heads that a decoder has, as data.

use crate::arch::blocks::families::draft_names::DraftNames;
use crate::arch::blocks::layer::Layer;

/// The draft heads that a decoder's checkpoints have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drafts {
    /// Naming scheme in files.
    pub names: DraftNames,
    /// Their layer.
    pub layer: Layer,
}
