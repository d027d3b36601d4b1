//! XLM (arXiv 1901.07291), trained on masked tokens of one or many languages: BERT with an MLP of four times its
//! width. Embeddings of languages are added where a language is said, which of a text alone it is not.

use crate::arch::blocks::encoder::{ClassHead, Encoder};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::families::xlm_sizes::short_sizes;
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names, POSITIONS,
    TABLE, TABLE_NORM, Table,
};
use crate::config::ConfigError;
use crate::config::common::{self, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlm",
    class: "XLMModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["xlm", "xlm_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

/// What the class decides.
const FIXED: &[(&str, Neutral)] = &[
    ("is_encoder", Neutral::On),
    ("causal", Neutral::Off),
    ("pre_norm", Neutral::Off),
    ("tie_word_embeddings", Neutral::Any),
    ("bos_token_id", Neutral::Any),
    ("eos_token_id", Neutral::Any),
    // Of heads that are not compiled, of languages that no text says, and of training.
    ("asm", Neutral::Any),
    ("embed_init_std", Neutral::Any),
    ("start_n_top", Neutral::Any),
    ("end_n_top", Neutral::Any),
    ("n_langs", Neutral::Any),
    ("use_lang_emb", Neutral::Any),
    ("lang_id", Neutral::Any),
    ("lang2id", Neutral::Any),
    ("id2lang", Neutral::Any),
    ("bos_index", Neutral::Any),
    ("eos_index", Neutral::Any),
    ("pad_index", Neutral::Any),
    ("unk_index", Neutral::Any),
    ("mask_index", Neutral::Any),
    // The table is stored, whatever its rows were made by.
    ("sinusoidal_embeddings", Neutral::Any),
    // Scores of classes are made of the first row.
    ("summary_type", Neutral::Words(&["first"])),
    ("summary_use_proj", Neutral::On),
    ("summary_proj_to_labels", Neutral::On),
    ("summary_activation", Neutral::Off),
];

fn read(f: &Fields) -> Result<Encoder, ConfigError> {
    let (facts, heads) = short_sizes(f, "emb_dim", [30_145, 2048, 12, 16])?;
    let act = if f.flag_or("gelu_activation", true) { UnaryOp::Gelu } else { UnaryOp::Relu };
    let (rows, hidden) = (facts.max_position, facts.hidden);
    let eps = common::eps(f, "layer_norm_eps", 1e-12)?;
    let mut e = Encoder::alike(facts, heads, (hidden.saturating_mul(4), act), eps);
    e.positions = Some(Positions { rows, first: 0, filler: None });
    e.classes = ClassHead { dense: false, ..ClassHead::BERT };
    e.spare = &["pred_layer.", "transformer.lang_embeddings.", "lang_embeddings."];
    Ok(e)
}

const FIELDS: &[Field] = &[
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)).or(&["n_words"]),
    Field::new("emb_dim", WIDTH),
    Field::new("n_layers", Accepts::Size(4096)),
    Field::new("n_heads", Accepts::Size(1 << 14)),
    Field::new("max_position_embeddings", TOKENS),
    Field::new("layer_norm_eps", Accepts::Number),
    Field::new("gelu_activation", Accepts::Flag).unless(Neutral::Any),
];

const NAMES: Table = &[
    (TABLE, "transformer.embeddings"),
    (POSITIONS, "transformer.position_embeddings"),
    (TABLE_NORM, "transformer.layer_norm_emb"),
    (ATTN_Q, "transformer.attentions.{}.q_lin"),
    (ATTN_K, "transformer.attentions.{}.k_lin"),
    (ATTN_V, "transformer.attentions.{}.v_lin"),
    (ATTN_OUT, "transformer.attentions.{}.out_lin"),
    (ATTN_POST_NORM, "transformer.layer_norm1.{}"),
    (MLP_UP, "transformer.ffns.{}.lin1"),
    (MLP_DOWN, "transformer.ffns.{}.lin2"),
    (MLP_POST_NORM, "transformer.layer_norm2.{}"),
    (CLASSES, "sequence_summary.summary"),
];
