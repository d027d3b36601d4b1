//! MiMo (arXiv 2505.07608): Qwen2 by another name. Its part that predicts a further token is left out.

use crate::arch::blocks::prelude::*;
use crate::arch::models::qwen2;

pub(crate) const ARCH: Arch = Arch { model_type: "mimo", class: "MiMoForCausalLM", ..qwen2::ARCH };
