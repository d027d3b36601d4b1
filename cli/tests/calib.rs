//! Calibration: weights that become codes by the inputs of their products.

mod common;

use common::{Folder, WITH_TOKENIZER, text};
use std::fs;

/// Text of the kind that the example model was trained on.
const PYTHON: &str = "def read_file(path):\n    with open(path) as f:\n        return f.read()\n\n\nclass Reader:\n    \
    def __init__(self, name):\n        self.name = name\n\n    def next(self):\n        return self.name\n";

/// Perplexity of [`PYTHON`] by an artifact.
fn perplexity(f: &Folder, artifact: &str) -> f64 {
    let said = f.says(&[], &["eval", "ppl", artifact, "text.py", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    said["perplexity"].as_f64().expect("a number")
}

/// Every method makes a model of the same size; more knowledge makes a better one.
#[test]
fn methods_are_better_the_more_they_know() {
    let f = Folder::new();
    fs::write(f.at("text.py"), PYTHON.repeat(8)).expect("written");
    let of = |out: &str, more: &[&str]| {
        let said = f.compile(WITH_TOKENIZER, out, &[&["--format", "w2zg64", "--no-golden"], more].concat());
        (perplexity(&f, out), f.manifest(out), said)
    };
    let (nearest, plain, _) = of("nearest.so", &["--method", "nearest"]);
    let (equal, manifest, _) = of("equal.so", &[]);
    assert_eq!(manifest["options"]["method"], "least-squares");
    let (weighed, _, _) = of("weighed.so", &["--calib", "text.py"]);
    let (gptq, calibrated, said) = of("gptq.so", &["--calib", "text.py", "--method", "gptq"]);
    assert!(gptq < weighed && weighed < equal && equal < nearest, "{gptq} {weighed} {equal} {nearest}");
    assert_eq!(plain["weights"]["bytes"], calibrated["weights"]["bytes"]);
    let record = &calibrated["options"]["calibration"];
    assert_eq!((&record["texts"][0]["name"], &record["texts"][0]["documents"]), (&"text.py".into(), &1.into()));
    assert!(record["tokens"].as_u64().is_some_and(|n| n > 100), "{record}");
    assert!(said.contains("calibrated") && said.contains("gptq"), "{said}");
}

/// Same input and options, same bytes, on any number of threads; and from a file that was kept.
#[test]
fn artifacts_are_reproducible() {
    let f = Folder::new();
    let compile = |out: &str, threads: &str, more: &[&str]| {
        let all = [&["compile", "ck", "-o", out, "--w4", "--method", "gptq", "--calib-tokens", "300"], more].concat();
        let done = f.llmcc_with(&[("RAYON_NUM_THREADS", threads.as_ref())], &all);
        assert!(done.status.success(), "{}", text(&done.stderr));
        fs::read(f.at(out)).expect("an artifact")
    };
    std::os::unix::fs::symlink(common::fixture(WITH_TOKENIZER), f.at("ck")).expect("linked");
    let a = compile("a.so", "1", &["--calib", "builtin", "--save-calib", "kept"]);
    let b = compile("b.so", "3", &["--calib", "builtin"]);
    let c = compile("c.so", "2", &["--calib", "kept"]);
    assert!(a == b && a == c);
    assert_eq!(f.names("."), ["a.so", "b.so", "c.so", "ck", "kept"]);
    f.verify(&["a.so"]).expect("it computes the same");
}

#[test]
fn what_cannot_be_calibrated_is_refused() {
    let f = Folder::with_checkpoint();
    fs::write(f.at("empty.txt"), " \n").expect("written");
    fs::write(f.at("bad.jsonl"), "{\"text\": \"x\"}\n{\"texts\": \"x\"}\n").expect("written");
    std::os::unix::fs::symlink(common::fixture(WITH_TOKENIZER), f.at("words")).expect("linked");
    f.compile(WITH_TOKENIZER, "x.so", &["--w4", "--no-golden", "--calib", "builtin", "--save-calib", "kept"]);
    for (args, says) in [
        (&["ck", "--w4", "--calib", "builtin"][..], "tokenizer"),
        (&["words", "--w4", "--calib", "empty.txt"], "the texts have no tokens"),
        (&["words", "--w4", "--calib", "bad.jsonl"], "bad.jsonl: line 2"),
        (&["words", "--w4", "--calib", "nowhere.txt"], "nowhere.txt"),
        (&["words", "--calib", "builtin"], "--calib is for weights that are rounded"),
        (&["words", "--w4", "--method", "gptq"], "give --calib builtin"),
        (&["words", "--w4", "--calib", "builtin", "--method", "nearest"], "leave out --calib"),
        (&["words", "--w4", "--calib", "kept", "--method", "gptq"], "products of columns"),
        (&["ck", "--w4", "--calib", "kept"], "another checkpoint"),
        (&["words", "--w4", "--calib", "builtin", "--calib-tokens", "0"], "--calib-tokens"),
        (&["words", "--w4", "--calib", "builtin=x"], "not a number above 0"),
        (&["words", "--w4", "--save-calib", "y"], "--calib"),
        (&["words", "--w4", "--calib", "builtin", "--weights", "absent"], "--weights absent"),
    ] {
        let done = f.llmcc(&[&["compile"], args, &["-o", "out.so"]].concat());
        let message = text(&done.stderr);
        assert!(!done.status.success() && message.contains(says), "{args:?}: {message}");
        assert!(!message.contains("internal error") && !f.at("out.so").exists(), "{message}");
    }
}
