//! `llmcc run --draft`: the text of the model without heads, in fewer of its steps.

mod common;

use common::{Folder, fixture, text};
use serde_json::{Value, json};

/// Compiles the model in the folder `ck`, or a fixture, and its heads: `m.so`, `h0.so`, `h1.so`...
fn compiled(folder: &Folder, checkpoint: &str, heads: usize, more: &[&str]) {
    let made = |out: &str, which: &str| {
        let start = ["compile", checkpoint, "-o", out, "--quiet", "--no-golden", which];
        folder.says(&[], &[&start, more].concat());
    };
    made("m.so", "--hidden-states");
    for k in 0..heads {
        made(&format!("h{k}.so"), &format!("--draft-head={k}"));
    }
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

/// Heads that guess whatever they guess change no token, whether states can go back or not.
#[test]
fn tokens_are_those_without_heads() {
    for (name, heads) in [("deepseek_v3", 2), ("qwen3_5", 1), ("mellum", 1)] {
        let folder = Folder::new();
        compiled(&folder, &fixture("drafts").join(name).to_string_lossy(), heads, &[]);
        let all: Vec<String> = (0..heads).map(|k| format!("h{k}.so")).collect();
        let given: Vec<&str> = all.iter().flat_map(|head| ["--draft", head]).collect();
        for asked in ASKED {
            let (want, none) = run(&folder, asked);
            assert_eq!(none, None);
            for guesses in [&[][..], &["--guesses", "1"], &["--guesses", "5"]] {
                let (got, guessed) = run(&folder, &[asked, &given, guesses].concat());
                assert_eq!(got, want, "{name} {asked:?} {guesses:?}");
                let [right, drafted, rounds] = guessed.expect("it says how many guesses were right");
                let made = want.trim_end().split(',').count() as u64;
                assert!(right <= drafted && rounds + right <= made && made <= 1 + rounds + right, "{name} {asked:?}");
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
    compiled(&folder, "ck", 1, &[]);
    let head = ["--draft", "h0.so"];
    for (asked, n) in [(&["--ids", "5"][..], 41), (&["-p", "w5 w44"], 41)] {
        let asked = [asked, &["-n", "41", "--ignore-eos"]].concat();
        let want = run(&folder, &asked).0;
        for guesses in [1, 3, 7] {
            let (got, guessed) = run(&folder, &[&asked[..], &head, &["--guesses", &guesses.to_string()]].concat());
            assert_eq!(got, want);
            let [right, drafted, rounds] = guessed.expect("counts");
            assert_eq!((right, rounds), (drafted, (n - 1u64).div_ceil(guesses + 1)), "{asked:?} {guesses}");
        }
    }
    // Past its context a head guesses nothing: 20 tokens, the prompt's among them, then each alone.
    let short = ["compile", "ck", "--draft-head", "--max-context", "20", "-o", "short.so", "--quiet", "--no-golden"];
    folder.says(&[], &short);
    let asked = ["--ids", "5", "-n", "41", "--ignore-eos"];
    let (got, guessed) = run(&folder, &[&asked[..], &["--draft", "short.so", "--guesses", "3"]].concat());
    assert_eq!(got, run(&folder, &asked).0);
    let [right, drafted, rounds] = guessed.expect("counts");
    assert!(right == drafted && drafted > 10 && rounds + drafted == 40 && rounds > 20, "{drafted}, {rounds}");
    // Drawn tokens are not always the most probable ones.
    let drawn = ["-p", "w5", "-n", "60", "--temperature", "0.6", "--seed", "9", "--ignore-eos"];
    let (got, guessed) = run(&folder, &[&drawn[..], &head, &["--guesses", "3"]].concat());
    let [right, drafted, rounds] = guessed.expect("counts");
    assert!(0 < right && right < drafted && rounds < 59, "{right} of {drafted} in {rounds}");
    assert_eq!(got, run(&folder, &drawn).0);
    // A stop text ends it in the middle of a step.
    let words: Vec<&str> = got.split_whitespace().collect();
    for stop in [words[9], &words[20][1..], "w"] {
        let stopped = [&drawn[..], &["--stop", stop]].concat();
        let with = run(&folder, &[&stopped[..], &head, &["--guesses", "4"]].concat()).0;
        assert_eq!(with, run(&folder, &stopped).0, "{stop}");
    }
}

/// A conversation goes on where it was, and where it was not.
#[test]
fn conversations() {
    let folder = Folder::new();
    foreseeable(&folder);
    compiled(&folder, "ck", 1, &[]);
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
    let (want, without) = talk(&[]);
    let (got, said) = talk(&["--draft", "h0.so", "--guesses", "2"]);
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

#[test]
fn mistakes_are_told() {
    let folder = Folder::new();
    let of = |name: &str| fixture("drafts").join(name).to_string_lossy().into_owned();
    compiled(&folder, &of("qwen3_5"), 1, &[]);
    folder.says(&[], &["compile", &of("qwen3_5"), "-o", "plain.so", "--quiet", "--no-golden"]);
    let other = ["--draft-head", "--quiet", "--no-golden"];
    folder.says(&[], &[&["compile", &of("glm4_moe"), "-o", "other.so"], &other[..]].concat());
    folder.says(&[], &[&["compile", &of("mellum"), "-o", "wide.so"], &other[..]].concat());
    for (args, says) in [
        (
            &["m.so", "--draft", "plain.so"][..],
            "plain.so: it is not a draft head; compile one from the model's checkpoint with --draft-head",
        ),
        (&["m.so", "--draft", "h0.so", "--draft", "m.so"], "m.so: it is not a draft head"),
        (
            &["plain.so", "--draft", "h0.so"],
            "plain.so: it does not return hidden states, which draft heads need; compile it with --hidden-states",
        ),
        (&["h0.so", "--draft", "h0.so"], "h0.so: it is a draft head itself"),
        (&["h0.so"], "h0.so: this artifact is a draft head"),
        (
            &["m.so", "--draft", "other.so"],
            "other.so: it is the draft head of another model: its vocabulary has 90 tokens, m.so has 128",
        ),
        (
            &["m.so", "--draft", "wide.so"],
            "wide.so: it is the draft head of another model: its hidden states have 48 columns, m.so has 40",
        ),
        (&["m.so", "--draft", "nothing.so"], "nothing.so"),
        (&["m.so", "--guesses", "2"], "--draft"),
        (&["m.so", "--draft", "h0.so", "--guesses", "0"], "--guesses"),
        (&["m.so", "--draft", "h0.so", "--embed"], "--embed"),
    ] {
        let done = folder.llmcc(&[&["run"], args, &["--ids", "3,4", "-n", "4"]].concat());
        let said = text(&done.stderr);
        assert!(!done.status.success() && done.stdout.is_empty() && said.contains(says), "{args:?}: {said}");
    }
}
