//! Generations with guesses, against the same without.

use super::{Rng, VOCAB};
use llmcc_abi::capi::llmcc_logit_bias;
use llmcc_rt::bias::Bias;
use llmcc_rt::engine::{Row, STEP, Sink, Tree};
use llmcc_rt::generate::{Finish, GenParams, Generation};
use llmcc_rt::rules::Rules;
use llmcc_rt::sample::Sampling;
use llmcc_rt::speculate::corpus::Corpus;
use llmcc_rt::speculate::{Counts, Guesses};
use llmcc_rt::{Engine, SeqId, continuous};
use std::sync::{Arc, Mutex};

/// A text: its tokens, the reason of its end, and the tokens that its sequence holds then.
type Text = (Vec<i32>, Option<Finish>, Vec<i32>);

/// Parameters of a random generation. (The last token of the vocabulary says which kernel ran.)
pub fn params(rng: &mut Rng) -> GenParams {
    let hot = Sampling { temperature: 300.0, seed: rng.below(1 << 20) as u64, ..Sampling::default() };
    GenParams {
        max_tokens: 1 + rng.below(30),
        sampling: if rng.below(2) == 0 { Sampling::default() } else { hot },
        bias: Bias::new(&[llmcc_logit_bias { token: VOCAB as i32 - 1, value: f32::NEG_INFINITY }], VOCAB).unwrap(),
        stop_tokens: if rng.below(3) == 0 { vec![rng.below(VOCAB) as i32] } else { vec![] },
        ..GenParams::default()
    }
}

/// A guesser that knows the text, and is wrong at some of its places.
fn knowing(prompt: usize, text: &[i32], wrong: usize, rng: Rng) -> Guesses {
    let (text, rng) = (text.to_vec(), Mutex::new(rng));
    Guesses::Caller(Arc::new(move |tokens: &[i32], most: usize| {
        let (rest, mut rng) = (text.get(tokens.len() - prompt..).unwrap_or_default(), rng.lock().unwrap());
        let mut guess = |token: &i32| if rng.below(100) < wrong { (token + 1) % VOCAB as i32 } else { *token };
        let mut guesses: Vec<i32> = rest.iter().take(most).map(&mut guess).collect();
        // Guesses beyond the vocabulary are no guesses.
        if rng.below(9) == 0 && guesses.len() > 1 {
            guesses[1] = [-1, VOCAB as i32, i32::MAX][rng.below(3)];
        }
        Ok(guesses)
    }))
}

/// A corpus with a text, some of whose tokens are others.
pub fn corpus_of(text: &[i32], rng: &mut Rng) -> Guesses {
    let tokens: Vec<i32> = text.iter().map(|t| if rng.below(9) == 0 { 0 } else { *t }).collect();
    Guesses::Corpus(Arc::new(Corpus::new(&tokens, VOCAB).unwrap()))
}

fn finish(engine: &mut Engine, mut generation: Generation) -> (Text, Counts) {
    let mut tokens = vec![];
    loop {
        generation.consult().unwrap();
        let Some(piece) = generation.next(engine, None).unwrap() else { break };
        tokens.push(piece.token);
        assert_eq!(generation.stats().generated_tokens, tokens.len() as u64);
        assert_eq!(generation.finish(), piece.finish);
    }
    let held = engine.kv().tokens(generation.seq()).unwrap().to_vec();
    let text = (tokens, generation.finish(), held);
    let counts = generation.guessed();
    generation.close(engine).unwrap();
    (text, counts)
}

/// Random generations one by one and together, with good and bad guesses and by lookup: tokens, ends and sequences are
/// those without guesses. Returns how many guesses were right.
pub fn check_speculation(engine: &mut Engine, seed: u64, rounds: usize) -> u64 {
    let (mut rng, mut right) = (Rng(seed), 0);
    for round in 0..rounds {
        let mut plain: Vec<(Vec<i32>, GenParams, Text)> = vec![];
        for _ in 0..1 + rng.below(3) {
            let prompt: Vec<i32> = (0..1 + rng.below(20)).map(|_| rng.below(VOCAB - 1) as i32).collect();
            let params = params(&mut rng);
            let seq = engine.kv_mut().seq_new().unwrap();
            let generation = Generation::new(engine, None, Some(seq), &prompt, params.clone()).unwrap();
            let (text, counts) = finish(engine, generation);
            assert_eq!(counts, Counts::default());
            engine.kv_mut().seq_free(seq).unwrap();
            plain.push((prompt, params, text));
        }
        let guessing = |rng: &mut Rng, (prompt, params, text): &(Vec<i32>, GenParams, Text)| {
            let guesses = match rng.below(8) {
                0 => Guesses::Lookup,
                5 => Guesses::Jacobi,
                6 => Guesses::Lookahead,
                7 => corpus_of(&text.0, rng),
                wrong => knowing(prompt.len(), &text.0, [0, 20, 50, 100][wrong - 1], Rng(round as u64 + 7)),
            };
            GenParams { guesses, most_guesses: rng.below(9), ..params.clone() }
        };
        for of in &plain {
            let seq = engine.kv_mut().seq_new().unwrap();
            let params = guessing(&mut rng, of);
            let what = format!("round {round}: {params:?}");
            let generation = Generation::new(engine, None, Some(seq), &of.0, params).unwrap();
            let (text, counts) = finish(engine, generation);
            assert_eq!(text, of.2, "{what}");
            assert!(counts.accepted <= counts.guessed, "{counts:?}");
            right += counts.accepted;
            engine.kv_mut().seq_free(seq).unwrap();
        }
        let (mut gens, mut seqs): (Vec<Generation>, Vec<SeqId>) = (vec![], vec![]);
        for of in &plain {
            let (seq, params) = (engine.kv_mut().seq_new().unwrap(), guessing(&mut rng, of));
            gens.push(Generation::new(engine, None, Some(seq), &of.0, params).unwrap());
            seqs.push(seq);
        }
        let mut texts: Vec<Vec<i32>> = vec![vec![]; gens.len()];
        while gens.iter().any(|g| g.finish().is_none()) {
            gens.iter_mut().for_each(|g| g.consult().unwrap());
            let mut refs: Vec<&mut Generation> = gens.iter_mut().collect();
            let pieces = continuous::next(&mut refs, engine, None).unwrap();
            texts.iter_mut().zip(pieces).for_each(|(text, piece)| text.extend(piece.map(|p| p.token)));
        }
        for (((generation, text), seq), of) in gens.into_iter().zip(texts).zip(seqs).zip(&plain) {
            let held = engine.kv().tokens(seq).unwrap().to_vec();
            assert_eq!((text, generation.finish(), held), of.2, "round {round} of {}", plain.len());
            right += generation.guessed().accepted;
            generation.close(engine).unwrap();
            engine.kv_mut().seq_free(seq).unwrap();
        }
        assert_eq!(engine.kv().used_pages(), 0);
    }
    right
}

/// Random texts that broke off after each of their tokens: with these expected they go on as they would have, whatever
/// else guesses, and where some of the expected tokens are of another text. Returns the most tokens of a step.
pub fn check_expectations(engine: &mut Engine, seed: u64, rounds: usize) -> u64 {
    let (mut rng, mut most) = (Rng(seed), 0);
    for round in 0..rounds {
        let prompt: Vec<i32> = (0..1 + rng.below(20)).map(|_| rng.below(VOCAB - 1) as i32).collect();
        let rules = Rules { presence: 0.5 * rng.below(2) as f32, ..Rules::default() };
        let params = GenParams { rules: Arc::new(rules), ..params(&mut rng) };
        let serve = |engine: &mut Engine, params: GenParams| {
            let seq = engine.kv_mut().seq_new().unwrap();
            let generation = Generation::new(engine, None, Some(seq), &prompt, params).unwrap();
            let done = finish(engine, generation);
            engine.kv_mut().seq_free(seq).unwrap();
            done
        };
        let (text, _) = serve(engine, params.clone());
        for cut in 0..=text.0.len() {
            let mut expected = text.0[..cut].to_vec();
            let guesses = match rng.below(3) {
                0 => Guesses::None,
                1 => Guesses::Lookup,
                _ => knowing(prompt.len(), &text.0, 20, Rng(round as u64)),
            };
            let right = GenParams { expected: expected.clone(), guesses, ..params.clone() };
            let (again, counts) = serve(engine, right.clone());
            assert_eq!(again, text, "round {round}, {cut} tokens: {right:?}");
            if matches!(right.guesses, Guesses::None) {
                // (The last token of a text is no guess, or none is chosen after it. The prompt brings the first one.)
                let last = u64::from(cut == text.0.len());
                let foreseen = (cut as u64).saturating_sub(1 + last);
                assert!(counts.guessed - counts.accepted <= last, "{cut}: {counts:?}");
                assert!(counts.accepted + counts.steps >= foreseen, "{cut}: {counts:?}");
                most = most.max(counts.accepted / counts.steps.max(1));
            }
            if cut > 0 {
                let wrong = rng.below(cut);
                expected[wrong] = [(expected[wrong] + 1) % VOCAB as i32, -1, VOCAB as i32][rng.below(3)];
                let (again, counts) = serve(engine, GenParams { expected, ..right });
                assert_eq!(again, text, "round {round}, {cut} tokens, number {wrong} is wrong");
                assert!(counts.accepted <= counts.guessed, "{counts:?}");
            }
        }
        assert_eq!(engine.kv().used_pages(), 0);
    }
    most
}

/// A random tree of tokens: parents.
fn random_tree(rng: &mut Rng, tokens: usize) -> Vec<i32> {
    (0..tokens as i32).map(|i| if rng.below(4) == 0 { -1 } else { i - 1 - rng.below(i as usize + 1) as i32 }).collect()
}

/// Random trees of so many tokens after random sequences: the row of each token is bit for bit the row of its way
/// alone, and each branch has the tokens of its way.
pub fn check_trees(engine: &mut Engine, seed: u64, size: usize) {
    let mut rng = Rng(seed);
    for round in 0..40 {
        let prompts: Vec<Vec<i32>> =
            (0..2).map(|_| (0..1 + rng.below(30)).map(|_| rng.below(VOCAB) as i32).collect()).collect();
        let seqs: Vec<SeqId> = prompts.iter().map(|_| engine.kv_mut().seq_new().unwrap()).collect();
        for (seq, prompt) in seqs.iter().zip(&prompts) {
            super::step(engine, prompt, &vec![*seq; prompt.len()], &[]).unwrap();
        }
        // Most after the first sequence, and some after the second.
        let counts = [size, rng.below(size.min(5))];
        let tokens: Vec<i32> = (0..counts[0] + counts[1]).map(|_| rng.below(VOCAB) as i32).collect();
        let of: Vec<usize> = [vec![0; counts[0]], vec![1; counts[1]]].concat();
        let mut parents = random_tree(&mut rng, counts[0]);
        parents.extend(random_tree(&mut rng, counts[1]).iter().map(|p| if *p < 0 { -1 } else { p + size as i32 }));
        let out_rows: Vec<u32> = (0..tokens.len() as u32).rev().collect();
        let tree_seqs: Vec<SeqId> = of.iter().map(|s| seqs[*s]).collect();
        let tree = Tree::new(&tokens, &tree_seqs, &parents).unwrap();
        let mut rows = vec![vec![]; tokens.len()];
        let mut keep = |i: usize, mut row: Row| rows[out_rows[i] as usize] = row.values().unwrap().to_vec();
        let branches = engine.run_tree(STEP, &tree, &out_rows, &[], Sink::Each(&mut keep)).unwrap();
        let leaves: Vec<usize> = (0..tokens.len()).filter(|i| !parents.contains(&(*i as i32))).collect();
        assert_eq!(branches.len(), leaves.len());
        let path = |mut at: i32| {
            let mut path = vec![];
            while at >= 0 {
                path.insert(0, at as usize);
                at = parents[at as usize];
            }
            path
        };
        for (leaf, branch) in leaves.iter().zip(&branches) {
            let (path, prompt) = (path(*leaf as i32), &prompts[of[*leaf]]);
            let way: Vec<i32> = path.iter().map(|i| tokens[*i]).collect();
            assert_eq!(engine.kv().tokens(*branch).unwrap(), [&prompt[..], &way].concat());
            let alone = engine.kv_mut().fork(seqs[of[*leaf]]).unwrap();
            let wanted: Vec<u32> = (0..way.len() as u32).collect();
            let want = super::step(engine, &way, &vec![alone; way.len()], &wanted).unwrap();
            for (at, want) in path.iter().zip(want) {
                assert_eq!(rows[*at][..VOCAB - 1], want[..VOCAB - 1], "round {round}, token {at} of {parents:?}");
            }
            engine.kv_mut().seq_free(alone).unwrap();
            engine.kv_mut().seq_free(*branch).unwrap();
        }
        for (seq, prompt) in seqs.iter().zip(&prompts) {
            assert_eq!(engine.kv().tokens(*seq).unwrap(), prompt);
            engine.kv_mut().seq_free(*seq).unwrap();
        }
        assert_eq!(engine.kv().used_pages(), 0);
    }
    // Parents that are no earlier tokens of the same sequence.
    let seqs = [engine.kv_mut().seq_new().unwrap(), engine.kv_mut().seq_new().unwrap()];
    for (parents, bad) in [([0, -1, -1], 0), ([-1, 2, -1], 1), ([-1, -2, -1], 1), ([-1, -1, 0], 2)] {
        let error = Tree::new(&[1, 2, 3], &[seqs[0], seqs[0], seqs[1]], &parents).unwrap_err();
        assert!(error.message.contains(&format!("the parent of token {bad}")), "{error}");
    }
    let tree = Tree::new(&[1], &seqs[..1], &[-1]).unwrap();
    let error = engine.run_tree(STEP, &tree, &[1], &[], Sink::Each(&mut |_, _| ())).unwrap_err();
    assert!(error.message.contains("beyond the 1 of the tree"), "{error}");
    assert_eq!(engine.kv().sequences(), 2);
    seqs.into_iter().for_each(|seq| engine.kv_mut().seq_free(seq).unwrap());
}
