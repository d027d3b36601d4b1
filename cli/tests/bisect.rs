//! `llmcc bisect`: the part of a compilation behind a difference.

use crate::common::{Folder, text};
use serde_json::Value;
use std::fs;

/// Weights of 4 bits are the cause; its kernels are text that the other commands read.
#[test]
fn the_approximation_behind_a_difference_is_named() {
    let f = Folder::with_checkpoint();
    let run = |more: &[&str]| {
        let all = ["bisect", "ck", "--ids", "1,2,3,4", "--target", "x86-64-v3", "--quiet"];
        let done = f.llmcc(&[&all[..], more].concat());
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, said, fault) = run(&["--format", "w4g32", "--act", "f32", "--tolerance", "0.001", "-o", "x.lir"]);
    assert_eq!(code, Some(1), "{said}{fault}");
    let line = |name: &str| said.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {said}"));
    assert!(line("cause ").contains(" as w4g32") && line("begins ").contains("instead of"), "{said}");
    let lir = fs::read_to_string(f.at("x.lir")).expect("written");
    assert!(lir.starts_with("; llmcc bisect: ") && lir.contains("w4g32["), "{lir}");
    let checked = f.says(&[], &["check", "x.lir"]);
    assert!(checked.contains("1 function") && checked.contains("kernel"), "{checked}");
    // In the checkpoint's own numbers there is none.
    let (code, said, fault) = run(&["--json"]);
    assert_eq!(code, Some(0), "{said}{fault}");
    let document: Value = serde_json::from_str(&said).expect("JSON");
    assert!(document["cause"].is_null() && document["alone"].as_array().is_some_and(Vec::is_empty), "{document}");
    let [difference, tolerance] = ["difference", "tolerance"].map(|k| document[k].as_f64().expect("a number"));
    assert!(difference <= tolerance && tolerance < 1e-3, "{document}");
}

#[test]
fn faults_name_their_place_and_a_remedy() {
    let f = Folder::with_checkpoint();
    for (args, says) in [
        (&["nowhere", "--ids", "1"][..], "nowhere"),
        (&["ck", "--input", "x"], "ck: it has no tokenizer: give --ids"),
        (&["ck"], "--input"),
        (&["ck", "--ids", "1,99999999"], "token 99999999 is none of this model"),
        (&["ck", "--ids", "1", "--target", "avx2"], "did you mean `x86-64-v3`?"),
        (&["ck", "--ids", "1", "--target", "sm90"], "--target sm90: programs for GPUs are not evaluated"),
        (&["ck", "--ids", "1", "--tolerance", "0"], "above 0"),
        (&["ck", "--ids", "1", "--tolerance", "1e-12", "-o", "no/x.lir"], "no/x.lir"),
    ] {
        let done = f.llmcc(&[&["bisect"], args].concat());
        let said = text(&done.stderr);
        assert!(!done.status.success() && said.contains(says), "{args:?}: {said}");
        assert!(!said.contains("internal error") && !said.contains("panicked"), "{args:?}: {said}");
    }
}
