//! XLM-RoBERTa XL and XXL (arXiv 2105.00572): XLM-RoBERTa with norms before the blocks, and none of the embeddings.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL, FIXED};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "xlm-roberta-xl",
    class: "XLMRobertaXLModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: FIXED,
    goldens: &["xlm_roberta_xl", "xlm_roberta_xl_classes"],
    names: Names(&[NAMES, ROBERTA, ROBERTA_CLASSES]),
    read: |f| {
        let mut e = Encoder::read(f, &Defaults { types: 1, eps: 1e-5, max_position: 514, ..Defaults::ROBERTA })?;
        (e.norm_first, e.embedding.norm) = (true, false);
        Ok(Box::new(e))
    },
};

const NAMES: Table = names! {
    "" { NORM => "roberta.encoder.LayerNorm" }
    "roberta.encoder.layer.{}." { ATTN_NORM => "attention.self_attn_layer_norm", MLP_NORM => "LayerNorm" }
};
