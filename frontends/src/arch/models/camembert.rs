//! CamemBERT (arXiv 1911.03894): RoBERTa for French.

use crate::arch::blocks::prelude::*;
use crate::arch::models::roberta;

pub(crate) const ARCH: Arch =
    Arch { model_type: "camembert", class: "CamembertModel", goldens: &["camembert"], ..roberta::ARCH };
