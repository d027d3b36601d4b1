//! Compiled draft heads: logits against the reference, in pieces and in batches; what they refuse.

use llmcc_cli::loaded::GenOptions;
use llmcc_cli::options::CompileOptions;
use llmcc_frontends::Checkpoint;
use llmcc_tests::{Artifact, golden, options};

const NAMES: [&str; 2] = ["deepseek_v3", "glm4_moe"];

#[test]
fn logits_of_draft_heads() {
    for name in NAMES {
        let folder = golden(&format!("drafts/{name}"));
        let expected = Checkpoint::open(&folder.join("golden.safetensors")).unwrap();
        let data = |t: &str| expected.tensor(t).unwrap().data;
        let doubles = |t: &str| -> Vec<f64> { data(t).as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect() };
        let tokens: Vec<i32> = data("tokens").as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        let (hidden, f64s) = (expected.to_f32("hidden").unwrap(), doubles("logits_f64"));
        let allowed = 2.0 * doubles("error_f32").into_iter().fold(0.0, f64::max);
        let artifact = Artifact::compile(&CompileOptions { draft_head: Some(0), ..options(&folder) });
        let model = artifact.open(2);
        let width = hidden.len() / tokens.len();
        let mut first = None;
        for piece in [tokens.len(), 1, 7] {
            let seq = model.seq_new().unwrap();
            let mut logits = vec![];
            for (tokens, rows) in tokens.chunks(piece).zip(hidden.chunks(piece * width)) {
                let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
                logits.extend(model.step_given((tokens, rows), &vec![seq; tokens.len()], &wanted).unwrap().0);
            }
            let error = logits.iter().zip(&f64s).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            println!("{name} in pieces of {piece}: error {error:.2e}, allowed {allowed:.2e}");
            assert!(logits.len() == f64s.len() && error <= allowed, "{name}: error {error:.2e}, allowed {allowed:.2e}");
            assert_eq!(*first.get_or_insert_with(|| logits.clone()), logits, "{name}: pieces of {piece} change bits");
        }
        let seq = model.seq_new().unwrap();
        let refused = model.step(&[1], &[seq], &[0]).unwrap_err().to_string();
        assert!(refused.contains("this model is a draft head, which takes with each token a row"), "{refused}");
        let refused = model.generate(None, &[1], &GenOptions::default()).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|e| e.contains("generates nothing by itself")), "{name}");
    }
    let model = Artifact::compile(&options(&golden("qwen3"))).open(1);
    let (seq, rows) = (model.seq_new().unwrap(), vec![0.0; model.info().hidden]);
    let refused = model.step_given((&[1], &rows), &[seq], &[0]).unwrap_err().to_string();
    assert!(refused.contains("this model takes no rows with its tokens"), "{refused}");
}
