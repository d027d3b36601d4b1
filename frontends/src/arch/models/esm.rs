//! ESM-1b and ESM-2 (bioRxiv 622803, 2022.07.20.500902), language models of proteins: RoBERTa with norms
//! before the blocks, learned or rotary positions, and embeddings that are scaled for masked tokens.

use crate::arch::blocks::encoder::{Defaults, Encoder, FILL, FREQUENCIES};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_K, ATTN_NORM, ATTN_OUT, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POOLER, POSITIONS,
    TABLE, TABLE_NORM, Table,
};
use crate::config::ConfigError;
use crate::config::common::{DefaultHeads, Heads, MODEL, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, IDENTITY};
use crate::config::known::Neutral;
use crate::config::rope;

pub(crate) const ARCH: Arch = Arch {
    model_type: "esm",
    class: "EsmModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: &[
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        // Models that fold proteins have more on top than classes do.
        ("is_folding_model", Neutral::Off),
        // What folds, where something does.
        ("esmfold_config", Neutral::Any),
        ("vocab_list", Neutral::Any),
        ("hidden_act", Neutral::Words(&["gelu"])),
    ],
    goldens: &["esm", "esm_absolute", "esm_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = &[
    Field::new("num_attention_heads", Accepts::Size(1 << 14)),
    Field::new("intermediate_size", WIDTH),
    Field::new("layer_norm_eps", Accepts::Number),
    Field::new("position_embedding_type", Accepts::Text),
    Field::new("rope_theta", Accepts::Number),
    Field::new("emb_layer_norm_before", Accepts::Flag),
    Field::new("token_dropout", Accepts::Flag),
    Field::new("mask_token_id", Accepts::Count).unless(Neutral::Any),
];

/// What other uses read: scores of masked tokens, contacts; and learned positions, which files of models
/// with rotary ones have as well.
const SPARE: &[&str] = &[
    "esm.pooler.",
    "pooler.",
    "lm_head.",
    "esm.contact_head.",
    "contact_head.",
    "esm.embeddings.position_embeddings.",
    "embeddings.position_embeddings.",
];

fn read(f: &Fields) -> Result<Encoder, ConfigError> {
    let rotary = match f.text("position_embedding_type") {
        Some("rotary") => true,
        None | Some("absolute") => false,
        Some(other) => {
            let help = "this architecture has `absolute` and `rotary`".into();
            return Err(f.unsupported("position_embedding_type", format!("\"{other}\""), help));
        }
    };
    if !rotary && f.count("pad_token_id").is_none() {
        return Err(f.missing("pad_token_id"));
    }
    let first = if rotary { 0 } else { Defaults::ROBERTA.first };
    let defaults = Defaults { types: 0, first, max_position: 1026, spare: SPARE, ..Defaults::BERT };
    let mut e = Encoder::read(f, &defaults)?;
    (e.norm_first, e.table_norm) = (true, f.flag("emb_layer_norm_before"));
    if rotary {
        let heads = Heads::read(f, e.facts.hidden, DefaultHeads::default())?;
        e.ropes = vec![rope::read(f, heads.dim, e.facts.max_position, 10_000.0)?];
        e.positions = None;
        e.layers.iter_mut().for_each(|layer| layer.attention.rotary = Some(0));
    }
    if f.flag("token_dropout") {
        let mask = f.count("mask_token_id").ok_or_else(|| f.missing("mask_token_id"))?;
        if mask >= e.facts.vocab {
            let expected = format!("a token id below `vocab_size` ({})", e.facts.vocab);
            return Err(f.invalid("mask_token_id", &mask, expected));
        }
        e.dropped = Some(mask);
    }
    Ok(e)
}

const NAMES: Table = &[
    (TABLE, "esm.embeddings.word_embeddings"),
    (POSITIONS, "esm.embeddings.position_embeddings"),
    (TABLE_NORM, "esm.embeddings.layer_norm"),
    // Published files have them in each layer, and what Transformers 5 saves has a star for its number;
    // the first part of the name may be left out.
    (FREQUENCIES, "esm.rotary_embeddings.inv_freq"),
    (FREQUENCIES, "rotary_embeddings.inv_freq"),
    (FREQUENCIES, "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq"),
    (FREQUENCIES, "encoder.layer.*.attention.self.rotary_embeddings.inv_freq"),
    (FREQUENCIES, "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq"),
    (FREQUENCIES, "encoder.layer.0.attention.self.rotary_embeddings.inv_freq"),
    (NORM, "esm.encoder.emb_layer_norm_after"),
    (ATTN_NORM, "esm.encoder.layer.{}.attention.LayerNorm"),
    (ATTN_Q, "esm.encoder.layer.{}.attention.self.query"),
    (ATTN_K, "esm.encoder.layer.{}.attention.self.key"),
    (ATTN_V, "esm.encoder.layer.{}.attention.self.value"),
    (ATTN_OUT, "esm.encoder.layer.{}.attention.output.dense"),
    (MLP_NORM, "esm.encoder.layer.{}.LayerNorm"),
    (MLP_UP, "esm.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "esm.encoder.layer.{}.output.dense"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
