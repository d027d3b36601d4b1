//! Falcon (arXiv 2311.16867): attention and MLP side by side, Q, K and V stored group by group, no gate. The first ones
//! (Falcon-RW) have slopes instead of positions, which Transformers rounds to bfloat16, and one block after the other.

use crate::arch::blocks::prelude::*;

pub(crate) const ARCH: Arch = Arch {
    model_type: "falcon",
    class: "FalconForCausalLM",
    fields: &[IDENTITY, MODEL, ROTARY, OWN],
    fixed: &[],
    goldens: &["falcon", "falcon_one_kv", "falcon_rw"],
    names: Names(&[NAMES]),
    read: |f| {
        let (new, multi) = (f.flag("new_decoder_architecture"), f.flag_or("multi_query", true));
        let parallel = f.flag_or("parallel_attn", true);
        if new && !parallel {
            let help = "this architecture expects attention and MLP side by side in its newer form".into();
            return Err(f.unsupported("parallel_attn", "false".into(), help));
        }
        let defaults = defaults! { vocab: 65024, heads: 71, max_position: 2048, act: Gelu, ..GPT2 };
        let mut d = Decoder::read(f, &defaults)?;
        let two = match f.size("num_ln_in_parallel_attn").value() {
            Some(n @ 1..=2) => new && n == 2,
            Some(n) => {
                let expected = "1 or 2, as this architecture has no more norms".into();
                return Err(f.invalid("num_ln_in_parallel_attn", &n, expected));
            }
            None => new,
        };
        let (bias, alibi) = (f.flag("bias"), f.flag("alibi"));
        d.norm = Norm::layer(d.norm.eps);
        d.norms = if parallel { Norms::Parallel { own: two } } else { Norms::Before };
        let d = d.with_heads(|_, a, h| {
            (h.projection, h.qkv_bias, h.out_bias) = (Projection::ByGroup, bias, bias);
            if alibi {
                a.rotary = None;
                h.with_dot(|s| s.distance = Some(Distance::RoundedSlopes));
            }
            // Their number counts in newer files only, and there it alone.
            if !new {
                a.heads.kv = if multi { 1 } else { a.heads.queries };
            }
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, bias))))
    },
};

const OWN: &[Field] = fields! {
    num_attention_heads, num_key_value_heads | num_kv_heads, new_decoder_architecture, multi_query, parallel_attn,
    num_ln_in_parallel_attn, bias, alibi, intermediate_size | ffn_hidden_size, hidden_act | activation,
    layer_norm_epsilon,
};

const NAMES: Table = names! {
    "transformer." { TABLE => "word_embeddings", NORM => "ln_f" }
    "" { HEAD => "lm_head" }
    "transformer.h.{}." {
        ATTN_NORM => "input_layernorm", ATTN_NORM => "ln_attn", ATTN_QKV => "self_attention.query_key_value",
        ATTN_OUT => "self_attention.dense", MLP_NORM => "ln_mlp", MLP_NORM => "post_attention_layernorm",
        MLP_UP => "mlp.dense_h_to_4h", MLP_DOWN => "mlp.dense_4h_to_h",
    }
};
