//! The files of a draft beside a model's.

use serde_json::Value;
use std::path::PathBuf;

/// Prefix of the names that a draft's tensors have in the checkpoint.
pub(crate) const DRAFT: &str = "draft/";

/// The files of a draft.
#[derive(Clone, Debug)]
pub(crate) struct DraftFiles {
    /// Its `config.json`.
    pub config_path: PathBuf,
    /// The contents of that.
    pub config: Value,
    /// Where its tensors are: a file, or an index of files.
    pub tensors: PathBuf,
    /// All files: the configuration, the index if any, then those with tensors.
    pub(super) sources: Vec<PathBuf>,
}
