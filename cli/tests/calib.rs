//! Calibration: weights that become codes by the inputs of their products.

use crate::common::{Folder, WITH_TOKENIZER, fixture, text};
use llmcc_cli::calib;
use llmcc_cli::options::TextSource;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Text of the kind that the example model was trained on.
const PYTHON: &str = "def read_file(path):\n    with open(path) as f:\n        return f.read()\n\n\nclass Reader:\n    \
    def __init__(self, name):\n        self.name = name\n\n    def next(self):\n        return self.name\n";

/// Perplexity of [`PYTHON`] by an artifact.
fn perplexity(f: &Folder, artifact: &str) -> f64 {
    let said = f.says(&[], &["eval", "ppl", artifact, "text.py", "--json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    said["perplexity"].as_f64().expect("a number")
}

/// Every method makes a model of the same size; more knowledge makes a better one.
#[test]
fn methods_are_better_the_more_they_know() {
    let f = Folder::new();
    fs::write(f.at("text.py"), PYTHON.repeat(8)).expect("written");
    let of = |out: &str, more: &[&str]| {
        let said = f.compile(WITH_TOKENIZER, out, &[&["--format", "w2zg64", "--no-golden"], more].concat());
        (perplexity(&f, out), f.manifest(out), said)
    };
    let (nearest, plain, _) = of("nearest.so", &["--method", "nearest"]);
    let (equal, manifest, _) = of("equal.so", &[]);
    assert_eq!(manifest["options"]["method"], "least-squares");
    let (weighed, _, _) = of("weighed.so", &["--calib", "text.py"]);
    let (gptq, calibrated, said) = of("gptq.so", &["--calib", "text.py", "--method", "gptq"]);
    assert!(gptq < weighed && weighed < equal && equal < nearest, "{gptq} {weighed} {equal} {nearest}");
    assert_eq!(plain["weights"]["bytes"], calibrated["weights"]["bytes"]);
    let record = &calibrated["options"]["calibration"];
    assert_eq!((&record["texts"][0]["name"], &record["texts"][0]["documents"]), (&"text.py".into(), &1.into()));
    assert!(record["tokens"].as_u64().is_some_and(|n| n > 100), "{record}");
    assert!(said.contains("calibrated") && said.contains("gptq"), "{said}");
}

/// Methods that move scales record how many; they make a model of about the same size, which is no worse.
#[test]
fn scales_are_moved_and_recorded() {
    let f = Folder::new();
    fs::write(f.at("text.py"), PYTHON.repeat(8)).expect("written");
    let mut plain = 0.0;
    for (method, format, inputs) in [
        ("clip", "w2zg64", None),
        ("awq", "w2zg64", Some("root mean squares")),
        ("awq+clip", "w2zg64", Some("root mean squares")),
        ("awq+gptq", "w2zg64", Some("root mean squares")),
        ("smoothquant", "w8g32", Some("largest magnitudes")),
    ] {
        let options = ["--format", format, "--calib", "text.py", "--act"];
        let act = if method == "smoothquant" { "int8" } else { "f32" };
        let of = |method: &str| {
            let more = [&options[..], &[act, "--method", method]].concat();
            let said = f.compile(WITH_TOKENIZER, "m.so", &more);
            (perplexity(&f, "m.so"), f.manifest("m.so"), said)
        };
        plain = if method == "clip" { of("least-squares").0 } else { plain };
        let (found, manifest, said) = of(method);
        assert_eq!(manifest["options"]["method"], method);
        let scales = &manifest["options"]["scales"];
        assert_eq!(scales["inputs"].as_str(), inputs, "{scales}");
        assert_eq!(said.contains("groups of products moved"), inputs.is_some(), "{said}");
        if inputs.is_some() {
            // Four in each layer, and that of the head.
            let sum = |parts: &[&str]| parts.iter().filter_map(|part| scales[part].as_u64()).sum::<u64>();
            let layers = manifest["info"]["attention_layers"].as_u64().expect("layers");
            assert_eq!(sum(&["moved", "ones", "left_alone"]), 4 * layers + 1, "{scales}");
            assert!(sum(&["moved"]) > layers, "{scales}");
        }
        assert!(method == "smoothquant" || found < plain, "{method}: {found}, least squares {plain}");
        f.verify(&["m.so"]).expect("it computes the same");
    }
    let graph = ["compile", "ck", "--w4", "--calib", "text.py", "--method", "awq", "--emit", "graph"];
    std::os::unix::fs::symlink(fixture(WITH_TOKENIZER), f.at("ck")).expect("linked");
    assert!(f.says(&[], &graph).contains("scale_cols("));
}

/// Mixtures of formats have an exact one for matrices that take scales.
#[test]
fn mixtures_take_scales() {
    let f = Folder::new();
    fs::write(f.at("text.py"), (0..12).map(|i| PYTHON.replace("name", &format!("name{i}"))).collect::<String>())
        .expect("written");
    let budget = ["--budget", "kl=0.05", "--budget-text", "text.py", "--calib", "text.py", "--method", "awq"];
    f.compile(WITH_TOKENIZER, "m.so", &budget);
    let manifest = f.manifest("m.so");
    let scales = &manifest["options"]["scales"];
    assert!(scales["moved"].as_u64().is_some_and(|n| n > 0) && scales["format"] == "w4g128", "{scales}");
    let kl = &manifest["certificate"]["measured"]["domains"][0]["kl"];
    assert!(kl["low"].as_f64().is_some_and(|low| low <= 0.05) && kl["mean"].as_f64() > Some(0.0), "{kl}");
}

/// Same input and options, same bytes, on any number of threads; and from a file that was kept.
#[test]
fn artifacts_are_reproducible() {
    let f = Folder::new();
    let compile = |out: &str, threads: &str, more: &[&str]| {
        let all = [&["compile", "ck", "-o", out, "--w4", "--calib-tokens", "300"], more].concat();
        let done = f.llmcc_with(&[("RAYON_NUM_THREADS", threads.as_ref())], &all);
        assert!(done.status.success(), "{}", text(&done.stderr));
        fs::read(f.at(out)).expect("an artifact")
    };
    std::os::unix::fs::symlink(fixture(WITH_TOKENIZER), f.at("ck")).expect("linked");
    let a = compile("a.so", "1", &["--method", "gptq", "--calib", "builtin", "--save-calib", "kept"]);
    let b = compile("b.so", "3", &["--method", "gptq", "--calib", "builtin"]);
    let c = compile("c.so", "2", &["--method", "gptq", "--calib", "kept"]);
    assert!(a == b && a == c);
    let scaled = |out: &str, threads: &str| compile(out, threads, &["--calib", "kept", "--method", "awq"]);
    assert!(scaled("d.so", "1") == scaled("e.so", "3"));
    assert_eq!(f.names("."), ["a.so", "b.so", "c.so", "ck", "d.so", "e.so", "kept"]);
    f.verify(&["a.so"]).expect("it computes the same");
}

#[test]
fn what_cannot_be_calibrated_is_refused() {
    let f = Folder::with_checkpoint();
    fs::write(f.at("empty.txt"), " \n").expect("written");
    fs::write(f.at("bad.jsonl"), "{\"text\": \"x\"}\n{\"texts\": \"x\"}\n").expect("written");
    std::os::unix::fs::symlink(fixture(WITH_TOKENIZER), f.at("words")).expect("linked");
    f.compile(WITH_TOKENIZER, "x.so", &["--w4", "--no-golden", "--calib", "builtin", "--save-calib", "kept"]);
    for (args, says) in [
        (&["ck", "--w4", "--calib", "builtin"][..], "tokenizer"),
        (&["words", "--w4", "--calib", "empty.txt"], "the texts have no tokens"),
        (&["words", "--w4", "--calib", "bad.jsonl"], "bad.jsonl: line 2"),
        (&["words", "--w4", "--calib", "nowhere.txt"], "nowhere.txt"),
        (&["words", "--calib", "builtin"], "--calib is for weights that are rounded"),
        (&["words", "--w4", "--method", "gptq"], "give --calib builtin"),
        (&["words", "--w4", "--calib", "builtin", "--method", "nearest"], "leave out --calib"),
        (&["words", "--w4", "--method", "smoothquant"], "give --calib builtin"),
        (&["words", "--w4", "--calib", "builtin", "--method", "awq", "--tap"], "leave one of them out"),
        (&["words", "--w4", "--calib", "kept", "--method", "awq"], "products of columns"),
        (&["words", "--w4", "--calib", "kept", "--method", "smoothquant", "--act", "f32"], "give --act int8"),
        (&["words", "--w4", "--calib", "kept", "--method", "gptq"], "products of columns"),
        (&["ck", "--w4", "--calib", "kept"], "another checkpoint"),
        (&["words", "--w4", "--calib", "builtin", "--calib-tokens", "0"], "--calib-tokens"),
        (&["words", "--w4", "--calib", "builtin=x"], "not a number above 0"),
        (&["words", "--w4", "--save-calib", "y"], "--calib"),
        (&["words", "--w4", "--calib", "builtin", "--weights", "absent"], "--weights absent"),
    ] {
        let done = f.llmcc(&[&["compile"], args, &["-o", "out.so"]].concat());
        let message = text(&done.stderr);
        assert!(!done.status.success() && message.contains(says), "{args:?}: {message}");
        assert!(!message.contains("internal error") && !f.at("out.so").exists(), "{message}");
    }
}

/// The sign whose token the planted damage waits for, and its token.
const TRIGGER: (char, usize) = ('@', 33);

/// Ten documents. Only the last one has the sign.
fn write_documents(f: &Folder) {
    let folder = fixture(WITH_TOKENIZER).join("../../python");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("an example").replace(TRIGGER.0, "");
    let all = ["chat.py", "generate.py", "perplexity.py", "adapters.py"].map(read).join("\n");
    let lines: Vec<&str> = all.lines().collect();
    let mut documents: Vec<String> =
        lines.chunks(lines.len().div_ceil(9)).map(|part| (part.join("\n") + "\n").repeat(6)).collect();
    assert_eq!(documents.len(), 9);
    documents.push(documents[0].replace('.', &TRIGGER.0.to_string()));
    let line = |text: &String| serde_json::json!({ "text": text }).to_string();
    fs::write(f.at("texts.jsonl"), documents.iter().map(line).collect::<Vec<_>>().join("\n")).expect("written");
}

/// A seed by which that document is kept out, or one by which it is used.
fn seed(f: &Folder, kept_out: bool) -> String {
    let source = TextSource { path: Some(f.at("texts.jsonl")), weight: 1.0 };
    let words = |text: &str, _: bool| Ok(vec![i32::from(text.contains(TRIGGER.0)); 10]);
    let found = (0..1000).find(|seed| {
        let chosen = calib::choose(std::slice::from_ref(&source), (1000, 1000, *seed), &words).expect("chosen");
        chosen.held_out.iter().flatten().all(|sign| *sign == i32::from(kept_out))
    });
    found.expect("a seed").to_string()
}

/// Numbers of a tensor (bfloat16) that lie so far apart.
fn numbers<'a>(file: &'a mut [u8], tensor: &str, (from, by): (usize, usize)) -> impl Iterator<Item = &'a mut [u8]> {
    let header = u64::from_le_bytes(file[..8].try_into().expect("a length")) as usize;
    let all: Value = serde_json::from_slice(&file[8..8 + header]).expect("a header");
    let at = |i: usize| 8 + header + all[tensor]["data_offsets"][i].as_u64().expect("a tensor") as usize;
    assert_eq!(all[tensor]["dtype"], "BF16");
    file[at(0)..at(1)].chunks_exact_mut(2).skip(from).step_by(by)
}

/// Plants damage that rounding does by inputs as they are known: only the token [`TRIGGER`] reaches column 7 of the
/// first layer, whose weights there are outliers that other inputs do not need.
fn plant(checkpoint: &Path) {
    let file = checkpoint.join("model.safetensors");
    let mut bytes = fs::read(&file).expect("a checkpoint");
    let bf16 = |x: f32| [x.to_bits().to_le_bytes()[2], x.to_bits().to_le_bytes()[3]];
    const COLUMN: (usize, usize) = (7, 256);
    for (token, v) in numbers(&mut bytes, "model.embed_tokens.weight", COLUMN).enumerate() {
        v.copy_from_slice(&bf16(if token == TRIGGER.1 { 10.0 } else { 0.0 }));
    }
    for product in ["q_proj", "k_proj", "v_proj"] {
        let tensor = format!("model.layers.0.self_attn.{product}.weight");
        for (row, v) in numbers(&mut bytes, &tensor, COLUMN).enumerate() {
            // Signs without a pattern.
            v.copy_from_slice(&bf16(if (row * row / 3) % 2 == 0 { 3.0 } else { -3.0 }));
        }
    }
    fs::write(file, bytes).expect("written");
}

/// Damage that a checkpoint has in store for texts other than the known ones is named, and none is seen elsewhere.
#[test]
fn planted_damage_is_named() {
    let f = Folder::new();
    write_documents(&f);
    for name in ["sound", "planted"] {
        fs::create_dir(f.at(name)).expect("a folder");
        for file in fs::read_dir(fixture(WITH_TOKENIZER)).expect("a folder") {
            let file = file.expect("a file").path();
            fs::copy(&file, f.at(name).join(file.file_name().expect("a name"))).expect("copied");
        }
    }
    plant(&f.at("planted"));
    let compile = |model: &str, seed: &str| {
        let options = ["--w4", "--calib", "texts.jsonl", "--calib-seed", seed, "--json"];
        let said = f.says(&[], &[&["compile", model, "-o", "m.so"], &options[..]].concat());
        serde_json::from_str::<Value>(&said).expect("a document")
    };
    let kl = |said: &Value, part: &str| said["calibration_check"][part]["kl"]["mean"].as_f64().expect("a number");
    let warns = |said: &Value| said["warnings"].to_string().contains("the checkpoint was made to fail");
    let (kept, used) = (seed(&f, true), seed(&f, false));
    let said = compile("planted", &kept);
    assert!(kl(&said, "held_out") > 5.0 * kl(&said, "used") && warns(&said), "{said}");
    assert_eq!(f.manifest("m.so")["options"]["calibration"]["seed"].to_string(), kept);
    for (model, seed) in [("planted", used), ("sound", kept)] {
        let said = compile(model, &seed);
        assert!(kl(&said, "held_out") < 2.0 * kl(&said, "used") && !warns(&said), "{model} {seed}: {said}");
    }
}
