//! Models whose layers have different sliding windows: each lifetime has pages of its own, which
//! are given back while sequences grow.

use llmcc_cli::cmd::inspect::describe;
use llmcc_cli::loaded::{EngineOptions, Model};
use llmcc_cli::manifest::{Manifest, StateGroup};
use llmcc_ir::kv::KvDType;
use llmcc_tests::{Artifact, golden, logits_in_pieces, options, windowed};
use serde_json::Value;
use std::path::Path;

/// Bytes of pages in use.
pub(crate) fn bytes_used(model: &Model) -> u64 {
    let stats: Value = serde_json::from_str(&model.stats().expect("stats")).expect("JSON");
    stats["kv_bytes_used"].as_u64().expect("a number")
}

fn open(path: &Path, threads: u32) -> Model {
    let options = EngineOptions { threads, max_tokens: 2048, ..EngineOptions::default() };
    Model::open(path, options).unwrap_or_else(|e| panic!("{e}"))
}

/// A prompt in one piece is evaluated before anything is given back. In small ones, windows give
/// pages back all the time: the same bits.
#[test]
fn logits_are_those_of_a_cache_that_keeps_everything() {
    let folder = windowed(6, 6, 24, 600);
    let artifact = Artifact::compile(&options(folder.path()));
    let tokens: Vec<i32> = (0..500).map(|i| (i * i * 31 + i * 7) % 128).collect();
    let whole = logits_in_pieces(&open(&artifact.path, 2), &tokens, &[500]);
    for (threads, pieces) in [(1, &[1][..]), (2, &[40, 3, 1, 17, 64, 5][..])] {
        let pieces = logits_in_pieces(&open(&artifact.path, threads), &tokens, pieces);
        assert!(whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    // Kept tokens: all of one layer, of the five others a window and some pages.
    let model = open(&artifact.path, 1);
    let seq = model.seq_new().expect("a sequence");
    for piece in tokens.chunks(20) {
        model.step(piece, &vec![seq; piece.len()], &[]).expect("a step");
    }
    let page = 2 * 2 * 32 * 4 * 16;
    let pages = |bytes: u64| bytes as usize / page;
    assert_eq!(pages(bytes_used(&model)), 500usize.div_ceil(16) + 5 * 5);
}

/// The shape of Gemma 3 at 32 k tokens: the memory of a sequence, with and without windows, can be
/// seen before anything runs.
#[test]
fn inspect_shows_what_windows_save() {
    let folder = windowed(12, 6, 512, 32768);
    let options = llmcc_cli::session::CompileOptions { kv: Some(KvDType::F16), ..options(folder.path()) };
    let artifact = Artifact::compile(&options);
    let manifest = Manifest::of(&artifact.path).expect("a manifest");
    // 2 heads of 32 elements in keys and in values: 256 bytes per layer.
    assert_eq!(
        manifest.memory.kv_groups,
        [
            StateGroup {
                window: Some(512),
                every: None,
                first: None,
                layers: 10,
                per_token: 2560,
                most_tokens: Some(1024 + 64)
            },
            StateGroup { window: None, every: None, first: None, layers: 2, per_token: 512, most_tokens: None }
        ]
    );
    let text = describe(&manifest, false);
    // A window of 512, a chunk of 512 and 4 pages; 32768 tokens.
    let kept = (1024 + 64) * 2560;
    for line in [
        "10 layers with a window of 512: 2.5 KiB per token, 2.7 MiB per sequence at most".to_owned(),
        "2 layers without a window: 512 B per token".to_owned(),
        format!(
            "a sequence of 32768 tokens takes {:.1} MiB; without windows it would be 96.0 MiB",
            (kept + 32768 * 512) as f64 / 1048576.0
        ),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
    // A model with one lifetime says nothing about it.
    let uniform = Manifest::of(&Artifact::compile(&llmcc_tests::options(&golden("llama3"))).path).expect("a manifest");
    assert!(!describe(&uniform, false).contains("without windows"));
}

/// Layers that read the caches of others have no pages: of five layers three do, two of them with
/// windows, which give theirs back for those that read them as well. The same bits in any pieces.
#[test]
fn layers_that_share_caches_have_no_pages() {
    let artifact = Artifact::compile(&options(&golden("gemma3n")));
    let tokens: Vec<i32> = (0..200).map(|i| (i * i * 31 + i * 7) % 96).collect();
    let whole = logits_in_pieces(&open(&artifact.path, 2), &tokens, &[200]);
    for (threads, pieces) in [(1, &[1][..]), (2, &[40, 3, 1, 17, 64, 5][..])] {
        let pieces = logits_in_pieces(&open(&artifact.path, threads), &tokens, pieces);
        assert!(whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    let manifest = Manifest::of(&artifact.path).expect("a manifest");
    let layers: usize = manifest.memory.kv_groups.iter().map(|g| g.layers).sum();
    assert_eq!(layers, 3);
    let model = open(&artifact.path, 1);
    let seq = model.seq_new().expect("a sequence");
    for piece in tokens.chunks(20) {
        model.step(piece, &vec![seq; piece.len()], &[]).expect("a step");
    }
    // Keys and values of a head of 16 elements. A window of 11 and a piece take at most 4 pages.
    let pages = bytes_used(&model) as usize / (2 * 16 * 4 * 16);
    assert!((13 + 2..=13 + 2 * 4).contains(&pages), "{pages}");
}

/// Rows that several tokens have in common are as many times fewer, and the bits are the same in
/// any pieces, whether these end with a row or between two.
#[test]
fn rows_of_several_tokens_take_less() {
    let artifact = Artifact::compile(&options(&golden("deepseek_v4")));
    let tokens: Vec<i32> = (0..90).map(|i| (i * i * 31 + i * 7) % 64).collect();
    let whole = logits_in_pieces(&open(&artifact.path, 2), &tokens, &[90]);
    for (threads, pieces) in [(1, &[1][..]), (2, &[40, 3, 1, 17, 4, 5][..])] {
        let pieces = logits_in_pieces(&open(&artifact.path, threads), &tokens, pieces);
        assert!(whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    let manifest = Manifest::of(&artifact.path).expect("a manifest");
    // A row of 16 elements.
    let row = 16 * 4;
    assert_eq!(
        manifest.memory.kv_groups,
        [
            StateGroup {
                window: Some(7),
                every: None,
                first: None,
                layers: 5,
                per_token: 5 * row,
                most_tokens: Some(16 * (1 + 32 + 4))
            },
            StateGroup {
                window: None,
                every: Some(4),
                first: None,
                layers: 2,
                per_token: 2 * row / 4,
                most_tokens: None
            },
            StateGroup {
                window: None,
                every: Some(10),
                first: None,
                layers: 2,
                per_token: (2 * row).div_ceil(10),
                most_tokens: None
            },
        ]
    );
    let text = describe(&manifest, false);
    assert!(text.contains("2 layers with a row for 4 tokens: 32 B per token"), "{text}");
}
