//! Guesses of `llmcc run`: by draft heads in the same artifact, by the text, by another artifact. They give the text of
//! the model alone, in fewer of its steps.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use serde_json::{Value, json};

/// Compiles the model in the folder `ck`, or a fixture, with its heads.
fn compiled(folder: &Folder, checkpoint: &str, more: &[&str]) {
    let start = ["compile", checkpoint, "-o", "m.so", "--quiet", "--no-golden", "--draft-head"];
    folder.says(&[], &[&start, more].concat());
}

/// The output of `run`, and its count of guesses: right, of how many, in how many steps.
fn run(folder: &Folder, args: &[&str]) -> (String, Option<[u64; 3]>) {
    let done = folder.llmcc(&[&["run", "m.so", "--threads", "1", "--stats"], args].concat());
    let said = text(&done.stderr);
    assert!(done.status.success(), "{args:?}: {said}");
    let guesses = said.lines().find(|l| l.contains("guesses")).map(|l| {
        let numbers: Vec<u64> = l.split(' ').filter_map(|word| word.parse().ok()).collect();
        [numbers[0], numbers[1], numbers[2]]
    });
    (text(&done.stdout), guesses)
}

/// Prompts, lengths and ways to choose: greedy and drawn.
const ASKED: [&[&str]; 6] = [
    &["--ids", "5,9,44", "-n", "40", "--ignore-eos"],
    &["--ids", "7", "-n", "1"],
    &["--ids", "17,3,8,21,60,11,13,12,10,9,40,77,5,6,30,31,4", "-n", "9"],
    &["--ids", "8,21", "-n", "500", "--ignore-eos"],
    &["--ids", "8,21", "-n", "60", "--temperature", "0.4", "--seed", "3", "--repetition-penalty", "1.1"],
    &["--ids", "30", "-n", "33", "--temperature", "1", "--top-k", "9", "--seed", "4", "--ignore-eos"],
];

/// Guesses change no token, whatever they are, and whether states can go back or not.
#[test]
fn tokens_are_those_without_guesses() {
    for name in ["deepseek_v3", "qwen3_5", "mellum"] {
        let folder = Folder::new();
        compiled(&folder, &fixture("drafts").join(name).to_string_lossy(), &[]);
        for asked in ASKED {
            let (want, none) = run(&folder, &[asked, &["--draft", "none"]].concat());
            assert_eq!(none, None);
            for source in [&[][..], &["--draft", "lookup"], &["--draft", "m.so"]] {
                for guesses in [&[][..], &["--guesses", "1"], &["--guesses", "5"]] {
                    let (got, guessed) = run(&folder, &[asked, source, guesses].concat());
                    assert_eq!(got, want, "{name} {asked:?} {source:?} {guesses:?}");
                    // (Of the only token nothing is guessed, and a text need not repeat itself.)
                    assert!(guessed.is_some() || asked.contains(&"1") || source.contains(&"lookup"), "{asked:?}");
                    let [right, made, steps] = guessed.unwrap_or_default();
                    assert!(right <= made && steps <= made, "{name} {asked:?} {source:?}");
                }
            }
        }
    }
}

/// A model whose layers add nothing, so that tokens follow from the last one alone, as its head knows, too: of
/// GLM-4.5's fixture, with a tokenizer of 90 words.
fn foreseeable(folder: &Folder) {
    std::fs::create_dir(folder.at("ck")).expect("folder");
    let from = fixture("drafts/glm4_moe");
    let mut bytes = std::fs::read(from.join("model.safetensors")).expect("fixture");
    let n = u64::from_le_bytes(*bytes.first_chunk().expect("length")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + n]).expect("header");
    for (name, info) in header.as_object().expect("tensors").iter().filter(|(name, _)| *name != "__metadata__") {
        let at = |i: usize| 8 + n + info["data_offsets"][i].as_u64().expect("offset") as usize;
        let values = bytes[at(0)..at(1)].as_chunks_mut().0;
        let columns =
            info["shape"].as_array().expect("shape").last().and_then(Value::as_u64).expect("columns") as usize;
        for (i, value) in values.iter_mut().enumerate() {
            let new = match name {
                name if name.contains("o_proj") || name.contains("down_proj") => 0.0f32,
                name if name.contains("eh_proj") => f32::from(u8::from(i / columns == i % columns)),
                name if name.contains("enorm")
                    || name.ends_with("head.norm.weight")
                    || *name == "model.norm.weight" =>
                {
                    1.0
                }
                _ => continue,
            };
            *value = ((new.to_bits() >> 16) as u16).to_le_bytes();
        }
    }
    std::fs::write(folder.at("ck/model.safetensors"), bytes).expect("written");
    std::fs::copy(from.join("config.json"), folder.at("ck/config.json")).expect("fixture");
    let vocab: serde_json::Map<String, Value> = (0..90).map(|i| (format!("w{i}"), json!(i))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "w0" }
    });
    std::fs::write(folder.at("ck/tokenizer.json"), tokenizer.to_string()).expect("written");
    let template = "{% for m in messages %}{{ m['content'] }} w7 {% endfor %}";
    let config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template });
    std::fs::write(folder.at("ck/tokenizer_config.json"), config.to_string()).expect("written");
}

#[test]
fn right_guesses_save_steps() {
    let folder = Folder::new();
    foreseeable(&folder);
    compiled(&folder, "ck", &[]);
    let plain = ["--draft", "none"];
    for (asked, n) in [(&["--ids", "5"][..], 41), (&["-p", "w5 w44"], 41)] {
        let asked = [asked, &["-n", "41", "--ignore-eos"]].concat();
        let want = run(&folder, &[&asked[..], &plain].concat()).0;
        for guesses in [1, 3, 7] {
            let (got, guessed) = run(&folder, &[&asked[..], &["--guesses", &guesses.to_string()]].concat());
            assert_eq!(got, want);
            let [right, drafted, rounds] = guessed.expect("counts");
            assert_eq!((right, rounds), (drafted, (n - 1u64).div_ceil(guesses + 1)), "{asked:?} {guesses}");
        }
    }
    // Heads draw as the model does, so these are right where their distributions are equal.
    let drawn = ["-p", "w5", "-n", "60", "--temperature", "0.6", "--seed", "9", "--ignore-eos"];
    let (got, guessed) = run(&folder, &[&drawn[..], &["--guesses", "3"]].concat());
    let [right, drafted, rounds] = guessed.expect("counts");
    assert!(0 < right && right == drafted && rounds < 20, "{right} of {drafted} in {rounds}");
    assert_eq!(got, run(&folder, &[&drawn[..], &plain].concat()).0);
    // A stop text ends it in the middle of a step.
    let words: Vec<&str> = got.split_whitespace().collect();
    for stop in [words[9], &words[20][1..], "w"] {
        let stopped = [&drawn[..], &["--stop", stop]].concat();
        let with = run(&folder, &[&stopped[..], &["--guesses", "4"]].concat()).0;
        assert_eq!(with, run(&folder, &[&stopped[..], &plain].concat()).0, "{stop}");
    }
}

/// Texts, the model's own predictions and n-grams of these change no token; texts that the model writes save steps.
#[test]
fn texts_and_predictions_guess() {
    let folder = Folder::new();
    folder.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet", "--max-context", "160"]);
    std::fs::create_dir(folder.at("texts")).expect("folder");
    for (choice, seed) in [("0", "1"), ("0.7", "5")] {
        let asked = ["-p", "Once upon a time", "-n", "90", "--temperature", choice, "--seed", seed, "--ignore-eos"];
        let (want, _) = run(&folder, &[&asked[..], &["--draft", "none"]].concat());
        std::fs::write(folder.at("story.txt"), &want).expect("written");
        let line = json!({ "text": want });
        std::fs::write(folder.at("texts/b.jsonl"), format!("\"a text\"\n\n{line}\n")).expect("written");
        std::fs::write(folder.at("texts/a"), "Once upon a time, somebody else was there.").expect("written");
        for source in ["corpus:story.txt", "corpus:texts", "jacobi", "lookahead"] {
            let (got, guessed) = run(&folder, &[&asked[..], &["--draft", source]].concat());
            assert_eq!(got, want, "{source} {choice}");
            let [right, made, steps] = guessed.expect("counts");
            assert!(right <= made && steps <= made, "{source} {choice}: {right} of {made} in {steps}");
            let is_known = source.starts_with("corpus");
            assert!(!is_known || right > 60 && steps < 25, "{source} {choice}: {right} of {made} in {steps}");
        }
    }
}

/// A conversation goes on where it was, and where it was not.
#[test]
fn conversations() {
    let folder = Folder::new();
    foreseeable(&folder);
    compiled(&folder, "ck", &[]);
    let talk = |more: &[&str]| {
        let start = ["run", "m.so", "--chat", "-n", "7", "--temperature", "0.5", "--stats", "--threads", "1"];
        let mut command = folder.command(&[&start, more].concat());
        command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("llmcc runs");
        std::io::Write::write_all(&mut child.stdin.take().expect("input"), b"w5 w6\nw9\nw30 w31\n").expect("written");
        let done = child.wait_with_output().expect("ends");
        assert!(done.status.success(), "{}", text(&done.stderr));
        (text(&done.stdout), text(&done.stderr))
    };
    let (want, without) = talk(&["--draft", "none"]);
    let (got, said) = talk(&["--guesses", "2"]);
    assert_eq!((got.as_str(), got.lines().count()), (want.as_str(), 3), "{said}");
    assert_eq!(said.matches("guesses were right").count(), 3, "{said}");
    // Cached tokens are not computed again: each prompt computes as many as without heads, and
    // reuses all of the one before.
    let prompts = |said: &str| -> Vec<Vec<usize>> {
        let counts = said.lines().filter(|l| l.contains("from the cache"));
        counts.map(|l| l.split([' ', '(']).filter_map(|word| word.parse().ok()).take(2).collect()).collect()
    };
    let counts = prompts(&said);
    assert_eq!(counts, prompts(&without));
    assert!(counts.len() == 3 && counts.windows(2).all(|two| two[1][1] >= two[0][0]), "{counts:?}");
}

/// Published drafts in the artifact change no token either, and `inspect` names them. (With golden vectors: the entries
/// are held against the evaluator, and `verify` runs them again.)
#[test]
fn published_drafts() {
    let of = |name: &str| fixture("drafters").join(name).to_string_lossy().into_owned();
    for (draft, kind, tensors) in [
        ("eagle", "EAGLE", "draft/model.safetensors"),
        ("eagle3", "EAGLE-3", "draft/model.safetensors"),
        ("medusa", "heads of Medusa", "draft/medusa_lm_head.safetensors"),
    ] {
        let folder = Folder::new();
        folder.says(&[], &["compile", &of("model"), "-o", "m.so", "--quiet", "--draft", &of(draft)]);
        let about = folder.says(&[], &["inspect", "m.so"]);
        assert!(about.contains(&format!("draft       {kind} (")) && about.contains(tensors), "{draft}: {about}");
        folder.says(&[], &["verify", "m.so"]);
        for asked in &ASKED[3..] {
            let (want, none) = run(&folder, &[asked, &["--draft", "none"][..]].concat());
            let (got, guessed) = run(&folder, asked);
            assert_eq!((got, none), (want, None), "{draft} {asked:?}");
            assert!(guessed.is_some_and(|[right, made, steps]| right <= made && steps <= made && made > 0), "{draft}");
        }
    }
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new();
    let of = |name: &str| fixture("drafts").join(name).to_string_lossy().into_owned();
    compiled(&folder, &of("qwen3_5"), &[]);
    folder.says(&[], &["compile", &of("glm4_moe"), "-o", "other.so", "--quiet", "--no-golden"]);
    for (args, says) in [
        (
            &["m.so", "--draft", "other.so"][..],
            "other.so: its vocabulary has 90 tokens, the model's 128: both need one tokenizer",
        ),
        (&["m.so", "--draft", "nothing.so"], "nothing.so"),
        (&["m.so", "--guesses", "0"], "--guesses"),
        (&["m.so", "--guesses", "32"], "--guesses"),
        (&["m.so", "--draft", "lookup", "--embed"], "--embed"),
    ] {
        let done = folder.llmcc(&[&["run"], args, &["--ids", "3,4", "-n", "4"]].concat());
        let said = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty() && said.contains(says), "{args:?}: {said}");
    }
    for (head, says) in [
        ("--draft-head=0", "give `all` or a number of heads from 1 on"),
        ("--draft-head=2", "there is no tensor `mtp.layers.1."),
        ("--draft=nothing", "nothing: cannot open"),
        ("--embed", "--draft-head"),
    ] {
        let twice = if head == "--embed" { "--draft-head" } else { "--quiet" };
        let done = folder.llmcc(&["compile", &of("qwen3_5"), "-o", "no.so", twice, head]);
        let said = text(&done.stderr);
        assert!(!done.status.success() && said.contains(says), "{head}: {said}");
    }
}
