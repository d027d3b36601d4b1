//! StarCoder and SantaCoder (arXiv 2305.06161, 2301.03988): GPT-2 with one head of keys and values.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "gpt_bigcode",
    class: "GPTBigCodeForCausalLM",
    fields: &[IDENTITY, GPT_MODEL, GPT_MLP, fields! { layer_norm_epsilon, multi_query }],
    // Details of the softmax, and consequences of `multi_query`.
    fixed: fixed! {
        Any => num_key_value_heads attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner
            validate_runner_input pre_allocate_kv_cache;
    },
    goldens: &["gpt_bigcode"],
    names: Names(&[NAMES]),
    read: |f| {
        let one = f.flag_or("multi_query", true);
        let mut d = Decoder::read_with(f, &Defaults::GPT2, |_, _| Ok(vec![]))?;
        (d.norm, d.embedding.positions) = (Norm::layer(d.norm.eps), Some(Positions::Learned(0)));
        let d = d.with_heads(|_, a, h| {
            (h.qkv_bias, h.out_bias, a.rotary) = (true, true, None);
            // Several are stored head by head.
            h.projection = if one { Projection::Fused } else { Projection::ByGroup };
            a.heads.kv = if one { 1 } else { a.heads.queries };
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, true))))
    },
};

const NAMES: Table = names! {
    "transformer." { TABLE => "wte", POSITIONS => "wpe", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." {
        ATTN_NORM => "ln_1", ATTN_QKV => "attn.c_attn", ATTN_OUT => "attn.c_proj", MLP_NORM => "ln_2",
        MLP_UP => "mlp.c_fc", MLP_DOWN => "mlp.c_proj",
    }
};
