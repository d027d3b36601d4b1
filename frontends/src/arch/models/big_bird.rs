//! BigBird (arXiv 2007.14062) as an encoder: BERT for longer texts. Its sparse attention sees blocks drawn at random
//! where a text has more tokens than it attends to; of no more tokens, which it is compiled for, it sees all.

use crate::arch::blocks::encoder::{ClassHead, Defaults, Encoder, FIELDS};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{BERT, CLASSES, Names, POOLER, Table};
use crate::config::common::{self, MODEL};
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::UnaryOp;

pub(crate) const ARCH: Arch = Arch {
    model_type: "big_bird",
    class: "BigBirdModel",
    fields: &[IDENTITY, MODEL, FIELDS, OWN],
    fixed: &[
        ("position_embedding_type", Neutral::Words(&["absolute"])),
        ("is_decoder", Neutral::Off),
        ("add_cross_attention", Neutral::Off),
        ("rescale_embeddings", Neutral::Off),
    ],
    goldens: &["big_bird", "big_bird_classes"],
    names: Names(&[NAMES, BERT]),
    read: |f| {
        let defaults = Defaults { act: UnaryOp::GeluTanh, max_position: 4096, ..Defaults::BERT };
        let mut e = Encoder::read(f, &defaults)?;
        if f.text("attention_type") != Some("original_full") {
            let (random, block) = (f.count("num_random_blocks").unwrap_or(3), f.size("block_size").or(64));
            let seen = random.saturating_mul(2).saturating_add(5).saturating_mul(block);
            e.facts.max_position = e.facts.max_position.min(seen);
        }
        let bias = f.flag_or("use_bias", true);
        e.layers.iter_mut().for_each(|layer| layer.attention.qkv_bias = bias);
        e.classes = ClassHead { act: common::activation(f, "hidden_act", UnaryOp::GeluTanh), ..ClassHead::BERT };
        Ok(Box::new(e))
    },
};

const OWN: &[Field] = &[
    Field::new("attention_type", Accepts::OneOf(&["block_sparse", "original_full"])),
    Field::new("num_random_blocks", Accepts::Count),
    Field::new("block_size", Accepts::Size(1 << 20)),
    Field::new("use_bias", Accepts::Flag),
];

const NAMES: Table = &[(POOLER, "classifier.dense"), (CLASSES, "classifier.out_proj")];
