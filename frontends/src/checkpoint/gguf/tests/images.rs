//! Text models of models that see images: other models by other names.

use super::families::converted;
use super::open;
use crate::testing::{Folder, golden};
use crate::{Options, arch, lift};
use llmcc_ir::text::print_module;
use serde_json::{Map, Value, json};

/// Keys, and the fields of `config.json` that they are.
const KEYS: [(&str, &str); 12] = [
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

/// Names of tensors, `{}` being the number of the layer.
const TENSORS: [(&str, &str); 18] = [
    ("lm_head", "output"),
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("model.layers.{}.input_layernorm", "blk.{}.attn_norm"),
    ("model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"),
    ("model.layers.{}.self_attn.q_proj", "blk.{}.attn_q"),
    ("model.layers.{}.self_attn.k_proj", "blk.{}.attn_k"),
    ("model.layers.{}.self_attn.v_proj", "blk.{}.attn_v"),
    ("model.layers.{}.self_attn.o_proj", "blk.{}.attn_output"),
    ("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm"),
    ("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm"),
    ("model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"),
    ("model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"),
    ("model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"),
    ("model.layers.{}.mlp.gate", "blk.{}.ffn_gate_inp"),
    ("model.layers.{}.mlp.experts.gate_proj", "blk.{}.ffn_gate_exps"),
    ("model.layers.{}.mlp.experts.up_proj", "blk.{}.ffn_up_exps"),
    ("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps"),
];

/// A converter's output for a fixture as an architecture of this name.
fn about(fixture: &str, name: &str, more: Value) -> Value {
    let config: Value = serde_json::from_slice(&std::fs::read(golden(fixture).join("config.json")).unwrap()).unwrap();
    let mut metadata = Map::from_iter([("general.architecture".to_string(), json!(name))]);
    let keys = KEYS.iter().filter(|(_, field)| config[field].is_number());
    metadata.extend(keys.map(|(key, field)| (format!("{name}.{key}"), config[field].clone())));
    metadata.extend(more.as_object().unwrap().iter().map(|(key, v)| (format!("{name}.{key}"), v.clone())));
    let both = ["weight", "bias"];
    let tensors = TENSORS
        .iter()
        .flat_map(|(ours, theirs)| both.map(|end| (format!("{ours}.{end}"), json!(format!("{theirs}.{end}")))));
    json!({ "metadata": metadata, "done": "", "whole": true, "tensors": Map::from_iter(tensors) })
}

#[test]
fn they_are_other_models_by_other_names() {
    let sections = json!({ "rope.dimension_sections": [2, 3, 3, 0], "n_deepstack_layers": 1 });
    for (fixture, plain, name) in
        [("qwen2", "qwen2", "qwen2vl"), ("qwen3", "qwen3", "qwen3vl"), ("qwen3_moe_narrow", "qwen3moe", "qwen3vlmoe")]
    {
        let graph = |about: &Value| {
            let folder = Folder::new();
            folder.write("m.gguf", converted(&open(&golden(fixture)), about));
            let ckpt = open(&folder.0.join("m.gguf"));
            assert!(arch::config(&ckpt).unwrap().unread.is_empty(), "{name}");
            print_module(&lift(&ckpt, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}")))
        };
        assert_eq!(graph(&about(fixture, name, sections.clone())), graph(&about(fixture, plain, json!({}))));
    }
}
