//! `llmcc retarget`: an artifact of an artifact is that of the checkpoint, byte for byte.

use crate::common::{Folder, text};
use llmcc_abi::tree::part;
use llmcc_cli::backends::{Backends, HAS_LLVM};
use llmcc_cli::carried::Carried;
use llmcc_cli::options::find_targets;
use llmcc_cli::recipe::Recipe;
use llmcc_cli::retarget;
use llmcc_codegen::sealed::{Sealed, renew};
use std::fs;
use std::path::Path;

/// Models and options: a line of each kind of weights, caches and entries.
const CASES: &[(&str, &[&str])] = &[
    ("llama3", &["--dtype", "f32"]),
    ("llama_bf16", &[]),
    ("llama_f16", &[]),
    ("llama3", &["--w8"]),
    ("llama3", &["--w4", "--kv", "int8"]),
    ("qwen3", &["--w4", "--group", "128", "--tap"]),
    ("qwen3", &["--format", "c4", "--also-embed"]),
    ("qwen3", &["--format", "t3"]),
    ("gemma3", &["--fp8", "--hidden-states"]),
    ("mixtral", &["--w4a"]),
    ("llama3", &["--w4", "--lora-slots", "2", "--lora-rank", "4", "--kv-policy", "sinks:first=4,window=12"]),
    ("bert", &["--w8"]),
    ("whisper", &["--format", "q6k"]),
];

fn compile(f: &Folder, (name, options): (&str, &[&str]), target: &str, out: &str) {
    f.compile(name, out, &[options, &["--target", target, "--no-golden"]].concat());
}

fn retargeted(f: &Folder, from: &str, target: &str, out: &str) {
    f.says(&[], &["retarget", from, "--target", target, "-o", out, "--no-golden", "--quiet"]);
}

fn same(f: &Folder, a: &str, b: &str, case: &str) {
    let [a, b] = [a, b].map(|name| fs::read(f.at(name)).expect("an artifact"));
    let at = a.iter().zip(&b).position(|(x, y)| x != y);
    assert!(a == b, "{case}: {} and {} bytes, first difference at {at:?}", a.len(), b.len());
}

#[test]
fn an_artifact_is_made_of_an_artifact() {
    for case in CASES {
        let f = Folder::new();
        let said = format!("{case:?}");
        compile(&f, *case, "x86-64-v3", "a.so");
        compile(&f, *case, "x86-64-v4", "c.so");
        retargeted(&f, "a.so", "x86-64-v4", "b.so");
        same(&f, "b.so", "c.so", &said);
        retargeted(&f, "b.so", "x86-64-v3", "again.so");
        same(&f, "again.so", "a.so", &said);
    }
}

/// With golden vectors where this machine runs both, with weights beside, for several targets at once, signed.
#[test]
fn options_are_those_of_compile() {
    let f = Folder::new();
    let case = ("qwen3", &["--w4", "--soname", "libq.so.1"][..]);
    f.compile(case.0, "a.so", &[case.1, &["--target", "x86-64-v3,x86-64"]].concat());
    f.compile(case.0, "c.so", &[case.1, &["--target", "x86-64", "--weights", "external"]].concat());
    let made = ["retarget", "a.so", "--target", "x86-64", "-o", "b.so", "--weights", "external"];
    let report = f.says(&[], &[&made[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&report).expect("a document");
    assert_eq!(report["root"], f.root_of("b.so"));
    assert_eq!(report["golden"]["target"], "x86-64", "{report}");
    same(&f, "b.so", "c.so", "external");
    same(&f, "b.so.weights", "c.so.weights", "external");
    // Back, of the weights beside it.
    f.says(&[], &["retarget", "b.so", "--target", "x86-64-v3,x86-64", "-o", "d.so", "--weights", "embed", "-q"]);
    same(&f, "d.so", "a.so", "fat");
    f.verify(&["d.so"]).expect("sound");
}

/// A mixture has the forms that were chosen, whatever the new target would choose.
#[test]
fn mixtures_keep_their_forms() {
    let f = Folder::new();
    f.compile("qwen3", "a.so", &["--error-budget", "0.06", "--target", "x86-64-v3", "--no-golden"]);
    retargeted(&f, "a.so", "x86-64", "b.so");
    retargeted(&f, "b.so", "x86-64-v3", "again.so");
    same(&f, "again.so", "a.so", "mixture");
    let [a, b] = ["a.so", "b.so"].map(|name| f.manifest(name));
    assert!(a["weights"]["by_format"].as_object().is_some_and(|all| all.len() > 2), "no mixture: {a}");
    for same in ["tensors", "by_format"] {
        assert_eq!(a["weights"][same], b["weights"][same]);
    }
    assert_eq!(a["certificate"]["budget"], b["certificate"]["budget"]);
}

#[test]
fn files_that_cannot_be_retargeted_are_refused() {
    let f = Folder::new();
    f.compile("llama3", "a.so", &["--w4", "--no-golden"]);
    let refused = |args: &[&str], code: i32, says: &str| {
        let done = f.llmcc(&[&["retarget"], args].concat());
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    };
    refused(&["a.so", "--target", "vax", "-o", "b.so"], 2, "unknown target `vax`");
    refused(&["a.so", "--target", "x86-64", "-o", "a.so"], 2, "would replace a.so, which is read");
    refused(&["nothing.so", "--target", "x86-64", "-o", "b.so"], 2, "there is no such file");
    refused(&["a.so", "--target", "x86-64", "-o", "no/b.so"], 1, "no/b.so");
    fs::write(f.at("text"), "no artifact").expect("written");
    refused(&["text", "--target", "x86-64", "-o", "b.so"], 1, "text: ");
    f.compile("llama3", "absent.so", &["--w4", "--weights", "absent"]);
    refused(&["absent.so", "--target", "x86-64", "-o", "b.so"], 1, "its weights are not inside");
    let whole = fs::read(f.at("a.so")).expect("an artifact");
    let sealed = Sealed::open(&f.at("a.so")).expect("sound");
    for (kind, says) in [(part::WEIGHTS, "weights: bytes"), (part::RECIPE, "module and choices: bytes")] {
        let p = sealed.parts.iter().find(|p| p.kind == kind).expect("a part");
        let mut bad = whole.clone();
        bad[(p.off + p.len / 2) as usize] ^= 4;
        fs::write(f.at("bad.so"), bad).expect("written");
        refused(&["bad.so", "--target", "x86-64", "-o", "b.so"], 1, says);
    }
    // Without a recipe.
    let p = sealed.parts.iter().find(|p| p.kind == part::RECIPE).expect("a recipe");
    let mut old = whole.clone();
    old[p.off as usize..][..16].fill(b' ');
    renew(&mut old, &mut []).expect("an artifact");
    fs::write(f.at("old.so"), old).expect("written");
    refused(&["old.so", "--target", "x86-64", "-o", "b.so"], 1, "its module and choices is unreadable");
    assert_eq!(f.names("."), ["a.so", "absent.so", "absent.so.json", "bad.so", "old.so", "text"]);
}

/// Whoever can write the file can write any recipe with the right hashes: it is an error, or another program.
#[test]
fn any_recipe_ends_in_a_message() {
    let f = Folder::new();
    f.compile("mixtral", "a.so", &["--w4", "--no-golden"]);
    let whole = fs::read(f.at("a.so")).expect("an artifact");
    let sealed = Sealed::open(&f.at("a.so")).expect("sound");
    let p = sealed.parts.iter().find(|p| p.kind == part::RECIPE).expect("a recipe");
    let range = p.off as usize..(p.off + p.len) as usize;
    let recipe = whole[range.clone()].to_vec();
    let sound = |text: &[u8]| Recipe::read(text, sealed.image.weights_len).is_ok();
    assert!(sound(&recipe));
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let digits: Vec<usize> = (0..recipe.len()).filter(|at| recipe[*at].is_ascii_digit()).collect();
    let (mut still, mut tried) = (vec![], 0);
    for _ in 0..400 {
        let mut changed = recipe.clone();
        for _ in 0..=random(3) {
            // Half of the time a number becomes another one, which a reader takes.
            match random(2) {
                0 => changed[digits[random(digits.len())]] = b"0123456789"[random(10)],
                _ => changed[random(recipe.len())] = (random(95) + 32) as u8,
            }
        }
        tried += 1;
        if sound(&changed) && changed != recipe {
            still.push(changed);
        }
    }
    assert!(still.len() > 10, "{} of {tried} can be read", still.len());
    let backends = Backends::new(None);
    for changed in still.iter().take(12) {
        let mut file = whole.clone();
        file[range.clone()].copy_from_slice(changed);
        renew(&mut file, &mut []).expect("an artifact");
        fs::write(f.at("bad.so"), file).expect("written");
        let _ = other(&f.at("bad.so"), &backends);
    }
}

/// Makes another artifact in this process.
fn other(path: &Path, backends: &Backends) -> Result<(), llmcc_cli::Error> {
    let carried = Carried::open(path)?;
    let options = retarget::options(&carried, find_targets("x86-64")?)?;
    let mut lowered = retarget::lower(carried, &options, backends)?;
    llmcc_cli::session::finish(&mut lowered, &options, backends, &path.with_extension("b"), &mut |_, _| ())?;
    Ok(())
}

/// Versions for GPUs have fragments; of these an artifact for processors is made again.
#[test]
fn weights_move_between_processors_and_gpus() {
    if !HAS_LLVM {
        eprintln!("skipped: needs the feature `gpu`");
        return;
    }
    let case = ("qwen3", &["--w4", "--group", "128"][..]);
    let f = Folder::new();
    compile(&f, case, "x86-64-v3", "a.so");
    compile(&f, case, "sm90", "c.so");
    retargeted(&f, "a.so", "sm90", "b.so");
    same(&f, "b.so", "c.so", "as fragments");
    retargeted(&f, "b.so", "x86-64-v3", "again.so");
    same(&f, "again.so", "a.so", "as panels");
    let f = Folder::new();
    // For processors gains are folded into matrices of f32. They stay so, and the way back is the same again.
    compile(&f, ("llama3", &["--dtype", "f32"]), "x86-64-v3", "a.so");
    let done = f.llmcc(&["retarget", "a.so", "--target", "sm90", "-o", "b.so", "--no-golden"]);
    let said = text(&done.stderr);
    assert!(done.status.success() && said.contains("they stay as they are inside"), "{said}");
    retargeted(&f, "b.so", "x86-64-v3", "again.so");
    same(&f, "again.so", "a.so", "f32");
    // The trellis of t3 is not in fragments.
    compile(&f, ("qwen3", &["--format", "t3"]), "sm90", "t3.so");
    let done = f.llmcc(&["retarget", "t3.so", "--target", "x86-64-v3", "-o", "b.so", "--no-golden"]);
    let said = text(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("it has matrices as t3.frag"), "{said}");
}
