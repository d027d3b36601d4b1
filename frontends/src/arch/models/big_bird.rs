//! BigBird (arXiv 2007.14062) as an encoder: BERT for longer texts. Its sparse attention sees blocks drawn at random
//! where a text has more tokens than it attends to; of no more tokens, which it is compiled for, it sees all.

use crate::arch::blocks::encoder::{Defaults, FIELDS};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "big_bird",
    class: "BigBirdModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: fixed! {
        Words(&["absolute"]) => position_embedding_type;
        Off => is_decoder add_cross_attention rescale_embeddings;
    },
    goldens: &["big_bird", "big_bird_classes"],
    names: Names(&[names! { "classifier." { POOLER => "dense", CLASSES => "out_proj" } }, BERT, BERT_CLASSES]),
    read: |f| {
        let defaults = Defaults { act: UnaryOp::GeluTanh, max_position: 4096, ..Defaults::BERT };
        let mut e = Encoder::read(f, &defaults)?;
        if f.text("attention_type") != Some("original_full") {
            let (random, block) = (f.count("num_random_blocks").unwrap_or(3), f.size("block_size").or(64));
            let seen = random.saturating_mul(2).saturating_add(5).saturating_mul(block);
            e.facts.max_position = e.facts.max_position.min(seen);
        }
        let bias = f.flag_or("use_bias", true);
        e.layers.iter_mut().for_each(|layer| layer.attention.change_heads(|_, h| h.qkv_bias = bias));
        e.classes = ClassHead { act: common::activation(f, "hidden_act", UnaryOp::GeluTanh), ..ClassHead::BERT };
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = fields! {
    attention_type: Accepts::OneOf(&["block_sparse", "original_full"]), num_random_blocks, block_size, use_bias,
};
