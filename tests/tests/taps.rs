//! Artifacts that show the inputs of their products: moments against Transformers', and the same bits however tokens
//! are put together.

use llmcc_cli::options::CompileOptions;
use llmcc_ir::kv::KvDType;
use llmcc_model::{Model, Moments};
use llmcc_passes::ActPolicy;
use llmcc_tests::taps::{Reference, check, moments, open};
use llmcc_tests::{Artifact, golden, logits_in_pieces, options, quantized, root};

fn tapped(options: CompileOptions) -> Artifact {
    Artifact::compile(&CompileOptions { tap: true, ..options })
}

/// A dense decoder, mixtures of experts, latent attention and an encoder show what Transformers multiplies.
#[test]
fn moments_are_those_of_transformers() {
    for name in ["llama", "mixtral", "deepseek_v2_lite", "bert"] {
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
