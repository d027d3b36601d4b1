//! MPNet (arXiv 2004.09297): RoBERTa whose scores get a learned number by the distance of the key,
//! the same in all layers.

use crate::arch::blocks::attention_scores::{Buckets, Distance};
use crate::arch::blocks::encoder::{Defaults, Encoder, FIELDS_WITHOUT_TYPES};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_BIAS, ATTN_K, ATTN_OUT, ATTN_POST_NORM, ATTN_Q, ATTN_V, CLASSES, MLP_DOWN, MLP_POST_NORM, MLP_UP, Names,
    POOLER, POSITIONS, TABLE, TABLE_NORM, Table,
};
use crate::config::common::MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};

/// Buckets that its class has whatever the file says.
const BUCKETS: Buckets = Buckets { count: 32, most: 128 };

pub(crate) const ARCH: Arch = Arch {
    model_type: "mpnet",
    class: "MPNetModel",
    fields: &[IDENTITY, MODEL, FIELDS_WITHOUT_TYPES, OWN],
    fixed: &[],
    goldens: &["mpnet", "mpnet_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let field = "relative_attention_num_buckets";
        if let Some(n) = f.size(field).value().filter(|n| *n != BUCKETS.count) {
            let help = format!("this architecture has {} buckets", BUCKETS.count);
            return Err(f.unsupported(field, n.to_string(), help));
        }
        let mut e =
            Encoder::read(f, &Defaults { spare: &["mpnet.pooler.", "pooler.", "lm_head."], ..Defaults::ROBERTA })?;
        e.types = 0;
        e.layers.iter_mut().for_each(|l| l.attention.distance = Some(Distance::Buckets(BUCKETS)));
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = &[Field::new("relative_attention_num_buckets", Accepts::Size(1 << 14))];

const NAMES: Table = &[
    (TABLE, "mpnet.embeddings.word_embeddings"),
    (POSITIONS, "mpnet.embeddings.position_embeddings"),
    (TABLE_NORM, "mpnet.embeddings.LayerNorm"),
    (ATTN_BIAS, "mpnet.encoder.relative_attention_bias"),
    (ATTN_Q, "mpnet.encoder.layer.{}.attention.attn.q"),
    (ATTN_K, "mpnet.encoder.layer.{}.attention.attn.k"),
    (ATTN_V, "mpnet.encoder.layer.{}.attention.attn.v"),
    (ATTN_OUT, "mpnet.encoder.layer.{}.attention.attn.o"),
    (ATTN_POST_NORM, "mpnet.encoder.layer.{}.attention.LayerNorm"),
    (MLP_UP, "mpnet.encoder.layer.{}.intermediate.dense"),
    (MLP_DOWN, "mpnet.encoder.layer.{}.output.dense"),
    (MLP_POST_NORM, "mpnet.encoder.layer.{}.output.LayerNorm"),
    (POOLER, "classifier.dense"),
    (CLASSES, "classifier.out_proj"),
];
