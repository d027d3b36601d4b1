//! `--json`: one document on standard output, its members by name and type, errors included.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use serde_json::Value;
use std::io::Write;
use std::process::{Output, Stdio};

/// Names of all members of a document with their types, a line each. The first element stands for a list; members
/// of the objects that `open` names are data.
fn shape(v: &Value, open: &[&str]) -> Vec<String> {
    fn walk(v: &Value, at: String, open: &[&str], out: &mut Vec<String>) {
        let kind = match v {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(n) if n.is_f64() => "real",
            Value::Number(_) => "whole",
            Value::String(_) => "string",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        };
        out.push(format!("{at}: {kind}"));
        match v {
            Value::Array(all) => all.iter().take(1).for_each(|v| walk(v, format!("{at}[]"), open, out)),
            Value::Object(all) if !open.contains(&at.as_str()) => {
                all.iter().for_each(|(name, v)| walk(v, format!("{at}.{name}"), open, out));
            }
            _ => {}
        }
    }
    let mut out = vec![];
    walk(v, String::new(), open, &mut out);
    out.remove(0);
    out
}

/// The only document of a command that must succeed, with nothing else on standard output.
fn document(f: &Folder, args: &[&str]) -> Value {
    let done = f.llmcc(args);
    assert!(done.status.success(), "{args:?}: {}{}", text(&done.stdout), text(&done.stderr));
    only(&done, args)
}

fn only(done: &Output, args: &[&str]) -> Value {
    let said = text(&done.stdout);
    assert!(said.ends_with('\n') && said.lines().count() == 1, "{args:?}: {said}");
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{args:?}: {e}: {said}"))
}

#[test]
fn compile_run_and_verify() {
    let f = Folder::new();
    let model = fixture(WITH_TOKENIZER);
    let model = model.to_str().expect("UTF-8");
    let compile = ["compile", model, "-o", "m.so", "--w8", "--target", "x86-64", "--max-context", "64", "--json"];
    let done = f.llmcc(&compile);
    assert!(done.status.success() && done.stderr.is_empty(), "{}{}", text(&done.stdout), text(&done.stderr));
    let report = only(&done, &compile);
    let members = [
        ".artifact: string",
        ".budget: null",
        ".bytes: whole",
        ".calibration_check: null",
        ".code_bytes: whole",
        ".golden: object",
        ".golden.difference_to_evaluator: real",
        ".golden.steps: whole",
        ".golden.target: string",
        ".golden.tokens: whole",
        ".measured: null",
        ".memory: object",
        ".memory.adapters: whole",
        ".memory.kv_per_token: whole",
        ".memory.max_context: whole",
        ".memory.per_row: whole",
        ".memory.per_token: whole",
        ".memory.sequence: whole",
        ".memory.step: whole",
        ".memory.step_tokens: whole",
        ".memory.total: whole",
        ".memory.weights: whole",
        ".model: string",
        ".requantized: list",
        ".root: string",
        ".runtime: object",
        ".runtime.bytes: whole",
        ".runtime.kind: string",
        ".seconds: object",
        ".versions: list",
        ".versions[]: object",
        ".versions[].activations: string",
        ".versions[].generic: object",
        ".versions[].kernels: whole",
        ".versions[].predicted_tokens_per_second: real",
        ".versions[].target: string",
        ".warnings: list",
        ".weights: object",
        ".weights.by_format: object",
        ".weights.bytes: whole",
        ".weights.largest_relative_rms_error: real",
        ".weights_file: null",
        ".zeros: null",
    ];
    assert_eq!(shape(&report, &[".seconds", ".weights.by_format", ".versions[].generic"]), members);
    assert_eq!((report["artifact"].as_str(), report["root"].as_str()), (Some("m.so"), Some(&*f.root_of("m.so"))));
    assert_eq!(report["bytes"].as_u64(), Some(std::fs::metadata(f.at("m.so")).expect("there").len()));

    let made = document(&f, &["run", "m.so", "-p", "Once upon", "-n", "4", "--greedy", "--json"]);
    let members = [
        ".decode_seconds: real",
        ".finish: string",
        ".generated_tokens: whole",
        ".prefill_seconds: real",
        ".prompt: string",
        ".prompt_tokens: whole",
        ".reused_tokens: whole",
        ".text: string",
        ".tokens: list",
        ".tokens[]: whole",
    ];
    assert_eq!(shape(&made, &[]), members);
    let plain = text(&f.llmcc(&["run", "m.so", "-p", "Once upon", "-n", "4", "--greedy"]).stdout);
    assert_eq!(format!("Once upon{}\n", made["text"].as_str().expect("text")), plain);
    assert_eq!((made["tokens"].as_array().map(Vec::len), made["finish"].as_str()), (Some(4), Some("length")));
    let ids = document(&f, &["run", "m.so", "--ids", "1,2,3", "-n", "2", "--greedy", "--json"]);
    assert!(ids["text"].is_null() && ids["prompt"].is_null() && ids["prompt_tokens"] == 3, "{ids}");

    let verified = document(&f, &["verify", "m.so", "--json"]);
    let members = [
        ".artifact: string",
        ".checked: list",
        ".checked[]: object",
        ".checked[].computation: object",
        ".checked[].computation.batched: object",
        ".checked[].computation.batched.distance: real",
        ".checked[].computation.batched.same_bits: bool",
        ".checked[].computation.own_order_of_sums: null",
        ".checked[].computation.tokens: whole",
        ".checked[].device: string",
        ".checked[].golden: object",
        ".checked[].golden.computed_by: string",
        ".checked[].golden.distance: real",
        ".checked[].golden.same_bits: bool",
        ".checked[].golden.steps: whole",
        ".checked[].golden.tokens: whole",
        ".checked[].target: string",
        ".not_checked: list",
        ".root: string",
        ".root_compared: bool",
        ".signature_checked: bool",
        ".unchanged_bytes: object",
        ".weights_hashed: bool",
    ];
    assert_eq!(shape(&verified, &[".unchanged_bytes"]), members);
    assert_eq!(verified["root"], report["root"]);
    assert_eq!(verified["checked"][0]["golden"]["same_bits"], true);
    let inspected = f.manifest("m.so");
    assert_eq!((&inspected["root"], &inspected["model"]), (&report["root"], &report["model"]));
}

/// A conversation has a line for each answer, and for each fault.
#[test]
fn conversations_are_lines() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "160"]);
    let mut command = f.command(&["run", "m.so", "--chat", "--greedy", "-n", "3", "--json"]);
    let piped = || Stdio::piped();
    let mut child = command.stdin(piped()).stdout(piped()).stderr(piped()).spawn().expect("llmcc runs");
    let long = "word ".repeat(200);
    let sent = format!("hi\n{long}\nmore\n");
    child.stdin.take().expect("a pipe").write_all(sent.as_bytes()).expect("sent");
    let done = child.wait_with_output().expect("ends");
    let lines: Vec<Value> =
        text(&done.stdout).lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!((&lines[0]["prompt"], &lines[2]["prompt"]), (&"hi".into(), &"more".into()));
    assert!(lines[2]["reused_tokens"].as_u64() > Some(0), "{}", lines[2]);
    let fault = lines[1]["error"]["message"].as_str().unwrap_or_default();
    assert!(fault.contains("the message is too long"), "{}", lines[1]);
}

/// Explanations are part of the document, with the regimes that they are about.
#[test]
fn explanations_are_members() {
    let f = Folder::with_checkpoint();
    let args = ["compile", "ck", "-o", "m.so", "--w4", "--target", "x86-64-v3", "--no-golden", "--explain", "--json"];
    let report = document(&f, &args);
    let version = &report["versions"][0];
    assert_eq!(version["regimes"].as_array().map(Vec::len), Some(3));
    assert_eq!(version["regimes"][0]["max_tokens"], 4);
    assert!(version["regimes"][2]["max_tokens"].is_null());
    let choice = &version["choices"][0];
    assert!(choice["seconds"].as_f64() > Some(0.0) && choice["kernel"].is_string(), "{choice}");
}

/// Errors are documents on standard output, whoever finds them, with the status of the process.
#[test]
fn errors_are_documents() {
    let f = Folder::with_checkpoint();
    std::fs::write(f.at("text.so"), "no ELF").expect("written");
    for (args, kind, status, says) in [
        (&["run", "m.so", "--json"][..], "usage", 2, "standard input is empty"),
        (&["run", "m.so", "-p", "x", "--json"], "io", 1, "m.so"),
        (&["run", "text.so", "-p", "x", "--json"], "artifact", 1, "not an artifact"),
        (&["run", "m.so", "-p", "x", "--json", "--top-p", "7"], "usage", 2, "--top-p"),
        (&["run", "--json"], "usage", 2, "<ARTIFACT>"),
        (&["compile", "nowhere", "--json"], "usage", 2, "nowhere"),
        (&["compile", "ck", "-o", "m.so", "--json", "--emit", "plan"], "usage", 2, "--emit"),
        (&["compile", "ck", "-o", "no/m.so", "--no-golden", "--json"], "compile", 1, "no/m.so"),
        (&["verify", "text.so", "--json"], "artifact", 1, "not an artifact"),
        (&["verify", "m.so", "--root", "7", "--json"], "usage", 2, "64 hexadecimal digits"),
        (&["inspect", "text.so", "--json"], "artifact", 1, "not an artifact"),
        (&["tokenize", "text.so", "-p", "x", "--json"], "artifact", 1, "not an artifact"),
        (&["check", "nowhere.lir", "--json"], "input", 1, "nowhere.lir"),
    ] {
        let done = f.llmcc(args);
        assert!(done.stderr.is_empty(), "{args:?}: {}", text(&done.stderr));
        let error = &only(&done, args)["error"];
        assert_eq!(error["kind"], kind, "{args:?}: {error}");
        assert_eq!((error["status"].as_i64(), done.status.code()), (Some(status), Some(status as i32)), "{args:?}");
        assert!(error["message"].as_str().unwrap_or_default().contains(says), "{args:?}: {error}");
        assert!(error["causes"].is_array(), "{args:?}: {error}");
    }
}
