//! Families by the names of other files than their fixtures, and files of theirs that mean something else than
//! is compiled.

use super::EXACT;
use super::renamed::{means_the_same, renamed};
use crate::arch::Model;
use crate::checkpoint::Checkpoint;
use crate::fixtures::Tensor;
use crate::testing::{config, golden, with};
use crate::{Options, lift};
use serde_json::{Value, json};

fn own_config(name: &str) -> Value {
    Checkpoint::open(&golden(name)).unwrap().config().clone()
}

/// Weights of residual additions were modules of their own once; JetMoE's authors have other names
/// of sizes.
#[test]
fn older_spellings() {
    let residuals = &[("_residual", "_residual.weight")];
    means_the_same("doge", &own_config("doge"), &renamed("doge", residuals, &[]));
    let authors = json!({
        "architectures": ["JetMoEForCausalLM"], "intermediate_size": "absent", "num_local_experts": "absent",
        "num_experts_per_tok": "absent", "ffn_hidden_size": 24, "moe_num_experts": 5, "moe_top_k": 3, "bias": true,
        "glu": true,
    });
    means_the_same("jetmoe", &with(own_config("jetmoe"), authors), &renamed("jetmoe", &[], &[]));
}

/// `tensors` with the rows of those that end so below each other, in a tensor that ends so.
fn below(mut tensors: Vec<Tensor>, parts: &[&str], whole: &str) -> Vec<Tensor> {
    for end in [".weight", ".bias"] {
        let first = format!(".{}{end}", parts[0]);
        let starts: Vec<String> =
            tensors.iter().filter_map(|t| t.name.strip_suffix(&first)).map(String::from).collect();
        for start in starts {
            let mut joined: Option<Tensor> = None;
            for part in parts {
                let name = format!("{start}.{part}{end}");
                let at = tensors.iter().position(|t| t.name == name).unwrap();
                let part = tensors.remove(at);
                joined = Some(match joined {
                    None => Tensor { name: format!("{start}.{whole}{end}"), ..part },
                    Some(mut all) => {
                        all.shape[0] += part.shape[0];
                        all.data.extend(part.data);
                        all
                    }
                });
            }
            tensors.extend(joined);
        }
    }
    tensors
}

/// Matrices that read the same in one.
#[test]
fn xlstm_in_fused_matrices() {
    let tensors = renamed("xlstm_large", &[], &[]);
    let tensors = below(tensors, &["q", "k", "v", "ogate_preact"], "qkv_opreact");
    let tensors = below(tensors, &["igate_preact", "fgate_preact"], "ifgate_preact");
    let tensors = below(tensors, &["proj_up_gate", "proj_up"], "proj_up_gate_z");
    let fused = with(own_config("xlstm_large"), json!({ "weight_mode": "fused" }));
    means_the_same("xlstm_large", &fused, &tensors);
}

/// Where no text has more tokens than an expert takes, none are counted.
#[test]
fn experts_that_take_all_tokens() {
    let ckpt = Checkpoint::open(&golden("switch_transformers")).unwrap();
    let states = |max: usize| lift(&ckpt, &Options { max_context: Some(max), ..EXACT }).unwrap().states.len();
    assert_eq!([states(6), states(7)], [4, 6]);
}

#[test]
fn what_these_do_not_compute() {
    for (arch, changes, words) in [
        (
            "doge",
            json!({ "is_moe": true }),
            "`is_moe` is true, which is not supported; the router of its experts compares tokens of a prompt",
        ),
        ("switch_transformers", json!({ "router_dtype": "bfloat16" }), "`router_dtype` is \"bfloat16\""),
        ("switch_transformers", json!({ "is_gated_act": true }), "`is_gated_act` is true"),
        ("switch_transformers", json!({ "num_experts": 2048 }), "2048 experts are more than 1024"),
        ("zaya", json!({ "num_experts_per_tok": 2 }), "this architecture expects one expert for each token"),
        ("zaya", json!({ "rope_parameters": { "rope_theta": 5e5 } }), "`rope_parameters.hybrid` is missing"),
        ("zaya", json!({ "rope_theta": 5e5 }), "`rope_theta` is 500000.0"),
        ("zaya", json!({ "layer_types": ["hybrid", "hybrid_sliding"] }), "`sliding_window` is missing"),
        ("zaya", json!({ "cca_time1": 1 }), "`cca_time1` is 1; it must be from 2 to 16"),
        ("zamba", json!({ "attention_hidden_size": 48 }), "attention over rows twice as wide as the model's (32)"),
        ("zamba", json!({ "layers_block_type": "absent" }), "this architecture expects at least 3 layers"),
        ("xlstm", json!({ "eps": 1e-3 }), "`eps` is 0.001, which is not supported"),
        ("xlstm", json!({ "gate_soft_cap": 80 }), "`gate_soft_cap` is 80.0; it must be above 0 and at most 60"),
        ("xlstm", json!({ "tie_word_embeddings": true }), "`tie_word_embeddings` is true"),
        ("jetmoe", json!({ "num_experts_per_tok": 9 }), "`num_experts_per_tok` is 9"),
    ] {
        let error = Model::parse(&with(config(arch), changes.clone())).unwrap_err().to_string();
        assert!(error.contains(words), "{arch}, {changes}: {error}");
    }
}
