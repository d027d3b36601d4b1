//! HunyuanOCR (arXiv 2511.19575), its text model: HunYuan, dense. Positions of texts are the same in all
//! four sections of its rotation.

use crate::arch::blocks::families::hunyuan::{NORMS, read};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "hunyuan_vl_text",
    class: "HunYuanVLForConditionalGeneration",
    fields: &[IDENTITY, OWN, ROTARY, MLP, ATTENTION_BIAS],
    fixed: &[("use_qk_norm", Neutral::On), ("qk_norm", Neutral::On), ("qk_layernorm", Neutral::On)],
    goldens: &["hunyuan_vl_text"],
    names: Names(&[NORMS, HUGGING_FACE]),
    read: |f| Ok(Box::new(read(f, true)?)),
};

/// With the names that files of Tencent's own have for two of them.
const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size | org_vocab_size, hidden_size, num_hidden_layers,
    max_position_embeddings, tie_word_embeddings, bos_token_id, eos_token_id, num_attention_heads,
    num_key_value_heads, head_dim | attention_head_dim,
};
