//! `compile --budget`: bounds hold as measured, and certificates can be measured again.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use serde_json::Value;
use std::fs;

/// A text of the example model's kind, in ten documents.
fn write_text(f: &Folder) {
    let folder = fixture(WITH_TOKENIZER).join("../../python");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("an example");
    let all = ["chat.py", "generate.py", "perplexity.py", "adapters.py"].map(read).join("\n");
    let lines: Vec<&str> = all.lines().collect();
    let documents: Vec<String> = lines.chunks(lines.len().div_ceil(10)).map(|part| part.join("\n")).collect();
    assert_eq!(documents.len(), 10);
    fs::write(f.at("text"), documents.join("\n<|document|>\n")).expect("written");
}

fn refused(f: &Folder, args: &[&str]) -> String {
    let done = f.llmcc(args);
    assert!(!done.status.success(), "{args:?}");
    text(&done.stderr)
}

fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or_else(|| panic!("a number: {v}"))
}

#[test]
fn a_divergence_within_its_bound() {
    let f = Folder::new();
    write_text(&f);
    let (model, options) = (fixture(WITH_TOKENIZER), ["--budget", "kl=0.02", "--budget-text", "text"]);
    let said = f.compile(WITH_TOKENIZER, "m.so", &options);
    assert!(said.contains("measured    kl=0.02: a divergence of"), "{said}");
    assert_eq!(f.names(".").iter().filter(|name| *name != "text").collect::<Vec<_>>(), ["m.so"]);
    let manifest = f.manifest("m.so");
    let measured = &manifest["certificate"]["measured"];
    let [kept, chosen] = ["domains", "chosen_by"].map(|part| measured[part][0].clone());
    // The choice keeps the bound with its whole interval, and uses some of it; the text kept aside does not break it.
    assert!(number(&chosen["kl"]["high"]) <= 0.02 && number(&chosen["kl"]["mean"]) > 0.002, "{measured}");
    assert!(number(&kept["kl"]["low"]) <= 0.02, "{measured}");
    assert_eq!((&kept["name"], &measured["bounds"][0]["measured"]), (&"text".into(), &true.into()));
    assert_ne!(kept["sha256"], chosen["sha256"]);
    let decisions = measured["decisions"].as_array().expect("a list");
    let rounded = |d: &Value| d["as"].as_str().is_some_and(|form| !["f32", "f16", "bf16"].contains(&form));
    assert!(decisions.iter().any(rounded), "{measured}");
    let stored = manifest["certificate"]["budget"]["stored"].as_array().expect("a list");
    assert_eq!(stored.len(), decisions.len());
    assert!(manifest["certificate"]["lossy"].to_string().contains("matrices stored as"), "{manifest}");
    // By itself, against the checkpoint: the same figures.
    let parts = fs::read_to_string(f.at("text")).expect("text");
    let aside: Vec<&str> =
        parts.split("\n<|document|>\n").enumerate().filter(|(i, _)| i % 5 == 4).map(|p| p.1).collect();
    fs::write(f.at("aside"), aside.join("<|document|>")).expect("written");
    let args = ["eval", "kl", &model.to_string_lossy(), "m.so", "aside", "--separator", "<|document|>", "--json"];
    let again: Value = serde_json::from_str(&f.says(&[], &[&args[..], &["--portable"]].concat())).expect("a document");
    assert_eq!((&again["kl"], &again["top1"], &again["tokens"]), (&kept["kl"], &kept["top1"], &kept["tokens"]));
    // The same bytes again.
    f.compile(WITH_TOKENIZER, "again.so", &options);
    assert!(fs::read(f.at("again.so")).expect("one") == fs::read(f.at("m.so")).expect("one"));
    let said = f.says(&[], &["inspect", "m.so"]);
    assert!(said.contains("certificate the checkpoint in its own types") && said.contains("predicted KL"), "{said}");
    // Measured again.
    let reference = ["--reference", &model.to_string_lossy(), "--certificate"];
    let said = f.verify(&[&["m.so"], &reference[..], &["text"]].concat()).expect("verifies");
    assert!(said.contains("certificate  the same as in the certificate, bit for bit"), "{said}");
    // Another artifact of the checkpoint is no reference of this one.
    f.compile(WITH_TOKENIZER, "eight.so", &["--w8"]);
    let wrong = f.verify(&["m.so", "--reference", "m.so", "--certificate", "text"]).expect_err("another reference");
    assert!(wrong.contains("its certificate: on the text `text` the divergence was"), "{wrong}");
    let none = f.verify(&["eight.so", "--reference", "m.so", "--certificate", "text"]).expect_err("no certificate");
    assert!(none.contains("no certificate to measure again"), "{none}");
}

#[test]
fn bounds_of_size_take_the_least_damage() {
    let f = Folder::new();
    write_text(&f);
    let bytes = |name: &str| fs::metadata(f.at(name)).expect("an artifact").len();
    f.compile(WITH_TOKENIZER, "own.so", &[]);
    f.compile(WITH_TOKENIZER, "four.so", &["--w4"]);
    let most = (bytes("own.so") + bytes("four.so")) / 2;
    let bound = format!("bytes={most}");
    f.compile(WITH_TOKENIZER, "m.so", &["--budget", &bound, "--budget-text", "text"]);
    let bounds = f.manifest("m.so")["certificate"]["measured"]["bounds"].clone();
    assert!(bytes("m.so") <= most && number(&bounds[0]["value"]) <= most as f64, "{bounds}");
    assert_eq!((&bounds[0]["bound"], &bounds[0]["measured"]), (&bound.into(), &false.into()));
}

#[test]
fn bounds_that_cannot_be_kept_are_refused() {
    let f = Folder::new();
    write_text(&f);
    let model = fixture(WITH_TOKENIZER);
    let compile = |more: &[&str]| {
        let said = refused(
            &f,
            &[&["compile", &model.to_string_lossy(), "-o", "m.so", "--budget-text", "text"], more].concat(),
        );
        assert!(!f.at("m.so").exists(), "{said}");
        said
    };
    let said = compile(&["--budget", "bytes=1M"]);
    assert!(
        said.contains("--budget bytes=1000000 cannot be kept: with the smallest formats, the artifact has"),
        "{said}"
    );
    let said = compile(&["--budget", "tokens/s=1e12"]);
    assert!(said.contains("cannot be kept") && said.contains("tokens/s; nothing was written"), "{said}");
    assert!(compile(&["--budget", "speed=1"]).contains("`speed` is unknown"));
    assert!(compile(&["--budget", "kl=0.1", "--w4"]).contains("cannot be used with"));
    assert!(compile(&["--budget", "kl=0.1", "--weights", "absent"]).contains("--weights absent"));
    fs::write(f.at("text"), "").expect("written");
    assert!(compile(&["--budget", "kl=0.1"]).contains("too short"));
}
