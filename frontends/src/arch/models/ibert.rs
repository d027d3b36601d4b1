//! I-BERT (arXiv 2101.01321) before it is quantized: RoBERTa, beside whose weights room is for integers and scales.

use crate::arch::blocks::encoder::{Defaults, FIELDS, FILL};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "ibert",
    class: "IBertModel",
    fields: &[IDENTITY, MODEL, FIELDS, FILL],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        Off => is_decoder add_cross_attention;
        // With integers it would be another model.
        Off => quant_mode;
        Any => force_dequant;
    },
    goldens: &["ibert"],
    names: Names(&[bert_names!("ibert."), ROBERTA_CLASSES]),
    read: |f| {
        let spare = &["ibert.pooler.", "pooler.", "lm_head."];
        let mut e = Encoder::read(f, &Defaults { spare, ..Defaults::ROBERTA })?;
        e.passes = &["_integer", "scaling_factor", ".x_min", ".x_max", ".LayerNorm.shift"];
        Ok(Box::new(e))
    },
};
