//! A table of bad inputs: each ends in one message with the fault and its place, a non-zero status,
//! and nothing left behind.

#[path = "bad_inputs/messages.rs"]
mod messages;

use crate::common::{Folder, text};
use llmcc_cli::session::find_targets;
use llmcc_cli::signature;
use llmcc_codegen::artifact::isa;
use llmcc_frontends::fixtures::{Tensor, random_tensors, write_checkpoint};
use llmcc_ir::target::{TARGETS, find};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A checkpoint of a test, in the folder `ck` of a folder of its own.
struct Case(Folder);

impl Case {
    /// A sound copy of the two-layer fixture.
    fn new() -> Case {
        Case(Folder::with_checkpoint())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.at("ck").join(name)
    }
    fn edit_config(&self, edit: impl Fn(&mut serde_json::Value)) {
        let path = self.path("config.json");
        let mut v: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("config")).expect("JSON");
        edit(&mut v);
        fs::write(path, v.to_string()).expect("config");
    }
    /// Rewrites the safetensors header; the data stays.
    fn edit_header(&self, edit: impl Fn(&mut serde_json::Value)) {
        let path = self.path("model.safetensors");
        let file = fs::read(&path).expect("model");
        let n = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
        let mut header: serde_json::Value = serde_json::from_slice(&file[8..8 + n]).expect("JSON");
        edit(&mut header);
        let mut text = header.to_string();
        while !text.len().is_multiple_of(8) {
            text.push(' ');
        }
        let mut out = (text.len() as u64).to_le_bytes().to_vec();
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(&file[8 + n..]);
        fs::write(path, out).expect("model");
    }
    fn compile(&self, more: &[&str]) -> Output {
        self.0.llmcc(&[&["compile", "ck", "-o", "m.so", "--quiet"], more].concat())
    }
    /// Whether it compiles, and the message.
    fn report(&self, more: &[&str]) -> (bool, String) {
        let out = self.0.llmcc(&[&["compile", "ck", "-o", "m.so"], more].concat());
        (out.status.success(), text(&out.stderr))
    }
    /// Sets element `i` of an f32 tensor.
    fn edit_value(&self, tensor: &str, i: usize, value: f32) {
        let path = self.path("model.safetensors");
        let mut file = fs::read(&path).expect("model");
        let n = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
        let header: serde_json::Value = serde_json::from_slice(&file[8..8 + n]).expect("JSON");
        let at = 8 + n + header[tensor]["data_offsets"][0].as_u64().expect("offset") as usize + 4 * i;
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(&path, file).expect("written");
    }
    /// Files in the folder besides the checkpoint.
    fn leftovers(&self) -> Vec<String> {
        self.0.names("").into_iter().filter(|n| n != "ck").collect()
    }
}

#[track_caller]
fn fails(case: &Case, output: &Output, says: &[&str]) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "succeeded; stderr: {err}");
    assert!(output.status.code().is_some(), "died by a signal: {err}");
    assert!(!err.contains("internal error") && !err.contains("panicked"), "{err}");
    assert_eq!(err.matches("error:").count(), 1, "one message: {err}");
    for s in says {
        assert!(err.contains(s), "does not say {s:?}: {err}");
    }
    assert_eq!(case.leftovers(), [] as [&str; 0], "left behind");
}

const Q: &str = "model.layers.1.self_attn.q_proj.weight";

#[test]
fn the_sound_fixture_compiles() {
    let case = Case::new();
    let out = case.compile(&["--w4"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(case.leftovers(), ["m.so"]);
}

#[test]
fn nothing_there() {
    let case = Case::new();
    fs::remove_dir_all(case.0.at("ck")).expect("removed");
    fails(&case, &case.compile(&[]), &["ck"]);
}

#[test]
fn no_config() {
    let case = Case::new();
    fs::remove_file(case.path("config.json")).expect("removed");
    fails(&case, &case.compile(&[]), &["config.json"]);
}

#[test]
fn config_is_not_json() {
    let case = Case::new();
    fs::write(case.path("config.json"), "{ \"hidden_size\": ").expect("written");
    fails(&case, &case.compile(&[]), &["config.json", "JSON"]);
}

#[test]
fn no_weights() {
    let case = Case::new();
    fs::remove_file(case.path("model.safetensors")).expect("removed");
    fails(&case, &case.compile(&[]), &["safetensors"]);
}

#[test]
fn truncated_file() {
    let case = Case::new();
    let file = fs::read(case.path("model.safetensors")).expect("model");
    fs::write(case.path("model.safetensors"), &file[..file.len() / 2]).expect("written");
    fails(&case, &case.compile(&[]), &["model.safetensors"]);
}

#[test]
fn empty_file() {
    let case = Case::new();
    fs::write(case.path("model.safetensors"), "").expect("written");
    fails(&case, &case.compile(&[]), &["model.safetensors"]);
}

#[test]
fn overlapping_tensors() {
    let case = Case::new();
    case.edit_header(|h| {
        let other = h["model.layers.0.self_attn.q_proj.weight"]["data_offsets"].clone();
        h[Q]["data_offsets"] = other;
    });
    fails(&case, &case.compile(&[]), &["q_proj"]);
}

#[test]
fn tensor_out_of_range() {
    let case = Case::new();
    case.edit_header(|h| {
        let end = h[Q]["data_offsets"][1].as_u64().expect("offset");
        let start = h[Q]["data_offsets"][0].as_u64().expect("offset");
        h[Q]["data_offsets"] = serde_json::json!([start + (1 << 40), end + (1 << 40)]);
    });
    fails(&case, &case.compile(&[]), &[Q]);
}

#[test]
fn wrong_shape() {
    let case = Case::new();
    case.edit_header(|h| {
        let s = h[Q]["shape"].clone();
        let n = s[0].as_u64().expect("dim") * s[1].as_u64().expect("dim");
        h[Q]["shape"] = serde_json::json!([n / 32, 32]);
    });
    fails(&case, &case.compile(&[]), &[Q, "shape"]);
}

#[test]
fn missing_tensor() {
    let case = Case::new();
    case.edit_header(|h| {
        let t = h.as_object_mut().expect("object").remove(Q).expect("tensor");
        h["something.else"] = t;
    });
    fails(&case, &case.compile(&[]), &[Q, "missing"]);
}

#[test]
fn absurd_dimensions() {
    let case = Case::new();
    case.edit_header(|h| h[Q]["shape"] = serde_json::json!([u64::MAX, u64::MAX]));
    fails(&case, &case.compile(&[]), &[Q]);
    let case = Case::new();
    case.edit_config(|c| c["hidden_size"] = serde_json::json!(1u64 << 60));
    fails(&case, &case.compile(&[]), &["hidden_size"]);
    let case = Case::new();
    case.edit_config(|c| c["num_attention_heads"] = serde_json::json!(0));
    fails(&case, &case.compile(&[]), &["num_attention_heads"]);
}

#[test]
fn wrong_dtype() {
    let case = Case::new();
    case.edit_header(|h| h[Q]["dtype"] = serde_json::json!("I32"));
    fails(&case, &case.compile(&[]), &[Q, "I32"]);
}

/// NaN in the weights would become NaN scales.
#[test]
fn not_a_number() {
    for options in [&["--w4"][..], &["--w8"], &["--dtype", "bf16"], &[]] {
        let case = Case::new();
        case.edit_value(Q, 70, f32::NAN);
        fails(&case, &case.compile(options), &[Q, "row 1"]);
    }
}

/// One layer fewer than the file has; a head beside a tied table that is another one.
#[test]
fn tensors_without_a_use() {
    let case = Case::new();
    case.edit_config(|c| c["num_hidden_layers"] = 1.into());
    let says = [
        "9 tensors",
        "`model.layers.1.mlp.up_proj.weight`",
        "layer 1 is in the file, but `num_hidden_layers` is 1",
        "--ignore-unused",
    ];
    fails(&case, &case.compile(&[]), &says);
    fails(&case, &case.compile(&["--emit", "graph"]), &says);
    let (done, said) = case.report(&["--ignore-unused"]);
    assert!(done && said.contains("  warning     9 tensors of the checkpoint are not used"), "{said}");

    let case = Case::new();
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(case.path("config.json")).expect("config")).expect("JSON");
    let mut tensors = random_tensors(&config, 1);
    let table = tensors.iter().find(|t| t.name == "model.embed_tokens.weight").expect("table").clone();
    tensors.push(Tensor { name: "lm_head.weight".into(), data: table.data.iter().map(|b| b ^ 1).collect(), ..table });
    write_checkpoint(&case.path(""), &config, &tensors).expect("checkpoint");
    fails(&case, &case.compile(&[]), &["`lm_head.weight` differs from it", "set `tie_word_embeddings` to false"]);
    case.edit_config(|c| c["tie_word_embeddings"] = false.into());
    assert!(case.compile(&[]).status.success());
}

/// Fields that change the mathematics of some architecture, and one that nobody knows.
#[test]
fn fields_without_a_reader() {
    for (field, value) in [
        ("attn_logit_softcapping", serde_json::json!(50.0)),
        ("residual_multiplier", serde_json::json!(0.22)),
        ("num_experts", serde_json::json!(8)),
        ("partial_rotary_factor", serde_json::json!(0.5)),
        ("sliding_window", serde_json::json!(16)),
        ("text_config", serde_json::json!({ "hidden_size": 64 })),
    ] {
        let case = Case::new();
        case.edit_config(|c| c[field] = value.clone());
        fails(
            &case,
            &case.compile(&[]),
            &["config.json", &format!("`{field}` is {value}"), "LlamaForCausalLM does not read it", "remove it"],
        );
    }
    let case = Case::new();
    case.edit_config(|c| {
        c["attn_logit_softcapping"] = serde_json::Value::Null;
        c["residual_multiplier"] = 1.0.into();
        c["num_experts"] = 0.into();
        c["novelty"] = "x".into();
    });
    let (done, said) = case.report(&[]);
    assert!(done && said.contains("  warning     config.json: `novelty` is \"x\", which is not read"), "{said}");
    assert_eq!(said.matches("warning").count(), 1, "{said}");
    let (done, said) = case.report(&["--emit", "graph"]);
    assert!(done && said.contains("warning: config.json: `novelty` is"), "{said}");
}

/// Neither may anyone wait for a writer, nor read zeros for ever.
#[cfg(target_os = "linux")]
#[test]
fn pipes_and_devices() {
    // A process that hangs dies of its limit.
    let limited = |case: &Case, args: &[&str]| {
        let mut c = Command::new("timeout");
        c.current_dir(case.0.root()).args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_llmcc")]).args(args);
        c.output().expect("timeout runs")
    };
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
    let optional = [
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "generation_config.json",
        "chat_template.jinja",
    ];
    for name in ["config.json", "model.safetensors"].into_iter().chain(optional) {
        let case = Case::new();
        let _ = fs::remove_file(case.path(name));
        pipe(&case.path(name));
        let compile = ["compile", "ck", "-o", "m.so", "-q"];
        fails(&case, &limited(&case, &compile), &[name, "it is a named pipe; a regular file is needed here"]);
        fs::remove_file(case.path(name)).expect("pipe");
        std::os::unix::fs::symlink("/dev/zero", case.path(name)).expect("link");
        fails(&case, &limited(&case, &compile), &[name, "it is a device"]);
    }
    let case = Case::new();
    pipe(&case.path("pipe"));
    let says = ["ck/pipe", "it is a named pipe"];
    for command in [
        &["inspect", "ck/pipe"][..],
        &["verify", "ck/pipe"],
        &["bench", "ck/pipe"],
        &["run", "ck/pipe", "--ids", "1"],
        &["eval", "ppl", "absent.so", "ck/pipe"],
        &["compile", "ck/pipe", "-o", "m.so"],
    ] {
        fails(&case, &limited(&case, command), &says);
    }
    // Keys and signatures, too. (The key is the example of RFC 8410.)
    let pem = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    fs::write(case.path("key"), format!("-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n")).expect("key");
    let key = signature::public(&case.path("key")).expect("a key");
    pipe(&case.path("m.so.sig"));
    let path = case.path("pipe");
    for refused in [
        llmcc_cli::cmd::lower::read(&path).map(drop),
        signature::public(&path).map(drop),
        signature::secret(&path).map(drop),
        signature::check_root(&case.path("m.so"), &[0; 32], &key),
    ] {
        assert!(refused.is_err_and(|e| e.to_string().contains("it is a named pipe")));
    }
}

/// The error for invalid JSON names the place and the remedy.
#[test]
fn config_that_does_not_parse() {
    let case = Case::new();
    for (text, says) in [
        ("\u{feff}{}", ["byte order mark", "save it as UTF-8 without"]),
        ("{\n \"hidden_size\": 64,\n}", ["trailing comma at line 3 column 1", "remove the comma"]),
        ("{\"hidden_size\": 64", ["line 1 column 18", "cut off: download it again"]),
        ("{\"hidden_size\": 64,\n\"hidden_size\": 32}", ["key `hidden_size` occurs twice at line 2", "remove one"]),
        ("[1]", ["it holds a list", "use the model's own config.json"]),
        ("{\"rms_norm_eps\": NaN}", ["line 1 column 18", "JSON has no NaN"]),
    ] {
        fs::write(case.path("config.json"), text).expect("written");
        fails(&case, &case.compile(&[]), &["config.json", says[0], says[1]]);
    }
    let out = Command::new(env!("CARGO_BIN_EXE_llmcc"))
        .current_dir(case.0.root())
        .args(["compile", "ck/config.json", "-o", "m.so"])
        .output();
    fails(
        &case,
        &out.expect("runs"),
        &["ck/config.json: it is neither a folder nor a file of tensors; give the folder, `ck`"],
    );
}

/// A value that a format does not hold, and the format that would hold it.
#[test]
fn values_that_do_not_fit() {
    let number = "100000000000000000000";
    for (options, says) in [
        (&["--dtype", "f16"][..], [Q, "row 1, column 6: 1", "is too large for f16: give --dtype bf16 or --dtype f32"]),
        (&["--w4"], [Q, "row 1, column 0: 1", "is too large for w4g32, whose scales are f16: give --format w4zg32"]),
    ] {
        let case = Case::new();
        case.edit_value(Q, 70, 1e20);
        fails(&case, &case.compile(options), &says);
        fails(&case, &case.compile(options), &[number]);
    }
}

/// Weights so large that f32 overflows in a norm, where it gives finite logits that are wrong.
#[test]
fn weights_that_overflow_a_norm() {
    let case = Case::new();
    let path = case.path("model.safetensors");
    let mut file = fs::read(&path).expect("model");
    let n = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    for v in file[8 + n..].as_chunks_mut::<4>().0 {
        *v = (f32::from_le_bytes(*v) * 1e4).to_le_bytes();
    }
    fs::write(&path, file).expect("written");
    fails(
        &case,
        &case.compile(&[]),
        &["the model's values are too large for f32", "the sum of squares", "scale the checkpoint's weights down"],
    );
    fails(&case, &case.compile(&["--kv", "f16"]), &["computes NaN", "(try --kv bf16)"]);
}

/// Tables keep 8 bits with `--w4`, and the report says so.
#[test]
fn what_is_stored_otherwise() {
    let case = Case::new();
    case.edit_config(|c| c["tie_word_embeddings"] = false.into());
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(case.path("config.json")).expect("config")).expect("JSON");
    write_checkpoint(&case.path(""), &config, &random_tensors(&config, 1)).expect("checkpoint");
    let (done, said) = case.report(&["--w4"]);
    assert!(done && said.contains("model.embed_tokens.weight as w8g32: its rows are looked up"), "{said}");
    let (done, said) = case.report(&["--w8"]);
    assert!(done && !said.contains("looked up"), "{said}");
}

#[test]
fn unknown_architecture() {
    let case = Case::new();
    case.edit_config(|c| {
        c["model_type"] = "perceiver".into();
        c["architectures"] = serde_json::json!(["PerceiverModel"]);
    });
    fails(&case, &case.compile(&[]), &["perceiver", "llama", "qwen3"]);
}

#[test]
fn tokenizer_of_another_model() {
    let case = Case::new();
    let vocab: serde_json::Map<String, serde_json::Value> = (0..300).map(|i| (format!("t{i}"), i.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    });
    fs::write(case.path("tokenizer.json"), tokenizer.to_string()).expect("written");
    fails(&case, &case.compile(&[]), &["tokenizer.json", "128"]);
}

#[test]
fn unwritable_output() {
    let case = Case::new();
    let out = case.compile(&["-o", "no/such/folder/m.so"]);
    // clap keeps the last -o only when overriding; either way it must be one clear error.
    assert!(!out.status.success());
    let run = |to: &str| {
        Command::new(env!("CARGO_BIN_EXE_llmcc"))
            .current_dir(case.0.root())
            .args(["compile", "ck", "-q", "-o", to])
            .output()
            .expect("runs")
    };
    fails(&case, &run("no/such/folder/m.so"), &["no/such/folder/m.so"]);
    fails(&case, &run("ck"), &["ck", "directory"]);
}

/// `/dev/full` fails like a full disk; the artifact is written beside its final name, so a small
/// file system stands in for it.
#[cfg(target_os = "linux")]
#[test]
fn full_disk() {
    let case = Case::new();
    // A limit on the size of files this process may write has the same effect as a full disk and
    // needs no privileges.
    let script = format!("trap '' XFSZ; ulimit -f 64; exec {} compile ck -q -o m.so", env!("CARGO_BIN_EXE_llmcc"));
    let out = Command::new("sh").arg("-c").arg(script).current_dir(case.0.root()).output().expect("sh runs");
    fails(&case, &out, &["m.so"]);
}

#[test]
fn wrong_usage() {
    let case = Case::new();
    fails(&case, &case.compile(&["--target", "vax"]), &["vax", "x86-64-v3"]);
    fails(&case, &case.compile(&["--max-context", "999999999"]), &["999999999"]);
    fails(&case, &case.compile(&["--act", "fp8"]), &["--act fp8", "--fp8"]);
    fails(&case, &case.compile(&["--act", "int8", "--fp8"]), &["--act int8", "--w8"]);
    fails(&case, &case.compile(&["--act", "int8"]), &["--act int8", "--w8"]);
    fails(
        &case,
        &case.compile(&["--act", "int8", "--w8", "--target", "sm90"]),
        &["`sm90` multiplies no int8", "x86-64-v3"],
    );
    fails(
        &case,
        &case.compile(&["--act", "fp8", "--fp8", "--target", "sm80,x86-64-v3"]),
        &["none of sm80, x86-64-v3", "sm89, sm90"],
    );
    fails(&case, &case.compile(&["--act", "fp8", "--fp8", "--target", "sm80"]), &["sm80", "--act fp8"]);
    for bad in [&["--group", "33"][..], &["--fp8", "--group", "32"], &["--w4", "--w8"], &["--nonsense"]] {
        let out = case.compile(bad);
        assert_eq!(out.status.code(), Some(2), "{bad:?}");
        assert_eq!(case.leftovers(), [] as [&str; 0]);
    }
}

/// The runtime chooses a version by its level: the second of one level would never run.
#[test]
fn targets_of_one_level() {
    let case = Case::new();
    let says = [
        "--target x86-64-v4,sm90,x86-64-v4-amx: `x86-64-v4` and `x86-64-v4-amx` have the same instruction-set level",
        "leave one out",
    ];
    fails(&case, &case.compile(&["--target", "x86-64-v4,sm90,x86-64-v4-amx"]), &says);
    let native = find("native").expect("a target");
    for other in TARGETS.iter().filter(|t| isa(t) == isa(native) && t.name != native.name) {
        let says = [format!("`native` (`{}` on this machine) and `{}`", native.name, other.name)];
        fails(
            &case,
            &case.compile(&["--target", &format!("native,{}", other.name)]),
            &says.each_ref().map(String::as_str),
        );
    }
    let names = |list| find_targets(list).map(|all| all.iter().map(|t| t.name).collect::<Vec<_>>());
    assert_eq!(names("sm90, x86-64-v4,sm90,x86-64-v4").expect("repeated"), ["sm90", "x86-64-v4"]);
    assert_eq!(names("x86-64-v4-amx,x86-64-v3,x86-64,sm80,sm86").expect("different").len(), 5);
    // The rates of another machine are a tuning, too.
    assert_eq!(names("sm90:h100,x86-64").expect("a machine"), ["sm90:h100", "x86-64"]);
    let both = names("sm90,sm90:h100").expect_err("one level").to_string();
    assert!(both.contains("`sm90` and `sm90:h100` have the same instruction-set level"), "{both}");
    let unknown = names("sm90:a100").expect_err("no such machine").to_string();
    assert!(unknown.contains("unknown target `sm90:a100`") && unknown.contains("sm90:h100"), "{unknown}");
}

#[test]
fn not_an_artifact() {
    let case = Case::new();
    std::os::unix::fs::symlink("nowhere.so", case.path("dangling.so")).expect("link");
    for (command, more) in [("run", &["--ids", "1"][..]), ("inspect", &[]), ("bench", &[]), ("verify", &[])] {
        let run = |artifact: &str| case.0.llmcc(&[&[command, artifact], more].concat());
        // Checkpoints are described as well.
        if command == "inspect" {
            assert!(run("ck").status.success());
            fails(&case, &run("absent.so"), &["absent.so", "No such file"]);
            continue;
        }
        fails(
            &case,
            &run("ck/config.json"),
            &["ck/config.json", "not an artifact of llmcc (make one with `llmcc compile`)"],
        );
        fails(&case, &run("absent.so"), &["cannot read absent.so", "No such file"]);
        fails(&case, &run("ck"), &["ck: it is a checkpoint, not an artifact: compile it first"]);
        fails(&case, &run("ck/dangling.so"), &["ck/dangling.so: it is a link to nowhere.so, which does not exist"]);
    }
}

/// A truncated or stripped artifact says so.
#[test]
fn damaged_artifact() {
    let case = Case::new();
    assert!(case.compile(&[]).status.success());
    let path = case.0.at("m.so");
    let whole = fs::read(&path).expect("artifact");
    fs::write(&path, &whole[..whole.len() - 100]).expect("written");
    let out =
        Command::new(env!("CARGO_BIN_EXE_llmcc")).arg("run").arg(&path).args(["--ids", "1"]).output().expect("runs");
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.contains("m.so"), "{err}");
}
