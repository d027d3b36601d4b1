//! Requests that share steps and computed tokens, against each alone.

use super::speculated::{corpus_of, params};
use super::{Rng, VOCAB};
use llmcc_rt::generate::{Finish, GenParams, Generation};
use llmcc_rt::serve::{Core, Disk, Event, Limits, Order};
use llmcc_rt::speculate::Guesses;
use llmcc_rt::{Engine, Status};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A text: its tokens, and the reason of its end.
type Text = (Vec<i32>, Option<Finish>);

fn alone(engine: &mut Engine, prompt: &[i32], params: GenParams) -> Text {
    let mut generation = Generation::new(engine, None, None, prompt, params).unwrap();
    let mut tokens = vec![];
    while let Some(piece) = generation.next(engine, None).unwrap() {
        tokens.push(piece.token);
    }
    let finish = generation.finish();
    generation.close(engine).unwrap();
    (tokens, finish)
}

/// A request, its text alone, and its events so far.
struct Asked {
    order: Order,
    text: Text,
    tokens: Vec<i32>,
    finish: Option<Finish>,
    /// Its status at its end.
    ended: Option<Option<Status>>,
    cancelled: bool,
}

fn take(all: &mut BTreeMap<u64, Asked>, events: Vec<Event>) {
    for event in events {
        let asked = all.get_mut(&event.request).expect("a known request");
        assert!(asked.ended.is_none(), "an event after the last one");
        asked.finish = asked.finish.or(event.finish());
        asked.tokens.extend(event.piece.map(|piece| piece.token));
        if let Some(end) = event.end {
            assert_eq!(end.stats.generated_tokens, asked.tokens.len() as u64);
            assert!(end.waited <= end.total && end.first <= end.total);
            asked.ended = Some(end.error.map(|error| error.status));
        }
    }
}

/// Random requests with beginnings in common, by random limits; some are cancelled. Requests that end have the tokens
/// that they have alone, the others the first tokens of these; nothing is left in the end. Returns how many tokens of
/// prompts were not computed again.
pub fn check_serving(engine: &mut Engine, seed: u64, rounds: usize) -> u64 {
    let (mut rng, mut reused) = (Rng(seed), 0);
    for round in 0..rounds {
        let beginnings: Vec<Vec<i32>> =
            (0..3).map(|_| (0..rng.below(90)).map(|_| rng.below(VOCAB - 1) as i32).collect()).collect();
        let limits = Limits {
            running: 1 + rng.below(6),
            target: [None, Some(Duration::from_nanos(1)), Some(Duration::from_secs(1))][rng.below(3)],
            kept_bytes: [0, 600, usize::MAX][rng.below(3)],
        };
        let mut all = BTreeMap::new();
        for id in 0..3 + rng.below(8) as u64 {
            let beginning = beginnings[rng.below(3)].clone();
            let tail = (0..1 + rng.below(40)).map(|_| rng.below(VOCAB - 1) as i32);
            let prompt: Vec<i32> = beginning.into_iter().chain(tail).collect();
            let params = params(&mut rng);
            let text = alone(engine, &prompt, params.clone());
            let guesses = match rng.below(8) {
                0 => Guesses::Lookup,
                1 => Guesses::Jacobi,
                2 => Guesses::Lookahead,
                3 => corpus_of(&text.0, &mut rng),
                _ => Guesses::None,
            };
            // Some broke off elsewhere, or other texts are expected.
            let mut expected = text.0[..rng.below(text.0.len() + 1)].to_vec();
            if rng.below(4) == 0 {
                expected.iter_mut().skip(1).step_by(7).for_each(|token| *token = (*token + 1) % VOCAB as i32);
            }
            let expected = if rng.below(2) == 0 { expected } else { vec![] };
            let params = GenParams { guesses, expected, ..params };
            let (priority, salt) = (rng.below(3) as i32, rng.below(2) as u64);
            let order = Order { id, prompt, params, priority, salt, deadline: None };
            let asked = Asked { order, text, tokens: vec![], finish: None, ended: None, cancelled: false };
            all.insert(id, asked);
        }
        let mut core = Core::new(limits);
        let (mut arrived, count, mut steps) = (0, all.len() as u64, 0);
        while arrived < count || !core.is_idle() {
            while arrived < count && rng.below(3) == 0 {
                core.submit(all[&arrived].order.clone(), Instant::now());
                arrived += 1;
            }
            if rng.below(40) == 0 && arrived > 0 {
                let id = rng.below(arrived as usize) as u64;
                let event = core.cancel(id, engine);
                all.get_mut(&id).unwrap().cancelled |= event.is_some();
                take(&mut all, event.into_iter().collect());
            }
            let events = core.step(engine, None);
            take(&mut all, events);
            engine.kv().audit().unwrap_or_else(|e| panic!("round {round}, step {steps}, {limits:?}: {e}"));
            steps += 1;
            assert!(steps < 10_000, "no end");
        }
        for (id, asked) in &all {
            let what = format!("round {round}, request {id}, {limits:?}: {:?}", asked.order);
            let (tokens, finish) = &asked.text;
            match asked.cancelled {
                true => {
                    assert_eq!(asked.ended, Some(Some(Status::Interrupted)), "{what}");
                    assert!(tokens.starts_with(&asked.tokens), "{what}: {:?} for {tokens:?}", asked.tokens);
                }
                false => {
                    assert_eq!((&asked.tokens, &asked.finish), (tokens, finish), "{what}");
                    assert_eq!(asked.ended, Some(None), "{what}");
                }
            }
        }
        let counts = core.counts();
        assert_eq!(counts.finished + counts.cancelled, count);
        assert!(limits.kept_bytes > 0 || (counts.reused_tokens, counts.kept_sequences) == (0, 0), "{counts:?}");
        reused += counts.reused_tokens;
        assert_eq!(engine.kv().sequences(), counts.kept_sequences);
        core.close(&llmcc_rt::Error::invalid("closed"), engine);
        assert_eq!((engine.kv().sequences(), engine.kv().used_pages()), (0, 0));
    }
    reused
}

/// The tokens of a request that is served alone, and how many of its prompt were there.
fn serve_one(core: &mut Core, engine: &mut Engine, order: Order) -> (Vec<i32>, usize) {
    core.submit(order, Instant::now());
    let (mut tokens, mut reused) = (vec![], 0);
    while !core.is_idle() {
        for event in core.step(engine, None) {
            tokens.extend(event.piece.map(|piece| piece.token));
            reused += event.end.map_or(0, |end| end.stats.reused_tokens as usize);
        }
    }
    (tokens, reused)
}

/// A second request with the prompt of the first, and one with more after its text, compute what is new alone; at every
/// length.
pub fn check_warm(engine: &mut Engine, lengths: std::ops::Range<usize>, most_new: usize) {
    for length in lengths {
        let prompt: Vec<i32> = (0..length).map(|i| (i * i + 3 * i) as i32 % (VOCAB as i32 - 1)).collect();
        let params = GenParams { max_tokens: 5, ..params(&mut Rng(1)) };
        let limits = Limits { running: 4, target: None, kept_bytes: usize::MAX };
        let mut core = Core::new(limits);
        let mut run = |engine: &mut Engine, id, prompt: &[i32]| {
            let order = Order { id, prompt: prompt.to_vec(), params: params.clone(), ..Order::default() };
            serve_one(&mut core, engine, order)
        };
        let (cold, none) = run(engine, 1, &prompt);
        assert_eq!(none, 0);
        let (warm, reused) = run(engine, 2, &prompt);
        assert_eq!(warm, cold, "a prompt of {length}");
        assert!(reused < length && reused + most_new >= length, "{reused} of {length}");
        // The conversation goes on: all but the last token of the text are there.
        let longer = [&prompt[..], &cold, &[1, 2, 3]].concat();
        let (next, reused) = run(engine, 3, &longer);
        assert_eq!(reused, prompt.len() + cold.len() - 1);
        core.close(&llmcc_rt::Error::invalid("closed"), engine);
        assert_eq!(next, alone(engine, &longer, params.clone()).0);
        assert_eq!((engine.kv().sequences(), engine.kv().used_pages()), (0, 0));
    }
}

/// A folder for files, deleted at the end.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A core whose files are in a folder, as after a start.
fn with_files(engine: &Engine, folder: &Folder, limits: Limits) -> Core {
    let groups = engine.kv().layout().groups.clone();
    Core::with_disk(limits, Some(Disk::open(&folder.0, [5; 32], &groups, u64::MAX).unwrap()))
}

/// Requests after a restart go on from files, and have the tokens that they have alone; at every length.
pub fn check_restarts(engine: &mut Engine, name: &str, lengths: std::ops::Range<usize>, most_new: usize) {
    let folder = Folder(std::env::temp_dir().join(format!("llmcc-restarts-{name}-{}", std::process::id())));
    let limits = Limits { running: 4, target: None, kept_bytes: usize::MAX };
    for length in lengths {
        let prompt: Vec<i32> = (0..length).map(|i| (i * i + 5 * i + length) as i32 % (VOCAB as i32 - 1)).collect();
        let params = GenParams { max_tokens: 5, ..params(&mut Rng(1)) };
        let mut run = |prompt: &[i32], salt: u64| {
            let mut core = with_files(engine, &folder, limits);
            let order = Order { id: 1, prompt: prompt.to_vec(), params: params.clone(), salt, ..Order::default() };
            let (tokens, reused) = serve_one(&mut core, engine, order);
            let errors = core.counts().disk_errors;
            core.close(&llmcc_rt::Error::invalid("closed"), engine);
            assert_eq!((engine.kv().sequences(), engine.kv().used_pages(), errors), (0, 0, 0));
            (tokens, reused)
        };
        // (Tokens are few, so prompts of two lengths may begin alike.)
        let (own, other) = (length as u64, 1000);
        let (cold, none) = run(&prompt, own);
        assert_eq!(none, 0, "a prompt of {length}");
        let longer = [&prompt[..], &cold, &[1, 2, 3]].concat();
        let (next, reused) = run(&longer, own);
        let there = prompt.len() + cold.len() - 1;
        assert!(reused <= there && reused + most_new >= there, "{reused} of {there}");
        let (again, reused) = run(&longer, own);
        assert!(reused + most_new >= there, "{reused} of {there}");
        assert_eq!(run(&longer, other + own).1, 0, "another tenant's");
        let alone = alone(engine, &longer, params.clone()).0;
        assert_eq!((&next, &again), (&alone, &alone), "a prompt of {length}");
    }
}

/// Random requests with beginnings in common, over several starts with the same files.
pub fn check_files(engine: &mut Engine, name: &str, seed: u64, starts: usize) -> u64 {
    let folder = Folder(std::env::temp_dir().join(format!("llmcc-files-{name}-{}", std::process::id())));
    let (mut rng, mut reused) = (Rng(seed), 0);
    let beginnings: Vec<Vec<i32>> =
        (0..3).map(|_| (0..40 + rng.below(90)).map(|_| rng.below(VOCAB - 1) as i32).collect()).collect();
    for start in 0..starts {
        let limits = Limits { running: 1 + rng.below(4), target: None, kept_bytes: [600, usize::MAX][rng.below(2)] };
        let mut core = with_files(engine, &folder, limits);
        let mut all = BTreeMap::new();
        for id in 0..2 + rng.below(6) as u64 {
            let beginning = &beginnings[rng.below(3)];
            let beginning = &beginning[..beginning.len() - rng.below(30)];
            let tail = (0..1 + rng.below(40)).map(|_| rng.below(VOCAB - 1) as i32);
            let prompt: Vec<i32> = beginning.iter().copied().chain(tail).collect();
            let params = params(&mut rng);
            let text = alone(engine, &prompt, params.clone());
            let order = Order { id, prompt, params, salt: rng.below(2) as u64, ..Order::default() };
            core.submit(order.clone(), Instant::now());
            let asked = Asked { order, text, tokens: vec![], finish: None, ended: None, cancelled: false };
            all.insert(id, asked);
        }
        while !core.is_idle() {
            if rng.below(60) == 0 {
                let id = rng.below(all.len()) as u64;
                let event = core.cancel(id, engine);
                all.get_mut(&id).unwrap().cancelled |= event.is_some();
                take(&mut all, event.into_iter().collect());
            }
            let events = core.step(engine, None);
            take(&mut all, events);
            engine.kv().audit().unwrap();
        }
        for asked in all.values().filter(|asked| !asked.cancelled) {
            let what = format!("start {start}, {limits:?}: {:?}", asked.order);
            assert_eq!((&asked.tokens, &asked.finish), (&asked.text.0, &asked.text.1), "{what}");
        }
        reused += core.counts().disk_tokens;
        core.close(&llmcc_rt::Error::invalid("closed"), engine);
        assert_eq!((engine.kv().sequences(), engine.kv().used_pages()), (0, 0));
    }
    reused
}
