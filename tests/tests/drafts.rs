//! Compiled models with their draft heads, against Transformers' `MtpModel`: in pieces and in batches; generation with
//! guesses against the same without; and refusals.

use llmcc_cli::loaded::{Drafter, EngineOptions, GenOptions, Guesses, Model};
use llmcc_cli::options::CompileOptions;
use llmcc_frontends::{Checkpoint, DraftHeads};
use llmcc_model::Guesses::{self as Guessed, Heads, Lookup, Own};
use llmcc_model::{Params, next_of_each};
use llmcc_tests::{Artifact, golden, options};
use std::rc::Rc;
use std::sync::Arc;

/// Each with the number of its heads.
const NAMES: [(&str, usize); 6] =
    [("bailing_hybrid", 1), ("deepseek_v3", 2), ("glm4_moe", 1), ("mellum", 1), ("mimo", 1), ("qwen3_5", 1)];

/// The reference's results.
struct Golden {
    name: &'static str,
    file: Checkpoint,
}

impl Golden {
    fn of(name: &'static str) -> Golden {
        Golden { name, file: Checkpoint::open(&golden(&format!("drafts/{name}/golden.safetensors"))).unwrap() }
    }

    fn tokens(&self) -> Vec<i32> {
        self.file.tensor("tokens").unwrap().data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    fn floats(&self, tensor: &str) -> Vec<f64> {
        self.file.tensor(tensor).unwrap().to_f32().into_iter().map(f64::from).collect()
    }

    /// `ours` of the model or a head is at most twice as far off as Transformers in f32.
    #[track_caller]
    fn near(&self, of: &str, what: &str, ours: &[f32]) {
        let wanted = self.floats(&format!("{of}.{what}"));
        let allowed = 2.0 * self.floats(&format!("{of}.{what}_error_f32")).into_iter().fold(0.0, f64::max);
        let error = ours.iter().zip(&wanted).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        println!("{} {of}: error of {what} {error:.2e}, allowed {allowed:.2e}", self.name);
        assert!(ours.len() == wanted.len() && error <= allowed, "{}: {what} of {of} off by {error:.2e}", self.name);
    }
}

/// The model with all its draft heads.
fn with_heads(name: &str) -> CompileOptions {
    CompileOptions { draft_heads: DraftHeads::All, ..options(&golden(&format!("drafts/{name}"))) }
}

/// Logits and hidden states of a sequence in pieces of so many tokens by an entry; each token has a hidden state if
/// there are any.
fn in_pieces(model: &Model, entry: usize, tokens: &[i32], hidden: &[f32], piece: usize) -> (Vec<f32>, Vec<f32>) {
    let (seq, width) = (model.seq_new().unwrap(), model.info().hidden);
    let (mut logits, mut left) = (vec![], vec![]);
    for (i, tokens) in tokens.chunks(piece).enumerate() {
        let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
        let from = i * piece * width;
        let given = hidden.get(from..from + tokens.len() * width).unwrap_or_default();
        let made = model.run(entry, (tokens, given), &vec![seq; tokens.len()], &wanted).unwrap();
        logits.extend(made.0);
        left.extend(made.1);
    }
    model.seq_free(seq).unwrap();
    (logits, left)
}

#[test]
fn logits_and_hidden_states() {
    for (name, heads) in NAMES {
        let (golden, artifact) = (Golden::of(name), Artifact::compile(&with_heads(name)));
        let model = artifact.open(2);
        assert_eq!(model.info().entries, 1 + heads, "{name}");
        let mut hidden: Vec<f32> = vec![];
        for entry in 0..=heads {
            let of = if entry == 0 { "model".to_string() } else { format!("head{}", entry - 1) };
            let tokens = &golden.tokens()[entry..];
            let (logits, left) = in_pieces(&model, entry, tokens, &hidden, tokens.len());
            golden.near(&of, "logits", &logits);
            golden.near(&of, "hidden", &left);
            for piece in [1, 7] {
                let again = in_pieces(&model, entry, tokens, &hidden, piece);
                assert!(again == (logits.clone(), left.clone()), "{name} {of}: pieces of {piece} change bits");
            }
            // Hidden states come to the token behind, for the head that is next.
            hidden = left[..left.len() - model.info().hidden].to_vec();
        }
    }
}

/// Logits equal the logits of an artifact without heads.
#[test]
fn heads_change_no_bits() {
    for name in ["mellum", "qwen3_5"] {
        let tokens = Golden::of(name).tokens();
        let [with, without] = [with_heads(name), options(&golden(&format!("drafts/{name}")))].map(|options| {
            let artifact = Artifact::compile(&options);
            in_pieces(&artifact.open(2), 0, &tokens, &[], 24)
        });
        assert!(!with.1.is_empty() && without.1.is_empty());
        assert_eq!(with.0, without.0, "{name}");
    }
}

/// Ids of a generation, and how many guesses were right of those made.
fn generated(model: &Model, prompt: &[i32], options: &GenOptions) -> (Vec<i32>, u64, u64) {
    let mut generation = model.generate(None, prompt, options).unwrap();
    let tokens = generation.by_ref().map(|piece| piece.unwrap().token).collect();
    let stats = generation.stats().unwrap();
    (tokens, stats.accepted, stats.guessed)
}

/// A generation of up to 48 tokens, greedy or sampled.
fn random_options(seed: u64) -> GenOptions {
    let hot = seed.is_multiple_of(2);
    GenOptions {
        max_tokens: 4 + (seed * 7 % 45) as u32,
        temperature: if hot { 0.8 } else { 0.0 },
        top_p: if hot { 0.9 } else { 1.0 },
        repetition_penalty: if seed.is_multiple_of(3) { 1.3 } else { 1.0 },
        seed,
        no_text: true,
        ..GenOptions::default()
    }
}

/// Text with heads in the same file is that without, in 200 runs, greedy and sampled, in f32 and 4 bits; so it is with
/// guesses by lookup and by another model.
#[test]
fn guesses_change_no_text() {
    let (mut right, mut made, mut runs) = (0, 0, 0);
    for (name, heads) in NAMES {
        let artifact = Artifact::compile(&with_heads(name));
        let model = artifact.open(2);
        let drafter = Rc::new(Drafter::new(Model::open(&artifact.path, EngineOptions::default()).unwrap()).unwrap());
        let tokens = Golden::of(name).tokens();
        for seed in 0..34 {
            let prompt = &tokens[..1 + seed as usize % tokens.len()];
            let plain = GenOptions { guesses: Guesses::None, ..random_options(seed) };
            let text = generated(&model, prompt, &plain);
            assert_eq!((text.1, text.2), (0, 0));
            // As many guesses as heads, and more.
            for most_guesses in [0, heads as u32 + 2] {
                let own =
                    generated(&model, prompt, &GenOptions { most_guesses, guesses: Guesses::Own, ..plain.clone() });
                assert_eq!(own.0, text.0, "{name}, seed {seed}, {most_guesses} guesses");
                (right, made, runs) = (right + own.1, made + own.2, runs + 1);
            }
            let others = [Guesses::Lookup, Guesses::Model(drafter.clone()), Guesses::Jacobi, Guesses::Lookahead];
            for guesses in others.into_iter().filter(|_| seed % 4 < 2) {
                let what = format!("{name}, seed {seed}, {guesses:?}");
                let by_model = matches!(guesses, Guesses::Model(_));
                let other = generated(&model, prompt, &GenOptions { guesses, ..plain.clone() });
                assert_eq!(other.0, text.0, "{what}");
                // The same model guesses its own most probable tokens.
                let greedy = plain.temperature == 0.0 && plain.repetition_penalty == 1.0;
                assert!(!by_model || !greedy || other.1 == other.2, "{what}: {} of {}", other.1, other.2);
            }
        }
    }
    println!("{right} of {made} guesses of heads were right in {runs} runs");
    assert!(runs >= 200 && made > 1000, "{right} of {made}");
}

/// An artifact by the Rust crate.
fn bound(artifact: &Artifact) -> llmcc_model::Model {
    // SAFETY: compiled by a test of this program.
    unsafe { llmcc_model::Model::open(&artifact.path, &llmcc_model::Options::default()) }.unwrap()
}

/// Parameters of 40 tokens. Some tokens are much likelier than the others, for the model and for its heads: so that
/// heads of random numbers are right, too.
fn biased(temperature: f32, guesses: llmcc_model::Guesses) -> Params {
    let sampling = llmcc_model::Sampling { temperature, seed: 7, ..llmcc_model::Sampling::OWN };
    let logit_bias = [(11, 9.0), (23, 8.5), (37, 8.0)].to_vec();
    let base = Params { max_tokens: 40, no_text: true, no_defaults: true, ..Params::default() };
    Params { sampling, logit_bias, guesses, most_guesses: 5, ..base }
}

/// Where heads are right for the most part, text is the same, in fewer steps.
#[test]
fn right_guesses_save_steps() {
    let mut right = 0;
    for (name, _) in NAMES {
        let (model, prompt) = (bound(&Artifact::compile(&with_heads(name))), Golden::of(name).tokens());
        for temperature in [0.0, 0.5, 1.0] {
            let run = |guesses| {
                let mut generation = model.generate(&prompt, &biased(temperature, guesses)).unwrap();
                let tokens: Vec<i32> = generation.by_ref().map(|p| p.unwrap().token).collect();
                (tokens, generation.stats().unwrap())
            };
            let (plain, none) = run(llmcc_model::Guesses::None);
            let (guessed, stats) = run(Heads);
            assert_eq!((&guessed, none.guessed), (&plain, 0), "{name} at {temperature}");
            println!("{name} at {temperature}: {} of {} in {}", stats.accepted, stats.guessed, stats.guess_steps);
            right += stats.accepted;
        }
    }
    assert!(right > 40, "{right}");
}

/// Texts of a corpus, and the model's own predictions, give the same text; a corpus that has it saves most steps.
#[test]
fn texts_and_predictions_guess() {
    let (mut right, mut of_corpus) = (0, 0);
    for name in ["deepseek_v3", "qwen3_5"] {
        let model = Arc::new(bound(&Artifact::compile(&with_heads(name))));
        let prompt = Golden::of(name).tokens();
        for temperature in [0.0, 0.5, 1.0] {
            let run = |guesses| {
                let mut generation = model.generate(&prompt, &biased(temperature, guesses)).unwrap();
                let tokens: Vec<i32> = generation.by_ref().map(|p| p.unwrap().token).collect();
                (tokens, generation.stats().unwrap())
            };
            let (plain, _) = run(llmcc_model::Guesses::None);
            let corpus = llmcc_model::Corpus::new(&model, &[&[1, 2, 3][..], &[&prompt[..], &plain].concat()]).unwrap();
            for guesses in [Guessed::Corpus(corpus.clone()), Guessed::Jacobi, Guessed::Lookahead] {
                let (text, stats) = run(guesses.clone());
                assert_eq!(text, plain, "{name} at {temperature}: {guesses:?}");
                println!("{name} at {temperature}, {guesses:?}: {} of {}", stats.accepted, stats.guessed);
                match guesses {
                    Guessed::Corpus(_) => of_corpus += stats.accepted,
                    _ => right += stats.accepted,
                }
            }
            // An engine guesses from it, too.
            let engine = model.engine(&llmcc_model::EngineOptions::default()).unwrap();
            let terms = llmcc_model::Terms::default();
            engine.submit(&prompt, &biased(temperature, Guessed::Corpus(corpus)), &terms).unwrap();
            let mut text = vec![];
            while text.len() < plain.len() {
                text.extend(engine.poll(None).unwrap().into_iter().filter_map(|event| event.token));
            }
            assert_eq!(text, plain, "{name} at {temperature}");
            assert!(engine.stats().unwrap().contains("\"accepted\": "));
        }
    }
    assert!(of_corpus > 150 && right > 20, "{of_corpus} {right}");
}

/// The tokens of several generations in shared steps are the tokens of each alone.
#[test]
fn guesses_in_shared_steps() {
    for name in ["deepseek_v3", "qwen3_5"] {
        let (model, tokens) = (bound(&Artifact::compile(&with_heads(name))), Golden::of(name).tokens());
        let of = |i: usize, guesses| model.generate(&tokens[..3 + 5 * i], &biased(i as f32 / 3.0, guesses)).unwrap();
        let alone: Vec<Vec<i32>> =
            (0..4).map(|i| of(i, llmcc_model::Guesses::None).map(|p| p.unwrap().token).collect()).collect();
        let sources = [Own, Lookup, Heads, Own];
        let mut all: Vec<_> = sources.into_iter().enumerate().map(|(i, guesses)| of(i, guesses)).collect();
        let mut texts: Vec<Vec<i32>> = vec![vec![]; all.len()];
        while all.iter().any(|g| !g.finished()) {
            let pieces = next_of_each(&mut all.iter_mut().collect::<Vec<_>>()).unwrap();
            texts.iter_mut().zip(pieces).for_each(|(text, piece)| text.extend(piece.map(|p| p.token)));
        }
        let right: u64 = all.iter().map(|g| g.stats().unwrap().accepted).sum();
        assert_eq!(texts, alone, "{name}");
        assert!(right > 10, "{name}: {right}");
    }
}

#[test]
fn what_is_refused() {
    let artifact = Artifact::compile(&with_heads("glm4_moe"));
    let model = artifact.open(1);
    let seq = model.seq_new().unwrap();
    let refused = model.run(1, (&[1], &[]), &[seq], &[0]).unwrap_err().to_string();
    let wanted = format!("entry `draft.0` takes a row of {} numbers with each token", model.info().hidden);
    assert!(refused.contains(&wanted), "{refused}");
    let rows = vec![0.0; model.info().hidden];
    let refused = model.run(0, (&[1], &rows), &[seq], &[0]).unwrap_err().to_string();
    assert!(refused.contains("this entry does not take rows with its tokens"), "{refused}");
    let refused = model.run(2, (&[1], &[]), &[seq], &[0]).unwrap_err().to_string();
    assert!(refused.contains("entry 2 does not exist"), "{refused}");
    let many = GenOptions { most_guesses: 32, no_text: true, ..GenOptions::default() };
    let refused = model.generate(None, &[1], &many).err().map(|e| e.to_string());
    assert!(refused.is_some_and(|e| e.contains("32 guesses for a step are too many")));
}
