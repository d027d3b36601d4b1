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

use crate::candidates::Want;
use crate::engine::{Batch, Engine};
use crate::error::{Error, Result, Status};
use crate::generate::{Choice, Generation, Piece, Spelled};
use crate::kv::SeqId;
use crate::reserve::need;
use crate::text::Text;

/// The sequences and tokens that one step evaluates.
#[derive(Default)]
struct Plan {
    tokens: Vec<i32>,
    seqs: Vec<SeqId>,
    /// Rows after which a token is chosen.
    out_rows: Vec<u32>,
    wants: Vec<Want>,
    /// Generation of each of these rows.
    chooses: Vec<usize>,
    /// Generations that take part, and their numbers of tokens.
    parts: Vec<(usize, usize)>,
    /// Most of them.
    most: usize,
}

/// One step of all `gens`, which are of one model. `None`: this one has ended before, or has no
/// token yet, since its prompt is long or waits for room.
///
/// # Errors
/// The same sequence twice; the cache has no room for even one of them; any failure of a single
/// generation. Then none has got a token.
pub fn next(gens: &mut [&mut Generation], engine: &mut Engine, text: Option<&Text>) -> Result<Vec<Option<Piece>>> {
    // The lists of the step, its results, and the lists of all tokens, which grow after it.
    let history: usize = gens.iter().map(|g| g.evaluated() + g.pending().len()).sum();
    need(64 * engine.max_batch_tokens() + 512 * gens.len() + 12 * history)?;
    check(gens, engine)?;
    let start = Instant::now();
    encode(gens, engine)?;
    let mut chosen: Vec<Option<Result<Choice>>> = Vec::new();
    let mut most = usize::MAX;
    let plan = loop {
        let plan = plan(gens, engine, most);
        chosen.clear();
        chosen.resize_with(plan.chooses.len(), || None);
        let batch = Batch { tokens: &plan.tokens, seqs: &plan.seqs, out_rows: &plan.out_rows, types: &[], hidden: &[] };
        let done =
            engine.step_for(&batch, &plan.wants, &mut |i, row| chosen[i] = Some(gens[plan.chooses[i]].choose(row)));
        match done {
            Ok(()) => break plan,
            Err(error) if error.status == Status::CacheFull && make_room(gens, engine)? => {}
            // Sequences of the caller's keep their pages; perhaps the first of them can go on.
            Err(error) if error.status == Status::CacheFull && plan.parts.len() > 1 => most = plan.parts.len() - 1,
            Err(error) => {
                plan.parts.iter().for_each(|&(i, _)| gens[i].resume(engine));
                return Err(error);
            }
        }
    };
    for &(i, count) in &plan.parts {
        gens[i].advance(count, start);
    }
    let missing = || Err(Error::new(Status::Internal, "the step produced no logits"));
    let results: Result<Vec<Choice>> = (plan.chooses.iter().zip(chosen))
        .map(|(i, choice)| choice.unwrap_or_else(missing).map_err(|e| of_generation(*i, &e)))
        .collect();
    let results = match results {
        Ok(results) => results,
        Err(error) => {
            plan.chooses.iter().try_for_each(|&i| gens[i].take_back(engine))?;
            return Err(error);
        }
    };
    // All are spelled before any is accepted: where one fails, all stay as they were.
    let spelled: Result<Vec<Spelled>> = (plan.chooses.iter().zip(results))
        .map(|(&i, choice)| gens[i].spell(choice, engine, text).map_err(|e| of_generation(i, &e)))
        .collect();
    let spelled = match spelled {
        Ok(spelled) => spelled,
        Err(error) => {
            plan.chooses.iter().try_for_each(|&i| gens[i].take_back(engine))?;
            return Err(error);
        }
    };
    let mut pieces: Vec<Option<Piece>> = gens.iter().map(|_| None).collect();
    for (&i, next) in plan.chooses.iter().zip(spelled) {
        pieces[i] = Some(gens[i].accept(next, start));
    }
    Ok(pieces)
}

fn of_generation(i: usize, e: &Error) -> Error {
    Error::new(e.status, format!("generation {i}: {}", e.message))
}

/// Every generation has a sequence of its own, which nobody else has changed.
fn check(gens: &[&mut Generation], engine: &Engine) -> Result<()> {
    let mut seqs: Vec<SeqId> = Vec::with_capacity(gens.len());
    for generation in gens.iter().filter(|g| g.finish().is_none()) {
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
fn encode(gens: &mut [&mut Generation], engine: &mut Engine) -> Result<()> {
    for i in 0..gens.len() {
        loop {
            match gens[i].encode(engine) {
                Ok(_) => break,
                Err(error) if error.status == Status::CacheFull => {
                    let others = gens.iter().any(|g| g.finish().is_none() && !g.lacks_source(engine));
                    if others {
                        return Ok(());
                    }
                    if !make_room(gens, engine)? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(of_generation(i, &error)),
            }
        }
    }
    Ok(())
}

/// The next step, of up to `most` generations.
fn plan(gens: &[&mut Generation], engine: &Engine, most: usize) -> Plan {
    let limit = engine.max_batch_tokens();
    let mut plan = Plan { most, ..Plan::default() };
    let ready = |i: usize| gens[i].finish().is_none() && !gens[i].lacks_source(engine);
    let alive = |begun: bool| (0..gens.len()).filter(move |&i| ready(i) && begun == (gens[i].evaluated() > 0));
    // Those whose prompt has been evaluated first: nobody waits for a token because of others'
    // prompts.
    let (running, filling): (Vec<usize>, Vec<usize>) = alive(true).partition(|&i| gens[i].pending().len() == 1);
    for &i in running.iter().chain(&filling) {
        plan.add(i, gens[i], limit, engine);
    }
    // Pages that running generations need for their next token are not free.
    let kv = engine.kv();
    // (Those of sources are in use already.)
    let own = |group: usize| engine.image().track(group) == engine.image().step().track;
    let whole = |group: usize, i: usize| match own(group) {
        true => kv.pages_for(group, gens[i].evaluated() + gens[i].pending().len() + 1, limit),
        false => 0,
    };
    let grow = |group: usize, i: usize| whole(group, i).saturating_sub(kv.pages_for(group, gens[i].evaluated(), limit));
    let grows = |group: usize| running.iter().chain(&filling).map(|&i| grow(group, i)).sum();
    let mut free: Vec<usize> =
        (0..kv.groups()).map(|group| kv.free_pages(group).saturating_sub(grows(group))).collect();
    for i in alive(false) {
        // The first of all is tried in any case.
        let room = free.iter().enumerate().all(|(group, free)| whole(group, i) <= *free);
        if !room && !plan.parts.is_empty() {
            break;
        }
        free.iter_mut().enumerate().for_each(|(group, free)| *free = free.saturating_sub(whole(group, i)));
        plan.add(i, gens[i], limit, engine);
    }
    plan
}

impl Plan {
    /// Adds as much of generation number `i` as the step has room for.
    fn add(&mut self, i: usize, generation: &Generation, limit: usize, engine: &Engine) {
        let pending = generation.pending();
        let count = pending.len().min(limit - self.tokens.len());
        if count == 0 || self.parts.len() == self.most {
            return;
        }
        self.tokens.extend_from_slice(&pending[..count]);
        self.seqs.resize(self.tokens.len(), generation.seq());
        self.parts.push((i, count));
        if count == pending.len() {
            self.out_rows.push(self.tokens.len() as u32 - 1);
            self.wants.push(generation.want(engine));
            self.chooses.push(i);
        }
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
