//! BitNet b1.58 (arXiv 2402.17764, 2504.12285): Llama with squared ReLU as gate and norms before the
//! last matrices of the blocks, whose weights are −1, 0 and 1.

use crate::arch::blocks::names::{ATTN_OUT_NORM, MLP_DOWN_NORM};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "bitnet",
    class: "BitNetForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS],
    fixed: &[],
    goldens: &["bitnet"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let defaults = defaults! {
            vocab: 128_256, heads: 20, kv_heads: 5, max_position: 2048, eps: 1e-5, theta: 5e5, act: Relu2, ..LLAMA
        };
        let bias = f.flag("attention_bias");
        let d = Decoder::read(f, &defaults)?;
        let norm = d.norm;
        let d = d.with_heads(|_, _, h| (h.qkv_bias, h.out_bias, h.out_norm) = (bias, bias, Some(OutNorm::Row(norm))));
        Ok(Box::new(d.with_mlp(|m| m.inner_norm = Some(norm))))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." { ATTN_OUT_NORM => "self_attn.attn_sub_norm", MLP_DOWN_NORM => "mlp.ffn_sub_norm" }
};
