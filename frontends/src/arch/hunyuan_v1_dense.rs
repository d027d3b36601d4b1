//! HunYuan, dense (Tencent, 2025): Llama with norms of queries and keys after the rotation.

use super::entry::Arch;
use super::hunyuan::{NORMS, read};
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, ATTENTION_BIAS, MLP, MODEL, ROTARY};
use crate::config::fields::IDENTITY;
use crate::config::known::Neutral;

pub(super) const ARCH: Arch = Arch {
    model_type: "hunyuan_v1_dense",
    class: "HunYuanDenseV1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["hunyuan_v1_dense"],
    names: Names(&[NORMS, HUGGING_FACE]),
    read: |f| Ok(Box::new(read(f, false)?)),
};
