//! FlauBERT (arXiv 1912.05372): XLM for French.

use crate::arch::blocks::prelude::*;
use crate::arch::models::xlm;

pub(crate) const ARCH: Arch =
    Arch { model_type: "flaubert", class: "FlaubertModel", goldens: &["flaubert"], ..xlm::ARCH };
