//! Errors of `llmcc run` about options and files that it refuses: in terms of the command line, and
//! before anything else is printed.

use crate::common::{self, Folder, WITH_TOKENIZER, native, text};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn llmcc(dir: &Path, args: &[&str]) -> Output {
    let args = native(args);
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmcc"));
    command.current_dir(dir).args(args).env("HF_HUB_OFFLINE", "1").output().expect("llmcc runs")
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
        ("--repetition-penalty", "0", "a positive number"),
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
    let checkpoint = llmcc_test_support::fixture("llama3");
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

/// `bench --serve` counts requests, and the tokens that they share.
#[test]
fn users_are_served_at_once() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let from = llmcc_test_support::fixture("llama3");
    let done = llmcc(dir.path(), &["compile", from.to_str().expect("UTF-8"), "-o", "m.so", "--quiet", "--no-golden"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let size = ["--serve=1,3", "--requests=2", "--serve-prompt=12", "--serve-shared=8", "--serve-tokens=5"];
    let short = ["bench", "m.so", "--prefill=4", "--batch=1", "--steps=1", "--repeat=1"];
    let out = llmcc(dir.path(), &[&short[..], &size, &["--json"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let served = document["serve"].as_array().expect("a list");
    let of = |name: &str| served.iter().map(|s| s[name].as_u64()).collect::<Vec<_>>();
    assert_eq!((of("users"), of("requests")), (vec![Some(1), Some(3)], vec![Some(2), Some(6)]), "{document}");
    // The first request computes all; others at least go on from there.
    assert_eq!(of("reused_prompt_tokens")[0], Some(8), "{document}");
    assert_eq!(of("prompt_tokens"), [Some(24), Some(72)], "{document}");
    assert!(served.iter().all(|s| s["tokens_per_second"].as_f64() > Some(0.0)), "{document}");
    let out = llmcc(dir.path(), &[&short[..], &size].concat());
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("3 users") && text.contains("first token") && text.contains("% of prompts reused"), "{text}");
}

/// Options that do not go with the model, or with each other, are not passed over.
#[test]
fn what_does_not_fit_the_model_is_refused() {
    let dir = tempfile::tempdir().expect("temporary folder");
    for name in ["llama3", "bert_pairs"] {
        let (from, out) = (llmcc_test_support::fixture(name), format!("{name}.so"));
        let done = llmcc(dir.path(), &["compile", from.to_str().expect("UTF-8"), "-o", &out, "--quiet", "--no-golden"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    std::fs::write(dir.path().join("text.txt"), "a text").expect("written");
    for (args, says) in [
        (&["eval", "ppl", "bert_pairs.so", "text.txt"][..], "bert_pairs.so: this model has no logits"),
        (&["run", "llama3.so", "--ids", "1", "--document", "a text"], "--document"),
        (&["bench", "llama3.so", "--prefill", "4", "--batch", "0"], "--batch 0"),
        (&["bench", "llama3.so", "--prefill", "4", "--steps", "0"], "--steps 0"),
        (&["bench", "llama3.so", "--prefill", "4", "--serve", "2,0"], "--serve 0"),
        (
            &["bench", "llama3.so", "--prefill", "4", "--serve", "2", "--serve-tokens", "100000"],
            "--serve-tokens: a seq",
        ),
        (&["bench", "llama3.so", "--prefill", "4,100000"], "--prefill: a sequence would have 100000 tokens"),
        (&["bench", "llama3.so", "--prefill", "4", "--steps", "100000"], "--steps: a sequence would have 100001"),
        (&["run", "llama3.so", "--ids", "1", "--adapter", "nowhere"], "llama3.so"),
    ] {
        let (_, message) = refused(dir.path(), args);
        assert!(message.contains(says), "{args:?}: {message}");
    }
    let llama = llmcc_test_support::fixture("llama3");
    for more in [&["--group", "64"][..], &["--format", "nf4", "--group", "64"], &["--dtype", "bf16", "--group", "64"]] {
        let compile = ["compile", llama.to_str().expect("UTF-8"), "-o", "m.so"];
        let (status, message) = refused(dir.path(), &[&compile, more].concat());
        assert!(status == 2 && (message.contains("--group") || message.contains("--w8")), "{more:?}: {message}");
    }
    let compile = ["compile", llama.to_str().expect("UTF-8"), "-o", "m.so", "--act", "int8", "--format", "nf4"];
    let (_, message) = refused(dir.path(), &compile);
    assert!(message.contains("--act int8 needs integer weights") && message.contains("w4zg32"), "{message}");
    let about = llmcc(dir.path(), &["inspect", llama.to_str().expect("UTF-8")]);
    let about = String::from_utf8_lossy(&about.stdout).into_owned();
    assert!(about.contains("model       llama (LlamaForCausalLM)") && !about.contains("null"), "{about}");
}

/// A conversation by pipes.
fn talk(f: &Folder, args: &[&str]) -> Child {
    let args = [&["run", "m.so", "--chat", "--stats"], args].concat();
    let mut command = f.command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("llmcc runs")
}

/// How many answers there were.
fn answers(said: &str) -> usize {
    said.matches("prompt tokens (").count()
}

/// Neither lines that cannot be taken, nor a full context, nor an interrupt end a conversation.
#[test]
fn conversations_go_on() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "160"]);
    let mut child = talk(&f, &["--greedy", "-n", "8"]);
    let mut input = child.stdin.take().expect("a pipe");
    let (long, longer) = ("word ".repeat(200), "x".repeat(200_000));
    let turns = "tell me more about it, and then some\n".repeat(9);
    let sent = [b"hi\n", long.as_bytes(), b"\n", longer.as_bytes(), b"\n\xff\n\n", turns.as_bytes()].concat();
    input.write_all(&sent).expect("sent");
    drop(input);
    let done = child.wait_with_output().expect("ends");
    let said = text(&done.stderr);
    assert!(done.status.success() && answers(&said) == 10, "{said}");
    for part in ["the message is too long", "has more than", "is not UTF-8", "turn is forgotten]"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // An answer of many tokens is stopped; the next one is not.
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "1024"]);
    let mut child = talk(&f, &["--greedy", "-n", "900", "--ignore-eos"]);
    let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    input.write_all(b"hi\n").expect("sent");
    output.read_exact(&mut [0; 1]).expect("a beginning");
    // SAFETY: no preconditions.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) }, 0);
    input.write_all(b"again\n").expect("sent");
    drop(input);
    let mut rest = vec![];
    output.read_to_end(&mut rest).expect("the rest");
    let done = child.wait_with_output().expect("ends");
    let said = text(&done.stderr);
    assert!(done.status.success() && answers(&said) == 2, "{}: {said}", done.status);
    assert_eq!(said.matches("[stopped]").count(), 1, "{said}");
    assert!(said.contains("[cut after 900 tokens, the limit"), "{said}");
}

/// `generation_config.json` sets how texts are made where no option does. The prompt is one whose text begins with two
/// different tokens, neither of them the prompt's last.
#[test]
fn texts_are_made_as_the_model_says() {
    let f = Folder::with_checkpoint();
    let run = |generation: Option<&str>, more: &[&str]| {
        let _ = std::fs::remove_file(f.at("ck/generation_config.json"));
        if let Some(text) = generation {
            std::fs::write(f.at("ck/generation_config.json"), text).expect("written");
        }
        f.says(&[], &["compile", "ck", "--no-golden", "--quiet", "-o", "m.so"]);
        let said = f.says(&[], &[&["run", "m.so", "--ids", "20,30,40"], more].concat());
        said.trim().split(',').map(|id| id.parse().expect("an id")).collect::<Vec<i32>>()
    };
    let plain = run(None, &["-n", "4"]);
    let drawn = run(None, &["-n", "4", "--temperature", "0.9", "--top-k", "50", "--seed", "3"]);
    let own = r#"{"do_sample": true, "temperature": 0.9, "max_new_tokens": 4}"#;
    assert_eq!(run(Some(own), &["--seed", "3"]), drawn);
    assert_eq!(run(Some(own), &["--temperature", "0"]), plain);
    assert_eq!(run(Some(own), &["--greedy", "-n", "4"]), plain);
    let greedy = r#"{"do_sample": false, "temperature": 0.9, "max_new_tokens": 4}"#;
    assert_eq!(run(Some(greedy), &["--seed", "3"]), plain);
    // Tokens that are never chosen, words that never come to be, texts that do not end at once.
    let never = run(Some(&format!(r#"{{"suppress_tokens": [{}], "max_new_tokens": 4}}"#, plain[0])), &[]);
    assert!(!never.contains(&plain[0]) && never.len() == 4, "{never:?}");
    let words = format!(r#"{{"bad_words_ids": [[{}, {}]], "max_length": 7}}"#, plain[0], plain[1]);
    let words = run(Some(&words), &[]);
    assert!(words[0] == plain[0] && words[1] != plain[1] && words.len() == 4, "{words:?}");
    let first = run(Some(&format!(r#"{{"begin_suppress_tokens": [{}], "max_new_tokens": 4}}"#, plain[0])), &[]);
    assert_ne!(first[0], plain[0]);
    let about = f.says(&[], &["inspect", "m.so"]);
    assert!(about.contains("generation  begin_suppress_tokens ["), "{about}");
}

/// Classes are called as the checkpoint calls them.
#[test]
fn texts_have_a_form() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet"]);
    std::fs::write(f.at("schema.json"), r#"{"type": "array", "items": {"type": "boolean"}, "minItems": 2}"#)
        .expect("file");
    std::fs::write(f.at("sum.lark"), "start: /[0-9]{2}/ \"+\" /[0-9]/").expect("file");
    let run = |more: &[&str]| {
        let said = f.says(&[], &[&["run", "m.so", "-p", "x", "--temperature", "1", "--seed", "4"], more].concat());
        said.strip_prefix('x').expect("the prompt").trim_end().to_owned()
    };
    assert!(["yes", "no"].contains(&run(&["--choice", "yes", "--choice", "no"]).as_str()));
    assert_eq!(run(&["--regex", "(ab){3}"]), "ababab");
    let sum = run(&["--grammar", "sum.lark"]);
    assert!(sum.len() == 4 && sum.as_bytes()[2] == b'+', "{sum}");
    for schema in ["schema.json", r#"{"type": "array", "items": {"enum": [true]}, "minItems": 2, "maxItems": 2}"#] {
        let list: Vec<bool> = serde_json::from_str(&run(&["--json-schema", schema, "-n", "400"])).expect("JSON");
        assert!(list.len() >= 2, "{list:?}");
    }
    for (options, says) in [
        (&["--regex", "("][..], "the regular expression is refused"),
        (&["--json-schema", "none.json"], "none.json"),
        (&["--regex", "a", "--choice", "b"], "cannot be used with"),
        (&["--regex", "a", "--embed"], "cannot be used with"),
    ] {
        let (_, message) = refused(f.root(), &[&["run", "m.so", "-p", "x"], options].concat());
        assert!(message.contains(says), "{options:?}: {message}");
    }
}

#[test]
fn classes_have_names() {
    let f = Folder::new();
    f.compile("bert_classes", "m.so", &["--no-golden", "--quiet"]);
    let said = f.says(&[], &["run", "m.so", "--classify", "--ids", "1,2,3"]);
    let classes: Vec<serde_json::Value> = serde_json::from_str(&said).expect("JSON");
    let scores: Vec<f64> =
        serde_json::from_str(&f.says(&[], &["run", "m.so", "--embed", "--ids", "1,2,3"])).expect("JSON");
    assert_eq!(classes.len(), 3);
    for class in &classes {
        let i = ["a", "b", "c"].iter().position(|name| class["class"] == **name).expect("a name");
        assert_eq!(class["score"], scores[i]);
    }
    assert!(classes.is_sorted_by_key(|c| -c["score"].as_f64().expect("a score")));
    assert!(f.says(&[], &["inspect", "m.so"]).contains("classes     a, b, c"));
    let done = f.llmcc(&["run", "m.so", "--embed", "-p", "a", "--prompt-name", "q"]);
    assert!(text(&done.stderr).contains("this model has no named prompts"), "{}", text(&done.stderr));
}

/// The Python package lists every option of `compile` that makes another artifact, with its type.
#[test]
fn python_has_the_options_of_compile() {
    let f = Folder::new();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/llmcc/_keywords.py");
    let package = std::fs::read_to_string(package).expect("the package");
    let listed = package.split("class Compiling").nth(1).expect("the options").split("\n\n\n").next();
    let listed: Vec<&str> =
        listed.into_iter().flat_map(str::lines).filter_map(|l| l.trim().split_once(':')).map(|o| o.0).collect();
    let help = f.says(&[], &["compile", "--help"]);
    let option = |line: &str| {
        Some(line.trim().trim_start_matches("-q, ").trim_start_matches("-o, ").strip_prefix("--")?.to_owned())
    };
    let options = help.lines().filter(|l| !l.starts_with("         ")).filter_map(option);
    let names: Vec<String> =
        options.map(|o| o.split([' ', '[', '=']).next().unwrap_or_default().replace('-', "_")).collect();
    assert!(names.len() > 20 && names.contains(&"output".into()), "{names:?}");
    for name in &names {
        let of_the_program = ["output", "quiet", "emit", "dot", "help", "json", "offline"].contains(&name.as_str());
        assert!(of_the_program || listed.contains(&name.as_str()), "python/llmcc/_keywords.py lacks `{name}`");
    }
    let known = |name: &&str| names.iter().any(|n| n == name) || name.starts_with(['#', '"', '(']);
    assert!(listed.iter().all(known), "{listed:?} are not all options: {names:?}");
}

/// A path of the wrong kind is named for its kind, with the remedy.
#[test]
fn paths_that_are_something_else_say_what_to_do() {
    let f = Folder::with_checkpoint();
    f.says(&[], &["compile", "ck", "--no-golden", "--quiet", "-o", "m.so"]);
    for (args, says) in [
        (&["compile", "m.so", "-o", "n.so"][..], "it is already an artifact"),
        (&["run", "ck", "-p", "a"], "compile it first (`llmcc compile ck -o model.so`)"),
        (&["bench", "ck"], "compile it first"),
        (&["verify", "ck/model.safetensors"], "compile it first"),
        (&["compile", "meta-llama/Llama-3.2-1B", "-o", "n.so"], "`llmcc pull meta-llama/Llama-3.2-1B` fetches it"),
        (&["run", "meta-llama/Llama-3.2-1B", "-p", "a"], "`llmcc compile meta-llama/Llama-3.2-1B -o model.so`"),
        (&["compile", "nothing.gguf", "-o", "n.so"], "nothing.gguf: there is no such file or folder"),
        (&["compile", "ck", "--target", "x86_64_v3", "-o", "n.so"], "did you mean `x86-64-v3`?"),
        (&["compile", "ck", "--target", "avx512", "-o", "n.so"], "did you mean `x86-64-v4`?"),
        (&["models", "lamma"], "did you mean `llama`?"),
    ] {
        let (_, message) = refused(f.root(), args);
        assert!(message.contains(says), "{args:?}: {message}");
    }
    // The example model has nothing to complain of.
    let said = f.compile(WITH_TOKENIZER, "example.so", &["--no-golden"]);
    assert!(!said.contains("warning"), "{said}");
    // Help keeps to the width of the terminal.
    let help = f.llmcc_with(&[("COLUMNS", "60".as_ref())], &["compile", "--help"]);
    assert!(help.status.success() && text(&help.stdout).lines().all(|l| l.chars().count() <= 100));
}

/// A text longer than the context is used whole, unless a message names the part left out.
#[test]
fn perplexity_is_that_of_the_whole_text() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "64"]);
    std::fs::write(f.at("text.txt"), "The cat sat on the mat, and the dog lay down. ".repeat(40)).expect("written");
    let json = |more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&f.says(&[], &[&["eval", "ppl", "m.so", "text.txt", "--json"], more].concat()))
            .expect("JSON")
    };
    let (whole, afresh) = (json(&[]), json(&["--window", "64"]));
    assert!(whole["tokens"].as_u64() > Some(400) && whole["tokens"] == afresh["tokens"], "{whole} {afresh}");
    assert!(whole["perplexity"].as_f64() < afresh["perplexity"].as_f64(), "more context: {whole} {afresh}");
    assert_eq!(
        (&whole["window"], &whole["stride"], &whole["left_out"]["documents"]),
        (&64.into(), &32.into(), &0.into())
    );
    let close = json(&["--stride", "8"]);
    assert!(close["tokens"] == whole["tokens"] && close["windows"].as_u64() > whole["windows"].as_u64());
    let said = f.says(&[], &["eval", "ppl", "m.so", "text.txt", "--separator", ". ", "--documents", "3"]);
    assert!(said.contains("left out: 37 documents (--documents)"), "{said}");
    for (more, says) in [
        (&["--stride", "0"][..], "--stride 0"),
        (&["--stride", "65"], "--stride 65"),
        (&["--window", "99"], "the longest context is 64"),
    ] {
        let done = f.llmcc(&[&["eval", "ppl", "m.so", "text.txt"], more].concat());
        assert!(done.status.code() == Some(2) && text(&done.stderr).contains(says), "{}", text(&done.stderr));
    }
}

/// A tokenizer of words `w3` to `w63`, with an end that texts get.
fn words() -> serde_json::Value {
    let specials = ["<pad>", "</s>", "<unk>"];
    let vocab: serde_json::Map<String, serde_json::Value> =
        (0..64).map(|i| (specials.get(i).map_or(format!("w{i}"), ToString::to_string), i.into())).collect();
    let added = |(id, content): (usize, &&str)| {
        serde_json::json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    };
    let sequence = |id: &str| serde_json::json!({ "Sequence": { "id": id, "type_id": 0 } });
    let (text, second) = (sequence("A"), sequence("B"));
    let end = serde_json::json!({ "SpecialToken": { "id": "</s>", "type_id": 0 } });
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": specials.iter().enumerate().map(added).collect::<Vec<_>>(),
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "decoder": { "type": "Fuse" },
        "post_processor": { "type": "TemplateProcessing", "single": [text, end], "pair": [text, end, second, end],
            "special_tokens": { "</s>": { "id": "</s>", "ids": [1], "tokens": ["</s>"] } } },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "<unk>" },
    })
}

/// An encoder and a decoder: the prompt is the source, and only the text about it is printed.
#[test]
fn texts_about_sources() {
    let folder = Folder::new();
    std::fs::create_dir(folder.at("ck")).expect("folder");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(common::fixture("t5_whole").join(name), folder.at("ck").join(name)).expect("fixture");
    }
    std::fs::write(folder.at("ck/tokenizer.json"), words().to_string()).expect("written");
    let settings = r#"{ "eos_token": "</s>", "pad_token": "<pad>" }"#;
    std::fs::write(folder.at("ck/tokenizer_config.json"), settings).expect("written");
    let made = folder.llmcc(&["compile", "ck", "-o", "m.so"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let about = |prompt: &str| folder.says(&[], &["run", "m.so", "-p", prompt, "--max-tokens", "6"]);
    let (first, second) = (about("w45 w35 w44"), about("w20 w5"));
    assert!(first != second && first.starts_with('w') && first.ends_with('\n'), "{first} {second}");
    // As ids say it: the tokenizer has added the end.
    let ids = folder.says(&[], &["run", "m.so", "--ids", "45,35,44,1", "--max-tokens", "6"]);
    let spelled: String = ids.trim().split(',').map(|id| format!("w{id}")).collect();
    assert_eq!(first.trim(), spelled);
    assert_eq!(folder.manifest("m.so")["info"]["source"], "encode");
    let said = folder.says(&[], &["inspect", "m.so"]);
    assert!(said.contains("an encoder (`encode`) reads the prompt, a decoder writes a text about it"), "{said}");
    let said = folder.says(&[], &["verify", "m.so"]);
    assert!(said.contains("golden"), "{said}");
}
