//! BLOOM (arXiv 2211.05100): scores with slopes instead of positions (ALiBi), embeddings behind a
//! norm, Q, K and V stored head by head, biases everywhere.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::attention_scores::Distance;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::layer::Norms;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, TABLE_NORM, Table,
};
use crate::config::common::{TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bloom",
    class: "BloomForCausalLM",
    fields: &[IDENTITY, OWN],
    fixed: &[],
    goldens: &["bloom"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults { vocab: Some(250_880), heads: Some(8), max_position: 2048, ..Defaults::GPT2 };
        let mut d = Decoder::read_with(f, &defaults, |_, _| Ok(vec![]))?;
        d.norm = Norm::layer(d.norm.eps);
        d.table_norm = Some(d.norm);
        if f.flag("apply_residual_connection_post_layernorm") {
            d.norms = Norms::Entering;
        }
        let d = d.with_attention(|_, a| {
            (a.by_group, a.qkv_bias, a.out_bias, a.rotary) = (true, true, true, None);
            a.distance = Some(Distance::Slopes { max: 8.0 });
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[
    Field::new("apply_residual_connection_post_layernorm", Accepts::Flag),
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("hidden_size", WIDTH).or(&["n_embed"]),
    Field::new("num_hidden_layers", Accepts::Size(4096)).or(&["n_layer"]),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["n_head"]),
    Field::new("max_position_embeddings", TOKENS).or(&["seq_length"]).unless(Neutral::Any),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    Field::new("layer_norm_epsilon", Accepts::Number),
];

/// As the class for text generation saves it, and as the model without its head is published.
const NAMES: Table = &[
    (TABLE, "transformer.word_embeddings"),
    (TABLE, "word_embeddings"),
    (TABLE_NORM, "transformer.word_embeddings_layernorm"),
    (TABLE_NORM, "word_embeddings_layernorm"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (NORM, "ln_f"),
    (ATTN_NORM, "transformer.h.{}.input_layernorm"),
    (ATTN_NORM, "h.{}.input_layernorm"),
    (ATTN_QKV, "transformer.h.{}.self_attention.query_key_value"),
    (ATTN_QKV, "h.{}.self_attention.query_key_value"),
    (ATTN_OUT, "transformer.h.{}.self_attention.dense"),
    (ATTN_OUT, "h.{}.self_attention.dense"),
    (MLP_NORM, "transformer.h.{}.post_attention_layernorm"),
    (MLP_NORM, "h.{}.post_attention_layernorm"),
    (MLP_UP, "transformer.h.{}.mlp.dense_h_to_4h"),
    (MLP_UP, "h.{}.mlp.dense_h_to_4h"),
    (MLP_DOWN, "transformer.h.{}.mlp.dense_4h_to_h"),
    (MLP_DOWN, "h.{}.mlp.dense_4h_to_h"),
];
