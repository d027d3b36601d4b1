//! HunYuan, dense (Tencent, 2025): Llama with norms of queries and keys after the rotation.

use crate::arch::blocks::families::hunyuan::{FIXED, NORMS, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hunyuan_v1_dense",
    class: "HunYuanDenseV1ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS],
    fixed: FIXED,
    goldens: &["hunyuan_v1_dense"],
    names: Names(&[NORMS, HUGGING_FACE]),
    read: |f| Ok(Box::new(read(f, false)?)),
};
