//! DBRX (Databricks, 2024): LayerNorm without biases, queries, keys and values of limited size, experts
//! in three stacks.

use crate::arch::blocks::names::{EXPERTS_GATE, EXPERTS_UP};
use crate::arch::blocks::prelude::*;
use serde_json::{Map, Value};

pub(crate) const ARCH: Arch = Arch {
    model_type: "dbrx",
    class: "DbrxForCausalLM",
    fields: &[IDENTITY, OWN, ROTARY],
    fixed: &[],
    goldens: &["dbrx"],
    names: Names(&[NAMES]),
    read: |f| {
        let none = Map::new();
        let attention = f.object("attn_config").unwrap_or(&none);
        let a = f.inside_alone(attention, IN_ATTENTION, &[ATTENTION], FIXED_INSIDE)?;
        // As in the authors' code; Transformers 5 has 10,000 where the file says nothing outside.
        let theta = a.factor_or("rope_theta", 10_000.0)?;
        let defaults = defaults! {
            vocab: 32_000, heads: 16, max_position: 2048, theta, eps(layer_norm_epsilon): 1e-5,
            // The experts are the only MLPs.
            ffn: 1, ..LLAMA
        };
        let mut d = Decoder::read(f, &defaults)?;
        d.norm = Norm { bias: false, ..Norm::layer(d.norm.eps) };
        let (kv, clip) = (a.size("kv_n_heads").or(1), common::limit(&a, "clip_qkv")?);
        if let Some(n) = f.size("num_key_value_heads").value().filter(|n| *n != kv) {
            let expected = format!("as `{IN_ATTENTION}kv_n_heads` ({kv}), or absent");
            return Err(f.invalid("num_key_value_heads", &n, expected));
        }
        let queries = d.layers.first().map_or(0, |l| l.attention.heads.queries);
        if !queries.is_multiple_of(kv) {
            return Err(a.invalid("kv_n_heads", &kv, format!("a divisor of `n_heads` ({queries})")));
        }
        let d = d.with_heads(|_, a, h| {
            (h.projection, a.heads.kv) = (Projection::Fused, kv);
            h.with_dot(|s| s.clip = clip);
        });
        let experts = experts(f, &d)?;
        Ok(Box::new(d.with_experts(|_| Some(experts))))
    },
};

fn experts(f: &Fields, d: &Decoder) -> Result<Experts, ConfigError> {
    let none = Map::new();
    let map = f.object("ffn_config").unwrap_or(&none);
    let e = f.inside_alone(map, IN_EXPERTS, &[EXPERTS], FIXED_INSIDE)?;
    // Weights are divided by their norm of this order: of 1 by their sum.
    let normalize = match e.get(ORDER) {
        Given::Null => false,
        Given::Absent => true,
        Given::Value(v) if v.as_f64() == Some(1.0) => true,
        Given::Value(v) => {
            return Err(e.unsupported(ORDER, v.to_string(), "this architecture supports 1, or null for none".into()));
        }
    };
    let act = e.object("ffn_act_fn").and_then(|act| act.get("name")).and_then(Value::as_str).unwrap_or("silu");
    let act = match act {
        "silu" | "swish" => UnaryOp::Silu,
        "gelu" => UnaryOp::Gelu,
        "relu" => UnaryOp::Relu,
        other => {
            let help = "this architecture supports the names `silu`, `gelu` and `relu`".into();
            return Err(e.unsupported("ffn_act_fn", format!("\"{other}\""), help));
        }
    };
    let experts = Experts {
        ffn: e.size("ffn_hidden_size").or(3584),
        act,
        stored: Stored::Stacks,
        ..Experts::like(d, Router::softmax(e.size("moe_top_k").or(1), normalize), e.size("moe_num_experts").or(4))
    };
    experts.checked(&e, ["moe_num_experts", "moe_top_k"])
}

const IN_ATTENTION: &str = "attn_config.";
const IN_EXPERTS: &str = "ffn_config.";
const ORDER: &str = "moe_normalize_expert_weights";

const OWN: &[Field] = fields! {
    _name_or_path, quantization_config, vocab_size, hidden_size | d_model, num_hidden_layers | n_layers,
    num_attention_heads | n_heads, num_key_value_heads, max_position_embeddings | max_seq_len, tie_word_embeddings,
    bos_token_id, eos_token_id, attn_config, ffn_config,
};

const ATTENTION: &[Field] = fields! { clip_qkv, kv_n_heads, rope_theta };

const EXPERTS: &[Field] = fields! {
    ffn_hidden_size, moe_num_experts, moe_top_k, moe_normalize_expert_weights, ffn_act_fn,
};

const FIXED_INSIDE: &[(&str, Neutral)] = fixed! {
    // Its class has `d_model` whatever this is.
    Any => hidden_size;
    Any => _name_or_path model_type attn_pdrop moe_jitter_eps moe_loss_weight;
    Off => uniform_expert_assignment;
};

const NAMES: Table = names! {
    "transformer." { TABLE => "wte", NORM => "norm_f" }
    "" { HEAD => "lm_head" }
    "transformer.blocks.{}." {
        ATTN_NORM => "norm_attn_norm.norm_1", ATTN_QKV => "norm_attn_norm.attn.Wqkv",
        ATTN_OUT => "norm_attn_norm.attn.out_proj", MLP_NORM => "norm_attn_norm.norm_2", ROUTER => "ffn.router.layer",
        // As GGUF files have them.
        EXPERT_GATE => "ffn.experts.{e}.w1", EXPERT_UP => "ffn.experts.{e}.v1", EXPERT_DOWN => "ffn.experts.{e}.w2",
        EXPERTS_GATE => "ffn.experts.mlp.w1", EXPERTS_UP => "ffn.experts.mlp.v1",
        EXPERTS_DOWN => "ffn.experts.mlp.w2",
    }
};
