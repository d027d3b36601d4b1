//! The crate `llmcc-model`, beside the command line's own layer over the same functions.

use super::{artifact, run};
use llmcc_cli::loaded::GenOptions;
use llmcc_model::Version;
use llmcc_model::{EngineOptions, Finish, Message, Model, Normalize, Options, Output, Params, Sampling, Status, Terms};
use llmcc_tests::{Artifact, golden, options, root};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[path = "../../../bindings/rust/examples/generate.rs"]
#[allow(dead_code)]
mod example;

const PROMPT: &str = "def read_file(path):";

fn open(path: &Path) -> Model {
    // SAFETY: the tests have just compiled it.
    unsafe { Model::open(path, &Options { threads: 1, ..Options::default() }) }.expect("opens")
}

/// The crate declares what the header declares.
#[test]
fn entry_points_are_the_header_s() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let header = read("include/llmcc.h");
    let declared = header.lines().filter(|l| !l.starts_with([' ', '/', '#', '}']) && !l.starts_with("typedef"));
    let mut names: Vec<&str> = declared
        .filter_map(|l| l.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("llmcc_"))
        .collect();
    let sys = read("bindings/rust/src/sys.rs");
    let table = sys.split("\napi! {").nth(1).and_then(|t| t.split("\n}").next()).expect("a table");
    let mut ours: Vec<&str> = table.lines().filter_map(|l| l.trim().split_once(':')).map(|(name, _)| name).collect();
    names.sort_unstable();
    ours.sort_unstable();
    assert!(names.len() > 30, "{names:?}");
    assert_eq!(ours, names);
}

#[test]
fn it_makes_the_text_of_the_command_line() {
    let a = artifact();
    let (model, theirs) = (open(&a.path), a.open(1));
    let prompt = model.tokenize(PROMPT).expect("tokens");
    assert_eq!(prompt, theirs.tokenize(PROMPT, true).expect("tokens"));
    assert_eq!(model.tokenize_plain(PROMPT).expect("tokens"), theirs.tokenize(PROMPT, false).expect("tokens"));
    assert_eq!(model.detokenize(&prompt).expect("text"), PROMPT);
    assert!(model.detokenize_special(&prompt).expect("text").contains("<|begin|>"));
    let text = |params: &Params| -> String {
        model.generate(&prompt, params).expect("starts").map(|p| p.expect("a piece").text).collect()
    };
    let theirs = |o: &GenOptions| -> String {
        theirs.generate(None, &prompt, o).expect("starts").map(|p| p.expect("a piece").text).collect()
    };
    let greedy = Params { max_tokens: 40, sampling: Sampling::GREEDY, ..Params::default() };
    let expected = theirs(&GenOptions { max_tokens: 40, ..GenOptions::default() });
    assert!(expected.len() > 20);
    assert_eq!(text(&greedy), expected);
    // The model's own settings.
    let own = GenOptions { temperature: 0.7, top_k: 40, top_p: 0.95, ..GenOptions::default() };
    let own = theirs(&GenOptions { max_tokens: 60, defaults: true, ..own });
    assert_eq!(text(&Params { max_tokens: 60, ..Params::default() }), own);
    // And the example prints them.
    let mut out = vec![];
    let args = [a.path.to_str().expect("UTF-8").to_owned(), PROMPT.to_owned()];
    example::run(&args, &mut out).expect("runs");
    assert_eq!(String::from_utf8(out).expect("UTF-8"), own + "\n");
    // Stop texts are not shown; the reason is told.
    let stop = expected.chars().skip(8).take(4).collect::<String>();
    let pieces = model.generate(&prompt, &Params { stop: vec![stop.clone()], ..greedy.clone() }).expect("starts");
    let pieces: Vec<_> = pieces.map(|p| p.expect("a piece")).collect();
    assert_eq!(pieces.last().and_then(|p| p.finish), Some(Finish::Text));
    assert!(!pieces.iter().map(|p| p.text.as_str()).collect::<String>().contains(&stop));
}

#[test]
fn sequences_keep_their_tokens() {
    let a = artifact();
    let model = open(&a.path);
    let prompt = model.tokenize(PROMPT).expect("tokens");
    let greedy = Params { max_tokens: 8, sampling: Sampling::GREEDY, ..Params::default() };
    let mut sequence = model.sequence().expect("a sequence");
    assert!(sequence.is_empty().expect("a length"));
    let mut first = sequence.generate(&prompt, &greedy).expect("starts");
    let tokens: Vec<i32> = first.by_ref().map(|p| p.expect("a piece").token).collect();
    assert_eq!(first.stats().expect("counts").generated_tokens, tokens.len() as u64);
    drop(first);
    let longer = [&prompt[..], &tokens].concat();
    assert!(longer.starts_with(&sequence.tokens().expect("tokens")));
    let mut again = sequence.generate(&longer, &greedy).expect("starts");
    assert_eq!(again.stats().expect("counts").prompt_tokens, longer.len() as u64);
    again.advance().expect("a piece");
    assert!(again.stats().expect("counts").reused_tokens >= prompt.len() as u64);
    drop(again);
    // A copy goes its own way.
    sequence.truncate(prompt.len()).expect("truncated");
    let mut copy = sequence.fork().expect("a copy");
    assert_eq!(copy.tokens().expect("tokens"), prompt);
    copy.truncate(2).expect("truncated");
    assert_eq!((copy.len().expect("a length"), sequence.len().expect("a length")), (2, prompt.len()));
    assert_eq!(copy.truncate(3).map_err(|e| e.status()), Err(Status::Invalid));
    // Logits of a step, beside the command line's.
    let theirs = a.open(1);
    let own = theirs.seq_new().expect("a sequence");
    let rows = [prompt.len() as u32 - 1];
    let expected = theirs.step(&prompt, &vec![own; prompt.len()], &rows).expect("a step");
    let fresh = model.sequence().expect("a sequence");
    let step: Vec<_> = prompt.iter().map(|t| (&fresh, *t)).collect();
    assert_eq!(model.step(&step, &rows).expect("a step"), expected);
    let other = open(&a.path);
    assert_eq!(other.step(&step, &rows).map_err(|e| e.status()), Err(Status::Invalid));
}

#[test]
fn several_generations_share_steps() {
    let a = artifact();
    let model = open(&a.path);
    let greedy = Params { max_tokens: 12, sampling: Sampling::GREEDY, ..Params::default() };
    let prompts = ["import os", PROMPT, "class A:"].map(|p| model.tokenize(p).expect("tokens"));
    let alone = prompts.each_ref().map(|p| {
        let pieces = model.generate(p, &greedy).expect("starts");
        pieces.map(|p| p.expect("a piece").token).collect::<Vec<_>>()
    });
    let mut all = prompts.each_ref().map(|p| model.generate(p, &greedy).expect("starts"));
    let mut tokens = [const { vec![] }; 3];
    while !all.iter().all(llmcc_model::Generation::finished) {
        let mut each: Vec<_> = all.iter_mut().collect();
        let pieces = llmcc_model::next_of_each(&mut each).expect("a step");
        pieces.into_iter().zip(&mut tokens).for_each(|(p, tokens)| tokens.extend(p.map(|p| p.token)));
    }
    assert_eq!(tokens, alone);
}

/// A model may be used by several threads, and by its owner on another thread than before.
#[test]
fn requests_are_served_together() {
    let a = artifact();
    let model = open(&a.path);
    let prompts: Vec<Vec<i32>> =
        ["def read", "def read_file(path):", "import os"].map(|p| model.tokenize(p).expect("tokens")).to_vec();
    let params = Params { max_tokens: 12, ..Params::default() };
    let alone: Vec<String> = prompts
        .iter()
        .map(|p| model.generate(p, &params).expect("starts").map(|p| p.expect("a piece").text).collect())
        .collect();
    let engine = model.engine(&EngineOptions { max_running: 2, ..EngineOptions::default() }).expect("opens");
    let submit = |p: &Vec<i32>| engine.submit(p, &params, &Terms::default()).expect("accepted");
    let ids: Vec<u64> = prompts.iter().map(submit).collect();
    let mut texts = vec![String::new(); ids.len()];
    let mut ends = 0;
    while ends < ids.len() {
        for event in engine.poll(None).expect("events") {
            let at = ids.iter().position(|id| *id == event.request).expect("a known request");
            texts[at] += &event.text;
            let Some(end) = event.end else { continue };
            assert_eq!((end.error, end.prompt_tokens), (None, prompts[at].len() as u64));
            ends += 1;
        }
    }
    assert_eq!(texts, alone);
    assert!(engine.stats().expect("stats").contains("\"finished\": 3"));
    let refused = engine.submit(&[], &params, &Terms::default()).expect_err("no prompt");
    assert_eq!(refused.status(), Status::Invalid);
    let late = Terms { timeout: Some(Duration::from_nanos(1)), ..Terms::default() };
    engine.submit(&prompts[0], &params, &late).expect("accepted");
    let end = engine.poll(None).expect("events").pop().and_then(|e| e.end).and_then(|end| end.error);
    assert_eq!(end.map(|e| e.status()), Some(Status::Deadline));
    assert!(engine.poll(Some(Duration::ZERO)).expect("nothing").is_empty());
}

#[test]
fn threads_wait_for_each_other() {
    let a = artifact();
    let model = open(&a.path);
    let prompt = model.tokenize(PROMPT).expect("tokens");
    let greedy = Params { max_tokens: 16, sampling: Sampling::GREEDY, ..Params::default() };
    let texts: Vec<String> = std::thread::scope(|s| {
        let text = || model.generate(&prompt, &greedy).expect("starts").map(|p| p.expect("a piece").text).collect();
        let threads: Vec<_> = (0..3).map(|_| s.spawn(text)).collect();
        threads.into_iter().map(|t| t.join().expect("ends")).collect()
    });
    assert!(texts.iter().all(|t| !t.is_empty() && *t == texts[0]), "{texts:?}");
    // A leaked generation keeps its model's threads, and so must their code stay.
    let mut leaked = model.generate(&prompt, &greedy).expect("starts");
    leaked.advance().expect("a piece");
    std::mem::forget(leaked);
    drop(model);
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn conversations_follow_the_template() {
    let a = artifact();
    let (model, theirs) = (open(&a.path), a.open(1));
    assert!(model.info().chat_template && model.info().output == Output::Logits);
    let said = "a \"quoted\"\nline, é";
    let prompt = model.chat_prompt(&[Message { role: "user", content: said }]).expect("a prompt");
    assert!(prompt.contains(said) && prompt.ends_with("# assistant:\n"), "{prompt:?}");
    let json = format!("[{{\"role\": \"user\", \"content\": {}}}]", serde_json::json!(said));
    assert_eq!(prompt, theirs.apply_chat_template(&json).expect("a prompt"));
    let refused = model.chat_prompt_of_json("[{\"role\": \"user\"}]").expect_err("no text");
    assert_eq!(refused.status(), Status::Template);
    assert!(refused.message().contains("a message needs a text"), "{refused}");
}

#[test]
fn rows_are_those_of_the_command_line() {
    let a = Artifact::compile(&options(&golden("bert_pairs")));
    let (model, theirs) = (open(&a.path), a.open(1));
    assert_eq!(model.info().output, Output::Scores);
    let rows = [vec![2, 5, 7, 3], vec![2, 9, 3]];
    assert_eq!(
        model.embed(&rows, Normalize::Own).expect("rows"),
        theirs.embed(&rows, None).expect("rows"),
        "bit for bit"
    );
    let pairs = [("a", "b c"), ("a", "c"), ("b", "a")];
    let scores = theirs.score_pairs(&pairs, true).expect("scores");
    assert_eq!(model.score_pairs(&pairs, true).expect("scores"), scores);
    let ranked = model.rank("a", &["b c", "c"]);
    match model.info().columns {
        1 => assert!(ranked.expect("an order").is_sorted_by(|a, b| a.1 >= b.1)),
        _ => assert_eq!(ranked.map_err(|e| e.status()), Err(Status::Unsupported)),
    }
    let refused = model.generate(&[2, 5], &Params::default()).expect_err("no text");
    assert_eq!(refused.status(), Status::Unsupported, "{refused}");
}

/// Files that are no artifacts, and artifacts of another version of the API.
#[test]
fn other_files_are_refused_in_words() {
    let dir = tempfile::tempdir().expect("folder");
    let file = |name: &str| dir.path().join(name);
    let refused = |path: &Path| {
        // SAFETY: the test has made it, and its code does nothing.
        let error = unsafe { Model::open(path, &Options::default()) }.expect_err("no artifact");
        assert!(error.to_string().starts_with(path.to_str().expect("UTF-8")), "{error}");
        (error.status(), error.to_string())
    };
    let built = |name: &str, code: &str| {
        std::fs::write(file("m.c"), code).expect("written");
        run(Command::new("cc").args(["-shared", "-o"]).arg(file(name)).arg(file("m.c")));
        file(name)
    };
    let (status, said) = refused(&built("other.so", "int other(void) { return 0; }"));
    assert!(status == Status::Artifact && said.contains("make one with `llmcc compile`"), "{said}");
    let (status, said) = refused(&built("later.so", "unsigned llmcc_abi_version(void) { return 0x20003; }"));
    assert!(status == Status::Artifact && said.contains("version 2.3") && said.contains("version 1.12"), "{said}");
    let (_, said) = refused(&built("older.so", "unsigned llmcc_abi_version(void) { return 0x10000; }"));
    assert!(said.contains("lacks llmcc_") && said.contains("compile the model again"), "{said}");
    assert_eq!(refused(&file("none.so")).0, Status::System);
    assert_eq!(Version::OWN.to_string(), "1.12");
}
