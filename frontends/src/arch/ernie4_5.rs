//! ERNIE 4.5, dense (Baidu, 2025): Llama with rotation of neighbours.

use super::decoder::{Decoder, Defaults};
use super::entry::Arch;
use super::names::{HUGGING_FACE, Names};
use crate::config::common::{ATTENTION, MLP, MODEL, ROTARY};
use crate::config::fields::{Accepts, Field, IDENTITY};

pub(super) const ARCH: Arch = Arch {
    model_type: "ernie4_5",
    class: "Ernie4_5ForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, OWN],
    fixed: &[],
    goldens: &["ernie4_5"],
    names: Names(&[HUGGING_FACE]),
    read: |f| {
        let defaults = Defaults {
            vocab: Some(103_424),
            heads: Some(16),
            kv_heads: Some(2),
            head_dim: Some(128),
            max_position: 131_072,
            tied: true,
            eps: 1e-5,
            theta: 5e5,
            ..Defaults::LLAMA
        };
        let bias = f.flag("use_bias");
        let d = Decoder::read(f, &defaults)?;
        let d = d.with_attention(|_, a| (a.qkv_bias, a.out_bias, a.neighbours) = (bias, bias, a.heads.dim));
        Ok(Box::new(d.with_mlp(|m| m.bias = bias)))
    },
};

const OWN: &[Field] = &[Field::new("use_bias", Accepts::Flag)];
