//! DBRX (Databricks, 2024): LayerNorm without biases, queries, keys and values of limited size, experts
//! in three stacks.

use crate::arch::blocks::attention::Norm;
use crate::arch::blocks::decoder::{Decoder, Defaults};
use crate::arch::blocks::entry::Arch;
use crate::arch::blocks::experts::{Experts, Stored};
use crate::arch::blocks::names::{
    ATTN_NORM, ATTN_OUT, ATTN_QKV, EXPERT_DOWN, EXPERT_GATE, EXPERT_UP, EXPERTS_DOWN, EXPERTS_GATE, EXPERTS_UP, HEAD,
    MLP_NORM, NORM, Names, ROUTER, TABLE, Table,
};
use crate::config::ConfigError;
use crate::config::common::{self, ROTARY, TOKENS, WIDTH};
use crate::config::fields::{Accepts, Field, Fields, Given, IDENTITY};
use crate::config::known::Neutral;
use llmcc_ir::graph::{Router, UnaryOp};
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
        let defaults = Defaults {
            vocab: Some(32_000),
            heads: Some(16),
            max_position: 2048,
            // There are no MLPs but those of `experts`.
            ffn: Some(1),
            theta,
            eps_field: "layer_norm_epsilon",
            eps: 1e-5,
            ..Defaults::LLAMA
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
        let d = d.with_attention(|_, a| (a.fused, a.clip, a.heads.kv) = (true, clip, kv));
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
            return Err(e.unsupported(ORDER, v.to_string(), "this architecture has 1, or null for none".into()));
        }
    };
    let act = e.object("ffn_act_fn").and_then(|act| act.get("name")).and_then(Value::as_str).unwrap_or("silu");
    let act = match act {
        "silu" | "swish" => UnaryOp::Silu,
        "gelu" => UnaryOp::Gelu,
        "relu" => UnaryOp::Relu,
        other => {
            let help = "this architecture has the names `silu`, `gelu` and `relu`".into();
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

const OWN: &[Field] = &[
    Field::new("_name_or_path", Accepts::Text).unless(Neutral::Any),
    Field::new("quantization_config", Accepts::Any),
    Field::new("vocab_size", Accepts::Size(1 << 24)),
    Field::new("hidden_size", WIDTH).or(&["d_model"]),
    Field::new("num_hidden_layers", Accepts::Size(4096)).or(&["n_layers"]),
    Field::new("num_attention_heads", Accepts::Size(1 << 14)).or(&["n_heads"]),
    Field::new("num_key_value_heads", Accepts::Size(1 << 14)),
    Field::new("max_position_embeddings", TOKENS).or(&["max_seq_len"]).unless(Neutral::Any),
    Field::new("tie_word_embeddings", Accepts::Flag),
    Field::new("bos_token_id", Accepts::Tokens),
    Field::new("eos_token_id", Accepts::Tokens),
    Field::new("attn_config", Accepts::Object),
    Field::new("ffn_config", Accepts::Object),
];

const ATTENTION: &[Field] = &[
    Field::new("clip_qkv", Accepts::Number),
    Field::new("kv_n_heads", Accepts::Size(1 << 14)),
    Field::new("rope_theta", Accepts::Number),
];

const EXPERTS: &[Field] = &[
    Field::new("ffn_hidden_size", WIDTH),
    Field::new("moe_num_experts", Accepts::Size(4096)),
    Field::new("moe_top_k", Accepts::Size(4096)),
    Field::new(ORDER, Accepts::Number),
    Field::new("ffn_act_fn", Accepts::Object),
];

const FIXED_INSIDE: &[(&str, Neutral)] = &[
    // Its class has `d_model` whatever this is.
    ("hidden_size", Neutral::Any),
    ("_name_or_path", Neutral::Any),
    ("model_type", Neutral::Any),
    ("attn_pdrop", Neutral::Any),
    ("moe_jitter_eps", Neutral::Any),
    ("moe_loss_weight", Neutral::Any),
    ("uniform_expert_assignment", Neutral::Off),
];

const NAMES: Table = &[
    (TABLE, "transformer.wte"),
    (HEAD, "lm_head"),
    (NORM, "transformer.norm_f"),
    (ATTN_NORM, "transformer.blocks.{}.norm_attn_norm.norm_1"),
    (ATTN_QKV, "transformer.blocks.{}.norm_attn_norm.attn.Wqkv"),
    (ATTN_OUT, "transformer.blocks.{}.norm_attn_norm.attn.out_proj"),
    (MLP_NORM, "transformer.blocks.{}.norm_attn_norm.norm_2"),
    (ROUTER, "transformer.blocks.{}.ffn.router.layer"),
    // As GGUF files have them.
    (EXPERT_GATE, "transformer.blocks.{}.ffn.experts.{e}.w1"),
    (EXPERT_UP, "transformer.blocks.{}.ffn.experts.{e}.v1"),
    (EXPERT_DOWN, "transformer.blocks.{}.ffn.experts.{e}.w2"),
    (EXPERTS_GATE, "transformer.blocks.{}.ffn.experts.mlp.w1"),
    (EXPERTS_UP, "transformer.blocks.{}.ffn.experts.mlp.v1"),
    (EXPERTS_DOWN, "transformer.blocks.{}.ffn.experts.mlp.w2"),
];
