//! Damaged text gives an error; if it still parses, running it ends with a result or a fault: never
//! a panic.

use crate::common::{self, Random};
use llmcc_ptx::{Memory, Module, Options, launch};

const TEXTS: [&str; 2] = [include_str!("llvm.ptx"), include_str!("every.ptx")];

/// `text` with some words replaced by other words of it, or taken away.
fn damage(text: &str, r: &mut Random) -> String {
    let mut words: Vec<&str> = text.split_inclusive([' ', '\t', '\n', ',', '.']).collect();
    for _ in 0..1 + r.next() % 3 {
        let (a, b) = (r.next() as usize % words.len(), r.next() as usize % words.len());
        match r.next() % 3 {
            0 => words[a] = words[b],
            1 => words[a] = ["-1,", "0x7fffffffffffffff;", "{", "]", "%r1", ".v4", "64"][b % 7],
            _ => drop(words.remove(a)),
        }
    }
    words.concat()
}

#[test]
fn the_undamaged_text_runs() {
    let m = common::parse(TEXTS[1]);
    let mut mem = Memory::new();
    let args = [mem.alloc_from(&[1; 8192]), mem.alloc_from(&[0; 8192])];
    let stats = launch(&m, "k", [1, 1, 1], [128, 1, 1], 0, &args, &mut mem, &Options::default())
        .unwrap_or_else(|f| panic!("{f}"));
    assert!(stats.classes.len() > 45, "{:?}", stats.classes);
}

/// The syntax that is read is that of NVIDIA's assembler, where that is at hand (`LLMCC_PTXAS`
/// names it, as in `make test`).
#[test]
fn the_assembler_takes_the_same_text() {
    let Some(ptxas) = std::env::var_os("LLMCC_PTXAS").filter(|p| std::path::Path::new(p).exists()) else {
        eprintln!("skipped: LLMCC_PTXAS does not name an assembler");
        return;
    };
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (i, text) in TEXTS.iter().enumerate() {
        let (source, object) = (dir.join(format!("text{i}.ptx")), dir.join(format!("text{i}.cubin")));
        std::fs::write(&source, text).expect("the target folder is writable");
        let out = std::process::Command::new(&ptxas)
            .arg("-arch=sm_90a")
            .arg(&source)
            .arg("-o")
            .arg(object)
            .output()
            .expect("ptxas runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn damaged_text_does_not_panic() {
    let mut r = Random(7);
    let (mut parsed, mut finished) = (0, 0);
    for text in TEXTS {
        for _ in 0..1500 {
            let Ok(m) = Module::parse(&damage(text, &mut r)) else { continue };
            parsed += 1;
            for k in m.kernels() {
                let mut mem = Memory::new();
                let data: Vec<u8> = (0..8192u32).map(|i| i as u8).collect();
                let args: Vec<u64> = k.params().iter().map(|_| mem.alloc_from(&data)).collect();
                let options = Options {
                    instruction_limit: 20_000,
                    check_races: r.next().is_multiple_of(2),
                    check_uninitialised: false,
                    ..Options::default()
                };
                let threads = [32, 64, 128][r.next() as usize % 3];
                finished += i32::from(
                    launch(&m, k.name(), [2, 1, 1], [threads, 1, 1], 1024, &args, &mut mem, &options).is_ok(),
                );
            }
        }
    }
    assert!(parsed > 100 && finished > 10, "{parsed} texts could be read, {finished} kernels ran");
}
