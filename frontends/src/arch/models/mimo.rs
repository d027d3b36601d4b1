//! MiMo (arXiv 2505.07608): Qwen2 with draft heads, layers as the model's.

use crate::arch::blocks::families::draft_names::DraftNames;
use crate::arch::blocks::families::qwen2_decoder::decoder;
use crate::arch::blocks::prelude::*;
use crate::arch::models::qwen2;

pub(crate) const ARCH: Arch = Arch { model_type: "mimo", class: "MiMoForCausalLM", read, ..qwen2::ARCH };

fn read(f: &Fields) -> Result<Box<dyn Shape>, ConfigError> {
    Ok(Box::new(decoder(f)?.with_drafts(DraftNames::OfModel, |_| true)))
}
