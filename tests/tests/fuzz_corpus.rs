//! Every fuzz target on stable Rust: its corpus, and deterministic mutations of it.
//!
//! `LLMCC_FUZZ_CASES` sets the number of mutations per target (default 3000). For real fuzzing see `fuzz/README.md`.

use std::panic::catch_unwind;
use std::path::Path;

#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// Byte strings that parsers tend to stumble over.
const TOKENS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"18446744073709551615",
    b"9223372036854775808",
    b"4294967296",
    b"1e999",
    b"1e-320",
    b"0.5",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"[",
    b"}",
    b"\"",
    b"\\u0000",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0\0\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    "▁".as_bytes(),
    b"%",
    b"inf",
    b"NaN",
];

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; 0 for 0.
    fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }
}

/// One to four small damages.
fn mutate(data: &mut Vec<u8>, seeds: &[Vec<u8>], r: &mut Random) {
    for _ in 0..=r.below(4) {
        let at = r.below(data.len() + 1);
        let end = (at + 1 + r.below(16)).min(data.len());
        match r.below(8) {
            0 => data.truncate(at),
            1 if at < data.len() => data[at] ^= 1 << r.below(8),
            2 if at < data.len() => data[at] = r.next() as u8,
            3 => drop(data.drain(at.min(end)..end)),
            4 => drop(data.splice(at..at, TOKENS[r.below(TOKENS.len())].iter().copied())),
            5 => drop(data.splice(at.min(end)..end, TOKENS[r.below(TOKENS.len())].iter().copied())),
            6 => {
                let copy = data[at.min(end)..end].to_vec();
                let to = r.below(data.len() + 1);
                data.splice(to..to, copy);
            }
            _ => {
                let other = &seeds[r.below(seeds.len())];
                let from = r.below(other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
        }
    }
}

/// The smallest file that looks like an artifact: an ELF header, the descriptor, three segments.
fn artifact_seed() -> Vec<u8> {
    let header = 64;
    let descriptor = 80;
    let headers = header + descriptor;
    let parts = headers + 3 * 56;
    let len = parts + 3 * 16;
    let mut file = vec![];
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([3u16, 62].iter().flat_map(|x| x.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    file.extend([0u64, headers as u64, 0].iter().flat_map(|x| x.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 3, 64, 0, 0].iter().flat_map(|x| x.to_le_bytes()));
    let part = |i: usize| (parts + 16 * i) as u64;
    file.extend(b"llmcc-image-ref\0");
    file.extend([llmcc_abi::ABI_VERSION, 0].iter().flat_map(|x| x.to_le_bytes()));
    file.extend([part(0), 16, part(1), 16, part(2), 16, len as u64].iter().flat_map(|x| x.to_le_bytes()));
    for i in 0..3 {
        file.extend([1u32, 4].iter().flat_map(|x| x.to_le_bytes()));
        file.extend([part(i), part(i), part(i), 16, 16, 16].iter().flat_map(|x| x.to_le_bytes()));
    }
    file.resize(len, 0);
    file
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(corpus).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    let mut seeds: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).unwrap()).collect();
    if target == "artifact" {
        seeds.push(artifact_seed());
    }
    seeds
}

/// A manifest from an artifact, as `llmcc inspect` shows it.
fn manifest(data: &[u8]) {
    if let Ok(json) = serde_json::from_slice(data) {
        llmcc_cli::cmd::inspect::describe(&json, true);
    }
}

#[test]
fn no_target_panics() {
    // Assert that the libFuzzer side finds its targets too: it knows them by name.
    targets::TARGETS.iter().for_each(|(name, _)| targets::run(name, b""));
    let cases = std::env::var("LLMCC_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    // The manifest is read by the command line, which cannot be built with a fuzzer's instrumentation.
    let all = targets::TARGETS.iter().copied().chain([("manifest", manifest as targets::Target)]);
    for (name, target) in all {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no corpus");
        let run = |data: &[u8], what: &str| {
            if catch_unwind(|| target(data)).is_err() {
                panic!("{name} panics on {what}: {:?}\n{}", data, String::from_utf8_lossy(data));
            }
        };
        seeds.iter().enumerate().for_each(|(i, s)| run(s, &format!("seed {i}")));
        let mut r = Random(1);
        for case in 0..cases {
            let mut data = seeds[r.below(seeds.len())].clone();
            mutate(&mut data, &seeds, &mut r);
            run(&data, &format!("case {case}"));
        }
    }
}

/// The seed is what the reader takes for an artifact, so that its mutations reach beyond the first check.
#[test]
fn the_artifact_seed_is_an_artifact() {
    let path = std::env::temp_dir().join(format!("llmcc-artifact-seed-{}", std::process::id()));
    std::fs::write(&path, artifact_seed()).unwrap();
    let parts = llmcc_codegen::locate::locate(&path);
    let _ = std::fs::remove_file(&path);
    assert_eq!(parts.unwrap().code.len, 16);
}
