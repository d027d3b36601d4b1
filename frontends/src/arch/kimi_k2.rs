//! Kimi-K2 (arXiv 2507.20534): DeepSeek-V3 by another name.

use super::deepseek_v3;
use super::entry::Arch;

pub(super) const ARCH: Arch = Arch { model_type: "kimi_k2", ..deepseek_v3::ARCH };
