//! `llmcc tokenize`: of artifacts and checkpoints, forth and back.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use serde_json::Value;

#[test]
fn artifacts_and_checkpoints_give_the_same_tokens() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--target", "x86-64"]);
    let checkpoint = fixture(WITH_TOKENIZER);
    let checkpoint = checkpoint.to_str().expect("UTF-8");
    let prompt = "Once upon a time,\nthere was";
    let mut all = vec![];
    for model in ["m.so", checkpoint] {
        let json: Value =
            serde_json::from_str(&f.says(&[], &["tokenize", model, "-p", prompt, "--json"])).expect("JSON");
        let ids: Vec<String> = json["ids"].as_array().expect("a list").iter().map(Value::to_string).collect();
        let n = ids.len();
        assert_eq!((json["count"].as_u64(), json["pieces"].as_array().map(Vec::len)), (Some(n as u64), Some(n)));
        let lines = f.says(&[], &["tokenize", model, "-p", prompt]);
        let first: Vec<&str> = lines.lines().filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(first, ids, "{lines}");
        assert_eq!(f.says(&[], &["tokenize", model, "-p", prompt, "--count"]), format!("{n}\n"));
        let plain = f.says(&[], &["tokenize", model, "-p", prompt, "--no-special", "--count"]);
        assert!(plain.trim().parse::<usize>().expect("a number") <= n, "{plain}");
        let back = f.says(&[], &["tokenize", model, "--decode", &ids.join(","), "--no-special"]);
        assert_eq!(back, format!("{prompt}\n"));
        let back: Value =
            serde_json::from_str(&f.says(&[], &["tokenize", model, "--decode", &ids.join(","), "--json"]))
                .expect("JSON");
        assert!(back["text"].as_str().is_some_and(|t| t.ends_with(prompt)), "{back}");
        all.push(json);
    }
    assert_eq!(all[0], all[1]);
    // As the model's own code has it.
    let run: Value =
        serde_json::from_str(&f.says(&[], &["run", "m.so", "-p", prompt, "-n", "1", "--json"])).expect("JSON");
    assert_eq!(run["prompt_tokens"], all[0]["count"]);
}

#[test]
fn what_has_no_tokens_is_refused() {
    let f = Folder::with_checkpoint();
    f.compile("llama3", "bare.so", &["--no-golden", "--quiet"]);
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet"]);
    for (args, says) in [
        (&["tokenize", "bare.so", "-p", "x"][..], "bare.so: it has no tokenizer"),
        (&["tokenize", "ck", "-p", "x"], "ck: the checkpoint has no tokenizer"),
        (&["tokenize", "nowhere.so", "-p", "x"], "nowhere.so"),
        (&["tokenize", "m.so", "--decode", "1,99999"], "token 99999 (of 2, the 2nd) is none of this model"),
        (&["tokenize", "m.so", "--decode=-1"], "token -1"),
        (&["tokenize", "m.so", "--decode", "a"], "--decode"),
        (&["tokenize", "m.so", "--decode", "1", "-p", "x"], "--decode"),
        (&["tokenize", "m.so", "-p", "x", "--count", "--json"], "--count"),
    ] {
        let done = f.llmcc(args);
        let message = text(&done.stderr);
        let said = if args.contains(&"--json") { text(&done.stdout) } else { message.clone() };
        assert!(!done.status.success() && said.contains(says), "{args:?}: {said}");
        assert!(!message.contains("internal error"), "{message}");
    }
}
