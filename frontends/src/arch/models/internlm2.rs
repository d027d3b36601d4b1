//! InternLM 2 (arXiv 2403.17297): Llama with Q, K and V stored group by group, and other names.
//!
//! Checked against Transformers' Llama with the same matrices, as it has no class for InternLM 2.

use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_GATE, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::config::common::{DIVIDED, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(crate) const ARCH: Arch = Arch {
    model_type: "internlm2",
    class: "InternLM2ForCausalLM",
    fields: &[IDENTITY, MODEL, DIVIDED, ROTARY, MLP, OWN],
    fixed: &[],
    goldens: &["internlm2"],
    names: Names(&[NAMES]),
    read: |f| {
        let defaults = Defaults { vocab: Some(103_168), heads: Some(32), ..Defaults::LLAMA };
        let bias = f.flag_or("bias", true);
        let d = Decoder::read(f, &defaults)?;
        Ok(Box::new(d.with_attention(|_, a| (a.by_group, a.qkv_bias, a.out_bias) = (true, bias, bias))))
    },
};

const OWN: &[Field] = &[Field::new("bias", Accepts::Flag)];

const NAMES: Table = &[
    (TABLE, "model.tok_embeddings"),
    (HEAD, "output"),
    (NORM, "model.norm"),
    (ATTN_NORM, "model.layers.{}.attention_norm"),
    (ATTN_QKV, "model.layers.{}.attention.wqkv"),
    (ATTN_OUT, "model.layers.{}.attention.wo"),
    (MLP_NORM, "model.layers.{}.ffn_norm"),
    (MLP_GATE, "model.layers.{}.feed_forward.w1"),
    (MLP_UP, "model.layers.{}.feed_forward.w3"),
    (MLP_DOWN, "model.layers.{}.feed_forward.w2"),
];
