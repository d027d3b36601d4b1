//! MPNet (arXiv 2004.09297): RoBERTa whose scores get a learned number by the distance of the key,
//! the same in all layers.

use crate::arch::blocks::attention_scores::Buckets;
use crate::arch::blocks::encoder::Defaults;
use crate::arch::blocks::prelude::*;

/// Buckets that its class has whatever the file says.
const BUCKETS: Buckets = Buckets { count: 32, most: 128 };

pub(crate) const ARCH: Arch = Arch {
    model_type: "mpnet",
    class: "MPNetModel",
    fields: &[IDENTITY, MODEL, FIELDS_WITHOUT_TYPES, fields! { relative_attention_num_buckets }],
    fixed: &[],
    goldens: &["mpnet", "mpnet_classes"],
    names: Names(&[NAMES]),
    read: |f| {
        let field = "relative_attention_num_buckets";
        if let Some(n) = f.size(field).value().filter(|n| *n != BUCKETS.count) {
            let help = format!("this architecture expects {} buckets", BUCKETS.count);
            return Err(f.unsupported(field, n.to_string(), help));
        }
        let mut e =
            Encoder::read(f, &Defaults { spare: &["mpnet.pooler.", "pooler.", "lm_head."], ..Defaults::ROBERTA })?;
        e.embedding.types = 0;
        e.layers.iter_mut().for_each(|l| {
            l.attention.change_heads(|_, h| h.with_dot(|s| s.distance = Some(Distance::Buckets(BUCKETS))))
        });
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "mpnet." {
        TABLE => "embeddings.word_embeddings", POSITIONS => "embeddings.position_embeddings",
        TABLE_NORM => "embeddings.LayerNorm", ATTN_BIAS => "encoder.relative_attention_bias",
    }
    "mpnet.encoder.layer.{}." {
        ATTN_Q => "attention.attn.q", ATTN_K => "attention.attn.k", ATTN_V => "attention.attn.v",
        ATTN_OUT => "attention.attn.o", ATTN_POST_NORM => "attention.LayerNorm", MLP_UP => "intermediate.dense",
        MLP_DOWN => "output.dense", MLP_POST_NORM => "output.LayerNorm",
    }
    "classifier." { POOLER => "dense", CLASSES => "out_proj" }
};
