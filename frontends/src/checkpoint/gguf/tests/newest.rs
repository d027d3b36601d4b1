//! Architectures of 2026 whose fixtures files cannot express: their keys and names.

use super::super::model::Model as Described;
use super::*;
use serde_json::json;

type Numbers<'a> = &'a [(&'a str, u64)];

/// A value of metadata.
fn value(v: &serde_json::Value) -> Value {
    match v {
        serde_json::Value::Array(list) => Value::List(list.iter().map(value).collect()),
        serde_json::Value::Bool(b) => Value::Bool(*b),
        v => v.as_u64().map_or_else(|| Value::Float(v.as_f64().unwrap()), Value::Unsigned),
    }
}

/// The description of a file of these keys and tensors of f32.
fn described(arch: &str, keys: serde_json::Value, tensors: &[(&str, &[usize])]) -> Result<Described, String> {
    let keys = keys.as_object().unwrap().iter().map(|(key, v)| (format!("{arch}.{key}"), value(v)));
    let mut metadata: Metadata = keys.collect();
    metadata.insert("general.architecture".into(), Value::Text(arch.into()));
    let of = |shape: &[usize]| {
        let bytes = 0..4 * shape.iter().product::<usize>();
        (0, TensorInfo { dtype: blocks::floats(), shape: shape.to_vec(), bytes })
    };
    let tensors = tensors.iter().map(|(name, shape)| (name.to_string(), of(shape))).collect();
    let bytes = |_, info: &TensorInfo| vec![0; info.bytes.len()];
    model::describe(&metadata, tensors, &bytes, crate::opening::declares).map_err(|(what, _)| what)
}

/// All that the configuration says is read.
fn read(model: &Described) -> Model {
    let read = Model::parse(&model.config).unwrap_or_else(|e| panic!("{e}: {}", model.config));
    assert!(read.unread.is_empty(), "{:?}", read.unread);
    read
}

const SIZES: Numbers = &[("context_length", 64), ("embedding_length", 32), ("attention.head_count", 4)];

fn sized(own: serde_json::Value) -> serde_json::Value {
    let mut keys: serde_json::Map<String, serde_json::Value> = own.as_object().unwrap().clone();
    keys.extend(SIZES.iter().map(|(key, n)| (key.to_string(), (*n).into())));
    keys.insert("attention.layer_norm_rms_epsilon".into(), 1e-5.into());
    keys.into()
}

/// Layers with the delta rule, and queries over the depth whose gains are in files only multiplied by them.
#[test]
fn kimi_k3() {
    let keys = json!({
        "block_count": 2, "feed_forward_length": 56, "attention.head_count_kv": [0, 1], "expert_count": 12,
        "expert_used_count": 3, "expert_gating_func": 2, "ssm.conv_kernel": 4, "kda.head_dim": 12,
        "kda.gate_lower_bound": -5.0, "attention.q_lora_rank": 20, "attention.kv_lora_rank": 24,
        "rope.dimension_count": 8, "attention.key_length": 32, "attention.value_length": 24,
        "attention.key_length_mla": 24, "attention.value_length_mla": 10, "expert_feed_forward_length": 12,
        "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_scale": 1.5,
        "expert_weights_norm": true, "expert_latent_length": 20, "activation.situ_beta": 1.5,
        "activation.situ_linear_beta": 2.5, "attn_res.block_size": 2,
    });
    let tensors: [(&str, &[usize]); 7] = [
        ("token_embd.weight", &[80, 32]),
        ("blk.0.ssm_beta.weight", &[3, 32]),
        ("blk.0.ssm_g.weight", &[36, 32]),
        ("blk.1.attn_gate.weight", &[40, 32]),
        ("blk.1.attn_res_score.weight", &[32]),
        ("blk.1.ffn_routed_norm.weight", &[20]),
        ("output_res_score.weight", &[32]),
    ];
    let model = described("kimi-k3", sized(keys), &tensors).unwrap();
    let linear = json!({
        "kda_layers": [1], "full_attn_layers": [2], "head_dim": 12, "num_heads": 3, "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0, "use_full_rank_gate": true,
    });
    assert_eq!(model.config["linear_attn_config"], linear);
    let fields = ["mla_use_output_gate", "latent_moe_use_norm", "qk_nope_head_dim", "attn_res_block_size"];
    assert_eq!(fields.map(|f| model.config[f].clone()), [json!(true), json!(true), json!(16), json!(2)]);
    read(&model);
    for site in ["model.layers.1.self_attention_res", "model.output_attn_res"] {
        let shape = |part: &str| &model.tensors[&format!("{site}_{part}.weight")].info.shape;
        assert_eq!((&shape("norm")[..], &shape("proj")[..]), (&[32][..], &[1, 32][..]));
        let (query, mut row) = (&model.tensors[&format!("{site}_proj.weight")], [0.0; 32]);
        query.layout.as_ref().unwrap().values(&[], 0, &mut row);
        assert_eq!(row, [1.0; 32]);
    }
}

/// Layers that read the tokens which the indexer of an earlier one has selected.
#[test]
fn shared_indexers() {
    let keys = |types: serde_json::Value| {
        sized(json!({
            "block_count": 2, "feed_forward_length": 32, "attention.head_count_kv": 1, "rope.freq_base": 10000.0,
            "attention.q_lora_rank": 16, "attention.kv_lora_rank": 14, "rope.dimension_count": 8,
            "attention.key_length": 22, "attention.value_length": 14, "attention.key_length_mla": 16,
            "attention.value_length_mla": 10, "expert_count": 4, "expert_used_count": 2, "expert_gating_func": 2,
            "expert_feed_forward_length": 16, "expert_shared_count": 1, "expert_weights_scale": 2.5,
            "expert_weights_norm": true, "leading_dense_block_count": 1, "attention.indexer.head_count": 2,
            "attention.indexer.key_length": 8, "attention.indexer.top_k": 16, "attention.indexer.types": types,
            "expert_group_count": 1, "expert_group_used_count": 1,
        }))
    };
    let of = |arch: &str, types| described(arch, keys(types), &[("token_embd.weight", &[64, 32])]).unwrap();
    let shared = of("glm-dsa", json!([true, false]));
    assert_eq!(shared.config["indexer_types"], json!(["full", "shared"]));
    assert!(format!("{:?}", read(&shared).shape).contains("interleaved: true, shared: true"));
    for types in [json!([true, true]), json!([1, 1])] {
        let own = of("glm-dsa", types);
        assert!(own.config.get("indexer_types").is_none());
        assert!(!format!("{:?}", read(&own).shape).contains("interleaved: true, shared: true"));
    }
    // The class has no such layers.
    let refused = Model::parse(&of("deepseek32", json!([true, false])).config).unwrap_err().to_string();
    assert!(refused.contains("`indexer_types`"), "{refused}");
}

/// Windows of each layer, hashed experts, and one limit of all activations.
#[test]
fn deepseek_v4() {
    let keys = |limits: serde_json::Value| {
        sized(json!({
            "block_count": 2, "attention.head_count_kv": 1, "attention.key_length": 16, "attention.value_length": 16,
            "rope.dimension_count": 6, "rope.freq_base": 10000.0, "attention.q_lora_rank": 20,
            "attention.sliding_window": 7, "expert_count": 6, "expert_used_count": 2, "expert_gating_func": 4,
            "expert_feed_forward_length": 32, "expert_shared_count": 1, "expert_weights_scale": 1.5,
            "expert_weights_norm": true, "swiglu_clamp_exp": limits, "swiglu_clamp_shexp": [1.5, 1.5],
            "attention.indexer.head_count": 2, "attention.indexer.key_length": 8, "attention.indexer.top_k": 64,
            "attention.output_group_count": 2, "attention.output_lora_rank": 12,
            "attention.compress_ratios": [4, 128, 0], "attention.compress_rope_freq_base": 160000.0,
            "hyper_connection.count": 3, "hyper_connection.sinkhorn_iterations": 5, "hyper_connection.epsilon": 1e-6,
            "hash_layer_count": 1, "embedding_length_out": 96,
        }))
    };
    let tensors: [(&str, &[usize]); 5] = [
        ("token_embd.weight", &[64, 32]),
        ("blk.0.ffn_gate_tid2eid.weight", &[64, 2]),
        ("blk.0.exp_probs_b_vl.bias", &[6]),
        ("blk.0.ffn_up_exps.weight", &[6, 32, 32]),
        ("blk.1.hc_ffn_base.weight", &[15]),
    ];
    let model = described("deepseek4", keys(json!([1.5, 1.5])), &tensors).unwrap();
    let fields = ["compress_ratios", "swiglu_limit", "qk_rope_head_dim", "num_hash_layers", "o_groups"];
    let wanted = [json!([4, 128, 0]), json!(1.5), json!(6), json!(1), json!(2)];
    assert_eq!(fields.map(|f| model.config[f].clone()), wanted);
    read(&model);
    let names: Vec<&str> = model.tensors.keys().map(String::as_str).collect();
    assert_eq!(names[..2], ["embed.weight", "layers.0.ffn.experts.0.w3.weight"]);
    assert_eq!(names[7..], ["layers.0.ffn.gate.tid2eid", "layers.1.hc_ffn_base"]);
    let several = described("deepseek4", keys(json!([1.5, 2.0])), &tensors).map(|_| ()).unwrap_err();
    assert!(several.contains("has different limits of activations in its layers"), "{several}");
}

/// Tables of n-grams, with the class's hashes.
#[test]
fn qwen_4() {
    let keys = |sizes: serde_json::Value, seventh: u64| {
        sized(json!({
            "block_count": 2, "attention.head_count_kv": 2, "rope.freq_base": 1e7, "expert_count": 6,
            "expert_used_count": 2, "attention.key_length": 16, "attention.value_length": 16,
            "expert_feed_forward_length": 16, "expert_shared_feed_forward_length": 12, "ssm.conv_kernel": 4,
            "ssm.state_size": 8, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 40,
            "attention.recurrent_layers": [true, false], "rope.dimension_count": 4, "hyper_connection.count": 3,
            "hyper_connection.low_rank": 10, "attention.indexer.head_count": 2, "attention.indexer.key_length": 8,
            "attention.indexer.top_k": 64, "attention.compress_ratios": [0, 4], "ple.layers": [0],
            "ple.ngram_size": 3, "ple.heads_per_ngram": 2, "ple.conv_kernel": 4, "ple.eos_token_id": 2,
            "ple.layer_multipliers": [40_323_955_908_725_927u64, 35_454_616_657_218_691u64, seventh],
            "ple.head_offsets": [0, 31, 68, 109], "ple.head_vocab_sizes": sizes,
        }))
    };
    let tensors: [(&str, &[usize]); 4] = [
        ("token_embd.weight", &[128, 32]),
        ("per_layer_token_embd.weight", &[152, 6]),
        ("blk.0.ple_norm_key.weight", &[96]),
        ("blk.0.ple_conv1d.weight", &[96, 4]),
    ];
    let factor = 55_314_113_489_879_455;
    let model = described("qwen4exp", keys(json!([31, 37, 41, 43]), factor), &tensors).unwrap();
    let fields = ["eos_token_id", "ple_layer_ids", "ple_embed_dim", "indexer_compress_ratio", "output_gate_type"];
    assert_eq!(
        fields.map(|f| model.config[f].clone()),
        [json!([2]), json!([1]), json!(24), json!(4), json!("sigmoid")]
    );
    read(&model);
    let shape = |name: &str| &model.tensors[name].info.shape[..];
    assert_eq!(shape("model.ngram_embedding.weight"), [152, 6]);
    assert_eq!(shape("model.layers.0.ple.conv1d.weight"), [96, 1, 4]);
    // Norms are stored as factors.
    let layout = &model.tensors["model.layers.0.ple.norm_key.weight"].layout;
    assert!(layout.is_some());
    let wrong = |keys| described("qwen4exp", keys, &tensors).map(|_| ()).unwrap_err();
    assert!(wrong(keys(json!([31, 37, 41, 43]), 7)).contains("from a seed other than 1234"));
    assert!(wrong(keys(json!([31, 41, 43, 47]), factor)).contains("that are not consecutive primes"));
}

/// Tensors of layers after the last are of these layers, whatever they are called.
#[test]
fn layers_ahead() {
    let family = |name: &str| crate::checkpoint::gguf::families::all().find(|f| f.name == name).unwrap();
    let called = |arch: &str, tensor: &str| names::called_ahead(tensor, family(arch).names, 4);
    let nemotron = |tensor: &str| called("nemotron_h_moe", tensor);
    assert_eq!(nemotron("blk.3.ffn_up.weight"), None);
    assert_eq!(nemotron("blk.4.attn_q.weight").as_deref(), Some("backbone.layers.4.mixer.q_proj.weight"));
    assert_eq!(nemotron("blk.4.nextn.enorm.weight").as_deref(), Some("backbone.layers.4.nextn.enorm.weight"));
    let norm = "blk.4.layer_output_norm.weight";
    assert_eq!(called("mimo2", norm).as_deref(), Some("model.layers.4.layer_output_norm.weight"));
}
