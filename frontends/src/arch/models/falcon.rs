//! Falcon (arXiv 2311.16867): attention and MLP side by side, Q, K and V stored group by group, no
//! gate. The first ones (Falcon-RW) have slopes instead of positions, which Transformers rounds to
//! bfloat16, and one block after the other.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::attention_scores::Distance;
use crate::arch::blocks::decoder::{Decoder, Defaults, Norms};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, HEAD, MLP_DOWN, MLP_NORM, MLP_UP, NORM, Names, TABLE, Table,
};
use crate::config::common::{self, ACTIVATIONS, MODEL, ROTARY, WIDTH};
use crate::config::fields::{Accepts, Field, IDENTITY};
use llmcc_ir::graph::UnaryOp;

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
            let help = "this architecture has attention and MLP side by side in its newer form".into();
            return Err(f.unsupported("parallel_attn", "false".into(), help));
        }
        let defaults = Defaults {
            vocab: Some(65024),
            heads: Some(71),
            max_position: 2048,
            act: ("hidden_act", UnaryOp::Gelu),
            ..Defaults::GPT2
        };
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
        let d = d.with_attention(|_, a| {
            (a.by_group, a.qkv_bias, a.out_bias) = (true, bias, bias);
            if alibi {
                (a.rotary, a.distance) = (None, Some(Distance::RoundedSlopes));
            }
            // What is said of their number counts in newer ones only, and there it alone.
            if !new {
                a.heads.kv = if multi { 1 } else { a.heads.queries };
            }
        });
        Ok(Box::new(d.with_mlp(|m| (m.gated, m.bias) = (false, bias))))
    },
};

const OWN: &[Field] = &[
    common::HEADS[0],
    Field::new("num_key_value_heads", Accepts::Size(1 << 14)).or(&["num_kv_heads"]),
    Field::new("new_decoder_architecture", Accepts::Flag),
    Field::new("multi_query", Accepts::Flag),
    Field::new("parallel_attn", Accepts::Flag),
    Field::new("num_ln_in_parallel_attn", Accepts::Size(64)),
    Field::new("bias", Accepts::Flag),
    Field::new("alibi", Accepts::Flag),
    Field::new("intermediate_size", WIDTH).or(&["ffn_hidden_size"]),
    Field::new("hidden_act", Accepts::OneOf(ACTIVATIONS)).or(&["activation"]),
    Field::new("layer_norm_epsilon", Accepts::Number),
];

const NAMES: Table = &[
    (TABLE, "transformer.word_embeddings"),
    (HEAD, "lm_head"),
    (NORM, "transformer.ln_f"),
    (ATTN_NORM, "transformer.h.{}.input_layernorm"),
    (ATTN_NORM, "transformer.h.{}.ln_attn"),
    (ATTN_QKV, "transformer.h.{}.self_attention.query_key_value"),
    (ATTN_OUT, "transformer.h.{}.self_attention.dense"),
    (MLP_NORM, "transformer.h.{}.ln_mlp"),
    (MLP_NORM, "transformer.h.{}.post_attention_layernorm"),
    (MLP_UP, "transformer.h.{}.mlp.dense_h_to_4h"),
    (MLP_DOWN, "transformer.h.{}.mlp.dense_4h_to_h"),
];
