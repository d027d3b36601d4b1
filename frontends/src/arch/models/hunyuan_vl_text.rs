//! HunyuanOCR (arXiv 2511.19575), its text model: HunYuan, dense. Positions of texts are the same in all
//! four sections of its rotation.

use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::hunyuan::{NORMS, read};
use crate::arch::blocks::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION_BIAS, MLP, ROTARY, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

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
const OWN: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)).or(&["org_vocab_size"]),
    Field::new("hidden_size", WIDTH),
    Field::new("num_hidden_layers", Accepts::Size(4096)),
    Field::new("max_position_embeddings", TOKENS),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)),
    Field::new("num_key_value_heads", Accepts::Size(1 << 14)),
    Field::new("head_dim", Accepts::Size(1 << 14)).or(&["attention_head_dim"]),
];
