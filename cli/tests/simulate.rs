//! `llmcc simulate`, and the scenarios of `llmcc bench`: both take the same workloads and say the same figures of them.

use crate::common::native;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn llmcc(dir: &Path, args: &[&str]) -> Output {
    let args = native(args);
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmcc"));
    command.current_dir(dir).args(args).env("HF_HUB_OFFLINE", "1").output().expect("llmcc runs")
}

fn says(dir: &Path, args: &[&str]) -> String {
    let out = llmcc(dir, args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn document(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&says(dir, args)).expect("JSON")
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let out = llmcc(dir, args);
    assert!(!out.status.success() && out.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stdout));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn compiled(dir: &Path) {
    let from = llmcc_test_support::fixture("llama3");
    says(dir, &["compile", from.to_str().expect("UTF-8"), "-o", "m.so", "--quiet", "--no-golden"]);
}

const TRACE: &str = r#"{"arrival": 0.00, "prompt": 12, "output": 5, "prefix": "system", "prefix_tokens": 8}
{"arrival": 0.25, "prompt": 12, "output": 5, "prefix": "system", "prefix_tokens": 8, "priority": 1}
{"arrival": 0.50, "prompt": 20, "output": 3, "deadline": 30}
"#;

/// A trace is served and predicted as it says: the same requests, tokens and shared beginnings.
#[test]
fn a_trace_is_served_as_it_is_predicted() {
    let dir = tempfile::tempdir().expect("temporary folder");
    compiled(dir.path());
    std::fs::write(dir.path().join("trace.jsonl"), TRACE).expect("written");
    let bench = ["bench", "m.so", "--prefill=4", "--batch=1", "--steps=1", "--repeat=1", "--json"];
    let scenarios =
        ["--scenario=trace.jsonl", "--scenario=offline:4", "--scenario=server:50:3", "--scenario=closed:2:4"];
    let targets = ["--ttft=60000", "--itl=60000", "--serve-prompt=6-12", "--serve-tokens=4"];
    let measured = document(dir.path(), &[&bench[..], &scenarios, &targets].concat());
    let workloads = scenarios.map(|s| s.replace("--scenario", "--workload"));
    let workloads: Vec<&str> = workloads.iter().map(String::as_str).collect();
    let predicted = document(dir.path(), &[&["simulate", "m.so", "--json"][..], &workloads, &targets].concat());
    let (measured, predicted) = (&measured["serve"], &predicted["simulated"]);
    assert_eq!(measured.as_array().map(Vec::len), Some(4), "{measured}");
    for (i, wanted) in [13, 16, 12, 16].into_iter().enumerate() {
        let (m, p) = (&measured[i], &predicted[i]["figures"]);
        assert_eq!(m["generated_tokens"], wanted, "{m}");
        for same in
            ["workload", "requests", "generated_tokens", "prompt_tokens", "good_requests", "unfinished", "users"]
        {
            assert_eq!(m[same], p[same], "{same}: {m} {p}");
        }
        for times in ["time_to_first_token", "between_tokens"] {
            assert!([m, p].iter().all(|f| f[times]["p50_ms"].as_f64() > Some(0.0)), "{times}: {m} {p}");
        }
        assert!(
            [m, p].iter().all(
                |f| f["memory_bytes"].as_f64() > Some(1e4) && f["goodput_requests_per_second"].as_f64() > Some(0.0)
            )
        );
    }
    assert_eq!(measured[0]["reused_prompt_tokens"], 8, "{measured}");
    assert_eq!(predicted[0]["figures"]["reused_prompt_tokens"], 8, "{predicted}");
}

/// The same command says the same bytes, and a machine with more of everything is never slower.
#[test]
fn predictions_are_deterministic_and_follow_the_machine() {
    let dir = tempfile::tempdir().expect("temporary folder");
    compiled(dir.path());
    let args = ["simulate", "m.so", "--workload=server:200:20", "--machines=a100,h100,groq-lpu,sm90:h100", "--json"];
    let args = [&args[..], &["--serve-prompt=4-30", "--serve-tokens=2-9", "--seed=3"]].concat();
    let first = says(dir.path(), &args);
    assert_eq!(first, says(dir.path(), &args));
    let document: Value = serde_json::from_str(&first).expect("JSON");
    let rate = |i: usize| document["simulated"][i]["figures"]["busy_seconds"].as_f64().expect("figures");
    assert!(rate(1) > rate(2), "an H100 is busy for less time than an A100: {document}");
    let other: Value =
        serde_json::from_str(&says(dir.path(), &[&args[..args.len() - 1], &["--seed=4"]].concat())).expect("JSON");
    assert_ne!(document["simulated"], other["simulated"]);
    let text = says(
        dir.path(),
        &["simulate", "m.so", "--workload=offline:3", "--machines=a100", "--serve-tokens=4", "--serve-prompt=8"],
    );
    for part in ["predicted for", "NVIDIA A100", "offline, 3 requests", "first token", "J per token"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Ratios of a few steps on this machine scale the predictions, and both are said.
#[test]
fn calibrations_are_said_beside_predictions() {
    let dir = tempfile::tempdir().expect("temporary folder");
    compiled(dir.path());
    let args =
        ["simulate", "m.so", "--workload=closed:2:4", "--calibrate", "--serve-tokens=4", "--serve-prompt=8", "--json"];
    let document = document(dir.path(), &args);
    assert_eq!(document["simulated"].as_array().map(Vec::len), Some(2), "{document}");
    let ratios = document["calibration"]["next_tokens"].as_array().expect("ratios");
    assert!(ratios.len() >= 3 && ratios.iter().all(|r| r["ratio"].as_f64() > Some(0.0)), "{document}");
    let rate = |i: usize| document["simulated"][i]["figures"]["tokens_per_second"].as_f64().expect("a rate");
    assert!(rate(0) > 0.0 && rate(1) > 0.0 && rate(0) != rate(1), "{document}");
}

#[test]
fn machines_are_listed_with_their_sources() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let document = document(dir.path(), &["simulate", "--list", "--json"]);
    let machines = document["machines"].as_array().expect("a list");
    let text = says(dir.path(), &["simulate", "--list"]);
    assert!(machines.len() >= 10);
    for machine in machines {
        let published = &machine["published"];
        assert!(published["source"].is_string() || published["not_found"].is_string(), "{machine}");
        assert!(
            machine["sheet"].is_string() && text.contains(machine["machine"].as_str().expect("a name")),
            "{machine}"
        );
    }
}

#[test]
fn faults_of_workloads_are_said() {
    let dir = tempfile::tempdir().expect("temporary folder");
    compiled(dir.path());
    std::fs::write(dir.path().join("bad.jsonl"), "{\"arrival\": 0, \"prompt\": 4}\n").expect("written");
    let bench =
        |args: &[&str]| refused(dir.path(), &[&["bench", "m.so", "--prefill=4", "--batch=1"][..], args].concat());
    let simulate = |args: &[&str]| refused(dir.path(), &[&["simulate", "m.so"][..], args].concat());
    for (message, parts) in [
        (bench(&["--scenario=bad.jsonl"]), &["bad.jsonl", "line 1", "output is missing"][..]),
        (simulate(&["--workload=bad.jsonl"]), &["bad.jsonl", "line 1", "output is missing"]),
        (simulate(&["--workload=nowhere.jsonl"]), &["nowhere.jsonl"]),
        (simulate(&["--workload=server:0"]), &["RATE", "more than 0"]),
        (simulate(&["--workload=offline", "--machines=abacus"]), &["abacus", "h100", "x86-64-v3"]),
        (simulate(&["--workload=offline", "--serve-prompt=100000"]), &["100064 tokens", "longest context"]),
        (simulate(&["--workload=offline", "--target=sm70"]), &["sm70", "m.so"]),
        (simulate(&["--workload=offline", "--ttft=0"]), &["--ttft", "more than 0"]),
        (bench(&["--scenario=offline", "--serve-prompt=100000"]), &["--scenario", "100064 tokens"]),
        (bench(&["--serve-prompt=8"]), &["--serve-prompt", "--scenario"]),
        (refused(dir.path(), &["simulate", "bad.jsonl", "--workload=offline"]), &["bad.jsonl", "artifact"]),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
    }
}
