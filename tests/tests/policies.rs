//! Policies for caches, against NumPy (`tests/goldens/policies.py`).

use crate::windows::bytes_used;
use llmcc_cli::loaded::{EngineOptions, Model};
use llmcc_cli::manifest::Manifest;
use llmcc_cli::session::CompileOptions;
use llmcc_ir::kv::KvDType;
use llmcc_tests::policies::{SCORED, difference, error, given, policies};
use llmcc_tests::{Artifact, Golden, golden, logits_in_pieces, options};

/// Prompts at once, token by token, and in pieces that end inside pages and windows.
const PIECES: &[&[usize]] = &[&[40], &[1], &[7, 16, 3, 14]];

fn with_policy(fixture: &str, policy: &str) -> CompileOptions {
    CompileOptions { policies: vec![given(policy)], ..options(&golden(fixture)) }
}

#[test]
fn logits_equal_those_of_numpy() {
    let g = Golden::load("llama");
    let allowed = 2.0 * g.reference_error(true);
    let folder = tempfile::tempdir().expect("a folder");
    let scored = SCORED.iter().map(|(policy, name)| (policy.to_string(), *name));
    for (policy, name) in policies(folder.path()).into_iter().chain(scored) {
        let artifact = Artifact::compile(&with_policy("llama", &policy));
        let mut first: Option<Vec<f32>> = None;
        for (threads, pieces) in [1, 2, 2].into_iter().zip(PIECES) {
            let got = logits_in_pieces(&artifact.open(threads), &g.tokens, pieces);
            let error = error(name, &got);
            assert!(error <= allowed, "{policy} in pieces of {pieces:?}: error {error:.2e}, allowed {allowed:.2e}");
            let first = first.get_or_insert_with(|| got.clone());
            assert!(first.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()), "{policy} in pieces {pieces:?}");
        }
    }
}

/// Before anything has left the window, logits equal the whole cache's, to the order of sums.
#[test]
fn short_texts_are_as_without_a_policy() {
    let g = Golden::load("qwen3");
    let whole = logits_in_pieces(&Artifact::compile(&options(&golden("qwen3"))).open(1), &g.tokens, &[40]);
    let artifact = Artifact::compile(&with_policy("qwen3", "sinks:first=4,window=40"));
    let kept = logits_in_pieces(&artifact.open(1), &g.tokens, &[40]);
    let error = difference(&whole, &kept);
    assert!(error <= 2.0 * g.reference_error(true), "{error:.2e}");
}

/// A long text takes the memory that the manifest says, whatever its length, with every type of cache.
#[test]
fn memory_does_not_grow() {
    for kv in [KvDType::F32, KvDType::F16, KvDType::Int8] {
        let o = CompileOptions {
            max_context: Some(1 << 20),
            kv: Some(kv),
            ..with_policy("llama", "sinks:first=4,window=60")
        };
        let artifact = Artifact::compile(&o);
        let groups = Manifest::of(&artifact.path).expect("a manifest").memory.kv_groups;
        assert_eq!(groups.iter().map(|g| (g.window, g.first)).collect::<Vec<_>>(), [(Some(60), None), (None, Some(4))]);
        let most: usize = groups.iter().map(|g| g.per_token * g.most_tokens.expect("a bound")).sum();
        let options = EngineOptions { threads: 1, max_tokens: 8192, ..EngineOptions::default() };
        let model = Model::open(&artifact.path, options).unwrap_or_else(|e| panic!("{e}"));
        let seq = model.seq_new().expect("a sequence");
        let mut used = vec![];
        for step in 0..40 {
            let tokens: Vec<i32> = (0..100).map(|i| (i * i * 31 + i * 7 + step) % 128).collect();
            model.step(&tokens, &[seq; 100], &[]).expect("a step");
            used.push(bytes_used(&model));
        }
        assert!(used[5..].iter().max() <= used[..5].iter().max(), "{used:?}");
        assert!(used.iter().all(|n| *n as usize <= most), "{used:?}, at most {most}");
    }
}

/// The memory of a cache that chooses tokens is that of its budget.
#[test]
fn budgets_are_kept() {
    let artifact = Artifact::compile(&with_policy("llama", "h2o:budget=20,recent=4"));
    let options = EngineOptions { threads: 1, ..EngineOptions::default() };
    let model = Model::open(&artifact.path, options).unwrap_or_else(|e| panic!("{e}"));
    let seq = model.seq_new().expect("a sequence");
    let mut used = vec![];
    for step in 0..4 {
        let tokens: Vec<i32> = (0..25).map(|i| (i * i * 31 + i * 7 + step) % 128).collect();
        model.step(&tokens, &[seq; 25], &[]).expect("a step");
        used.push(bytes_used(&model));
    }
    // Two layers of two heads: keys and values of 16 elements and three marks, in slots for 32 tokens; then a snapshot.
    let bytes = 2 * 2 * (16 + 16 + 3) * 32 * 4;
    assert_eq!(used, [bytes, 2 * bytes, 2 * bytes, 2 * bytes]);
}

/// Caches that are read otherwise than by plain scores stay, and models that have no others are refused.
#[test]
fn other_caches_are_refused() {
    for (fixture, why) in [
        ("bloom", "its scores go by distances"),
        ("deepseek_v2_lite", "is no cache of keys and values"),
        ("mamba2", "no attention that looks behind a token"),
        ("qwen2_vl", "made by `rope_axes`"),
    ] {
        let error = llmcc_cli::session::lift(&with_policy(fixture, "sinks:first=4,window=9")).err();
        let error = error.unwrap_or_else(|| panic!("{fixture} has a policy")).to_string();
        assert!(error.contains(why) && error.contains("--kv-policy sinks"), "{fixture}: {error}");
    }
    for (fixture, policy, why) in [
        ("bloom", "h2o:budget=9,recent=4", "its scores go by distances"),
        ("gemma2", "tova:budget=9,layers=1", "softcap"),
        ("gpt_oss", "tova:budget=9,layers=1", "sinks"),
        ("deepseek_v2_lite", "caote:budget=9,recent=1", "is no cache of keys and values"),
        ("llama", "tova:budget=100000", "no number from 1 to 65536"),
        ("llama", "tova:budget=65536", "is the whole context"),
        ("llama", "h2o:budget=9,recent=9", "9 recent tokens and 1 that are dropped do not fit into 9"),
        ("llama", "gkv:budget=9,drop=2,window=3,decay=0.5", "3 last queries count, of the 2"),
        ("llama", "gkv:budget=9,drop=2,window=2,decay=1.5", "no number from 0 to 1"),
        ("llama", "quest:budget=40", "2 whole pages of 16 tokens"),
    ] {
        let error = llmcc_cli::session::lift(&with_policy(fixture, policy)).err();
        let error = error.unwrap_or_else(|| panic!("{fixture} has {policy}")).to_string();
        assert!(error.contains(why), "{fixture}, {policy}: {error}");
    }
    let longer = CompileOptions { max_context: Some(1 << 20), ..with_policy("llama", "tova:budget=9") };
    let error = llmcc_cli::session::lift(&longer).err().expect("no such context").to_string();
    assert!(error.contains("keep their positions, so contexts end at"), "{error}");
    let error = llmcc_cli::session::lift(&with_policy("llama", "sinks:first=4,window=9,layers=2")).err();
    assert!(error.is_some_and(|e| e.to_string().contains("no layer 2 with a cache; the model has 2")));
}
