//! StarCoder and SantaCoder (arXiv 2305.06161, 2301.03988): GPT-2 with one head of keys and values.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, POSITIONS, TABLE, Table,
};
use crate::config::common::GPT_MODEL;
use crate::config::fields::{Accepts, Field, IDENTITY};
use crate::config::known::Neutral;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_bigcode",
    class: "GPTBigCodeForCausalLM",
    fields: &[IDENTITY, GPT_MODEL, OWN],
    // How the softmax is computed, and what follows from `multi_query`.
    fixed: &[
        ("num_key_value_heads", Neutral::Any),
        ("attention_softmax_in_fp32", Neutral::Any),
        ("scale_attention_softmax_in_fp32", Neutral::Any),
        ("inference_runner", Neutral::Any),
        ("validate_runner_input", Neutral::Any),
        ("pre_allocate_kv_cache", Neutral::Any),
    ],
    goldens: &["gpt_bigcode"],
    names: Names(&[NAMES]),
    read: |f| {
        let one = f.flag_or("multi_query", true);
        let mut d = Decoder::read_with(f, &Defaults::GPT2, |_, _| Ok(vec![]))?;
        (d.norm, d.learned) = (Norm::layer(d.norm.eps), Some(0));
        let d = d.with_attention(|_, a| {
            (a.qkv_bias, a.out_bias, a.rotary) = (true, true, None);
            // Several are stored head by head.
            (a.fused, a.by_group) = (one, !one);
            a.heads.kv = if one { 1 } else { a.heads.queries };
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const OWN: &[Field] = &[Field::new("layer_norm_epsilon", Accepts::Number), Field::new("multi_query", Accepts::Flag)];

const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (POSITIONS, "transformer.wpe"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (ATTN_NORM, "transformer.h.{}.ln_1"),
    (ATTN_QKV, "transformer.h.{}.attn.c_attn"),
    (ATTN_OUT, "transformer.h.{}.attn.c_proj"),
    (MLP_NORM, "transformer.h.{}.ln_2"),
    (MLP_UP, "transformer.h.{}.mlp.c_fc"),
    (MLP_DOWN, "transformer.h.{}.mlp.c_proj"),
];
