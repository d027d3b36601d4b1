//! Artifacts that show the inputs of their products: moments against Transformers', and the same bits however tokens are
//! put together.

use llmcc_cli::options::CompileOptions;
use llmcc_ir::kv::KvDType;
use llmcc_model::{Model, Moments, Options};
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, golden, logits_in_pieces, options, quantized, root};
use safetensors::SafeTensors;
use std::collections::{BTreeMap, BTreeSet};

/// Transformers' moments of a fixture (`tests/goldens/taps.py`).
struct Reference {
    bytes: Vec<u8>,
}

impl Reference {
    fn load(name: &str) -> Reference {
        Reference { bytes: std::fs::read(golden(name).join("taps.safetensors")).expect("goldens of taps") }
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
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
    fn rows(&self) -> Vec<Vec<i32>> {
        let (tokens, mut from) = (self.numbers("tokens"), 0);
        let mut row = |n: f64| {
            from += n as usize;
            tokens[from - n as usize..from].iter().map(|t| *t as i32).collect()
        };
        self.numbers("lengths").into_iter().map(&mut row).collect()
    }

    /// Tensors of the checkpoint that something multiplies.
    fn tensors(&self) -> BTreeSet<String> {
        let file = SafeTensors::deserialize(&self.bytes).expect("safetensors");
        file.names().iter().filter_map(|n| n.strip_suffix(".count")).map(str::to_string).collect()
    }

    fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes).expect("safetensors").tensor(name).is_ok()
    }
}

fn open(artifact: &Artifact, threads: u32, max_batch_tokens: u64) -> Model {
    let options = Options { threads, max_batch_tokens, ..Options::default() };
    // SAFETY: this test has just made it.
    unsafe { Model::open(&artifact.path, &options) }.unwrap_or_else(|e| panic!("{e}"))
}

/// Moments of all taps, of rows that go through the model `together` at a time.
fn moments(model: &Model, rows: &[Vec<i32>], together: usize) -> Vec<Moments> {
    let taps = model.taps().expect("taps");
    let mut moments: Vec<Moments> = taps.iter().enumerate().map(|(i, t)| Moments::new(i, t, true)).collect();
    for part in rows.chunks(together) {
        model.add_moments(part, &mut moments).unwrap_or_else(|e| panic!("{e}"));
    }
    moments
}

/// The moments of each weight: counts, squares, least and largest numbers, products.
fn by_weight(model: &Model, moments: &[Moments]) -> BTreeMap<String, [Vec<f64>; 5]> {
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

/// Checks the moments of a fixture in `options` against Transformers' in f64. They may differ by twice as much as
/// Transformers' in f32 do.
fn check(name: &str, artifact: &Artifact, together: usize) {
    let (reference, model) = (Reference::load(name), open(artifact, 2, 0));
    let found = by_weight(&model, &moments(&model, &reference.rows(), together));
    let names: BTreeSet<String> = found.keys().cloned().collect();
    let known = reference.tensors();
    let of_unchosen: Vec<&String> = names.difference(&known).collect();
    assert!(of_unchosen.iter().all(|n| found[*n][0] == [0.0]), "{name}: {of_unchosen:?} are in no reference");
    for tensor in reference.tensors() {
        let [count, parts @ ..] = found.get(&tensor).unwrap_or_else(|| panic!("{name} lacks {tensor}"));
        assert_eq!(*count, reference.numbers(&format!("{tensor}.count")), "{name}: {tensor}");
        let errors = reference.numbers(&format!("{tensor}.error"));
        for ((part, got), error) in ["squares", "min", "max", "products"].iter().zip(parts).zip(errors) {
            let part = format!("{tensor}.{part}");
            if !reference.has(&part) {
                assert!(part.ends_with("products"), "{part} is missing");
                continue;
            }
            let d = largest_difference(got, &reference.numbers(&part));
            assert!(d <= 2.0 * error, "{name}: {part} differs by {d:e}, Transformers in f32 by {error:e}");
        }
        let (squares, products) = (&parts[0], &parts[3]);
        let n = squares.len();
        assert!((0..n).all(|i| squares[i] == products[i * n + i]), "{name}: {tensor}: the diagonal");
        assert!((0..n * n).all(|at| products[at] == products[at % n * n + at / n]), "{name}: {tensor}: symmetry");
    }
}

fn tapped(options: CompileOptions) -> Artifact {
    Artifact::compile(&CompileOptions { tap: true, ..options })
}

/// A dense decoder, a mixture of experts and an encoder show what Transformers multiplies.
#[test]
fn moments_are_those_of_transformers() {
    for name in ["llama", "mixtral", "bert"] {
        check(name, &tapped(options(&golden(name))), usize::MAX);
    }
}

/// Sums have the same bits for any number of threads, any size of steps, and rows one by one.
#[test]
fn sums_do_not_depend_on_batches() {
    let bits = |all: &[Moments]| -> Vec<Vec<u64>> {
        let wide = |x: &f32| u64::from(x.to_bits());
        let one = |m: &Moments| {
            let sums = m.squares.iter().chain(&m.products).map(|x| x.to_bits());
            sums.chain(m.min.iter().chain(&m.max).map(wide)).chain(m.count.iter().copied()).collect()
        };
        all.iter().map(one).collect()
    };
    for (name, cut) in [("llama", true), ("mixtral", true), ("bert", false)] {
        let artifact = tapped(options(&golden(name)));
        let rows = Reference::load(name).rows();
        let want = bits(&moments(&open(&artifact, 1, 0), &rows, usize::MAX));
        for (threads, step, together) in [(2, 0u64, usize::MAX), (2, 0, 1), (1, 5, usize::MAX), (2, 16, 2), (1, 1, 3)] {
            // (Where tokens see later ones, a text is one step.)
            let step = if cut { step } else { step.next_multiple_of(64) };
            let got = bits(&moments(&open(&artifact, threads, step), &rows, together));
            assert!(got == want, "{name}: {threads} threads, steps of {step} tokens, {together} rows together");
        }
    }
}

/// A model with taps computes the bits of one without, in every kind of weights, and its artifact has no weight twice.
#[test]
fn steps_have_the_bits_of_a_model_without_taps() {
    let example = root().join("examples/tiny-llama/model");
    for o in [
        options(&golden("llama")),
        options(&golden("mixtral")),
        quantized(&golden("qwen3"), "w8g32", ActPolicy::Int8),
        CompileOptions { kv: Some(KvDType::Int8), ..quantized(&example, "w4g32", ActPolicy::Int8) },
    ] {
        let (with, without) = (tapped(o.clone()), Artifact::compile(&o));
        let (a, b) = (with.open(2), without.open(2));
        let tokens: Vec<i32> = (0..50).map(|i| (i * 37 + 11) % a.info().vocab as i32).collect();
        for sizes in [&[50][..], &[1], &[7, 3]] {
            let bits = |m| logits_in_pieces(m, &tokens, sizes).into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert!(bits(&a) == bits(&b), "{}: pieces of {sizes:?}", o.checkpoint.display());
        }
        let size = |a: &Artifact| std::fs::metadata(&a.path).expect("a file").len();
        let grown = size(&with) - size(&without);
        assert!(grown < 80 << 10, "{}: {grown} bytes more", o.checkpoint.display());
    }
}

/// An artifact without the entry says how to get one; arrays and tokens are checked.
#[test]
fn what_does_not_fit_is_refused() {
    let o = options(&golden("llama"));
    let (with, without) = (tapped(o.clone()), Artifact::compile(&o));
    let (model, plain) = (open(&with, 1, 0), open(&without, 1, 0));
    assert_eq!(plain.taps().expect("none"), []);
    let taps = model.taps().expect("taps");
    let new = |i: usize| Moments::new(i, &taps[i], false);
    let refused = |model: &Model, rows: &[Vec<i32>], mut m: Vec<Moments>| {
        let before = m.clone();
        let error = model.add_moments(rows, &mut m).expect_err("refused").to_string();
        assert_eq!(m, before, "nothing is added: {error}");
        error
    };
    for (rows, m, why) in [
        (vec![vec![]], vec![new(0)], "row 0 has no tokens"),
        (vec![vec![5], vec![1 << 20]], vec![new(0)], "outside the vocabulary"),
        (vec![vec![5; 5000]], vec![new(0)], "the model's longest context"),
        (vec![vec![5]], vec![Moments { tap: 999, ..new(0) }], "tap 999 does not exist"),
    ] {
        let error = refused(&model, &rows, m);
        assert!(error.contains(why), "{error}");
    }
    // (Without taps there are none to make moments of.)
    let error = plain.add_moments(&[vec![5]], &mut []).expect_err("no taps").to_string();
    assert!(error.contains("compile the model with --tap"), "{error}");
    // No sequence is left, and calls go on.
    let mut m = vec![new(0), new(3)];
    model.add_moments(&[vec![5, 6], vec![7]], &mut m).expect("moments");
    assert_eq!([m[0].count[0], m[1].count[0]], [3, 3]);
    assert!(model.stats().expect("statistics").contains("\"sequences\":0"), "{}", model.stats().expect("statistics"));
}
