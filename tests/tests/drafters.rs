//! Compiled models with published drafts in the same artifact (EAGLE-1, EAGLE-3, Medusa), against a reference in NumPy
//! (`tests/goldens/drafter_reference.py`): rows and logits in pieces, chains of guesses; and generated text with
//! guesses against the same without.

use llmcc_cli::loaded::Model;
use llmcc_cli::options::CompileOptions;
use llmcc_frontends::Checkpoint;
use llmcc_ir::quant::{Elem, Format};
use llmcc_model::{Guesses, Params, Sampling};
use llmcc_tests::{Artifact, golden, options};

/// Each with the results of its entries by their names, and the model's rows that it takes.
const DRAFTS: [(&str, &[&str], &str); 3] = [
    ("eagle", &["eagle"], "hidden"),
    ("eagle3", &["eagle3"], "fused"),
    ("medusa", &["medusa0", "medusa1", "medusa2"], "hidden"),
];
/// The token after the reference's prompt.
const NEXT: i32 = 77;

fn with_draft(name: &str) -> CompileOptions {
    CompileOptions { draft: Some(golden("drafters").join(name)), ..options(&golden("drafters").join("model")) }
}

/// The reference's results.
struct Golden(Checkpoint);

impl Golden {
    fn open() -> Golden {
        Golden(Checkpoint::open(&golden("drafters/model/golden.safetensors")).unwrap())
    }

    fn ints(&self, tensor: &str) -> Vec<i32> {
        self.0.tensor(tensor).unwrap().data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    fn floats(&self, tensor: &str) -> Vec<f32> {
        self.0.tensor(tensor).unwrap().to_f32()
    }

    /// `ours` is at most twice as far off as NumPy in f32.
    #[track_caller]
    fn near(&self, what: &str, ours: &[f32]) {
        let wanted = self.floats(what);
        let allowed = 2.0 * self.floats(&format!("{what}_error_f32"))[0];
        let error = ours.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{what}: error {error:.2e}, allowed {allowed:.2e}");
        assert!(ours.len() == wanted.len() && error <= allowed, "{what} off by {error:.2e}");
    }
}

/// Logits and rows of a sequence in pieces of so many tokens by an entry.
fn in_pieces(model: &Model, entry: usize, tokens: &[i32], given: &[f32], piece: usize) -> (Vec<f32>, Vec<f32>) {
    let (seq, width) = (model.seq_new().unwrap(), model.info().hidden);
    let (mut logits, mut left) = (vec![], vec![]);
    for (i, tokens) in tokens.chunks(piece).enumerate() {
        let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
        let given = given.get(i * piece * width..).unwrap_or_default();
        let given = &given[..given.len().min(tokens.len() * width)];
        let made = model.run(entry, (tokens, given), &vec![seq; tokens.len()], &wanted).unwrap();
        logits.extend(made.0);
        left.extend(made.1);
    }
    model.seq_free(seq).unwrap();
    (logits, left)
}

/// The most probable token of the last row.
fn best(logits: &[f32], vocab: usize) -> i32 {
    let row = &logits[logits.len() - vocab..];
    (0..vocab).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as i32
}

/// Rows, logits and the tokens that a draft guesses one after the other are the reference's.
#[test]
fn rows_logits_and_guesses() {
    let of = Golden::open();
    let tokens = of.ints("tokens");
    for (draft, entries, rows) in DRAFTS {
        let artifact = Artifact::compile(&with_draft(draft));
        let model = artifact.open(2);
        let (vocab, width) = (model.info().vocab, model.info().hidden);
        let (_, own) = in_pieces(&model, 0, &tokens, &[], tokens.len());
        of.near(&format!("model.{rows}"), &own);
        let mut guesses = vec![];
        for (k, name) in entries.iter().enumerate() {
            let behind = usize::from(draft != "medusa");
            let (taken, given) = (&tokens[behind..], &own[..own.len() - behind * width]);
            let made = in_pieces(&model, 1 + k, taken, given, taken.len());
            for piece in [1, 7] {
                let again = in_pieces(&model, 1 + k, taken, given, piece);
                assert!(again == made, "{name}: pieces of {piece} change bits");
            }
            let known: Vec<usize> = (0..vocab).filter(|t| made.0[*t] > -1e29).collect();
            let logits: Vec<f32> = made.0.chunks(vocab).flat_map(|row| known.iter().map(|t| row[*t])).collect();
            of.near(&format!("{name}.logits"), &logits);
            if draft == "medusa" {
                guesses.push(best(&made.0, vocab));
            } else {
                of.near(&format!("{name}.hidden"), &made.1);
            }
        }
        let (mut text, mut rows) = ([&tokens[1..], &[NEXT]].concat(), own);
        while guesses.len() < of.ints(&format!("{draft}.guesses")).len() {
            let (logits, left) = in_pieces(&model, 1, &text, &rows, text.len());
            rows.extend(&left[left.len() - width..]);
            guesses.push(best(&logits, vocab));
            text.extend(guesses.last());
        }
        assert_eq!(guesses, of.ints(&format!("{draft}.guesses")), "{draft}");
    }
}

/// An artifact by the Rust crate.
fn bound(artifact: &Artifact) -> llmcc_model::Model {
    // SAFETY: compiled by a test of this program.
    unsafe { llmcc_model::Model::open(&artifact.path, &llmcc_model::Options::default()) }.unwrap()
}

/// Tokens, and how many guesses were right of those made.
fn generated(model: &llmcc_model::Model, prompt: &[i32], params: &Params) -> (Vec<i32>, u64, u64) {
    let mut generation = model.generate(prompt, params).unwrap();
    let tokens = generation.by_ref().map(|piece| piece.unwrap().token).collect();
    let stats = generation.stats().unwrap();
    (tokens, stats.accepted, stats.guessed)
}

/// A generation of 40 tokens; some tokens are much likelier than the others where it is `biased`, for the model and its
/// draft, so that a draft of random numbers is right, too.
fn params(temperature: f32, biased: bool, guesses: Guesses, most_guesses: u32) -> Params {
    let logit_bias = if biased { [(11, 9.0), (23, 8.5), (37, 8.0)].to_vec() } else { vec![] };
    let sampling = Sampling { temperature, seed: 7, ..Sampling::OWN };
    let base = Params { max_tokens: 40, no_text: true, no_defaults: true, ignore_eos: true, ..Params::default() };
    Params { sampling, logit_bias, guesses, most_guesses, ..base }
}

/// Text with a draft in the artifact is the text of an artifact without one, greedy and sampled, in floats and 4 bits,
/// and the text of the same artifact without guesses.
#[test]
fn guesses_change_no_text() {
    let prompt = Golden::open().ints("tokens");
    let forms = [None, Some(Format::new(Elem::W4, 32))];
    for weights in forms {
        let plain = CompileOptions { weights, ..options(&golden("drafters").join("model")) };
        let plain = bound(&Artifact::compile(&plain));
        for (draft, ..) in DRAFTS {
            let model = bound(&Artifact::compile(&CompileOptions { weights, ..with_draft(draft) }));
            let (mut right, mut made) = (0, 0);
            for (i, temperature) in [0.0, 0.0, 0.6, 1.0].into_iter().enumerate() {
                let (prompt, biased) = (&prompt[..1 + 6 * i], i % 2 == 1);
                let wanted = generated(&plain, prompt, &params(temperature, biased, Guesses::None, 0)).0;
                let none = generated(&model, prompt, &params(temperature, biased, Guesses::None, 0));
                assert_eq!(none, (wanted.clone(), 0, 0), "{draft} {temperature}");
                for most in [0, 1, 6] {
                    let own = generated(&model, prompt, &params(temperature, biased, Guesses::Heads, most));
                    assert_eq!(own.0, wanted, "{draft} {temperature}, {most} guesses");
                    (right, made) = (right + own.1, made + own.2);
                }
            }
            println!("{draft}: {right} of {made} guesses were right");
            assert!(made > right && right > 0, "{draft}: {right} of {made}");
        }
    }
}
