//! Guesses of each method, against the method as it is defined: how many a step has, and how many are right.

use crate::common::{Rng, VOCAB, expected, toy_engine};
use llmcc_abi::capi::llmcc_logit_bias;
use llmcc_rt::bias::Bias;
use llmcc_rt::generate::{GenParams, Generation};
use llmcc_rt::sample::{Sampling, sample};
use llmcc_rt::speculate::corpus::Corpus;
use llmcc_rt::speculate::{Counts, Guesses};
use llmcc_rt::{Engine, Options};
use std::sync::Arc;

/// The choice after a text, number `draw` of its seed: the whole text is evaluated.
fn choose(text: &[i32], sampling: &Sampling, draw: usize) -> i32 {
    // The last token, which says which kernel ran, is never chosen.
    let logits = [&expected(text)[..], &[f32::NEG_INFINITY]].concat();
    sample(&logits, sampling, text, draw as u64).unwrap()
}

/// A step as the methods see it.
struct Step {
    /// The text before it.
    before: Vec<i32>,
    guesses: Vec<i32>,
    /// The choice after the text, and after each guess.
    predicted: Vec<i32>,
    accepted: usize,
}

/// A method by its definition.
trait Method {
    /// `n` guesses after a text.
    fn guess(&mut self, text: &[i32], n: usize) -> Vec<i32>;
    fn learn(&mut self, step: &Step);
    /// Whether there are always as many guesses as may be, or one more than were right.
    fn steady(&self) -> bool;
}

/// The rest of the last step's predictions, and tokens of the text.
#[derive(Default)]
struct Jacobi {
    rest: Vec<i32>,
    /// Guesses that were predictions.
    founded: usize,
    /// All n-grams so far, for Lookahead.
    grams: Option<Vec<[i32; 4]>>,
}

impl Method for Jacobi {
    fn guess(&mut self, text: &[i32], n: usize) -> Vec<i32> {
        let mut guesses: Vec<i32> = vec![];
        if let Some(grams) = &mut self.grams {
            let mut last = text[text.len() - 1];
            while guesses.len() < n
                && let Some(gram) = grams.iter().rev().find(|gram| gram[0] == last)
            {
                guesses.extend(&gram[1..]);
                last = gram[3];
            }
            guesses.truncate(n);
        }
        let from = guesses.len();
        guesses.extend(self.rest.iter().take(n).skip(from));
        self.founded = guesses.len();
        for place in self.founded..n {
            let mixed = ((text.len() + place) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            guesses.push(text[mixed as usize % text.len()]);
        }
        guesses
    }

    fn learn(&mut self, step: &Step) {
        self.rest = step.predicted[step.accepted + 1..].to_vec();
        let Some(grams) = &mut self.grams else { return };
        let seen = [&step.before[..], &step.guesses].concat();
        let places = 0..(self.founded.max(step.accepted) + 1).min(step.predicted.len());
        let (right, wrong): (Vec<usize>, Vec<usize>) = places.partition(|i| *i <= step.accepted);
        for i in wrong.into_iter().chain(right) {
            let end = step.before.len() + i;
            if end >= 3 {
                grams.push([seen[end - 3], seen[end - 2], seen[end - 1], step.predicted[i]]);
            }
        }
        self.founded = 0;
    }

    fn steady(&self) -> bool {
        true
    }
}

/// The most frequent continuations in texts, else of the last place in the text itself.
struct Rest {
    corpus: Arc<Corpus>,
}

impl Method for Rest {
    fn guess(&mut self, text: &[i32], n: usize) -> Vec<i32> {
        // (The corpus has tests of its own.)
        let found = self.corpus.after(text, n);
        if !found.is_empty() {
            return found;
        }
        for length in (2..=4.min(text.len() - 1)).rev() {
            let ending = &text[text.len() - length..];
            if let Some(at) = (0..text.len() - length).rev().find(|at| text[*at..].starts_with(ending)) {
                return text[at + length..].iter().take(n).copied().collect();
            }
        }
        vec![]
    }

    fn learn(&mut self, _: &Step) {}

    fn steady(&self) -> bool {
        false
    }
}

/// The text after a prompt, and how good the guesses were.
fn by_definition(prompt: &[i32], params: &GenParams, method: &mut dyn Method) -> (Vec<i32>, Counts) {
    let (mut text, mut counts) = (prompt.to_vec(), Counts::default());
    let (most, mut allowed, mut misses, mut waits, mut pause) = (params.most_guesses, params.most_guesses, 0, 0, 64);
    while text.len() < prompt.len() + params.max_tokens {
        let made = text.len() - prompt.len();
        let room = params.max_tokens - made - 1;
        // A prompt of several tokens is not guessed behind.
        let n = if waits > 0 || (made == 0 && prompt.len() > 1) { 0 } else { allowed.min(room) };
        let guesses = if n == 0 { vec![] } else { method.guess(&text, n) };
        let mut seen = text.clone();
        let mut predicted = vec![choose(&seen, &params.sampling, made)];
        for (i, guess) in guesses.iter().enumerate() {
            seen.push(*guess);
            predicted.push(choose(&seen, &params.sampling, made + i + 1));
        }
        let accepted = guesses.iter().zip(&predicted).take_while(|(a, b)| a == b).count();
        let before = text.clone();
        text.extend(&predicted[..=accepted]);
        if guesses.is_empty() {
            waits = u32::saturating_sub(waits, 1);
        } else {
            counts.guessed += guesses.len() as u64;
            counts.accepted += accepted as u64;
            counts.steps += 1;
            if !method.steady() {
                allowed = if accepted == guesses.len() { 2 * allowed } else { accepted + 1 }.min(most);
            }
            if accepted > 0 {
                (misses, pause) = (0, 64);
            } else {
                misses += 1;
                if misses >= 6 {
                    (waits, pause, misses) = (pause, (2 * pause).min(4096), 5);
                }
            }
        }
        method.learn(&Step { before, guesses, predicted, accepted });
    }
    (text.split_off(prompt.len()), counts)
}

fn served(engine: &mut Engine, prompt: &[i32], params: &GenParams) -> (Vec<i32>, Counts) {
    let mut generation = Generation::new(engine, None, None, prompt, params.clone()).unwrap();
    let mut tokens = vec![];
    while let Some(piece) = generation.next(engine, None).unwrap() {
        tokens.push(piece.token);
    }
    let counts = generation.guessed();
    generation.close(engine).unwrap();
    (tokens, counts)
}

/// Text and counts are as by the definition, for greedy and drawn texts.
#[test]
fn methods_accept_what_their_definitions_say() {
    let mut engine = toy_engine(Options { threads: 1, max_batch_tokens: 64, ..Options::default() });
    let (mut rng, mut right) = (Rng(11), [0; 3]);
    for round in 0..60 {
        let prompt: Vec<i32> = (0..1 + rng.below(12)).map(|_| rng.below(VOCAB - 1) as i32).collect();
        let temperature = [0.0, 20.0, 60.0, 300.0][rng.below(4)];
        let params = GenParams {
            max_tokens: 1 + rng.below(90),
            sampling: Sampling { temperature, seed: rng.below(1 << 20) as u64, ..Sampling::default() },
            bias: Bias::new(&[llmcc_logit_bias { token: VOCAB as i32 - 1, value: f32::NEG_INFINITY }], VOCAB).unwrap(),
            most_guesses: 1 + rng.below(12),
            ..GenParams::default()
        };
        let (plain, none) = served(&mut engine, &prompt, &params);
        assert_eq!(none, Counts::default());
        // Texts of some tokens, and the text itself with some of them changed.
        let mut texts: Vec<i32> =
            (0..200).map(|i| if i % 40 == 39 { -1 } else { rng.below(VOCAB - 1) as i32 }).collect();
        texts.extend(prompt.iter().chain(&plain).map(|t| if rng.below(9) == 0 { 0 } else { *t }));
        let corpus = Arc::new(Corpus::new(&texts, VOCAB).unwrap());
        let methods: [(Guesses, Box<dyn Method>); 3] = [
            (Guesses::Corpus(corpus.clone()), Box::new(Rest { corpus })),
            (Guesses::Jacobi, Box::new(Jacobi::default())),
            (Guesses::Lookahead, Box::new(Jacobi { grams: Some(vec![]), ..Jacobi::default() })),
        ];
        for ((guesses, mut method), right) in methods.into_iter().zip(&mut right) {
            let what = format!("round {round}, {guesses:?}, {prompt:?}, {params:?}");
            let params = GenParams { guesses, ..params.clone() };
            let want = by_definition(&prompt, &params, &mut *method);
            assert_eq!(want.0, plain, "{what}");
            assert_eq!(served(&mut engine, &prompt, &params), want, "{what}");
            *right += want.1.accepted;
        }
    }
    assert!(right.iter().all(|right| *right > 100), "{right:?}");
}
