//! FlauBERT (arXiv 1912.05372): XLM for French.

use super::entry::Arch;
use super::xlm;

pub(super) const ARCH: Arch =
    Arch { model_type: "flaubert", class: "FlaubertModel", goldens: &["flaubert"], ..xlm::ARCH };
