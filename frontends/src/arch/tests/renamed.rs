//! Fixtures whose tensors have the names that other programs give them, and files of theirs that mean
//! something else than is compiled.

use super::assert_logits_of;
use crate::arch::Model;
use crate::checkpoint::Checkpoint;
use crate::fixtures::{Tensor, write_checkpoint};
use crate::testing::{Folder, config, golden, with};
use crate::{Options, lift};
use llmcc_ir::ty::DType;
use serde_json::{Value, json};

/// Each of these in place of the other, wherever it stands.
pub(super) type Renamings = &'static [(&'static str, &'static str)];

/// The tensors of a fixture, renamed, and some that no text model has.
pub(super) fn renamed(name: &str, names: Renamings, more: &[&str]) -> Vec<Tensor> {
    let ckpt = Checkpoint::open(&golden(name)).unwrap();
    let all = ckpt.names().map(|old| {
        let t = ckpt.tensor(old).unwrap();
        let name = names.iter().fold(old.to_string(), |name, (from, to)| name.replace(from, to));
        let dtype = if t.dtype == DType::F32 { "F32" } else { "BF16" };
        Tensor { name, dtype, shape: t.shape.clone(), data: t.data.to_vec() }
    });
    let other = |name: &&str| Tensor { name: (*name).to_string(), dtype: "BF16", shape: vec![1], data: vec![0; 2] };
    all.chain(more.iter().map(other)).collect()
}

/// Asserts that a fixture means the same under other names, and that all its tensors are read.
pub(super) fn means_the_same(name: &str, config: &Value, tensors: &[Tensor]) {
    let folder = Folder::new();
    write_checkpoint(&folder.0, config, tensors).unwrap();
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    assert_logits_of(name, &ckpt);
    let module = lift(&ckpt, &Options::default()).unwrap();
    assert_eq!(crate::unused::find(&ckpt, &module).unwrap(), None);
}

/// The fixture has the names that Mistral AI publishes; inside a multimodal model the tensors have
/// those, or Transformers' names.
#[test]
fn mistral_large_4_by_either_names() {
    const IN_MEMORY: Renamings = &[
        ("tok_embeddings.", "model.language_model.embed_tokens."),
        ("lerope.alpha", "model.language_model.rotary_emb.alpha"),
        ("output.", "lm_head."),
        ("layers.", "model.language_model.layers."),
        (".attention.", ".self_attn."),
        (".attention_norm.", ".input_layernorm."),
        (".ffn_norm.", ".post_attention_layernorm."),
        (".kv_a_norm.", ".kv_a_layernorm."),
        ("norm.weight", "NORM.weight"),
        ("_NORM.", "_norm."),
        ("layerNORM.", "layernorm."),
        ("NORM.", "model.language_model.norm."),
        (".wq.", ".q_proj."),
        (".wo.", ".o_proj."),
        (".wkv_a_with_mqa.", ".kv_a_proj_with_mqa."),
        (".wkv_b.", ".kv_b_proj."),
        (".ssmax_scaling.s", ".softmax_scaling.scale"),
        (".ssmax_scaling.b", ".softmax_scaling.bias"),
        (".feed_forward.", ".mlp."),
        (".gate.", ".mlp.gate."),
        (".experts.", ".mlp.experts."),
        (".shared_experts.", ".mlp.shared_experts."),
        (".w1.", ".gate_proj."),
        (".w2.", ".down_proj."),
        (".w3.", ".up_proj."),
    ];
    const OTHERS: &[&str] = &["vision_encoder.patch_conv.weight", "mtp_dspark.layers.0.norm.weight"];
    let text = Checkpoint::open(&golden("mistral_large4")).unwrap().config().clone();
    let whole = json!({
        "architectures": ["MistralLarge4ForConditionalGeneration"], "model_type": "mistral_large4",
        "dtype": "bfloat16", "image_token_index": 10, "vision_config": { "hidden_size": 16 },
        "text_config": with(text, json!({ "architectures": "absent" })),
    });
    means_the_same("mistral_large4", &whole, &renamed("mistral_large4", &[], OTHERS));
    means_the_same("mistral_large4", &whole, &renamed("mistral_large4", IN_MEMORY, OTHERS));
}

/// The fixture has the names that Tencent publishes; Transformers has others in memory, and writes some
/// in a third way.
#[test]
fn hunyuan_4_by_any_names() {
    const IN_MEMORY: Renamings = &[
        (".hc_attn_layer.hc_pre.hc_", ".attn_hc."),
        (".hc_mlp_layer.hc_pre.hc_", ".ffn_hc."),
        (".hc_head.hc_head_", ".hc_head.hc_"),
        (".learnable_sink_param", ".sinks"),
        (".linear_gate.", ".gate_proj."),
    ];
    const WRITTEN: Renamings = &[
        (".hc_attn_layer.hc_pre.hc_", ".hc_pre.hc_attn_layer.hc_"),
        (".hc_mlp_layer.hc_pre.hc_", ".hc_pre.hc_mlp_layer.hc_"),
        (".hc_head.", ".hc_pre.hc_head."),
        ("mlp.gate_proj.", "mlp.linear_gate."),
        ("shared_experts.gate_proj.", "shared_experts.linear_gate."),
    ];
    let config = Checkpoint::open(&golden("hy_v4")).unwrap().config().clone();
    for names in [IN_MEMORY, WRITTEN] {
        let tensors = renamed("hy_v4", names, &["model.mtp_layers.0.eh_proj.weight"]);
        means_the_same("hy_v4", &config, &tensors);
    }
}

/// The fixture has the names that SK Telecom publishes; Transformers has others in memory.
#[test]
fn ax_k2_by_either_names() {
    const IN_MEMORY: Renamings = &[("W_down", "mlp.fc1"), ("W_up", "mlp.fc2"), ("q_b_proj", "q_gate_proj")];
    let config = Checkpoint::open(&golden("axk2")).unwrap().config().clone();
    means_the_same("axk2", &config, &renamed("axk2", IN_MEMORY, &[]));
}

/// Files that ask for unsupported features, each refused with a message that names it.
#[test]
fn what_these_do_not_compute() {
    let refused = |arch: &str, changes: Value, words: &[&str]| {
        let error = Model::parse(&with(config(arch), changes.clone())).unwrap_err().to_string();
        assert!(words.iter().all(|w| error.contains(w)), "{changes}: {error}");
    };
    let sources = |list: Value, words: &str| {
        let four = json!({ "num_hidden_layers": 4, "no_rope_layers": [1, 1, 0, 1], "kv_source_layers": list });
        refused("mistral_large4_text", four, &["`kv_source_layers`", words]);
    };
    sources(json!([0, 0, 2]), "a source for each of its 4 layers");
    sources(json!([0, 2, 2, 3]), "before layer 1 with latents of their own");
    sources(json!([0, 0, 2, 1]), "before layer 3 with latents of their own");
    sources(json!([0, 0.5, 2, 3]), "before layer 1 with latents of their own");
    sources(json!([0, -1, 2, 3]), "before layer 1 with latents of their own");
    // The class reads latents that are rotated where it rotates, whatever the list says.
    sources(json!([0, 0, 0, 0]), "layer 2 to read the last shared latents before it");
    let two = json!({ "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 1], "kv_source_layers": [0, 1, 1, 0] });
    refused("mistral_large4_text", two, &["`kv_source_layers`", "not layer 0's"]);
    refused(
        "mistral_large4_text",
        json!({ "q_lora_rank": 8 }),
        &["`q_lora_rank` is 8", "makes queries from the row itself"],
    );
    refused("mistral_large4_text", json!({ "norm_topk_prob": false }), &["`norm_topk_prob` is false"]);
    refused("mistral_large4_text", json!({ "rope_theta": 5e5 }), &["`rope_theta` is 500000", "a base of 10000"]);
    refused("mistral_large4_text", json!({ "layer_types": ["full_attention"] }), &["`layer_types`"]);
    refused("mistral_large4_text", json!({ "final_logit_softcapping": 0 }), &["`final_logit_softcapping`"]);
    let kinds = |rotated: Value| {
        let changes = json!({ "layer_types": ["full_attention", "sliding_attention"], "rope_parameters": rotated });
        refused("cohere_compass_text", changes, &["`rope_parameters`"]);
    };
    kinds(json!({ "full_attention": null }));
    kinds(json!({ "rope_type": "default", "rope_theta": 1e4 }));
    kinds(json!({ "full_attention": 3, "sliding_attention": null }));
    // Transformers would compute with no base.
    kinds(json!({ "full_attention": null, "sliding_attention": { "rope_type": "default" } }));
    refused("axk2", json!({ "n_group": 4, "topk_group": 2 }), &["`n_group` is 4", "experts without groups"]);
    refused("axk2", json!({ "topk_group": 2 }), &["`topk_group` is 2", "experts without groups"]);
    refused("axk2", json!({ "q_lora_rank": null }), &["`q_lora_rank` is missing"]);
    refused("hy_v4", json!({ "q_lora_rank": null }), &["`q_lora_rank` is missing"]);
    refused("hy_v4", json!({ "swiglu_limit": 0 }), &["`swiglu_limit` is 0", "above 0"]);
    refused("hy_v4", json!({ "hc_magnitude": -1 }), &["`hc_magnitude` is -1"]);
    refused("hy_v4", json!({ "hc_mult": 1000 }), &["`hc_mult` is 1000"]);
    refused("hy_v4", json!({ "hc_eps": -1 }), &["`hc_eps` is -1"]);
    refused("hy_v4", json!({ "scoring_func": "softmax" }), &["`scoring_func` is \"softmax\""]);
}

/// The authors of Mamba have another name for the table, and another configuration.
#[test]
fn mamba_as_its_authors_have_it() {
    let config = json!({
        "d_model": 40, "n_layer": 3, "vocab_size": 120, "rms_norm": true, "residual_in_fp32": true,
        "fused_add_norm": true, "pad_vocab_size_multiple": 8, "ssm_cfg": { "d_state": 14, "dt_rank": 5, "bias": true }
    });
    let tensors = renamed("mamba", &[("backbone.embeddings.", "backbone.embedding.")], &[]);
    means_the_same("mamba", &config, &tensors);
}
