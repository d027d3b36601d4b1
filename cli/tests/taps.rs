//! `llmcc tap`: moments of the inputs of products, as a file.

use crate::common::{Folder, WITH_TOKENIZER, text};
use serde_json::Value;
use std::collections::BTreeMap;

/// Shapes of tensors, and their elements as numbers.
type Tensors = BTreeMap<String, (Vec<u64>, Vec<f64>)>;

/// Tensors of a file of safetensors, and its notes.
fn read(f: &Folder, name: &str) -> (Tensors, Value) {
    let bytes = std::fs::read(f.at(name)).expect("a file");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    assert!(len.is_multiple_of(8), "the data is aligned");
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + len]).expect("JSON");
    let notes = header["__metadata__"].take();
    let tensor = |(name, of): (&String, &Value)| {
        let number = |v: &Value| v.as_u64().expect("a number");
        let [from, to] = [0, 1].map(|i| 8 + len + number(&of["data_offsets"][i]) as usize);
        let data = &bytes[from..to];
        let elements = match of["dtype"].as_str().expect("a type") {
            "F64" => data.chunks(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect(),
            "U64" => data.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")) as f64).collect(),
            "F32" => data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")).into()).collect(),
            other => panic!("{name} is of {other}"),
        };
        (name.clone(), (of["shape"].as_array().expect("a list").iter().map(number).collect(), elements))
    };
    let all = header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__");
    (all.map(tensor).collect(), notes)
}

/// Same text, same bytes: on any number of threads, and however much memory there is for products.
#[test]
fn the_file_has_the_same_bytes() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--tap", "--no-golden", "--quiet"]);
    std::fs::write(f.at("text"), "Once upon a time there was a dog.\n==\nIt ran, and ran.\n").expect("written");
    let tap = |out: &str, more: &[&str]| {
        f.says(&[], &[&["tap", "m.so", "text", "--separator", "==", "-o", out, "--full"], more].concat())
    };
    let said = tap("a", &["--threads", "1"]);
    assert!(said.contains("a: moments of 22 weights from") && said.contains("in 2 sequences"), "{said}");
    tap("b", &["--threads", "2", "--full-memory", "0.0001"]);
    assert!(std::fs::read(f.at("a")).expect("a") == std::fs::read(f.at("b")).expect("b"));
    let (tensors, notes) = read(&f, "a");
    assert_eq!(notes["format"], "llmcc-moments-1");
    assert!(notes["source"].as_str().is_some_and(|s| s.contains(" model.safetensors")), "{notes}");
    let tokens: f64 = notes["tokens"].as_str().expect("text").parse().expect("a number");
    for (weight, columns) in [("model.layers.2.mlp.down_proj", 512), ("model.layers.0.self_attn.q_proj", 256)] {
        let part = |part: &str| &tensors[&format!("{weight}.weight.{part}")];
        assert_eq!(*part("count"), (vec![], vec![tokens]));
        let (shape, squares) = part("squares");
        assert_eq!(*shape, [columns]);
        let (shape, products) = part("products");
        assert_eq!(*shape, [columns, columns]);
        let diagonal: Vec<f64> = products.iter().step_by(columns as usize + 1).copied().collect();
        assert_eq!(diagonal, *squares);
        let (min, max) = (&part("min").1, &part("max").1);
        let mut bounds = min.iter().zip(max).zip(squares);
        let within = |((min, max), squares): ((&f64, &f64), &f64)| {
            min <= max && *squares <= tokens * min.abs().max(max.abs()).powi(2) * 1.000001
        };
        assert!(bounds.all(within), "{weight}");
    }
    // Fewer tokens of the same text, in more sequences.
    tap("c", &["--window", "4", "--tokens", "9"]);
    assert_eq!(read(&f, "c").1["tokens"], "9");
}

#[test]
fn what_cannot_be_tapped_is_refused() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "plain.so", &["--no-golden", "--quiet"]);
    f.compile(WITH_TOKENIZER, "m.so", &["--tap", "--no-golden", "--quiet"]);
    f.compile("llama3", "bare.so", &["--tap", "--no-golden", "--quiet"]);
    std::fs::write(f.at("empty"), " \n").expect("written");
    for (args, says) in [
        (&["tap", "plain.so", "-p", "x", "-o", "out"][..], "plain.so: it does not show the inputs of its products"),
        (&["tap", "bare.so", "-p", "x", "-o", "out"], "tokenizer"),
        (&["tap", "m.so", "empty", "-o", "out"], "the text has no tokens"),
        (&["tap", "m.so", "nowhere", "-o", "out"], "nowhere"),
        (&["tap", "m.so", "-p", "x", "-o", "nowhere/out"], "nowhere/out"),
        (&["tap", "m.so", "-p", "x", "-o", "out", "--window", "5000"], "--window 5000"),
        (&["tap", "m.so", "-p", "x", "-o", "out", "--window", "0"], "--window 0"),
        (&["tap", "m.so", "-o", "out"], "required"),
        (&["tap", "m.so", "-p", "x"], "--output"),
    ] {
        let done = f.llmcc(args);
        let message = text(&done.stderr);
        assert!(!done.status.success() && message.contains(says), "{args:?}: {message}");
        assert!(!message.contains("internal error") && !f.at("out").exists(), "{message}");
    }
}

/// The entry is in the manifest, and the artifact verifies.
#[test]
fn inspect_shows_the_entry() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--tap", "--quiet"]);
    assert_eq!(f.manifest("m.so")["info"]["more_entries"]["tap"], "inputs of products, 13 of them");
    f.verify(&["m.so"]).expect("it computes the same");
}
