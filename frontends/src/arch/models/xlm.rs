//! XLM (arXiv 1901.07291), trained on masked tokens of one or many languages: BERT with an MLP of four times its
//! width. Embeddings of languages are added where a language is said, which of a text alone it is not.

use crate::arch::blocks::families::xlm_sizes::short_sizes;
use crate::arch::blocks::learned_positions::Positions;
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlm",
    class: "XLMModel",
    fields: &[IDENTITY, FIELDS],
    fixed: FIXED,
    goldens: &["xlm", "xlm_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

/// Fields that the class decides.
const FIXED: &[(&str, Neutral)] = fixed! {
    On => is_encoder summary_use_proj summary_proj_to_labels;
    Off => causal pre_norm summary_activation;
    Any => tie_word_embeddings bos_token_id eos_token_id embed_init_std start_n_top end_n_top n_langs use_lang_emb
        lang_id lang2id id2lang bos_index eos_index pad_index unk_index mask_index;
    // Fields of heads that are not compiled, of languages that no text gives, and of training.
    Any => asm;
    // The table is stored, whatever its rows were made by.
    Any => sinusoidal_embeddings;
    // Scores of classes are made of the first row.
    Words(&["first"]) => summary_type;
};

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

const FIELDS: &[Field] = fields! {
    quantization_config, vocab_size | n_words, emb_dim, n_layers, n_heads, max_position_embeddings, layer_norm_eps,
    gelu_activation,
};

const NAMES: Table = names! {
    "transformer." {
        TABLE => "embeddings", POSITIONS => "position_embeddings", TABLE_NORM => "layer_norm_emb",
        ATTN_POST_NORM => "layer_norm1.{}", MLP_POST_NORM => "layer_norm2.{}",
    }
    "transformer.attentions.{}." { ATTN_Q => "q_lin", ATTN_K => "k_lin", ATTN_V => "v_lin", ATTN_OUT => "out_lin" }
    "transformer.ffns.{}." { MLP_UP => "lin1", MLP_DOWN => "lin2" }
    "" { CLASSES => "sequence_summary.summary" }
};
