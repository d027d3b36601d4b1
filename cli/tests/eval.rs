//! `llmcc eval` and `llmcc diff`: comparisons of artifacts.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use serde_json::Value;
use std::fs;

const TEXT: &str = "def read_file(path):\n    with open(path) as f:\n        return f.read()\n<|document|>\n\
import os\n\n\nclass Reader:\n    def __init__(self, name):\n        self.name = name\n";

fn document(f: &Folder, args: &[&str]) -> Value {
    serde_json::from_str(&f.says(&[], args)).expect("a document")
}

fn refused(f: &Folder, args: &[&str]) -> String {
    let done = f.llmcc(args);
    assert!(!done.status.success(), "{args:?}");
    text(&done.stderr)
}

#[test]
fn divergence_from_a_reference() {
    let f = Folder::new();
    fs::write(f.at("text"), TEXT).expect("written");
    f.compile(WITH_TOKENIZER, "exact.so", &["--act", "f32", "--kv", "f32"]);
    f.compile(WITH_TOKENIZER, "four.so", &["--w4"]);
    let kl = |a: &str, b: &str, more: &[&str]| {
        document(&f, &[&["eval", "kl", a, b, "text", "--separator", "<|document|>", "--json"], more].concat())
    };
    let itself = kl("four.so", "four.so", &[]);
    assert_eq!(
        (&itself["kl"]["mean"], &itself["kl"]["largest"], &itself["top1"]["mean"]),
        (&0.0.into(), &0.0.into(), &1.0.into())
    );
    assert_eq!(itself["perplexity"], itself["reference_perplexity"]);
    let four = kl("exact.so", "four.so", &["--threads", "1"]);
    let mean = four["kl"]["mean"].as_f64().expect("a mean");
    assert!(mean > 1e-4 && mean < 1.0, "{four}");
    assert!(four["kl"]["largest"].as_f64() > four["kl"]["mean"].as_f64(), "{four}");
    assert_eq!(four["documents"], 2);
    // The same bits on any number of threads, and from a pipe.
    assert_eq!(four, kl("exact.so", "four.so", &["--threads", "3"]));
    // A checkpoint stands for itself in its own types, without rounding of activations and cache.
    let checkpoint = fixture(WITH_TOKENIZER);
    assert_eq!(four, kl(&checkpoint.to_string_lossy(), "four.so", &[]));
    // Perplexities are as `eval ppl` prints them.
    for (artifact, member) in [("exact.so", "reference_perplexity"), ("four.so", "perplexity")] {
        let ppl = document(&f, &["eval", "ppl", artifact, "text", "--separator", "<|document|>", "--json"]);
        let (a, b) = (ppl["perplexity"].as_f64().expect("one"), four[member].as_f64().expect("one"));
        assert!((a / b - 1.0).abs() < 1e-6, "{artifact}: {a} {b}");
        assert_eq!(ppl["tokens"], four["tokens"]);
    }
    let said = f.says(&[], &["eval", "kl", "exact.so", "four.so", "text"]);
    assert!(said.contains("KL           mean 0.") && said.contains("top-1") && said.contains("perplexity"), "{said}");
    let said = refused(&f, &["eval", "kl", "exact.so", "four.so", "text", "--window", "1"]);
    assert!(said.contains("at least 2 tokens"), "{said}");
    f.compile("llama3", "other.so", &[]);
    let said = refused(&f, &["eval", "kl", "exact.so", "other.so", "text"]);
    assert!(said.contains("cannot be compared: one predicts 2048 tokens"), "{said}");
}

#[test]
fn differences_of_artifacts() {
    let f = Folder::new();
    f.compile("llama3", "a.so", &["--w8"]);
    f.compile("llama3", "same.so", &["--w8"]);
    f.compile("llama3", "b.so", &["--w4", "--kv", "int8"]);
    assert_eq!(f.says(&[], &["diff", "a.so", "same.so"]), "");
    assert_eq!(document(&f, &["diff", "a.so", "same.so", "--json"])["same"], true);
    let done = f.llmcc(&["diff", "a.so", "b.so"]);
    assert_eq!((done.status.code(), text(&done.stderr).as_str()), (Some(1), ""));
    let said = text(&done.stdout);
    for part in ["bytes differ in: ", "options/weights: w8g32 | w4g32", "weights/tensors/", "kv/0: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let done = f.llmcc(&["diff", "a.so", "b.so", "--json"]);
    let document: Value = serde_json::from_slice(&done.stdout).expect("a document");
    assert_eq!((done.status.code(), &document["same"]), (Some(1), &false.into()));
    let members = document["members"].as_array().expect("a list");
    assert!(members.iter().any(|m| m["member"] == "options/weights" && m["first"] == "w8g32"), "{document}");
    assert!(members.iter().all(|m| !m["member"].as_str().unwrap_or_default().ends_with("/offset")), "{document}");
    fs::write(f.at("no.so"), "no").expect("written");
    assert!(refused(&f, &["diff", "a.so", "no.so"]).contains("no.so"));
}
