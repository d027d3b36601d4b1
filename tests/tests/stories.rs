//! A trained model that writes English, with text and perplexity computed by others (data beside
//! the workspace; skipped without it).

use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, argmax, options, quantized, shared};
use std::path::Path;

fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

fn ids(v: &serde_json::Value) -> Vec<i32> {
    v.as_array().expect("ids").iter().map(|i| i.as_i64().expect("an id") as i32).collect()
}

#[test]
fn greedy_text_is_the_expected_one() {
    let Some(dir) = shared("stories260K") else { return };
    let want = ids(&json(&dir.join("expected/greedy200.json"))["ids"]);
    let artifact = Artifact::compile(&options(&dir.join("hf")));
    let model = artifact.open(2);
    let seq = model.seq_new().expect("a sequence");
    let mut got = vec![want[0]];
    while got.len() < want.len() {
        let last = got[got.len() - 1];
        got.push(argmax(&model.step(&[last], &[seq], &[0]).expect("decode")));
    }
    assert_eq!(got, want);
}

/// Perplexity over the first documents of a text, as `llmcc eval ppl` prints it.
fn perplexity(artifact: &Artifact, text: &Path, documents: usize) -> f64 {
    let model = artifact.open(2);
    let text = std::fs::read_to_string(text).expect("text");
    let options = llmcc_cli::cmd::eval::PplOptions {
        separator: Some("<|endoftext|>".into()),
        documents: Some(documents),
        window: None,
    };
    llmcc_cli::cmd::eval::perplexity(&model, &text, &options).unwrap_or_else(|e| panic!("{e}")).perplexity
}

#[test]
fn perplexity_is_the_expected_one() {
    let (Some(dir), Some(text)) = (shared("stories260K"), shared("text/tinystories_a.txt")) else { return };
    let want = json(&dir.join("expected/ppl.json"))["ppl"].as_f64().expect("ppl");
    let got = perplexity(&Artifact::compile(&options(&dir.join("hf"))), &text, 60);
    assert!((got / want - 1.0).abs() < 5e-4, "perplexity {got:.5}, expected {want:.5}");
}

/// Quantized perplexities against Transformers in f64 with decoded weights, as in `tests/goldens`
/// (weight-only; figures in its README), and int8 activations within 1 % of weight-only.
#[test]
fn quantized_perplexity_is_the_quantization_s_own() {
    let (Some(dir), Some(text)) = (shared("stories260K"), shared("text/tinystories_a.txt")) else { return };
    for (format, reference) in llmcc_tests::REFERENCE_PERPLEXITY {
        let weight_only =
            perplexity(&Artifact::compile(&quantized(&dir.join("hf"), format, ActPolicy::F32)), &text, 60);
        assert!(
            (weight_only / reference - 1.0).abs() < 5e-4,
            "{format}: {weight_only:.5}, NumPy reference {reference:.5}"
        );
        let int8 = perplexity(&Artifact::compile(&quantized(&dir.join("hf"), format, ActPolicy::Int8)), &text, 60);
        assert!(int8 < weight_only * 1.01, "{format}: int8 activations raise {weight_only:.5} to {int8:.5}");
        println!("{format}: NumPy {reference:.4}, weight-only {weight_only:.4}, int8 activations {int8:.4}");
    }
}
