//! Moments of the inputs of products: an artifact's, and Transformers' to compare them with.

use crate::{Artifact, golden};
use llmcc_model::{Model, Moments, Options};
use safetensors::SafeTensors;
use std::collections::{BTreeMap, BTreeSet};

/// Transformers' moments of a fixture (`tests/goldens/taps.py`).
pub struct Reference {
    bytes: Vec<u8>,
}

impl Reference {
    /// Reads the moments of a fixture.
    pub fn load(name: &str) -> Reference {
        Reference { bytes: std::fs::read(golden(name).join("taps.safetensors")).expect("goldens of taps") }
    }

    /// The numbers of a tensor of the file.
    pub fn numbers(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.bytes).expect("safetensors");
        let tensor = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        match tensor.dtype() {
            safetensors::Dtype::F64 => {
                tensor.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
            }
            safetensors::Dtype::I64 => {
                let whole = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("8 bytes")) as f64;
                tensor.data().chunks_exact(8).map(whole).collect()
            }
            safetensors::Dtype::I32 => {
                let whole = |b: &[u8]| f64::from(i32::from_le_bytes(b.try_into().expect("4 bytes")));
                tensor.data().chunks_exact(4).map(whole).collect()
            }
            other => panic!("{name} is of {other:?}"),
        }
    }

    /// The texts.
    pub fn rows(&self) -> Vec<Vec<i32>> {
        let (tokens, mut from) = (self.numbers("tokens"), 0);
        let mut row = |n: f64| {
            from += n as usize;
            tokens[from - n as usize..from].iter().map(|t| *t as i32).collect()
        };
        self.numbers("lengths").into_iter().map(&mut row).collect()
    }

    /// Tensors of the checkpoint that something multiplies.
    pub fn tensors(&self) -> BTreeSet<String> {
        let file = SafeTensors::deserialize(&self.bytes).expect("safetensors");
        file.names().iter().filter_map(|n| n.strip_suffix(".count")).map(str::to_string).collect()
    }

    /// Whether the file has a tensor.
    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes).expect("safetensors").tensor(name).is_ok()
    }
}

/// Opens an artifact with steps of so many tokens; 0: the default.
pub fn open(artifact: &Artifact, threads: u32, max_batch_tokens: u64) -> Model {
    let options = Options { threads, max_batch_tokens, ..Options::default() };
    // SAFETY: this test has just made it.
    unsafe { Model::open(&artifact.path, &options) }.unwrap_or_else(|e| panic!("{e}"))
}

/// Moments of all taps, of rows that go through the model `together` at a time.
pub fn moments(model: &Model, rows: &[Vec<i32>], together: usize) -> Vec<Moments> {
    let taps = model.taps().expect("taps");
    let mut moments: Vec<Moments> = taps.iter().enumerate().map(|(i, t)| Moments::new(i, t, true)).collect();
    for part in rows.chunks(together) {
        model.add_moments(part, &mut moments).unwrap_or_else(|e| panic!("{e}"));
    }
    moments
}

/// The moments of each weight: counts, squares, least and largest numbers, products.
pub fn by_weight(model: &Model, moments: &[Moments]) -> BTreeMap<String, [Vec<f64>; 5]> {
    let mut all = BTreeMap::new();
    for (tap, m) in model.taps().expect("taps").iter().zip(moments) {
        for (name, expert) in &tap.weights {
            let (e, n) = (expert.unwrap_or(0), tap.columns);
            let wide = |x: &[f32]| x[e * n..][..n].iter().map(|x| f64::from(*x)).collect();
            let products = m.products[e * n * n..][..n * n].to_vec();
            let parts =
                [vec![m.count[e] as f64], m.squares[e * n..][..n].to_vec(), wide(&m.min), wide(&m.max), products];
            assert!(all.insert(name.clone(), parts).is_none(), "{name} is named by one tap");
        }
    }
    all
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Checks the moments of a fixture against Transformers' in f64. The largest difference of each kind of them, relative
/// to the largest number of a tensor, may be twice that of Transformers in f32.
pub fn check(name: &str, artifact: &Artifact, together: usize) {
    let (reference, model) = (Reference::load(name), open(artifact, 2, 0));
    let found = by_weight(&model, &moments(&model, &reference.rows(), together));
    let names: BTreeSet<String> = found.keys().cloned().collect();
    let known = reference.tensors();
    let of_unchosen: Vec<&String> = names.difference(&known).collect();
    assert!(of_unchosen.iter().all(|n| found[*n][0] == [0.0]), "{name}: {of_unchosen:?} are in no reference");
    let mut worst: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for tensor in reference.tensors() {
        let [count, parts @ ..] = found.get(&tensor).unwrap_or_else(|| panic!("{name} lacks {tensor}"));
        assert_eq!(*count, reference.numbers(&format!("{tensor}.count")), "{name}: {tensor}");
        let errors = reference.numbers(&format!("{tensor}.error"));
        for ((kind, got), error) in ["squares", "min", "max", "products"].iter().zip(parts).zip(errors) {
            let part = format!("{tensor}.{kind}");
            if !reference.has(&part) {
                assert!(*kind == "products", "{part} is missing");
                continue;
            }
            let want = reference.numbers(&part);
            let largest = want.iter().fold(0f64, |m, x| m.max(x.abs()));
            let (ours, theirs) = worst.entry(kind).or_default();
            *ours = ours.max(largest_difference(got, &want) / largest);
            *theirs = theirs.max(error / largest);
        }
        let (squares, products) = (&parts[0], &parts[3]);
        let n = squares.len();
        assert!((0..n).all(|i| squares[i] == products[i * n + i]), "{name}: {tensor}: the diagonal");
        assert!((0..n * n).all(|at| products[at] == products[at % n * n + at / n]), "{name}: {tensor}: symmetry");
    }
    assert_eq!(worst.len(), 4);
    for (kind, (ours, theirs)) in worst {
        println!("{name}: {kind} differ by {ours:e}, Transformers' in f32 by {theirs:e}");
        assert!(ours <= 2.0 * theirs, "{name}: {kind} differ by {ours:e}, Transformers' in f32 by {theirs:e}");
    }
}
