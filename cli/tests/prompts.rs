//! Texts from options, files and standard input, and chat templates: `llmcc run` and `llmcc eval`.

use crate::common::{Folder, WITH_TOKENIZER, text};
use std::process::Output;

fn said(done: &Output) -> String {
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout)
}

fn model() -> Folder {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "160"]);
    f
}

#[test]
fn prompts_come_from_options_files_and_pipes() {
    let f = model();
    let run = ["run", "m.so", "-n", "4", "--greedy"];
    let want = said(&f.llmcc(&[&run[..], &["-p", "Once upon"]].concat()));
    std::fs::write(f.at("prompt.txt"), "Once upon\n").expect("written");
    for more in [&["--prompt-file", "prompt.txt"][..], &["-f", "prompt.txt"]] {
        assert_eq!(said(&f.llmcc(&[&run[..], more].concat())), want, "{more:?}");
    }
    for more in [&[][..], &["-f", "-"], &["--prompt-file", "/dev/stdin"]] {
        assert_eq!(said(&f.piped(&[&run[..], more].concat(), b"Once upon\r\n")), want, "{more:?}");
    }
    // Only the end of the last line is left out.
    assert!(said(&f.piped(&run, b"Once\nupon\n\n")).starts_with("Once\nupon\n"));
    let ppl = said(&f.piped(&["eval", "ppl", "m.so", "-"], "Once upon a time ".repeat(9).as_bytes()));
    assert!(ppl.starts_with("perplexity "), "{ppl}");
}

/// Texts that are none say where, and nothing is printed.
#[test]
fn bad_texts_are_refused() {
    let f = Folder::new();
    std::fs::write(f.at("bytes.txt"), b"Once \xff").expect("written");
    std::fs::create_dir(f.at("folder")).expect("made");
    let none: &[u8] = b"";
    for (args, input, says) in [
        (&["run", "m.so"][..], none, "standard input is empty; give -p TEXT, --prompt-file FILE"),
        (&["run", "m.so"], b"ab\xff", "standard input: byte 2 is not UTF-8"),
        (&["run", "m.so", "-f", "bytes.txt"], none, "bytes.txt: byte 5 is not UTF-8"),
        (&["run", "m.so", "-f", "nowhere.txt"], none, "nowhere.txt: cannot open"),
        (&["run", "m.so", "-f", "folder"], none, "folder: it is a folder"),
        (&["run", "m.so", "-f", "bytes.txt", "-p", "x"], none, "--prompt"),
        (&["run", "m.so", "--ids", "1", "-f", "bytes.txt"], none, "--ids"),
        (&["eval", "ppl", "m.so", "-"], b"\xff", "standard input: byte 0 is not UTF-8"),
        (&["tokenize", "m.so"], none, "standard input is empty; give -p TEXT or --prompt-file FILE"),
        (&["tokenize", "m.so", "-f", "bytes.txt"], none, "bytes.txt: byte 5"),
        (&["run", "m.so", "-p", "x", "--template-var", "a=1"], none, "--chat"),
        (&["run", "m.so", "-p", "x", "--chat-template", "t"], none, "--chat"),
        (&["run", "m.so", "-p", "x", "--system", "y"], none, "--system needs --chat"),
        (&["run", "m.so", "--chat", "-p", "x", "--template-var", "a"], none, "give NAME=VALUE"),
        (&["run", "m.so", "--chat", "-p", "x", "--template-var", "messages=[]"], none, "`messages` cannot be set"),
        (&["run", "m.so", "--chat", "--ids", "1"], none, "--ids"),
        (&["run", "m.so", "--chat", "--embed"], none, "--embed"),
        (&["run", "m.so", "--rank", "q"], none, "--document"),
        (&["run", "m.so", "--document-file", "d", "-p", "q"], none, "--document-file"),
    ] {
        let done = f.piped(args, input);
        let message = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty(), "{args:?}: {message}");
        assert!(message.contains(says) && message.matches("error:").count() == 1, "{args:?}: {message}");
    }
}

/// A single message: the answer alone is printed, as the template has the conversation.
#[test]
fn one_message_is_answered() {
    let f = model();
    let chat = ["run", "m.so", "--chat", "--greedy", "-n", "6"];
    let answer = said(&f.llmcc(&[&chat[..], &["-p", "hi"]].concat()));
    assert!(!answer.contains("hi\n") && answer.ends_with('\n'), "{answer}");
    std::fs::write(f.at("hi.txt"), "hi\n").expect("written");
    assert_eq!(said(&f.llmcc(&[&chat[..], &["-f", "hi.txt"]].concat())), answer);
    // As plain text with the template's own text around it.
    std::fs::write(
        f.at("t.jinja"),
        "{{ style }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}{{ count + 1 }}",
    )
    .expect("written");
    let more = ["--template-var", "style=Once", "--template-var", "count=2", "--chat-template", "t.jinja"];
    let shown = f.says(&[], &[&chat[..], &more, &["--system", "be brief", "-p", "hi", "--json"]].concat());
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let plain = f.says(&[], &["tokenize", "m.so", "-p", "Once[system]be brief[user]hi3", "--no-special", "--count"]);
    assert_eq!(shown["prompt_tokens"].to_string(), plain.trim(), "{shown}");
    assert_ne!(shown["text"], answer.trim_end(), "another prompt");
    // A variable that is a string breaks the arithmetic: it did arrive.
    let wrong =
        f.llmcc(&[&chat[..], &["--chat-template", "t.jinja", "--template-var", "count=a", "-p", "hi"]].concat());
    assert!(!wrong.status.success() && wrong.stdout.is_empty(), "{}", text(&wrong.stderr));
}

/// Documents of a ranking come from files, too.
#[test]
fn documents_come_from_files() {
    let f = Folder::new();
    f.compile("bert_pairs", "m.so", &["--no-golden", "--quiet"]);
    std::fs::write(f.at("d.txt"), "two\n").expect("written");
    let rank = ["run", "m.so", "--rank", "q", "--document", "one", "--document-file", "d.txt"];
    let plain: serde_json::Value = serde_json::from_str(&f.says(&[], &rank)).expect("JSON");
    let mut texts: Vec<&str> = plain.as_array().expect("a list").iter().filter_map(|d| d["text"].as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["one", "two"], "{plain}");
    let json: serde_json::Value = serde_json::from_str(&f.says(&[], &[&rank[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json["documents"], plain);
    let done = f.llmcc(&["run", "m.so", "--rank", "q", "--document-file", "nowhere.txt"]);
    assert!(text(&done.stderr).contains("nowhere.txt: cannot open"), "{}", text(&done.stderr));
}
