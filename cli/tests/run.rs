//! What `llmcc run` says about options and files that it refuses: in terms of the command line, and
//! before anything else is printed.

use std::path::Path;
use std::process::{Command, Output};

fn llmcc(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmcc")).current_dir(dir).args(args).output().expect("llmcc runs")
}

/// Status and message of a command that must fail and print nothing else.
fn refused(dir: &Path, args: &[&str]) -> (i32, String) {
    let out = llmcc(dir, args);
    let message = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && out.stdout.is_empty(),
        "{args:?}: {}\n{message}",
        String::from_utf8_lossy(&out.stdout)
    );
    (out.status.code().unwrap_or(-1), message)
}

#[test]
fn sampling_options_are_checked_before_anything_runs() {
    let dir = tempfile::tempdir().expect("temporary folder");
    for (option, value, range) in [
        ("--temperature", "-1", "0 or a positive number"),
        ("--temperature", "nan", "0 or a positive number"),
        ("--temperature", "inf", "0 or a positive number"),
        ("--top-p", "1.5", "from 0 to 1"),
        ("--min-p", "-0.1", "from 0 to 1"),
        ("--repetition-penalty", "x", "0 or a positive number"),
    ] {
        // The artifact does not even exist.
        let (status, message) = refused(dir.path(), &["run", "m.so", "-p", "Once", &format!("{option}={value}")]);
        assert!(
            status == 2 && message.contains(option) && message.contains(value) && message.contains(range),
            "{message}"
        );
        assert!(!message.contains("m.so"), "{message}");
    }
}

#[test]
fn files_that_cannot_be_loaded_say_why() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/llama3");
    let out =
        llmcc(dir.path(), &["compile", checkpoint.to_str().expect("UTF-8"), "-o", "m.so", "--quiet", "--no-golden"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let good = std::fs::read(dir.path().join("m.so")).expect("artifact");
    let patched = |name: &str, at: usize, value: u16| {
        let mut bytes = good.clone();
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        std::fs::write(dir.path().join(name), bytes).expect("written");
    };
    // e_machine and e_type of the header.
    patched("arm.so", 18, if cfg!(target_arch = "aarch64") { 62 } else { 183 });
    patched("object.so", 16, 1);
    std::fs::write(dir.path().join("text.so"), "no ELF").expect("written");
    for (name, part) in [("arm.so", "ELF headers"), ("object.so", "ELF headers"), ("text.so", "not an artifact")] {
        let (status, message) = refused(dir.path(), &["run", name, "--ids", "1,2"]);
        assert!(status == 1 && message.contains(name) && message.contains(part), "{message}");
        assert!(!message.contains("dlopen failed"), "{message}");
    }
    let (_, message) = refused(dir.path(), &["run", "m.so", "--ids", "1,2", "--cache-tokens", "99999999999"]);
    assert!(message.contains("--cache-tokens is 99999999999") && !message.contains("max_tokens"), "{message}");
    let out = llmcc(dir.path(), &["run", "m.so", "--ids", "1,2", "-n", "3", "--cache-tokens", "64"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Options that do not go with the model, or with each other, are not passed over.
#[test]
fn what_does_not_fit_the_model_is_refused() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens");
    for name in ["llama3", "bert_pairs"] {
        let (from, out) = (goldens.join(name), format!("{name}.so"));
        let done = llmcc(dir.path(), &["compile", from.to_str().expect("UTF-8"), "-o", &out, "--quiet", "--no-golden"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    std::fs::write(dir.path().join("text.txt"), "a text").expect("written");
    for (args, says) in [
        (&["eval", "ppl", "bert_pairs.so", "text.txt"][..], "bert_pairs.so: this model writes no text"),
        (&["run", "llama3.so", "--ids", "1", "--document", "a text"], "--document"),
        (&["bench", "llama3.so", "--prefill", "4", "--batch", "0"], "--batch 0"),
        (&["bench", "llama3.so", "--prefill", "4", "--steps", "0"], "--steps 0"),
        (&["bench", "llama3.so", "--prefill", "4,100000"], "--prefill: a sequence would have 100000 tokens"),
        (&["bench", "llama3.so", "--prefill", "4", "--steps", "100000"], "--steps: a sequence would have 100001"),
        (&["run", "llama3.so", "--ids", "1", "--adapter", "nowhere"], "llama3.so"),
    ] {
        let (_, message) = refused(dir.path(), args);
        assert!(message.contains(says), "{args:?}: {message}");
    }
    let llama = goldens.join("llama3");
    for more in [&["--group", "64"][..], &["--format", "nf4", "--group", "64"], &["--dtype", "bf16", "--group", "64"]] {
        let compile = ["compile", llama.to_str().expect("UTF-8"), "-o", "m.so"];
        let (status, message) = refused(dir.path(), &[&compile, more].concat());
        assert!(status == 2 && (message.contains("--group") || message.contains("--w8")), "{more:?}: {message}");
    }
    let compile = ["compile", llama.to_str().expect("UTF-8"), "-o", "m.so", "--act", "int8", "--format", "nf4"];
    let (_, message) = refused(dir.path(), &compile);
    assert!(message.contains("weights of integers") && message.contains("w4zg32"), "{message}");
    let about = llmcc(dir.path(), &["inspect", llama.to_str().expect("UTF-8")]);
    let about = String::from_utf8_lossy(&about.stdout).into_owned();
    assert!(about.contains("model       llama (LlamaForCausalLM)") && !about.contains("null"), "{about}");
}
