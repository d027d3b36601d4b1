//! Prompts of `llmcc run` made shorter by a small model: what is kept, what is said of it, and what the model is given.

use crate::common::{Folder, WITH_TOKENIZER, text};
use serde_json::Value;

const PROMPT: &str = "Once upon a time, there was a little girl named Lily. She loved to play outside with her 3 toys. \
    One day, she found a big red ball in the park and showed it to her mother.";

fn model() -> Folder {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "160"]);
    f
}

fn document(f: &Folder, args: &[&str]) -> Value {
    let start = ["run", "m.so", "-n", "6", "--greedy", "--json", "--threads", "1"];
    serde_json::from_str(&f.says(&[], &[&start, args].concat())).expect("a document")
}

/// Whether a text has the characters of another one in their order.
fn has_in_order(text: &str, part: &str) -> bool {
    let mut all = text.chars();
    part.chars().all(|c| all.any(|other| other == c))
}

#[test]
fn prompts_become_shorter() {
    let f = model();
    let count = f.says(&[], &["tokenize", "m.so", "-p", PROMPT, "--json"]);
    let count: Value = serde_json::from_str(&count).expect("a document");
    // (The tokenizer puts a token before the text.)
    let bare = count["count"].as_u64().expect("a count") - 1;
    for share in ["0.5", "0.3", "1", "0.01"] {
        let made = document(&f, &["-p", PROMPT, "--compress-prompt", share, "--with", "m.so"]);
        let (short, c) = (made["prompt"].as_str().expect("a text"), &made["compression"]);
        let wanted = (share.parse::<f64>().expect("a share") * bare as f64).round() as u64;
        assert_eq!((&c["with"], c["tokens"].as_u64()), (&"m.so".into(), Some(bare)), "{made}");
        // The first and the last token stay.
        assert_eq!(c["kept"].as_u64(), Some(wanted.max(2)), "{share}: {made}");
        assert!(has_in_order(PROMPT, short) && short.starts_with('O') && short.ends_with('.'), "{short}");
        assert_eq!(short == PROMPT, share == "1");
        let dropped = c["dropped"].as_array().expect("a list");
        assert_eq!(dropped.is_empty(), share == "1");
        // The model goes on with the shorter text as with any other.
        let plain = document(&f, &["-p", short]);
        assert_eq!((&plain["text"], &plain["tokens"]), (&made["text"], &made["tokens"]));
        assert!(plain["compression"].is_null());
    }
}

#[test]
fn forced_tokens_stay() {
    let f = model();
    let short = |more: &[&str]| {
        let start = ["-p", PROMPT, "--compress-prompt", "0.1", "--with", "m.so"];
        document(&f, &[&start, more].concat())["prompt"].as_str().expect("a text").to_owned()
    };
    let plain = short(&[]);
    let kept = short(&["--compress-keep", " little girl", "--compress-keep", "her mother", "--compress-digits"]);
    assert!(!plain.contains("little girl") && !plain.contains("her mother"), "{plain}");
    assert!(kept.contains("little girl") && kept.contains("her mother") && kept.contains('3'), "{kept}");
}

/// The user's text alone is made shorter in a conversation, each message of it.
#[test]
fn conversations_keep_what_is_not_the_users() {
    let f = model();
    std::fs::write(f.at("t"), "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
        .expect("file");
    let chat = ["--chat", "--chat-template", "t", "--system", "Once upon a time there was a story."];
    let by = ["--compress-prompt", "0.4", "--with", "m.so"];
    let made = document(&f, &[&chat[..], &by, &["-p", PROMPT]].concat());
    let short = made["prompt"].as_str().expect("a text");
    let plain = document(&f, &[&chat[..], &["-p", short]].concat());
    assert!(short.len() < PROMPT.len() * 2 / 3, "{short}");
    assert_eq!((&made["text"], &made["prompt_tokens"]), (&plain["text"], &plain["prompt_tokens"]));
    let lines = [&["run", "m.so", "-n", "6", "--greedy", "--stats", "--threads", "1"], &chat[..], &by].concat();
    let done = f.piped(&lines, format!("{PROMPT}\n{PROMPT}\n").as_bytes());
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    let c = &made["compression"];
    let line = format!("{} of {} tokens of the prompt kept by m.so", c["kept"], c["tokens"]);
    assert_eq!(said.matches(&line).count(), 2, "{said}");
}

#[test]
fn mistakes_are_told() {
    let f = model();
    std::fs::write(f.at("bad.jsonl"), "\"a text\"\n{\"words\": 1}\n").expect("written");
    for (args, says) in [
        (&["--compress-prompt", "0.5"][..], "--with"),
        (&["--with", "m.so"], "--compress-prompt"),
        (&["--compress-prompt", "0", "--with", "m.so"], "must be a number above 0 and up to 1"),
        (&["--compress-prompt", "1.1", "--with", "m.so"], "must be a number above 0 and up to 1"),
        (&["--compress-prompt", "0.5", "--with", "nothing.so"], "nothing.so"),
        (&["--compress-keep", "a"], "--compress-prompt"),
        (&["--draft", "corpus:nothing"], "nothing: cannot open"),
        (&["--draft", "corpus:bad.jsonl"], "bad.jsonl: line 2: it needs a member \"text\""),
    ] {
        let done = f.llmcc(&[&["run", "m.so", "-p", "Once upon", "-n", "3"], args].concat());
        let said = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty() && said.contains(says), "{args:?}: {said}");
    }
}
