//! ESM-1b and ESM-2 (bioRxiv 622803, 2022.07.20.500902), language models of proteins: RoBERTa with norms
//! before the blocks, learned or rotary positions, and embeddings that are scaled for masked tokens.

use crate::arch::blocks::encoder::{Defaults, FILL, FREQUENCIES};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "esm",
    class: "EsmModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: fixed! {
        Off => is_decoder add_cross_attention;
        // Models that fold proteins have more on top than classes do.
        Off => is_folding_model;
        // The folding model's configuration, where there is one.
        Any => esmfold_config;
        Any => vocab_list;
        Words(&["gelu"]) => hidden_act;
    },
    goldens: &["esm", "esm_absolute", "esm_classes"],
    names: Names(&[NAMES]),
    read: |f| Ok(Box::new(read(f)?)),
};

const FIELDS: &[Field] = fields! {
    num_attention_heads, intermediate_size, layer_norm_eps, position_embedding_type, rope_theta,
    emb_layer_norm_before, token_dropout, mask_token_id,
};

/// Tensors for other uses: scores of masked tokens, contacts; and learned positions, which files of
/// models with rotary ones have as well.
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
            let help = "this architecture supports `absolute` and `rotary`".into();
            return Err(f.unsupported("position_embedding_type", format!("\"{other}\""), help));
        }
    };
    if !rotary && f.count("pad_token_id").is_none() {
        return Err(f.missing("pad_token_id"));
    }
    let first = if rotary { 0 } else { Defaults::ROBERTA.first };
    let defaults = Defaults { types: 0, first, max_position: 1026, spare: SPARE, ..Defaults::BERT };
    let mut e = Encoder::read(f, &defaults)?;
    (e.norm_first, e.embedding.norm) = (true, f.flag("emb_layer_norm_before"));
    if rotary {
        let heads = Heads::read(f, e.facts.hidden, DefaultHeads::default())?;
        e.ropes = vec![rope::read(f, heads.dim, e.facts.max_position, 10_000.0)?];
        e.embedding.positions = None;
        e.layers.iter_mut().for_each(|layer| layer.attention.rotary = Some(0));
    }
    if f.flag("token_dropout") {
        let mask = f.count("mask_token_id").ok_or_else(|| f.missing("mask_token_id"))?;
        if mask >= e.facts.vocab {
            let expected = format!("a token id below `vocab_size` ({})", e.facts.vocab);
            return Err(f.invalid("mask_token_id", &mask, expected));
        }
        e.embedding.dropped = Some(mask);
    }
    Ok(e)
}

const NAMES: Table = names! {
    "esm." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TABLE_NORM => "embeddings.layer_norm", NORM => "encoder.emb_layer_norm_after",
    }
    "esm.rotary_embeddings." | "rotary_embeddings." {
        // Published files have them in each layer, and Transformers 5 saves them with a star for its
        // number; the first part of the name may be left out.
        FREQUENCIES => "inv_freq",
    }
    "esm.encoder." | "encoder." {
        FREQUENCIES => "layer.*.attention.self.rotary_embeddings.inv_freq",
        FREQUENCIES => "layer.0.attention.self.rotary_embeddings.inv_freq",
    }
    "esm.encoder.layer.{}." {
        ATTN_NORM => "attention.LayerNorm", ATTN_Q => "attention.self.query", ATTN_K => "attention.self.key",
        ATTN_V => "attention.self.value", ATTN_OUT => "attention.output.dense", MLP_NORM => "LayerNorm",
        MLP_UP => "intermediate.dense", MLP_DOWN => "output.dense",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
