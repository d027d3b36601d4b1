//! Several generations in one step: continuous batching.
//!
//! A call takes the running generations one token further and fills the rest of the step with
//! prompts, in the order given, which is the order of their rank: a prompt is begun when the cache
//! has room for all of it, and none overtakes another. Where the cache is full all the same, the
//! last generations give their pages back, and evaluate their tokens again when there is room (as
//! vLLM preempts by recomputation, Kwon et al. 2023). Tokens are the same as when each is generated
//! alone, bit for bit, as a sequence's logits depend neither on the rest of a step nor on how its
//! tokens are cut into steps.

use std::time::Instant;

use llmcc_steps::plan::{Bounds, Candidate, Part};

use crate::candidates::Want;
use crate::engine::{Batch, Engine, Io, Keep, Row, STEP, Sink};
use crate::error::{Error, Result, Status};
use crate::generate::{Choice, Choices, Generation, Most, Piece, Spelled};
use crate::kv::{RoomFor, SeqId};
use crate::reserve::need;
use crate::text::Text;

/// Tokens of a step, guesses included, up to which guesses cost little: weights are read once for all of them.
const FEW_TOKENS: usize = 16;

/// The sequences and tokens that one step evaluates.
#[derive(Default)]
struct Plan {
    tokens: Vec<i32>,
    seqs: Vec<SeqId>,
    /// Rows after which a token is chosen.
    out_rows: Vec<u32>,
    wants: Vec<Want>,
    /// For each of these rows the part that it is of, and its number among the part's rows.
    chooses: Vec<(usize, usize)>,
    parts: Vec<Part>,
    /// Whether a prompt waits for room in the cache.
    waits: bool,
}

/// The terms of a step.
pub struct Terms<'a> {
    /// Most tokens of prompts in a step in which generations get their next token.
    pub prompt_tokens: usize,
    /// Frees pages of the cache that no generation has. Returns whether there were any.
    pub reclaim: &'a mut dyn FnMut(&mut Engine) -> Result<bool>,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The failure.
    pub error: Error,
    /// The generation on which the step failed, if it did on one of them.
    pub generation: Option<usize>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, generation: None }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure.generation {
            Some(i) => Error::new(failure.error.status, format!("generation {i}: {}", failure.error.message)),
            None => failure.error,
        }
    }
}

type Step<T> = std::result::Result<T, Failure>;

/// One step of all `gens`, which are of one model. `None`: this one has ended before, or has no
/// token yet, since its prompt is long or waits for room.
///
/// A generation whose last step made several tokens gets the next of these, and takes no part in the step.
///
/// # Errors
/// The same sequence twice; the cache has no room for even one of them; any failure of a single
/// generation. Then none has got a token.
pub fn next(gens: &mut [&mut Generation], engine: &mut Engine, text: Option<&Text>) -> Result<Vec<Option<Piece>>> {
    let terms = &mut Terms { prompt_tokens: usize::MAX, reclaim: &mut |_| Ok(false) };
    Ok(next_within(gens, engine, text, terms)?)
}

/// [`next`] within some terms.
///
/// # Errors
/// As there.
pub fn next_within(
    gens: &mut [&mut Generation],
    engine: &mut Engine,
    text: Option<&Text>,
    terms: &mut Terms,
) -> Step<Vec<Option<Piece>>> {
    // The lists of the step, its results, and the lists of all tokens, which grow after it.
    let history: usize = gens.iter().map(|g| g.length()).sum();
    need(64 * engine.max_batch_tokens() + 512 * gens.len() + 12 * history)?;
    // Hidden states of the step, and copies of them for each generation.
    let kept = gens.iter().map(|g| g.kept(engine, engine.max_batch_tokens())).max().unwrap_or(0);
    need(2 * size_of::<f32>() * kept)?;
    check(gens, engine)?;
    let start = Instant::now();
    encode(gens, engine, terms)?;
    let (plan, mut choices) = step(gens, engine, terms)?;
    for part in &plan.parts {
        gens[part.generation].advance(part.count, start);
    }
    let spell = |g: &Generation, choice: Choice, engine: &Engine| g.spell(choice, engine, text);
    // All first choices are spelled before any is accepted: where one fails, all stay as they were.
    let mut spelled: Vec<Option<Spelled>> = Vec::with_capacity(plan.parts.len());
    for (part, choices) in plan.parts.iter().zip(&mut choices) {
        let i = part.generation;
        let first = part.chooses.then(|| choices.first().and_then(|choice| spell(gens[i], choice, engine))).transpose();
        match first {
            Ok(first) => spelled.push(first),
            Err(error) => {
                let chose = plan.parts.iter().filter(|part| part.chooses);
                chose.map(|part| part.generation).try_for_each(|i| gens[i].take_back(engine))?;
                return Err(Failure { error, generation: Some(i) });
            }
        }
    }
    for ((part, choices), first) in plan.parts.iter().zip(choices).zip(spelled) {
        let generation = &mut gens[part.generation];
        match first {
            Some(first) => generation.accept_first(first, choices, engine, start, &spell)?,
            None => generation.take_part(engine, &choices.rows)?,
        }
    }
    Ok(gens.iter_mut().map(|g| g.take_ready()).collect())
}

/// Runs the next step. Returns its plan, and the choices of each part.
fn step(gens: &mut [&mut Generation], engine: &mut Engine, terms: &mut Terms) -> Step<(Plan, Vec<Choices>)> {
    propose(gens, engine, terms.prompt_tokens)?;
    let mut most = usize::MAX;
    loop {
        let plan = plan(gens, engine, most, terms.prompt_tokens);
        if plan.waits && (terms.reclaim)(engine)? {
            continue;
        }
        if plan.parts.is_empty() {
            return Ok((plan, Vec::new()));
        }
        match run(gens, engine, &plan) {
            Ok(choices) => return Ok((plan, choices)),
            Err(error) if error.status != Status::CacheFull => {
                plan.parts.iter().for_each(|part| gens[part.generation].resume(engine));
                return Err(error.into());
            }
            Err(_) if (terms.reclaim)(engine)? => {}
            Err(error) => {
                // Guesses give way first, and then the last generations.
                let guessed = plan.parts.iter().any(|part| part.guesses > 0);
                gens.iter_mut().for_each(|g| g.drop_guesses());
                if guessed || make_room(gens, engine)? {
                    continue;
                }
                // Sequences of the caller's keep their pages; perhaps the first of them can go on.
                if plan.parts.len() == 1 {
                    let i = plan.parts[0].generation;
                    gens[i].resume(engine);
                    return Err(Failure { error, generation: Some(i) });
                }
                most = plan.parts.len() - 1;
            }
        }
    }
}

/// Lets generations whose prompts have been evaluated guess, as far as guesses cost little. Tokens that are expected
/// cost as much as tokens of prompts: they share as many as a step may have of these, `prompt_tokens`.
fn propose(gens: &mut [&mut Generation], engine: &mut Engine, prompt_tokens: usize) -> Result<()> {
    let count = gens.iter().filter(|g| g.steps()).count().max(1);
    let expecting = gens.iter().filter(|g| g.steps() && g.expects()).count().max(1);
    let chunk = engine.max_batch_tokens();
    let guesses = (FEW_TOKENS.min(chunk) / count).saturating_sub(1);
    // (The others have room for their tokens and guesses.)
    let rest = chunk.saturating_sub(count.max(FEW_TOKENS));
    let most = Most { guesses, expected: (rest.min(prompt_tokens) / expecting).max(guesses) };
    gens.iter_mut().filter(|g| g.steps()).try_for_each(|g| g.propose(engine, most))
}

fn run(gens: &[&mut Generation], engine: &mut Engine, plan: &Plan) -> Result<Vec<Choices>> {
    for part in &plan.parts {
        gens[part.generation].keep(engine)?;
    }
    let mut choices: Vec<Choices> = plan.parts.iter().map(|_| Choices::default()).collect();
    let hidden = images(gens, engine, plan)?;
    let positions = positions(gens, engine, plan, !hidden.is_empty())?;
    let batch = Batch {
        tokens: &plan.tokens,
        seqs: &plan.seqs,
        out_rows: &plan.out_rows,
        hidden: &hidden,
        positions: &positions,
        ..Batch::default()
    };
    let mut judge = |i: usize, row: Row| {
        let (part, nth) = plan.chooses[i];
        choices[part].judge(gens[plan.parts[part].generation], nth, row);
    };
    let kept = plan.parts.iter().map(|part| gens[part.generation].kept(engine, plan.tokens.len())).max().unwrap_or(0);
    let mut rows = Vec::with_capacity(kept);
    let mut keep = |_: usize, kept: &[f32]| rows.extend_from_slice(kept);
    let keep: Option<Keep> = if kept > 0 { Some(&mut keep) } else { None };
    engine.run(STEP, Io { batch: &batch, wants: &plan.wants, rows: Sink::Each(&mut judge), keep, taps: None })?;
    let width = engine.image().step().kept();
    for (part, choices) in plan.parts.iter().zip(&mut choices).filter(|(part, _)| gens[part.generation].takes_rows()) {
        let end = part.first + part.count + part.guesses;
        choices.rows = rows.get(part.first * width..end * width).unwrap_or_default().to_vec();
    }
    Ok(choices)
}

/// Rows of images that come with the tokens of a step; nothing where no token stands for such a row.
fn images(gens: &[&mut Generation], engine: &Engine, plan: &Plan) -> Result<Vec<f32>> {
    let width = engine.image().step().given;
    let mut all = Vec::new();
    for part in &plan.parts {
        let own = gens[part.generation].images_of(engine, part.count)?;
        if own.is_empty() {
            continue;
        }
        if all.is_empty() {
            need(4 * plan.tokens.len() * width)?;
            all.resize(plan.tokens.len() * width, 0.0);
        }
        all[part.first * width..][..own.len()].copy_from_slice(&own);
    }
    Ok(all)
}

/// Positions along axes of all tokens of a step with images, where tokens of the model have such.
fn positions(gens: &[&mut Generation], engine: &Engine, plan: &Plan, images: bool) -> Result<Vec<i32>> {
    let mut all = Vec::new();
    for part in &plan.parts {
        all.extend(gens[part.generation].positions_of(engine, part.count + part.guesses, images)?);
    }
    Ok(all)
}

/// Every generation has a sequence of its own, which nobody else has changed.
fn check(gens: &[&mut Generation], engine: &Engine) -> Result<()> {
    let mut seqs: Vec<SeqId> = Vec::with_capacity(gens.len());
    for generation in gens.iter().filter(|g| g.steps()) {
        generation.check_sequence(engine)?;
        seqs.push(generation.seq());
    }
    seqs.sort_unstable();
    match seqs.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(Error::invalid(format!("two generations use sequence {}; give each its own", two[0]))),
        None => Ok(()),
    }
}

/// Reads the sources of those that have to, in their order, as long as the cache has room. A generation whose source
/// finds none waits while others go on.
fn encode(gens: &mut [&mut Generation], engine: &mut Engine, terms: &mut Terms) -> Step<()> {
    for i in 0..gens.len() {
        loop {
            match gens[i].encode(engine) {
                Ok(_) => break,
                Err(error) if error.status == Status::CacheFull && (terms.reclaim)(engine)? => drop(error),
                Err(error) if error.status == Status::CacheFull => {
                    let others = gens.iter().any(|g| g.finish().is_none() && !g.lacks_source(engine));
                    if others {
                        return Ok(());
                    }
                    if !make_room(gens, engine)? {
                        return Err(Failure { error, generation: Some(i) });
                    }
                }
                Err(error) => return Err(Failure { error, generation: Some(i) }),
            }
        }
    }
    Ok(())
}

/// The next step, of up to `most` generations, with up to `prompt_tokens` tokens of prompts if others get their next
/// one.
fn plan(gens: &[&mut Generation], engine: &Engine, most: usize, prompt_tokens: usize) -> Plan {
    let tokens = engine.max_batch_tokens();
    // (The tokens of an image come in one step.)
    let prompt_tokens = if engine.has_runs() { usize::MAX } else { prompt_tokens };
    let candidate = |g: &&mut Generation| {
        (g.steps() && !g.lacks_source(engine)).then(|| Candidate {
            evaluated: g.evaluated(),
            pending: g.pending().len(),
            guesses: g.guesses().len(),
        })
    };
    let all: Vec<Option<Candidate>> = gens.iter().map(candidate).collect();
    let room = RoomFor { kv: engine.kv(), track: engine.image().step().track, chunk: tokens };
    let bounds = Bounds { tokens, parts: most, prompt_tokens };
    let chosen = llmcc_steps::plan::plan(&all, bounds, &room, &|i, room| gens[i].part(room, engine));
    let mut plan = Plan { waits: chosen.waits, ..Plan::default() };
    chosen.parts.into_iter().for_each(|part| plan.add(part, gens[part.generation], engine));
    plan
}

impl Plan {
    /// Adds the tokens of a part.
    fn add(&mut self, part: Part, generation: &Generation, engine: &Engine) {
        self.tokens.extend_from_slice(&generation.pending()[..part.count]);
        self.tokens.extend_from_slice(&generation.guesses()[..part.guesses]);
        self.seqs.resize(self.tokens.len(), generation.seq());
        if part.chooses {
            for nth in 0..=part.guesses {
                self.out_rows.push((part.first + part.count + nth) as u32 - 1);
                self.wants.push(generation.want(engine));
                self.chooses.push((self.parts.len(), nth));
            }
        }
        self.parts.push(part);
    }
}

/// Takes the pages of the last generation that has some; ended ones come first, and the only
/// generation keeps its pages.
fn make_room(gens: &mut [&mut Generation], engine: &mut Engine) -> Result<bool> {
    for ended in [true, false] {
        let first = gens.iter().position(|g| g.finish().is_none());
        for i in (0..gens.len()).rev().filter(|&i| Some(i) != first) {
            if gens[i].finish().is_some() == ended && gens[i].suspend(engine)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
