//! DiffLlama (after arXiv 2410.05258): Llama with differential attention.

use crate::arch::blocks::differential_attention::{LAMBDAS, first_lambda};
use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "diffllama",
    class: "DiffLlamaForCausalLM",
    fields: &[IDENTITY, MODEL, ATTENTION, ROTARY, MLP, ATTENTION_BIAS],
    fixed: &[],
    goldens: &["diffllama"],
    names: Names(&[NAMES, HUGGING_FACE]),
    read: |f| {
        let bias = f.flag("attention_bias");
        let defaults = defaults! { vocab: 32_000, heads: 32, eps: 1e-5, ..LLAMA };
        let d = Decoder::read(f, &defaults)?;
        let heads = d.layers.first().map_or(0, |l| l.attention.heads.kv);
        if !heads.is_multiple_of(2) {
            let expected = "even: this architecture uses the values of two heads together";
            return Err(f.invalid("num_key_value_heads", &heads, expected.into()));
        }
        Ok(Box::new(d.with_heads(|i, a, h| {
            (h.qkv_bias, h.out_bias) = (bias, bias);
            (h.scores, h.values.dim) = (ScoreForm::Differential(first_lambda(i)), Some(2 * a.heads.dim));
        })))
    },
};

const NAMES: Table = names! {
    "model.layers.{}." {
        LAMBDAS[0][0] => "self_attn.lambda_q1", LAMBDAS[0][1] => "self_attn.lambda_k1",
        LAMBDAS[1][0] => "self_attn.lambda_q2", LAMBDAS[1][1] => "self_attn.lambda_k2",
    }
};
