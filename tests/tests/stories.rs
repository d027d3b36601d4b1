//! Trained models that write English, with text and perplexity computed by others (data beside
//! the workspace; skipped without it).

use llmcc_cli::loaded::Model;
use llmcc_passes::ActPolicy;
use llmcc_tests::{Artifact, argmax, nearest, options, shared};
use std::path::Path;

fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

fn ids(v: &serde_json::Value) -> Vec<i32> {
    v.as_array().expect("ids").iter().map(|i| i.as_i64().expect("an id") as i32).collect()
}

#[test]
fn greedy_text_is_the_expected_one() {
    let Some(dir) = shared("stories260K") else { return };
    let want = ids(&json(&dir.join("expected/greedy200.json"))["ids"]);
    let artifact = Artifact::compile(&options(&dir.join("hf")));
    let model = artifact.open(2);
    assert_eq!(greedy(&model, want[0], want.len()), want);
}

/// `len` tokens from `first` on, each the most probable one.
fn greedy(model: &Model, first: i32, len: usize) -> Vec<i32> {
    let seq = model.seq_new().expect("a sequence");
    let mut out = vec![first];
    while out.len() < len {
        let last = out[out.len() - 1];
        out.push(argmax(&model.step(&[last], &[seq], &[0]).expect("decode")));
    }
    out
}

/// Perplexity over the first documents of a text, as `llmcc eval ppl` prints it.
fn perplexity(artifact: &Artifact, text: &Path, documents: usize) -> f64 {
    let model = artifact.open(2);
    let text = std::fs::read_to_string(text).expect("text");
    let options = llmcc_cli::args::CutArgs {
        separator: Some("<|endoftext|>".into()),
        documents: Some(documents),
        // As the reference cuts documents off.
        first_window: true,
        ..Default::default()
    };
    llmcc_cli::cmd::eval::perplexity(&model, &text, &options).unwrap_or_else(|e| panic!("{e}")).perplexity
}

#[test]
fn perplexity_is_the_expected_one() {
    let (Some(dir), Some(text)) = (shared("stories260K"), shared("text/tinystories_a.txt")) else { return };
    let want = json(&dir.join("expected/ppl.json"))["ppl"].as_f64().expect("ppl");
    let got = perplexity(&Artifact::compile(&options(&dir.join("hf"))), &text, 60);
    assert!((got / want - 1.0).abs() < 5e-4, "perplexity {got:.5}, expected {want:.5}");
}

/// Quantized perplexities against Transformers in f64 with decoded weights, as in `tests/goldens`
/// (weight-only; figures in its README), and int8 activations within 1 % of weight-only.
#[test]
fn quantized_perplexity_is_the_quantization_s_own() {
    let (Some(dir), Some(text)) = (shared("stories260K"), shared("text/tinystories_a.txt")) else { return };
    for (format, reference) in llmcc_tests::REFERENCE_PERPLEXITY {
        let weight_only = perplexity(&Artifact::compile(&nearest(&dir.join("hf"), format, ActPolicy::F32)), &text, 60);
        assert!(
            (weight_only / reference - 1.0).abs() < 5e-4,
            "{format}: {weight_only:.5}, NumPy reference {reference:.5}"
        );
        let int8 = perplexity(&Artifact::compile(&nearest(&dir.join("hf"), format, ActPolicy::Int8)), &text, 60);
        assert!(int8 < weight_only * 1.01, "{format}: int8 activations raise {weight_only:.5} to {int8:.5}");
        println!("{format}: NumPy {reference:.4}, weight-only {weight_only:.4}, int8 activations {int8:.4}");
    }
}

/// The f64 of NumPy's file behind its header of 128 bytes.
fn doubles(path: &Path) -> Vec<f64> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file[128..].as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}

/// How much of `ours` is within a ten-thousandth of `theirs`, and how far off the rest is at most. Where an
/// input is as good as in the middle between two codes of 8 bits, f32 may take the other one than f64, and
/// the logits that depend on it are off by a code: by up to 0.12 of 21 in NumPy's f32 and here.
fn near(ours: &[f32], theirs: &[f64]) -> (usize, f64) {
    assert_eq!(ours.len(), theirs.len());
    let off = ours.iter().zip(theirs).map(|(a, b)| (f64::from(*a) - b).abs());
    off.fold((0, 0.0), |(near, most), d| (near + usize::from(d < 1e-4), most.max(d)))
}

/// BitNet's ternary matrices and inputs of 8 bits, from bitllama2.c's own file.
#[test]
fn a_ternary_model_computes_what_is_expected() {
    let (Some(dir), Some(text)) = (shared("bitnet_stories_1M"), shared("text/tinystories_a.txt")) else { return };
    let artifact = Artifact::compile(&options(&dir));
    let model = artifact.open(2);
    let rows = |ids: &[i32]| {
        let seq = model.seq_new().expect("a sequence");
        model.step(ids, &vec![seq; ids.len()], &(0..ids.len() as u32).collect::<Vec<_>>()).expect("a step")
    };
    let prompt = ids(&json(&dir.join("expected/prompt_ids.json"))["ids"]);
    let (close, most) = near(&rows(&prompt), &doubles(&dir.join("expected/prompt_logits_f64.npy")));
    println!("{close} of {} logits within 1e-4, the others within {most:.1e}", 512 * prompt.len());
    // A token in whose last layers a code is another.
    assert!(close >= 512 * (prompt.len() - 2) && most < 0.15, "{close} {most}");
    // The expected text, token by token: of two that are as good as equal the other may be written.
    let want = ids(&json(&dir.join("expected/greedy200.json"))["ids"]);
    let logits = rows(&want[..want.len() - 1]);
    let behind = |(logits, want): (&[f32], &i32)| logits[argmax(logits) as usize] - logits[*want as usize];
    let behind: Vec<f32> = logits.chunks(512).zip(&want[1..]).map(behind).filter(|d| *d > 0.0).collect();
    assert!(behind.len() <= 1 && behind.iter().all(|d| *d < 0.15), "{behind:?}");
    let first = greedy(&model, want[0], 150);
    assert_eq!(first, want[..150]);
    let want = json(&dir.join("expected/ppl.json"))["ppl"].as_f64().expect("ppl");
    let got = perplexity(&artifact, &text, 60);
    assert!((got / want - 1.0).abs() < 5e-4, "perplexity {got:.5}, expected {want:.5}");
}

/// The f32 of an array that minGPT's author's program wrote, in base 64.
fn floats(v: &serde_json::Value) -> Vec<f32> {
    let sextet = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let sextets: Vec<u8> = v["data"].as_str().expect("base 64").bytes().map_while(sextet).collect();
    let three = |four: &[u8]| {
        let word = four.iter().fold(0u32, |w, s| w << 6 | u32::from(*s)) << (6 * (4 - four.len()));
        word.to_be_bytes()[1..four.len()].to_vec()
    };
    let bytes: Vec<u8> = sextets.chunks(4).flat_map(three).collect();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// minGPT's smallest model has the logits that its own program computed, and sorts all that it can be given:
/// six digits of 0 to 2.
#[test]
fn a_model_that_sorts_does_so() {
    let Some(dir) = shared("nano_sort_gpt") else { return };
    let artifact = Artifact::compile(&options(&dir.join("hf")));
    let model = artifact.open(2);
    let theirs = json(&dir.join("original/gpt-nano-sort-t0-partials.json"));
    let (tokens, wanted) = (floats(&theirs["idx"]), floats(&theirs["lm_head"]));
    assert_eq!((tokens.len(), wanted.len()), (3 * 11, 3 * 11 * 3));
    let rows: Vec<u32> = (0..11).collect();
    for (tokens, wanted) in tokens.chunks(11).zip(wanted.chunks(33)) {
        let seq = model.seq_new().expect("a sequence");
        let tokens: Vec<i32> = tokens.iter().map(|t| *t as i32).collect();
        let ours = model.step(&tokens, &[seq; 11], &rows).expect("a step");
        let largest = wanted.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let difference = ours.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-5 * largest, "{difference:e} of {largest}");
    }
    for number in 0..3i32.pow(6) {
        let digits: Vec<i32> = (0..6).map(|i| number / 3i32.pow(i) % 3).collect();
        let seq = model.seq_new().expect("a sequence");
        let mut next = argmax(&model.step(&digits, &[seq; 6], &[5]).expect("a step"));
        let mut found = vec![next];
        while found.len() < 6 {
            next = argmax(&model.step(&[next], &[seq], &[0]).expect("a step"));
            found.push(next);
        }
        let mut sorted = digits.clone();
        sorted.sort_unstable();
        assert_eq!(found, sorted, "{digits:?}");
        model.seq_free(seq).expect("a sequence");
    }
}
