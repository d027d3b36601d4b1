//! Requests that share steps: who takes part in the next one, what it gives them, and what they leave behind.
//!
//! Time enters here through limits and the lengths of prompts' parts only. A request's tokens are the same in any
//! company: they depend on its prompt, parameters and seed.

use std::time::{Duration, Instant};

use llmcc_steps::pace::Pace;
use llmcc_steps::prefix::{Owner, Prefixes, coming, shared};
use llmcc_steps::rank::{self, Standing};

use super::counts::Counts;
use super::disk::{Disk, Path};
use super::fetch::Fetches;
use crate::continuous::{Failure, Terms, next_within};
use crate::engine::Engine;
use crate::error::{Error, Result, Status};
use crate::generate::{Finish, GenParams, GenStats, Generation, Piece, marked};
use crate::kv::SeqId;
use crate::speculate::{Guesses, Tenants};
use crate::text::Text;

/// How long a step without work waits for files.
const PATIENCE: Duration = Duration::from_millis(5);

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Number by which events name it.
    pub id: u64,
    /// The whole sequence from its first token.
    pub prompt: Vec<i32>,
    /// How its tokens are chosen, and when it ends.
    pub params: GenParams,
    /// Larger ones go first.
    pub priority: i32,
    /// When it ends at the latest.
    pub deadline: Option<Instant>,
    /// It shares computed tokens with requests of the same number only.
    pub salt: u64,
}

/// Something that happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its number.
    pub request: u64,
    /// Its next token.
    pub piece: Option<Piece>,
    /// Set in its last event.
    pub end: Option<End>,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Why it failed, or that it was cancelled; `None`: its text is finished.
    pub error: Option<Error>,
    /// Counts and times.
    pub stats: GenStats,
    /// From its arrival until it first took part in a step.
    pub waited: Duration,
    /// From its arrival to its first token; zero without one.
    pub first: Duration,
    /// From its arrival to its end.
    pub total: Duration,
}

/// Limits of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most requests in a step.
    pub running: usize,
    /// The longest time between two tokens that prompts of others may cause.
    pub target: Option<Duration>,
    /// Most bytes of the cache's pages that stay for later requests; 0: nothing stays.
    pub kept_bytes: usize,
}

/// All requests, and the sequences of ended ones.
pub struct Core {
    limits: Limits,
    jobs: Vec<Job>,
    arrivals: u64,
    step: u64,
    pace: Pace,
    prefixes: Prefixes,
    /// Beginnings in files, and those that are being read.
    disk: Option<Disk>,
    fetches: Fetches,
    /// Texts that requests guess from.
    texts: Tenants,
    counts: Counts,
}

struct Job {
    id: u64,
    owner: Owner,
    deadline: Option<Instant>,
    arrived: Instant,
    began: Option<Instant>,
    first: Option<Instant>,
    standing: Standing,
    state: State,
}

type Stepped<T> = std::result::Result<T, Failure>;

enum State {
    /// It has no sequence yet.
    Waiting(Box<Waiting>),
    Running(Box<Generation>),
    /// For a moment, while it changes.
    Gone,
}

/// A request without a sequence.
struct Waiting {
    prompt: Vec<i32>,
    params: GenParams,
    /// Whether the files were asked for its beginning.
    asked: bool,
}

impl Core {
    /// No requests yet.
    pub fn new(limits: Limits) -> Core {
        Core::with_disk(limits, None)
    }

    /// No requests yet; what they compute stays in files, too.
    pub fn with_disk(limits: Limits, disk: Option<Disk>) -> Core {
        Core {
            limits,
            jobs: Vec::new(),
            arrivals: 0,
            step: 0,
            pace: Pace::new(limits.target),
            prefixes: Prefixes::new(limits.kept_bytes),
            disk,
            fetches: Fetches::default(),
            texts: Tenants::default(),
            counts: Counts::default(),
        }
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        let running = self.jobs.iter().filter(|job| matches!(job.state, State::Running(_))).count();
        Counts {
            running,
            waiting: self.jobs.len() - running,
            kept_sequences: self.prefixes.len(),
            kept_bytes: self.prefixes.bytes(),
            disk: self.disk.as_ref().map(Disk::counts),
            ..self.counts.clone()
        }
    }

    /// Takes a request, which arrived at `arrived`.
    pub fn submit(&mut self, order: Order, arrived: Instant) {
        let Order { id, prompt, params, priority, deadline, salt } = order;
        let standing = Standing { priority, arrival: self.arrivals, served: 0, since: self.step };
        let owner = Owner { salt, adapter: params.adapter };
        let state = State::Waiting(Box::new(Waiting { prompt, params, asked: false }));
        self.jobs.push(Job { id, owner, deadline, arrived, began: None, first: None, standing, state });
        self.arrivals += 1;
        self.counts.submitted += 1;
    }

    /// Ends a request, if it has not ended.
    pub fn cancel(&mut self, id: u64, engine: &mut Engine) -> Option<Event> {
        let at = self.jobs.iter().position(|job| job.id == id)?;
        let error = Error::new(Status::Interrupted, "the request was cancelled");
        self.counts.cancelled += 1;
        Some(self.end(at, Some(error), engine))
    }

    /// Ends all requests for one reason, and frees all sequences.
    pub fn close(&mut self, error: &Error, engine: &mut Engine) -> Vec<Event> {
        let ends = (0..self.jobs.len()).rev().map(|at| self.end(at, Some(error.clone()), engine)).collect();
        // (It fails for sequences that do not exist alone.)
        let _ = self.prefixes.clear(engine.kv_mut());
        ends
    }

    /// Runs one step of the requests whose turn it is.
    pub fn step(&mut self, engine: &mut Engine, text: Option<&Text>) -> Vec<Event> {
        let mut events = self.expire(engine);
        self.collect(engine, Duration::ZERO);
        let standings = self.jobs.iter().map(|job| job.standing);
        let chosen = rank::first(standings, self.step, self.limits.running);
        let mut failed = Vec::new();
        for &at in &chosen {
            if let Err(error) = self.admit(at, &chosen, engine, text) {
                failed.push((at, error));
            }
        }
        let chosen: Vec<usize> =
            chosen.into_iter().filter(|at| matches!(self.jobs[*at].state, State::Running(_))).collect();
        if chosen.is_empty() {
            // Nothing else can be done.
            self.collect(engine, PATIENCE);
        } else {
            match self.run(&chosen, engine, text) {
                Ok(found) => events.extend(found),
                // Somebody interrupts the calls of others; the step runs again.
                Err(Failure { error, .. }) if error.status == Status::Interrupted => {}
                Err(Failure { error, generation }) => {
                    let at = generation.or(chosen.len().checked_sub(1)).and_then(|i| chosen.get(i).copied());
                    failed.extend(at.map(|at| (at, error)));
                }
            }
        }
        failed.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, error) in failed {
            self.counts.failed += 1;
            events.push(self.end(at, Some(error), engine));
        }
        self.finish(&mut events, engine);
        debug_assert_eq!(engine.kv().audit(), Ok(()));
        events
    }

    /// Ends requests whose time has passed.
    fn expire(&mut self, engine: &mut Engine) -> Vec<Event> {
        let now = Instant::now();
        let late = |job: &Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let all: Vec<usize> = (0..self.jobs.len()).rev().filter(|at| late(&self.jobs[*at])).collect();
        let error = || Error::new(Status::Deadline, "the request's deadline has passed; its text so far is right");
        self.counts.expired += all.len() as u64;
        all.into_iter().map(|at| self.end(at, Some(error()), engine)).collect()
    }

    /// Gives a request that waits a sequence, unless one of `chosen` is about to compute much of its beginning.
    fn admit(&mut self, at: usize, chosen: &[usize], engine: &mut Engine, text: Option<&Text>) -> Result<()> {
        let owner = self.jobs[at].owner;
        let State::Waiting(waiting) = &self.jobs[at].state else { return Ok(()) };
        let Waiting { prompt, params, .. } = &**waiting;
        let shares = self.limits.kept_bytes > 0 && !engine.has_source();
        let mut from = None;
        if shares {
            let seen = marked(engine, prompt, &params.images.rows);
            let images = !params.images.rows.is_empty();
            from = self.prefixes.find(engine.kv(), owner, &seen);
            for other in self.jobs.iter().filter(|job| job.owner == owner) {
                let State::Running(generation) = &other.state else { continue };
                let there = shared(engine.kv(), generation.seq(), &seen);
                if there > from.map_or(0, |(_, tokens)| tokens) {
                    from = Some((generation.seq(), there));
                }
            }
            let there = from.map_or(0, |(_, tokens)| tokens);
            if self.fetches.has(self.jobs[at].id) {
                return Ok(());
            }
            if let Some(path) = self.on_disk(at, &seen, there) {
                self.fetch(at, path, there);
                return Ok(());
            }
            if !images && self.awaits(at, there, chosen) {
                return Ok(());
            }
        }
        self.start(at, from.map(|(seq, _)| seq), engine, text)
    }

    /// Whether a request of `chosen` is about to compute more of the beginning of another than the tokens `there`.
    fn awaits(&mut self, at: usize, there: usize, chosen: &[usize]) -> bool {
        let State::Waiting(waiting) = &self.jobs[at].state else { return false };
        let owner = self.jobs[at].owner;
        let running = chosen.iter().filter_map(|&other| match &self.jobs[other].state {
            State::Running(generation) if self.jobs[other].owner == owner => {
                Some((other, generation.history(), generation.evaluated()))
            }
            _ => None,
        });
        let Some((other, same)) = coming(&waiting.prompt, there, running) else { return false };
        if let State::Running(generation) = &mut self.jobs[other].state {
            generation.end_step_at(same);
        }
        true
    }

    /// The beginning of a request in files, if they have more of it than the tokens `there`, and were not asked before.
    fn on_disk(&self, at: usize, seen: &[i32], there: usize) -> Option<Path> {
        let Job { owner, state: State::Waiting(waiting), .. } = &self.jobs[at] else { return None };
        let disk = self.disk.as_ref().filter(|_| owner.adapter == 0 && !waiting.asked)?;
        disk.find(owner.salt, seen, there)
    }

    /// Has the beginning of a request read, which waits for it.
    fn fetch(&mut self, at: usize, path: Path, there: usize) {
        let Job { id, owner, state: State::Waiting(waiting), .. } = &mut self.jobs[at] else { return };
        let Some(disk) = &self.disk else { return };
        waiting.asked = true;
        self.counts.disk_tokens += (path.tokens - there) as u64;
        self.fetches.begin(*id, *owner);
        disk.read(*id, path);
    }

    /// Takes up beginnings that were read, and waits for one up to `timeout` if some are being read.
    fn collect(&mut self, engine: &mut Engine, timeout: Duration) {
        let Some(disk) = &self.disk else { return };
        let mut timeout = if self.fetches.is_empty() { Duration::ZERO } else { timeout };
        while let Some(read) = disk.take(timeout) {
            timeout = Duration::ZERO;
            self.counts.disk_errors += u64::from(!self.fetches.take(read, &mut self.prefixes, engine.kv_mut()));
        }
    }

    /// Begins to serve a request, from the tokens that the sequence `from` has.
    fn start(&mut self, at: usize, from: Option<SeqId>, engine: &mut Engine, text: Option<&Text>) -> Result<()> {
        let State::Waiting(waiting) = std::mem::replace(&mut self.jobs[at].state, State::Gone) else { return Ok(()) };
        let Waiting { prompt, mut params, .. } = *waiting;
        // A sequence that cannot be forked is computed.
        let seq = from.and_then(|seq| engine.kv_mut().fork(seq).ok());
        if seq.is_some() {
            // The fork has the adapter.
            params.adapter = 0;
        }
        if matches!(params.guesses, Guesses::Lookup) {
            params.guesses = Guesses::Texts(self.texts.of(self.jobs[at].owner.salt));
        }
        let made = Generation::new(engine, text, seq, &prompt, params);
        let mut generation = match (made, seq) {
            (Ok(generation), _) => generation,
            (Err(error), None) => return Err(error),
            (Err(error), Some(seq)) => {
                engine.kv_mut().seq_free(seq)?;
                return Err(error);
            }
        };
        if seq.is_some() {
            generation.adopt();
        }
        self.jobs[at].began = Some(Instant::now());
        self.counts.prompt_tokens += generation.stats().prompt_tokens;
        self.counts.reused_tokens += generation.stats().reused_tokens;
        self.jobs[at].state = State::Running(Box::new(generation));
        Ok(())
    }

    /// One step of the requests `chosen`, in the order of their rank.
    fn run(&mut self, chosen: &[usize], engine: &mut Engine, text: Option<&Text>) -> Stepped<Vec<Event>> {
        let prompt_tokens = self.pace.prompt_tokens(engine.max_batch_tokens());
        let prefixes = &mut self.prefixes;
        let (mut gens, mut paused) = split(&mut self.jobs, chosen);
        // States of fixed size: sequences that stay yield before snapshots of others do.
        let prompts = gens.iter().filter(|g| g.pending().len() > 1).count();
        while !engine.kv().has_places(prompts + 1) && prefixes.reclaim(engine.kv_mut())? {}
        let mut reclaim = |engine: &mut Engine| {
            if prefixes.reclaim(engine.kv_mut())? {
                return Ok(true);
            }
            while let Some(generation) = paused.pop() {
                if generation.suspend(engine)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let before: Vec<Before> = gens.iter().map(|g| Before::of(g)).collect();
        let start = Instant::now();
        let pieces = next_within(&mut gens, engine, text, &mut Terms { prompt_tokens, reclaim: &mut reclaim })?;
        let time = start.elapsed();
        let parts: Vec<Part> = gens.iter_mut().zip(&before).zip(pieces).map(|((g, b), p)| Part::of(g, b, p)).collect();
        Ok(self.tell(chosen, parts, (start, time)))
    }

    /// The events of a step that began at some moment and took some time; and the lessons of it.
    fn tell(&mut self, chosen: &[usize], parts: Vec<Part>, (start, time): (Instant, Duration)) -> Vec<Event> {
        let running = parts.iter().filter(|part| !part.prompt).count();
        let prompt = parts.iter().filter(|part| part.prompt).map(|part| part.served).sum();
        self.pace.learn(running, prompt, time);
        self.step += 1;
        self.counts.steps += 1;
        self.counts.busy += time;
        let mut events = Vec::new();
        for (at, part) in chosen.iter().zip(parts) {
            let job = &mut self.jobs[*at];
            job.standing.served += part.served as u64;
            if part.served > 0 || !part.pieces.is_empty() {
                job.standing.since = self.step;
            }
            if !part.pieces.is_empty() {
                job.first.get_or_insert(start + time);
            }
            self.counts.step_tokens += part.served as u64;
            self.counts.generated_tokens += part.pieces.len() as u64;
            events.extend(part.pieces.into_iter().map(|piece| Event {
                request: job.id,
                piece: Some(piece),
                end: None,
            }));
        }
        events
    }

    /// Ends the requests whose texts are finished; the last event of each says so.
    fn finish(&mut self, events: &mut Vec<Event>, engine: &mut Engine) {
        let done = |job: &Job| match &job.state {
            State::Running(generation) => generation.finish().is_some(),
            State::Waiting(_) | State::Gone => false,
        };
        for at in (0..self.jobs.len()).rev() {
            if !done(&self.jobs[at]) {
                continue;
            }
            self.counts.finished += 1;
            let last = self.end(at, None, engine);
            match events.iter_mut().rev().find(|event| event.request == last.request) {
                Some(event) => event.end = last.end,
                None => events.push(last),
            }
        }
    }

    /// Takes a request out. Its sequence stays for others.
    fn end(&mut self, at: usize, error: Option<Error>, engine: &mut Engine) -> Event {
        let job = self.jobs.swap_remove(at);
        if let Some(disk) = self.disk.as_ref().filter(|_| self.fetches.has(job.id)) {
            disk.forget(job.id);
            self.fetches.end(job.id, engine.kv_mut());
        }
        let mut stats = GenStats::default();
        if let State::Running(generation) = job.state {
            stats = generation.stats();
            if let Guesses::Texts(texts) = generation.guesses_from() {
                let text = generation.history();
                texts.add(text, text.len().saturating_sub(stats.generated_tokens as usize));
            }
            let (guessed, keeps) = (generation.guessed(), self.keeps(job.owner, engine));
            self.counts.guessed += guessed.guessed;
            self.counts.accepted += guessed.accepted;
            let left = match keeps {
                true => generation.release(engine).and_then(|seq| self.keep(engine, job.owner, seq)),
                false => generation.close(engine),
            };
            debug_assert!(left.is_ok(), "{left:?}");
        }
        let now = Instant::now();
        let since = |when: Option<Instant>| when.map_or(Duration::ZERO, |when| when - job.arrived);
        let (waited, first) = (since(job.began.or(Some(now))), since(job.first));
        let end = End { error, stats, waited, first, total: now - job.arrived };
        Event { request: job.id, piece: None, end: Some(end) }
    }

    /// Keeps a sequence for later requests, in memory and in files.
    fn keep(&mut self, engine: &mut Engine, owner: Owner, seq: SeqId) -> Result<()> {
        if let Some(disk) = &self.disk
            && disk.write(engine.kv_mut(), seq, owner.salt).is_err()
        {
            self.counts.disk_errors += 1;
        }
        self.prefixes.keep(engine.kv_mut(), owner, seq)
    }

    /// Whether sequences of an owner stay. (Adapters may be unloaded, and their numbers be used again.)
    fn keeps(&self, owner: Owner, engine: &Engine) -> bool {
        self.limits.kept_bytes > 0 && owner.adapter == 0 && !engine.has_source()
    }
}

/// The generations of `chosen`, in this order, and the others that have begun.
fn split<'a>(jobs: &'a mut [Job], chosen: &[usize]) -> (Vec<&'a mut Generation>, Vec<&'a mut Generation>) {
    let mut ranks = vec![None; jobs.len()];
    chosen.iter().enumerate().for_each(|(rank, at)| ranks[*at] = Some(rank));
    let (mut on, mut off) = (Vec::with_capacity(chosen.len()), Vec::new());
    for (job, rank) in jobs.iter_mut().zip(ranks) {
        let State::Running(generation) = &mut job.state else { continue };
        match rank {
            Some(rank) => on.push((rank, &mut **generation)),
            None => off.push(&mut **generation),
        }
    }
    on.sort_by_key(|(rank, _)| *rank);
    (on.into_iter().map(|(_, generation)| generation).collect(), off)
}

/// A generation before a step.
struct Before {
    evaluated: usize,
    pending: usize,
    /// Its next tokens are expected, and evaluated as those of a prompt.
    expects: bool,
}

impl Before {
    fn of(generation: &Generation) -> Before {
        let (evaluated, pending) = (generation.evaluated(), generation.pending().len());
        Before { evaluated, pending, expects: generation.expects() }
    }
}

/// The part of a step that was of one request.
struct Part {
    /// Whether it was of the prompt, or of tokens that were expected.
    prompt: bool,
    /// Tokens computed, without wrong guesses.
    served: usize,
    /// New tokens of the text.
    pieces: Vec<Piece>,
}

impl Part {
    fn of(generation: &mut Generation, before: &Before, piece: Option<Piece>) -> Part {
        let served = generation.evaluated().saturating_sub(before.evaluated);
        let more = std::iter::from_fn(|| generation.take_ready());
        Part { prompt: before.pending > 1 || before.expects, served, pieces: piece.into_iter().chain(more).collect() }
    }
}

impl Event {
    /// Why the text is finished, if it is.
    pub fn finish(&self) -> Option<Finish> {
        self.piece.as_ref().and_then(|piece| piece.finish)
    }
}
