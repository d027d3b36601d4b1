//! Baichuan and Baichuan 2 (arXiv 2309.10305): Llama with Q, K and V in one matrix. The models of
//! 13 B have slopes in place of positions (ALiBi), and Baichuan 2 a head of rows of length 1.
//!
//! Which of them a file is about, its class decides: the class of the 13 B has no
//! `max_position_embeddings`, that of Baichuan 2 a `z_loss_weight`, or its vocabulary.
//!
//! Checked against Transformers' Llama with the same matrices, its rotation taken out and slopes
//! put in, as it has no class for Baichuan.

use crate::arch::blocks::prelude::*;

/// The vocabulary of Baichuan 2.
const SECOND: usize = 125_696;

pub(crate) const ARCH: Arch = Arch {
    model_type: "baichuan",
    class: "BaichuanForCausalLM",
    fields: &[IDENTITY, MODEL, HEADS, MLP, fields! { model_max_length, z_loss_weight }],
    fixed: &[],
    goldens: &["baichuan_13b", "baichuan2"],
    names: Names(&[names! { "model.layers.{}." { ATTN_QKV => "self_attn.W_pack" } }, HUGGING_FACE]),
    read: |f| {
        let sloped = f.size("max_position_embeddings").value().is_none();
        let longest = f.size("model_max_length").value();
        let max_position = longest.unwrap_or(4096);
        let defaults = defaults! { vocab: 64_000, heads: 32, max_position, ..LLAMA };
        let mut d = Decoder::read_with(f, &defaults, |heads, max_position| match sloped {
            true => Ok(vec![]),
            false => Ok(vec![rope::read(f, heads.dim, max_position, defaults.theta)?]),
        })?;
        d.facts.max_position = d.facts.max_position.min(longest.unwrap_or(usize::MAX));
        d.head.unit = d.facts.vocab == SECOND || f.number("z_loss_weight").is_some();
        Ok(Box::new(d.with_heads(|_, a, h| {
            h.projection = Projection::Fused;
            if sloped {
                a.rotary = None;
                h.with_dot(|s| s.distance = Some(Distance::Slopes { max: 8.0 }));
            }
        })))
    },
};
