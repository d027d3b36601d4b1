//! Kimi-K2 (arXiv 2507.20534): DeepSeek-V3 by another name.

use crate::arch::blocks::prelude::*;
use crate::arch::models::deepseek_v3;

pub(crate) const ARCH: Arch = Arch { model_type: "kimi_k2", ..deepseek_v3::ARCH };
