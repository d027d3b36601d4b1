//! CamemBERT (arXiv 1911.03894): RoBERTa for French.

use super::entry::Arch;
use super::roberta;

pub(super) const ARCH: Arch =
    Arch { model_type: "camembert", class: "CamembertModel", goldens: &["camembert"], ..roberta::ARCH };
