//! The example checkpoint: the same text, perplexities and chat prompt as its goldens
//! (`tests/goldens/make_tiny_llama.py`). The project's own fixtures cover with it the same as the
//! shared data with stories260K.

use llmcc_cli::args::CutArgs;
use llmcc_cli::cmd::eval::perplexity;
use llmcc_cli::loaded::GenOptions;
use llmcc_cli::session::{Choose, CompileOptions};
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, golden, nearest, options, quantized, root};
use serde_json::Value;

fn json(name: &str) -> Value {
    let path = golden("tiny_llama").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

fn ids(v: &Value) -> Vec<i32> {
    v.as_array().expect("ids").iter().map(|i| i.as_i64().expect("an id") as i32).collect()
}

#[test]
fn greedy_text_chat_and_tokens_are_the_expected_ones() {
    let artifact = Artifact::compile(&options(&root().join("examples/tiny-llama/model")));
    let model = artifact.open(2);
    let goldens = json("prompts.json");
    let mut count = 0;
    for p in goldens["cases"].as_array().expect("prompts") {
        let text = p["prompt"].as_str().expect("prompt");
        let prompt = model.tokenize(text, true).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(prompt, ids(&p["ids"]), "tokens of {text:?}");
        let want = ids(&p["greedy_ids"]);
        let o = GenOptions { max_tokens: want.len() as u32, ignore_eos: true, ..GenOptions::default() };
        let got: Vec<i32> = model
            .generate(None, &prompt, &o)
            .unwrap_or_else(|e| panic!("{e}"))
            .map(|p| p.unwrap_or_else(|e| panic!("{e}")).token)
            .collect();
        assert_eq!(got, want, "continuation of {text:?}");
        count += 1;
    }
    assert!(count >= 3);
    let chat = &goldens["chat"];
    let rendered = model.apply_chat_template(&chat["messages"].to_string()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(rendered, chat["rendered"].as_str().expect("text"));
    assert_eq!(model.tokenize(&rendered, false).unwrap_or_else(|e| panic!("{e}")), ids(&chat["ids"]));
}

/// Mean NLL of a small text in every format, against Transformers in f64 with decoded weights.
#[test]
fn perplexity_is_the_quantization_s_own() {
    let text = std::fs::read_to_string(golden("tiny_llama").join("text.txt")).expect("text");
    let want = json("ppl.json");
    let nll = |o| {
        let artifact = Artifact::compile(&o);
        let options = CutArgs { separator: Some("<|endoftext|>".into()), ..CutArgs::default() };
        perplexity(&artifact.open(2), &text, &options).unwrap_or_else(|e| panic!("{e}")).mean_nll
    };
    let model = root().join("examples/tiny-llama/model");
    // (format, key in ppl.json): gains are folded into 8-bit matrices only.
    for (format, key) in
        [("f32", "f32"), ("w8g32", "w8g32_folded"), ("w4g32", "w4g32"), ("w4ag32", "w4ag32"), ("fp8", "fp8_folded")]
    {
        let expected = want["nll"][key].as_f64().unwrap_or_else(|| panic!("ppl.json has no nll {key}: {want}"));
        let got = nll(nearest(&model, format, ActPolicy::F32));
        assert!((got / expected - 1.0).abs() < 2e-4, "{format}: {got:.6}, expected {expected:.6}");
        if format.starts_with('w') {
            let int8 = nll(nearest(&model, format, ActPolicy::Int8));
            assert!(int8 < got + 0.01, "{format}: int8 activations raise the NLL from {got:.4} to {int8:.4}");
        }
    }
}

/// A budget between the errors of 8 and of 4 bits gives a mixture that is better than 4 bits, and
/// smaller than 8 bits.
#[test]
fn a_budget_lies_between_four_and_eight_bits() {
    let text = std::fs::read_to_string(golden("tiny_llama").join("text.txt")).expect("text");
    let model = root().join("examples/tiny-llama/model");
    let measure = |o: &CompileOptions| {
        let artifact = Artifact::compile(o);
        let options = CutArgs { separator: Some("<|endoftext|>".into()), ..CutArgs::default() };
        let model = artifact.open(2);
        let nll = perplexity(&model, &text, &options).unwrap_or_else(|e| panic!("{e}")).mean_nll;
        let manifest: Value = serde_json::from_str(&model.manifest()).expect("JSON");
        (nll, manifest)
    };
    let act = ActPolicy::F32;
    let (four, _) = measure(&quantized(&model, "w4g128", act));
    let (eight, eights) = measure(&quantized(&model, "w8g128", act));
    let choose = Choose { error_budget: Some(0.05), kv: false };
    let (mixed, manifest) = measure(&CompileOptions { choose, act: Some(act), ..options(&model) });
    // Half the error of 4 bits does a quarter of their harm. (Small errors change the likelihood of
    // so short a text by chance, up or down.)
    assert!((mixed - eight).abs() < (four - eight) / 2.0, "{eight:.5} {mixed:.5} {four:.5}");
    let error = |m: &Value| m["certificate"]["rms_error"].as_f64().expect("an error");
    assert!(error(&manifest) <= 0.05 && error(&manifest) > error(&eights), "{}", error(&manifest));
    let bytes = |m: &Value| m["weights"]["read_per_step"].as_u64().expect("bytes");
    assert!(bytes(&manifest) < bytes(&eights));
    assert_eq!(manifest["certificate"]["budget"]["stored"].as_array().map(Vec::len), Some(8));
}

#[test]
fn no_error_is_the_checkpoint_itself() {
    let model = root().join("examples/tiny-llama/model");
    let choose = Choose { error_budget: Some(0.0), kv: true };
    let exact = Artifact::compile(&CompileOptions { choose, kv: None, ..options(&model) });
    let plain = Artifact::compile(&options(&model));
    let logits = |a: &Artifact| {
        let model = a.open(1);
        let seq = model.seq_new().unwrap_or_else(|e| panic!("{e}"));
        model.step(&[1, 2, 3], &[seq; 3], &[2]).unwrap_or_else(|e| panic!("{e}"))
    };
    assert_eq!(logits(&exact), logits(&plain));
}
