//! Values of fields that are refused, and others that are read.

use crate::arch::Arch;
use crate::config::fields::Accepts;
use crate::testing::{config, other_count};
use serde_json::{Value, json};

/// The second of two layers of these has a window by default.
pub(super) const UPPER: &[&str] = &["cwm", "mimo_v2_flash", "cohere2_moe", "granite_swa", "granitemoe_swa"];

/// Fields that only repeat values that follow from others, where they may be anything.
const FOLLOWING: &[&str] = &[
    "attention_head_dim",
    "attention_hidden_size",
    "attention_layers",
    "head_dim",
    "layer_types",
    "layers_block_type",
    "mamba_d_head",
    "mamba_headdim",
    "num_attention_heads",
];

/// A value that a field may not have, and one that changes the meaning of `base`. `upper`: the
/// second of two layers has a window.
pub(super) fn field_samples(
    arch: &Arch,
    (name, accepts): (&str, Accepts),
    base: &Value,
    upper: bool,
) -> (Value, Value) {
    match accepts {
        Accepts::Size(_) if name == "num_hidden_layers" => (json!("2"), json!(1)),
        Accepts::Size(_) if name == "num_key_value_heads" => (json!(2.5), json!(1)),
        Accepts::Size(_) if name == "n_group" => {
            let other = if config(arch.model_type)["n_group"] == 3 { 4 } else { 3 };
            (json!(2.5), json!(other))
        }
        Accepts::Size(_) if ["num_experts_per_tok", "moe_topk"].contains(&name) => {
            (json!(2.5), json!(if base[name] == 1 { 2 } else { 1 }))
        }
        Accepts::Size(_) if name.ends_with("_period") || name.ends_with("_n_layers") => (json!(2.5), json!(1)),
        Accepts::Size(_) if name == "n_routed_experts" => (json!(2.5), json!(24)),
        Accepts::Size(_) if name == "topk_group" => (json!(2.5), json!(3)),
        Accepts::Size(_) if name.ends_with("intermediate_size") => (json!(2.5), json!(48)),
        // The width is divided among the heads.
        Accepts::Size(_) if name == "num_attention_heads" && arch.field("head_dim").is_none() => (json!(2.5), json!(2)),
        Accepts::Size(_) if name == "hidden_size" => (json!(2.5), json!(32)),
        Accepts::Size(max) => (
            json!(max + 1),
            json!(match name {
                "block_multiple_of" => 5,
                // Its last layer has no window, whatever the pattern.
                "sliding_window_pattern" if arch.model_type == "embedding_gemma2_text" => 1,
                "linear_head_dim" => 20,
                "o_groups" => 4,
                "o_lora_rank" => 20,
                _ => 12.min(max),
            }),
        ),
        Accepts::Count => (json!(-1), json!(other_count(name))),
        Accepts::Number => (
            json!("1e-6"),
            match name {
                "partial_rotary_factor" => json!(1.0),
                "expand_k" | "expand_v" => json!(1.5),
                "max_relative_positions" => json!(14),
                "position_buckets" => json!(6),
                name if name.contains("rope") => json!(4e5),
                _ => json!(3e-3),
            },
        ),
        // True where nothing is said.
        Accepts::Flag if ["is_causal", "scale_attn_weights"].contains(&name) => (json!("true"), json!(false)),
        Accepts::Flag => (json!("true"), json!(base[name] != json!(true))),
        Accepts::Text => (json!(3), json!(if name == "model_type" { "absent" } else { "a/b" })),
        Accepts::OneOf(names) if !names.contains(&"relu") => {
            let other = names.iter().find(|n| base[name] != **n).unwrap_or(&"relu");
            (json!("none"), json!(other))
        }
        Accepts::OneOf(names) if base[name] == "relu" => {
            (json!("sigmoid"), json!(names.iter().find(|n| **n != "relu").unwrap_or(&"relu")))
        }
        Accepts::OneOf(_) => (json!("sigmoid"), json!("relu")),
        Accepts::ListOf(names) if !names.contains(&"full_attention") => {
            (json!([names[0], 3]), json!([names[1], names[1]]))
        }
        Accepts::ListOf(_) => (
            json!(["sliding_attention", 3]),
            json!([if upper { "sliding_attention" } else { "full_attention" }, "sliding_attention"]),
        ),
        Accepts::Tokens => (json!("x"), json!([3, 4])),
        Accepts::Numbers if name == "num_attention_heads_per_layer" => (json!([2, 3]), json!([2, 6])),
        Accepts::Numbers if ["hybrid_layer_pattern", "moe_layer_freq"].contains(&name) => (json!(["x"]), json!([1, 1])),
        // Two layers, one without rotation.
        Accepts::Numbers if name == "kv_source_layers" => (json!(["x"]), json!([0, 0])),
        Accepts::Numbers if name == "layer_rope_theta" => (json!(["x"]), json!([0, 500])),
        Accepts::Numbers if name == "compress_ratios" => (json!(["x"]), json!([128, 0])),
        Accepts::Numbers => (json!(["x"]), json!([0, 1])),
        Accepts::Object if name == "linear_attn_config" => (json!([]), json!({ "head_dim": 20 })),
        Accepts::Object if name == "compress_rates" => (json!([]), json!({ "compressed_sparse_attention": 6 })),
        Accepts::Object if name.starts_with("dual_chunk") => (json!([]), json!({ "chunk_size": 40, "local_size": 8 })),
        Accepts::Object => (json!([]), json!({ "rope_type": "linear", "factor": 2 })),
        Accepts::Any if name == "mlp_layer_types" => (json!({ "0": "dense" }), json!(["sparse", "sparse"])),
        Accepts::Any if name == "gating" => (json!("none"), json!("per-element")),
        Accepts::Any if name == "attention_windows" => (json!("x"), json!([0, 1])),
        Accepts::Any if name == "rope_theta" => (json!("x"), json!(12345.0)),
        Accepts::Any if name == "partial_rotary_factors" => (json!("x"), json!([0.5, 0.5])),
        Accepts::Any if name.starts_with("swiglu_limits") => (json!("x"), json!([0.75, 0.25])),
        Accepts::Any if name == "hybrid_layer_ids" => (json!("x"), json!([0, 1])),
        Accepts::Any if FOLLOWING.contains(&name) => (json!("x"), json!(3)),
        Accepts::Any => (json!({ "quant_method": "gptq" }), json!(null)),
    }
}
