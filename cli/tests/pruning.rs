//! Weights that become zero before the others are rounded.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use serde_json::Value;
use std::fs;

/// Mean divergence of an artifact from the checkpoint on Python code.
fn divergence(f: &Folder, artifact: &str) -> f64 {
    let said = f.says(&[], &["eval", "kl", "ck", artifact, "text.py", "--json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    said["kl"]["mean"].as_f64().unwrap_or_else(|| panic!("{said}"))
}

/// A folder with the example model, and its examples as text.
fn folder() -> Folder {
    let f = Folder::new();
    std::os::unix::fs::symlink(fixture(WITH_TOKENIZER), f.at("ck")).expect("linked");
    let examples = fixture(WITH_TOKENIZER).join("../../python");
    let read = |name: &str| fs::read_to_string(examples.join(name)).expect("an example");
    fs::write(f.at("text.py"), ["generate.py", "perplexity.py"].map(read).join("\n")).expect("written");
    fs::write(f.at("calib.py"), ["chat.py", "adapters.py"].map(read).join("\n")).expect("written");
    f
}

/// Matrices of layers have the zeros asked for, embedding and head have none; and the more a pruner knows, the better
/// is the model.
#[test]
fn layers_have_zeros_and_are_better_the_more_is_known() {
    let f = folder();
    for sparsity in ["50%", "2:4"] {
        let mut before = f64::INFINITY;
        for pruner in ["magnitude", "wanda", "sparsegpt"] {
            let calib =
                ["--calib", "calib.py", "--method", if pruner == "sparsegpt" { "gptq" } else { "least-squares" }];
            let more = ["--w8", "--no-golden", "--prune", pruner, "--sparsity", sparsity];
            let said = f.compile(WITH_TOKENIZER, "m.so", &[&more[..], &calib].concat());
            let m = f.manifest("m.so");
            assert_eq!(m["options"]["pruned"], serde_json::json!({ "by": pruner, "sparsity": sparsity }));
            let zeros = &m["certificate"]["zeros"];
            let (share, matrices) = (zeros["share"].as_f64(), zeros["matrices"].as_u64());
            assert!(share >= Some(0.5) && share < Some(0.55) && matrices > Some(0), "{zeros}");
            let tensors = m["weights"]["tensors"].as_array().expect("tensors");
            for t in tensors.iter().filter(|t| t["storage"].as_str().is_some_and(|s| s.starts_with("w8"))) {
                let name = t["name"].as_str().expect("a name");
                let zeros = t["zeros"].as_f64();
                assert_eq!(zeros.is_some(), name.contains("layers."), "{t}");
                assert!(zeros.is_none_or(|z| (0.5..0.6).contains(&z)), "{t}");
            }
            assert!(
                said.contains("weights of") && said.contains(&format!("are zero ({sparsity} by {pruner})")),
                "{said}"
            );
            let found = divergence(&f, "m.so");
            println!("{sparsity} {pruner}: {found}");
            assert!(found < before, "{sparsity} {pruner}: {found}, the pruner before {before}");
            before = found;
        }
    }
    let shown = f.says(&[], &["inspect", "m.so", "--tensors"]);
    assert!(shown.contains("sparsity    5") && shown.contains("  zeros 5"), "{shown}");
    assert!(shown.contains("weights of the layers' matrices pruned (2:4 by sparsegpt)"), "{shown}");
}

/// Same input and options, same bytes, on any number of threads; without the option nothing is different.
#[test]
fn pruned_artifacts_are_reproducible() {
    let f = folder();
    let compile = |out: &str, threads: &str, more: &[&str]| {
        let all = [&["compile", "ck", "-o", out, "--w4", "--group", "128", "--no-golden"], more].concat();
        let done = f.llmcc_with(&[("RAYON_NUM_THREADS", threads.as_ref())], &all);
        assert!(done.status.success(), "{}", text(&done.stderr));
        fs::read(f.at(out)).expect("an artifact")
    };
    let sparse = |out: &str, threads: &str, calib: &str| {
        let more = ["--prune", "sparsegpt", "--sparsity", "2:4", "--method", "gptq", "--calib", calib];
        compile(out, threads, &[&more[..], if calib == "kept" { &[] } else { &["--save-calib", "kept"] }].concat())
    };
    assert!(sparse("a.so", "1", "calib.py") == sparse("b.so", "3", "kept"));
}

#[test]
fn what_cannot_be_pruned_is_refused() {
    let f = folder();
    for (args, says) in [
        (&["--prune", "magnitude"][..], "--w4"),
        (&["--w4", "--prune", "largest"], "magnitude"),
        (&["--w4", "--sparsity", "50%"], "--prune"),
        (&["--w4", "--prune", "magnitude", "--sparsity", "100%"], "from 1% to 99%"),
        (&["--w4", "--prune", "magnitude", "--sparsity", "4:4"], "2:4, 1:4"),
        (&["--w4", "--prune", "wanda"], "--prune wanda: it weighs weights by the inputs of products: give --calib"),
        (&["--w4", "--prune", "sparsegpt"], "--prune sparsegpt"),
        (&["--w4a", "--prune", "magnitude"], "w4ag32 has no code of zero: give --w4"),
        (&["--format", "c4", "--prune", "magnitude"], "c4 has no code of zero"),
        (&["--format", "t3", "--prune", "magnitude"], "t3 has no code of zero"),
        (&["--dtype", "bf16", "--prune", "magnitude"], "cannot be used with"),
        (&["--error-budget", "0.05", "--prune", "magnitude"], "cannot be used with"),
        (&["--w4", "--prune", "magnitude", "--method", "nearest", "--calib", "builtin"], "leave out --calib"),
    ] {
        let done = f.llmcc(&[&["compile", "ck", "-o", "out.so"], args].concat());
        let message = text(&done.stderr);
        assert!(!done.status.success() && message.contains(says), "{args:?}: {message}");
        assert!(!message.contains("internal error") && !f.at("out.so").exists(), "{message}");
    }
}
