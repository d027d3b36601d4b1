//! Deterministic damage to seeds, for tests on stable Rust.

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

/// Mutations of seeds, of which there is one at least: the same ones in every run.
pub fn mutations(seeds: &[Vec<u8>]) -> impl Iterator<Item = Vec<u8>> {
    let mut r = Random(1);
    std::iter::repeat_with(move || {
        let mut data = seeds[r.below(seeds.len())].clone();
        mutate(&mut data, seeds, &mut r);
        data
    })
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

/// The files of a target's corpus, in order of their names.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    // (Crates that include this file are one or two folders below the root.)
    let crate_folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crate_folder.ancestors().map(|root| root.join("fuzz/corpus").join(target)).find(|path| path.is_dir());
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let mut files: Vec<_> = entries.into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name != ".gitkeep"));
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

/// Number of mutations of a target: `LLMCC_FUZZ_CASES`, else `usual`.
pub fn cases(usual: usize) -> usize {
    std::env::var("LLMCC_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Runs a target on its seeds and on so many mutations of them.
///
/// # Panics
/// There are no seeds, or the target has a bug: with the input.
pub fn run(name: &str, target: fn(&[u8]), seeds: &[Vec<u8>], cases: usize) {
    assert!(!seeds.is_empty(), "{name} has no corpus");
    for (case, data) in seeds.iter().cloned().chain(mutations(seeds).take(cases)).enumerate() {
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("{name} panics on case {case}: {data:?}\n{}", String::from_utf8_lossy(&data));
        }
    }
}
