//! Every byte of an artifact is hashed: the messages of `verify` about changed ones; running one
//! gives nothing worse than a message.
//!
//! `LLMCC_ALL_BITS=1` tries all bits of headers, descriptor, tables and texts instead of a sample.

use crate::common::{Folder, WITH_TOKENIZER, text};
use llmcc_abi::ImageRef;
use llmcc_abi::tree::{PartDesc, part};
use llmcc_codegen::sealed::{Sealed, renew};
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Bits of a range of bytes: all of them if asked for, and if they are not too many; else the
/// first, the last and `n` others.
fn bits(from: u64, len: u64, n: u64, r: &mut Random) -> Vec<(u64, u32)> {
    if std::env::var_os("LLMCC_ALL_BITS").is_some() && len < 200_000 {
        return (from..from + len).flat_map(|at| (0..8).map(move |bit| (at, bit))).collect();
    }
    let some: Vec<u64> = (0..n).map(|_| from + r.below(len)).collect();
    [from, from + len - 1].into_iter().chain(some).map(|at| (at, r.below(8) as u32)).collect()
}

/// Whichever bit changes, of whichever file: the part and the place are named.
#[test]
fn every_changed_bit_is_found_where_it_is() {
    let f = Folder::new();
    f.compile("llama3", "m.so", &["--w4", "--no-golden"]);
    f.compile(WITH_TOKENIZER, "e.so", &["--w4", "--no-golden", "--weights", "external"]);
    let mut r = Random(1);
    for name in ["m.so", "e.so"] {
        let path = f.at(name);
        let sealed = Sealed::open(&path).expect("sound");
        assert_eq!(sealed.check(|_| true, 2).expect("readable"), []);
        let files = [path.clone(), sealed.weights_path()];
        let mut kinds = vec![];
        for p in &sealed.parts {
            kinds.push(p.kind);
            if p.kind == WEIGHTS && r.below(8) > 0 {
                continue;
            }
            let file = fs::File::options().read(true).write(true).open(&files[p.file as usize]).expect("writable");
            for (at, bit) in bits(p.off, p.len, 6, &mut r) {
                flip(&file, at, bit);
                let found = Sealed::open(&path).map(|s| s.check(|q| q == p, 1).expect("readable"));
                flip(&file, at, bit);
                match found {
                    Ok(found) => assert!(
                        matches!(&found[..], [d] if d.part == *p && (d.from..d.to).contains(&at)),
                        "{name}: bit {bit} of byte {at} in {}: {found:?}",
                        part::name(p.kind)
                    ),
                    // A damaged table of hashes says nothing more about the rest.
                    Err(e) => assert!(p.kind == IMAGE, "{e}"),
                }
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        use part::{CODE, HEADERS, IMAGE, LABEL, MANIFEST, NOTICES, PADDING, RECIPE, RUNTIME};
        use part::{TABLES, TEXT_CONFIG, TOKENIZER, WEIGHTS};
        let expected: &[u32] = match name {
            "m.so" => {
                &[HEADERS, RUNTIME, IMAGE, CODE, WEIGHTS, TABLES, MANIFEST, TEXT_CONFIG, PADDING, NOTICES, RECIPE]
            }
            _ => &[
                HEADERS,
                RUNTIME,
                IMAGE,
                CODE,
                WEIGHTS,
                TABLES,
                MANIFEST,
                TOKENIZER,
                TEXT_CONFIG,
                PADDING,
                LABEL,
                NOTICES,
                RECIPE,
            ],
        };
        assert_eq!(kinds, expected, "{name}");
        // The hashes themselves.
        let (end, len) = (sealed.image.file_len, sealed.image.hashes_len);
        let file = fs::File::options().read(true).write(true).open(&path).expect("writable");
        for (at, bit) in bits(end - len, len, 40, &mut r) {
            flip(&file, at, bit);
            assert!(
                Sealed::open(&path).is_err_and(|e| e.to_string().contains("table of hashes")),
                "{name}: bit {bit} of byte {at}"
            );
            flip(&file, at, bit);
        }
        assert_eq!(Sealed::open(&path).expect("sound").check(|_| true, 3).expect("readable"), []);
    }
}

fn flip(file: &fs::File, at: u64, bit: u32) {
    use std::os::unix::fs::FileExt;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1 << bit], at).expect("written");
}

/// With a bit changed anywhere but in the weights, running an artifact gives a message or the same
/// result.
#[test]
fn running_a_changed_artifact_is_a_message_at_worst() {
    let f = Folder::new();
    f.compile("llama3", "m.so", &["--w4", "--no-golden"]);
    let run = |name: &str| f.llmcc(&["run", name, "--ids", "1,2,3", "-n", "3", "--threads", "1"]);
    let want = run("m.so");
    assert!(want.status.success(), "{}", text(&want.stderr));
    let whole = fs::read(f.at("m.so")).expect("artifact");
    let sealed = Sealed::open(&f.at("m.so")).expect("sound");
    let mut r = Random(2);
    let hashes = PartDesc {
        kind: u32::MAX,
        off: whole.len() as u64 - sealed.image.hashes_len,
        len: sealed.image.hashes_len,
        ..PartDesc::default()
    };
    let parts = sealed.parts.iter().chain([&hashes]).filter(|p| !matches!(p.kind, part::WEIGHTS | part::PADDING));
    let mut ran = 0;
    for p in parts {
        for (at, bit) in bits(p.off, p.len, 4, &mut r) {
            let mut bad = whole.clone();
            bad[at as usize] ^= 1 << bit;
            fs::write(f.at("bad.so"), bad).expect("written");
            let done = run("bad.so");
            let (code, said) = (done.status.code(), text(&done.stderr));
            let message = code == Some(1) && said.starts_with("error: ") && said.contains("bad.so");
            let place = format!("bit {bit} of byte {at} in {}: {:?}: {said}", part::name(p.kind), done.status);
            assert!(message || done.status.success() && done.stdout == want.stdout, "{place}");
            // Only leaves and bytes that no process reads may change unnoticed here.
            assert!(message || p.kind == u32::MAX, "{place}");
            ran += 1;
        }
    }
    eprintln!("{ran} artifacts run");
}

#[test]
fn verify_names_what_changed() {
    let f = Folder::new();
    f.compile(WITH_TOKENIZER, "m.so", &["--w4"]);
    let whole = fs::read(f.at("m.so")).expect("artifact");
    let sealed = Sealed::open(&f.at("m.so")).expect("sound");
    let said = f.verify(&["m.so"]).expect("sound");
    assert!(
        said.contains(&format!("root         {}\n", f.root_of("m.so"))) && said.contains("tokenizer    "),
        "{said}"
    );
    let of = |kind: u32| sealed.parts.iter().filter(|p| p.kind == kind).max_by_key(|p| p.len).expect("a part");
    let cases: [(u32, &[&str]); 10] = [
        (part::HEADERS, &["ELF headers: bytes"]),
        (part::RUNTIME, &["runtime: bytes"]),
        (part::CODE, &["code: bytes"]),
        (part::WEIGHTS, &["weights, ", ".weight"]),
        (part::TABLES, &["tables: bytes"]),
        (part::MANIFEST, &["manifest: bytes"]),
        (part::TOKENIZER, &["tokenizer: bytes"]),
        (part::TEXT_CONFIG, &["chat template and special tokens: bytes"]),
        (part::NOTICES, &["licences: bytes"]),
        (part::RECIPE, &["module and choices: bytes"]),
    ];
    for (kind, says) in cases {
        let p = of(kind);
        let mut bad = whole.clone();
        bad[(p.off + p.len / 2) as usize] ^= 4;
        fs::write(f.at("bad.so"), bad).expect("written");
        let said = f.verify(&["bad.so"]).expect_err("changed");
        assert!(said.contains("bad.so: changed since it was compiled") && said.lines().count() == 2, "{said}");
        assert!(says.iter().all(|s| said.contains(s)), "{says:?}: {said}");
    }
    for (bad, says) in [
        ([&whole[..], b"x"].concat(), "something was appended"),
        (whole[..whole.len() - 1].to_vec(), "cut short, or stripped"),
    ] {
        fs::write(f.at("bad.so"), bad).expect("written");
        assert!(f.verify(&["bad.so"]).is_err_and(|e| e.contains(says)));
    }
}

/// A noted root detects a forgery that hashes cannot: a weight changed, all hashes renewed, golden
/// vectors removed.
#[test]
fn a_forger_needs_the_root_as_well() {
    let f = Folder::new();
    let said = f.compile("llama3", "m.so", &["--w4", "--no-golden"]);
    let root = f.root_of("m.so");
    assert!(said.contains(&format!("  root        {root}\n")), "{said}");
    assert!(text(&f.llmcc(&["inspect", "m.so"]).stdout).starts_with(&format!("root        {root}\n")));
    assert!(text(&f.llmcc(&["inspect", "m.so", "--json"]).stdout).contains(&format!("\"root\": \"{root}\"")));
    let whole = fs::read(f.at("m.so")).expect("artifact");
    let same = renew(&mut whole.clone(), &mut []).expect("an artifact");
    assert_eq!(same, Sealed::open(&f.at("m.so")).expect("sound").root(), "the root of what did not change");
    assert!(f.verify(&["m.so", "--root", &root.to_uppercase()]).expect("the same").contains("the given one"));
    let mut forged = whole;
    let weights = Sealed::open(&f.at("m.so"))
        .expect("sound")
        .parts
        .iter()
        .find(|p| p.kind == part::WEIGHTS)
        .expect("weights")
        .off;
    forged[weights as usize + 100] ^= 1;
    renew(&mut forged, &mut []).expect("an artifact");
    fs::write(f.at("m.so"), forged).expect("written");
    let said = f.verify(&["m.so"]).expect("consistent in itself");
    assert!(said.contains("warning: m.so: no golden vectors to compare with") && said.contains("--root"), "{said}");
    let said = f.verify(&["m.so", "--root", &root]).expect_err("another root");
    assert!(said.contains("not the given one"), "{said}");
    assert_eq!(f.llmcc(&["verify", "m.so", "--root", "12"]).status.code(), Some(2));
}

#[test]
fn side_files_belong_to_their_artifacts() {
    let f = Folder::new();
    f.compile("llama3", "a.so", &["--w4", "--weights", "external"]);
    f.compile("mistral", "b.so", &["--w4", "--weights", "external"]);
    f.compile("llama3", "c.so", &["--w4", "--weights", "external"]);
    let run = |name: &str| text(&f.llmcc(&["run", name, "--ids", "1", "-n", "1"]).stderr);
    // The same weights are the same file.
    assert!(fs::read(f.at("a.so.weights")).expect("side") == fs::read(f.at("c.so.weights")).expect("side"));
    fs::copy(f.at("b.so.weights"), f.at("a.so.weights")).expect("copied");
    for said in [run("a.so"), f.verify(&["a.so"]).expect_err("other weights")] {
        assert!(said.contains("a.so.weights") && said.contains("keep the two files together"), "{said}");
    }
    // As long as its own, but of other weights.
    let mut other = fs::read(f.at("c.so.weights")).expect("side");
    let end = other.len() - 1;
    other[end] ^= 1;
    fs::write(f.at("a.so.weights"), &other).expect("written");
    assert!(run("a.so").contains("these are not the weights of"), "{}", run("a.so"));
    other[end] ^= 1;
    other[1000] ^= 1;
    fs::write(f.at("a.so.weights"), other).expect("written");
    let said = f.verify(&["a.so"]).expect_err("a changed weight");
    assert!(said.contains("weights, ") && said.contains("a.so.weights"), "{said}");
    fs::remove_file(f.at("a.so.weights")).expect("removed");
    assert!(run("a.so").contains("a.so.weights") && f.verify(&["a.so"]).is_err_and(|e| e.contains("a.so.weights")));
    // `inspect` does not need them.
    assert!(f.llmcc(&["inspect", "a.so"]).status.success());
}

/// The root by another implementation, which shares nothing with this one but the description in
/// docs/abi.md.
#[test]
fn python_computes_the_same_root() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/llmcc/_integrity.py");
    let f = Folder::new();
    f.compile("llama3", "a.so", &["--w4", "--no-golden"]);
    f.compile(WITH_TOKENIZER, "b.so", &["--dtype", "f32", "--no-golden", "--weights", "external"]);
    for name in ["a.so", "b.so"] {
        let python = |what: &str| Command::new("python3").arg("-B").arg(&script).arg(f.at(what)).output();
        let Ok(done) = python(name) else {
            println!("skipped: no python3");
            return;
        };
        assert_eq!(text(&done.stdout).trim(), f.root_of(name), "{name}: {}", text(&done.stderr));
        let mut bad = fs::read(f.at(name)).expect("artifact");
        bad[offset_of!(ImageRef, root) + 500_000] ^= 1;
        fs::write(f.at("bad.so"), bad).expect("written");
        let said = python("bad.so").map(|d| text(&d.stderr)).unwrap_or_default();
        assert!(said.contains("its runtime, bytes "), "{said}");
    }
}
