//! Latent attention: the cache holds the latent and the rotated key and nothing else, and results
//! do not depend on batches or chunks, as with other attention.

use llmcc_cli::manifest::Manifest;
use llmcc_ir::kv::KvDType;
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, Golden, golden, logits_in_pieces, options, quantized};

const MODELS: [&str; 5] = ["deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "minicpm3", "youtu"];

/// Layers, elements of a latent and of a rotated key, from the configuration.
fn sizes(name: &str) -> [usize; 3] {
    let text = std::fs::read_to_string(golden(name).join("config.json")).expect("a configuration");
    let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    ["num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim"].map(|key| config[key].as_u64().expect(key) as usize)
}

#[test]
fn the_cache_holds_latents_and_rotated_keys_alone() {
    for name in MODELS {
        let [layers, rank, rope] = sizes(name);
        for (dtype, bits) in [(KvDType::F32, 32), (KvDType::F16, 16), (KvDType::Int8, 8), (KvDType::Int4, 4)] {
            let mut o = options(&golden(name));
            o.kv = Some(dtype);
            let artifact = Artifact::compile(&o);
            let manifest = Manifest::parse(artifact.open(1).manifest().as_bytes()).expect("a manifest");
            // Keys and values of a page of 16 tokens are whole cache lines each; codes have a scale of
            // either.
            let page = |n: usize| (16 * n * bits / 8).next_multiple_of(64);
            let scales = if bits <= 8 { 2 * 16 * 4 } else { 0 };
            let token = layers * (page(rank) + page(rope) + scales) / 16;
            assert_eq!(manifest.memory.kv_per_token, token, "{name} with {dtype}");
        }
    }
}

/// With f32 as the reference, other caches stay within the error of bf16 arithmetic in the model.
#[test]
fn reduced_caches_stay_within_the_error_of_bf16() {
    for name in ["deepseek_v2_lite", "minicpm3"] {
        let g = Golden::load(name);
        let allowed = 2.0 * g.reference_error(false);
        for kv in [KvDType::F16, KvDType::Bf16, KvDType::Int8] {
            let mut o = options(&golden(name));
            o.kv = Some(kv);
            let error = g.error(&logits_in_pieces(&Artifact::compile(&o).open(2), &g.tokens, &[20, 1]));
            assert!(error <= allowed && error > 0.0, "{name} with {kv}: error {error:.2e}, allowed {allowed:.2e}");
        }
    }
}

#[test]
fn chunks_and_threads_change_no_bit() {
    for name in MODELS {
        for format in ["f32", "w4g32"] {
            let g = Golden::load(name);
            let artifact = Artifact::compile(&quantized(&golden(name), format, ActPolicy::Int8));
            let [one, two] = [1, 2].map(|threads| artifact.open(threads));
            let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let whole = bits(logits_in_pieces(&two, &g.tokens, &[40]));
            assert!(bits(logits_in_pieces(&two, &g.tokens, &[1])) == whole, "{name} {format}: token by token");
            assert!(bits(logits_in_pieces(&two, &g.tokens, &[7, 16, 3, 14])) == whole, "{name} {format}: pieces");
            assert!(bits(logits_in_pieces(&one, &g.tokens, &[5])) == whole, "{name} {format}: one thread");
        }
    }
}
