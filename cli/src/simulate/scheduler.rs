//! A discrete-event simulation of the engine's scheduler: each event is a step.
//!
//! Who takes part, how prompts are cut and whose tokens are reused is decided by [`llmcc_steps`], the engine's own
//! code, over simulated sequences. This file has the rest of `runtime/rt/src/serve/core.rs` and `continuous.rs`, in
//! their order: requests arrive between steps, prompts wait for others that compute their beginnings, and where the
//! cache is full the last sequences give their pages back.

use super::cache::Cache;
use super::cost::{Chunk, Shape};
use crate::workload::Workload;
use crate::workload::figures::{Record, Totals};
use llmcc_abi::pools::Group;
use llmcc_steps::RUNNING;
use llmcc_steps::pace::Pace;
use llmcc_steps::plan::{Bounds, Candidate, Part, plan};
use llmcc_steps::prefix::{Owner, Prefixes, SeqId, Sequences, coming, shared};
use llmcc_steps::rank::{self, Standing};
use std::time::Duration;

/// Seconds from the end of a user's request to its next one, of a closed loop.
const ANSWER: f64 = 20e-6;
/// Tokens that stand for generated ones, from here down: no prompt has them.
const GENERATED: i32 = -1;

/// How long steps take.
pub trait Timing {
    /// Seconds in a step.
    fn step(&self, shape: &Shape) -> f64;
    /// Seconds after it, in which no step runs.
    fn between(&self) -> f64 {
        0.0
    }
}

/// The engine that is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Most requests in a step.
    pub running: usize,
    /// The longest time between two tokens that prompts of others may cause.
    pub target: Option<Duration>,
    /// Whether sequences of ended requests stay for others.
    pub prefixes: bool,
    /// Tokens of the largest step.
    pub chunk: usize,
    /// Groups of states with their pages.
    pub groups: Vec<Group>,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

impl Default for Setup {
    /// The engine's own choices, for a model without states.
    fn default() -> Setup {
        Setup { running: RUNNING, target: None, prefixes: true, chunk: 512, groups: vec![], vocab: 1 << 16 }
    }
}

/// A workload that was simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Each request.
    pub records: Vec<Record>,
    /// Counts; [`Totals::memory`] has the pages alone.
    pub totals: Totals,
}

struct Job {
    /// Index in the workload.
    request: usize,
    standing: Standing,
    deadline: Option<f64>,
    /// `None`: it waits.
    generation: Option<Generation>,
}

struct Generation {
    seq: SeqId,
    /// Prompt and generated tokens.
    history: Vec<i32>,
    evaluated: usize,
    /// Tokens that are to come.
    left: usize,
    /// A step ends here if it would go further: others begin with as many tokens.
    border: usize,
}

impl Generation {
    fn pending(&self) -> usize {
        self.history.len() - self.evaluated
    }

    /// The most pending tokens that a step with room for so many takes.
    fn part(&self, room: usize) -> usize {
        let whole = self.pending().min(room);
        match self.border.checked_sub(self.evaluated) {
            Some(left) if 0 < left && left < whole => left,
            _ => whole,
        }
    }
}

struct Simulation<'a> {
    workload: &'a Workload,
    setup: &'a Setup,
    timing: &'a dyn Timing,
    cache: Cache,
    prefixes: Prefixes,
    pace: Pace,
    jobs: Vec<Job>,
    records: Vec<Record>,
    totals: Totals,
    now: f64,
    /// Steps so far.
    step: u64,
    arrivals: u64,
    generated: i32,
}

/// Simulates a workload.
///
/// # Errors
/// A request for which the cache has no room even alone.
pub fn simulate(workload: &Workload, setup: &Setup, timing: &dyn Timing) -> Result<Simulated, String> {
    let record = |r: &crate::workload::Request| Record { arrival: r.arrival, prompt: r.prompt, ..Record::default() };
    let mut simulation = Simulation {
        workload,
        setup,
        timing,
        cache: Cache::new(setup.groups.clone(), setup.chunk),
        prefixes: Prefixes::new(if setup.prefixes { usize::MAX } else { 0 }),
        pace: Pace::new(setup.target),
        jobs: vec![],
        records: workload.requests.iter().map(record).collect(),
        totals: Totals { preempted: Some(0), ..Totals::default() },
        now: 0.0,
        step: 0,
        arrivals: 0,
        generated: GENERATED,
    };
    simulation.run()?;
    let Simulation { records, mut totals, cache, .. } = simulation;
    totals.seconds = records.iter().filter_map(|r| r.tokens.last()).copied().fold(0.0, f64::max);
    totals.memory = cache.peak() as f64;
    Ok(Simulated { records, totals })
}

impl Simulation<'_> {
    fn run(&mut self) -> Result<(), String> {
        let total = self.workload.requests.len();
        // When each user sends the next request.
        let mut free = vec![0.0; self.workload.users.unwrap_or(0).min(total)];
        let mut sent = 0;
        loop {
            while let Some(arrival) = self.due(sent, &free) {
                if arrival > self.now {
                    break;
                }
                if let Some(at) = earliest(&free) {
                    free.remove(at);
                }
                self.submit(sent, arrival);
                sent += 1;
            }
            if self.jobs.is_empty() {
                match self.due(sent, &free) {
                    Some(arrival) => self.now = arrival,
                    None => return Ok(()),
                }
                continue;
            }
            let ended = self.advance()?;
            self.now += self.timing.between();
            // (The engine's next step begins before a user has answered.)
            if self.workload.users.is_some() {
                free.extend(std::iter::repeat_n(self.now + ANSWER, ended));
            }
        }
    }

    /// When request `sent` arrives, if there is such a one and, of a closed loop, a user to send it.
    fn due(&self, sent: usize, free: &[f64]) -> Option<f64> {
        let request = self.workload.requests.get(sent)?;
        match self.workload.users {
            None => Some(request.arrival),
            Some(_) => earliest(free).map(|at| free[at]),
        }
    }

    fn submit(&mut self, request: usize, arrival: f64) {
        let of = &self.workload.requests[request];
        self.records[request].arrival = arrival;
        let standing = Standing { priority: of.priority, arrival: self.arrivals, served: 0, since: self.step };
        self.arrivals += 1;
        let deadline = of.deadline.map(|seconds| arrival + seconds);
        self.jobs.push(Job { request, standing, deadline, generation: None });
    }

    /// Runs a step. Returns how many requests ended.
    fn advance(&mut self) -> Result<usize, String> {
        let before = self.jobs.len();
        for at in (0..self.jobs.len()).rev() {
            if self.jobs[at].deadline.is_some_and(|deadline| deadline <= self.now) {
                self.end(at);
            }
        }
        let standings = self.jobs.iter().map(|job| job.standing);
        let chosen = rank::first(standings, self.step, self.setup.running);
        chosen.iter().for_each(|&at| self.admit(at, &chosen));
        let chosen: Vec<usize> = chosen.into_iter().filter(|at| self.jobs[*at].generation.is_some()).collect();
        if !chosen.is_empty() {
            self.share_step(&chosen)?;
        }
        for at in (0..self.jobs.len()).rev() {
            if self.jobs[at].generation.as_ref().is_some_and(|g| g.left == 0) {
                self.records[self.jobs[at].request].finished = true;
                self.end(at);
            }
        }
        Ok(before - self.jobs.len())
    }

    /// Gives a request that waits a sequence, unless one of `chosen` is about to compute much of its beginning.
    fn admit(&mut self, at: usize, chosen: &[usize]) {
        if self.jobs[at].generation.is_some() {
            return;
        }
        let request = self.jobs[at].request;
        let prompt = self.workload.prompt(request, self.setup.vocab);
        let mut from: Option<(SeqId, usize)> = None;
        if self.setup.prefixes {
            from = self.prefixes.find(&self.cache, Owner::default(), &prompt);
            for other in self.jobs.iter().filter_map(|job| job.generation.as_ref()) {
                let there = shared(&self.cache, other.seq, &prompt);
                if there > from.map_or(0, |(_, tokens)| tokens) {
                    from = Some((other.seq, there));
                }
            }
            if self.awaits(&prompt, from.map_or(0, |(_, tokens)| tokens), chosen) {
                return;
            }
        }
        let forked = from.and_then(|(seq, tokens)| Some((self.cache.fork(seq, tokens).ok()?, tokens)));
        let (seq, evaluated) = forked.unwrap_or_else(|| (self.cache.create(), 0));
        self.records[request].reused = evaluated;
        let left = self.workload.requests[request].output;
        self.jobs[at].generation = Some(Generation { seq, history: prompt, evaluated, left, border: 0 });
    }

    /// Whether a request of `chosen` is about to compute more of a prompt's beginning than the tokens `there`.
    fn awaits(&mut self, prompt: &[i32], there: usize, chosen: &[usize]) -> bool {
        let running = chosen.iter().filter_map(|&other| {
            let generation = self.jobs[other].generation.as_ref()?;
            Some((other, &generation.history[..], generation.evaluated))
        });
        let Some((other, same)) = coming(prompt, there, running) else { return false };
        if let Some(generation) = &mut self.jobs[other].generation {
            generation.border = same;
        }
        true
    }

    /// One step of the requests `chosen`, in the order of their rank.
    fn share_step(&mut self, chosen: &[usize]) -> Result<(), String> {
        let prompt_tokens = self.pace.prompt_tokens(self.setup.chunk);
        let prompts = self.generations(chosen).filter(|g| g.pending() > 1).count();
        while !self.cache.has_places(prompts + 1) && self.reclaim(&[])? {}
        let before: Vec<usize> = self.generations(chosen).map(Generation::pending).collect();
        let parts = self.planned(chosen, prompt_tokens)?;
        let seconds = self.timing.step(&self.shape(chosen, &parts));
        self.now += seconds;
        let (mut prompt, mut served) = (0, vec![0; chosen.len()]);
        for part in &parts {
            served[part.generation] = part.count;
            if before[part.generation] > 1 {
                prompt += part.count;
            }
            self.evaluate(chosen[part.generation], part);
        }
        let running = before.iter().filter(|pending| **pending <= 1).count();
        self.pace.learn(running, prompt, Duration::from_secs_f64(seconds));
        self.step += 1;
        (self.totals.steps, self.totals.busy) = (self.step, self.totals.busy + seconds);
        for (at, served) in chosen.iter().zip(served).filter(|(_, served)| *served > 0) {
            let standing = &mut self.jobs[*at].standing;
            (standing.served, standing.since) = (standing.served + served as u64, self.step);
        }
        Ok(())
    }

    fn generations<'s>(&'s self, chosen: &'s [usize]) -> impl Iterator<Item = &'s Generation> {
        chosen.iter().filter_map(|at| self.jobs[*at].generation.as_ref())
    }

    /// The parts of the next step, for which the cache has room.
    fn planned(&mut self, chosen: &[usize], prompt_tokens: usize) -> Result<Vec<Part>, String> {
        let mut most = usize::MAX;
        loop {
            let candidate = |g: &Generation| {
                Some(Candidate { evaluated: g.evaluated, pending: g.pending(), guesses: 0 }).filter(|_| g.left > 0)
            };
            let all: Vec<Option<Candidate>> = self.generations(chosen).map(candidate).collect();
            let bounds = Bounds { tokens: self.setup.chunk, parts: most, prompt_tokens };
            let part = |i: usize, room: usize| self.jobs[chosen[i]].generation.as_ref().map_or(0, |g| g.part(room));
            let plan = plan(&all, bounds, &self.cache, &part);
            if plan.waits && self.reclaim(chosen)? {
                continue;
            }
            let wanted: Vec<(SeqId, usize)> =
                plan.parts.iter().filter_map(|p| Some((self.nth(chosen, p.generation)?.seq, p.count))).collect();
            if self.cache.fits(&wanted) {
                return Ok(plan.parts);
            }
            if self.reclaim(chosen)? || self.make_room(chosen) {
                continue;
            }
            if plan.parts.len() <= 1 {
                let request = plan.parts.first().map_or(0, |p| self.jobs[chosen[p.generation]].request);
                return Err(format!(
                    "request {} needs more pages than the cache has, though it is alone: give a larger --cache-tokens",
                    request + 1
                ));
            }
            most = plan.parts.len() - 1;
        }
    }

    fn nth(&self, chosen: &[usize], i: usize) -> Option<&Generation> {
        self.jobs[*chosen.get(i)?].generation.as_ref()
    }

    /// Frees pages of ended requests, or else of begun ones that take no part. Returns whether there were any.
    fn reclaim(&mut self, chosen: &[usize]) -> Result<bool, String> {
        if self.prefixes.reclaim(&mut self.cache).map_err(|_| "a sequence was freed twice")? {
            return Ok(true);
        }
        let jobs = self.jobs.len();
        Ok(!chosen.is_empty() && (0..jobs).rev().any(|at| !chosen.contains(&at) && self.suspend(at)))
    }

    /// Takes the pages of the last of `chosen` that has some; the first keeps its own.
    fn make_room(&mut self, chosen: &[usize]) -> bool {
        chosen.iter().skip(1).rev().any(|&at| self.suspend(at))
    }

    /// Gives the pages of a request back; its tokens will be computed again.
    fn suspend(&mut self, at: usize) -> bool {
        let Some(generation) = self.jobs[at].generation.as_mut().filter(|g| g.evaluated > 0) else { return false };
        generation.evaluated = 0;
        self.cache.truncate(generation.seq, 0);
        self.totals.preempted = self.totals.preempted.map(|n| n + 1);
        true
    }

    fn shape(&self, chosen: &[usize], parts: &[Part]) -> Shape {
        let chunk = |part: &Part| {
            let evaluated = self.nth(chosen, part.generation).map_or(0, |g| g.evaluated);
            Chunk { tokens: part.count, context: evaluated as f64 + (part.count as f64 + 1.0) / 2.0 }
        };
        Shape { parts: parts.iter().map(chunk).collect(), rows: parts.iter().filter(|p| p.chooses).count() }
    }

    /// A part has been computed.
    fn evaluate(&mut self, at: usize, part: &Part) {
        let Job { request, generation: Some(generation), .. } = &mut self.jobs[at] else { return };
        let to = generation.evaluated + part.count;
        self.cache.append(generation.seq, &generation.history[generation.evaluated..to]);
        generation.evaluated = to;
        if part.chooses {
            generation.history.push(self.generated);
            self.generated = self.generated.checked_sub(1).unwrap_or(GENERATED);
            generation.left -= 1;
            self.records[*request].tokens.push(self.now);
        }
    }

    /// Takes a request out. Its sequence stays for others.
    fn end(&mut self, at: usize) {
        let Some(generation) = self.jobs.swap_remove(at).generation else { return };
        // (Both fail for sequences that do not exist alone.)
        let _ = match self.setup.prefixes {
            true => self.prefixes.keep(&mut self.cache, Owner::default(), generation.seq),
            false => self.cache.free(generation.seq),
        };
    }
}

/// The index of the earliest time.
fn earliest(times: &[f64]) -> Option<usize> {
    (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::generated::{self, Lengths};
    use crate::workload::{Request, Segment};

    /// 10 ms a step, and 1 ms for each token of prompts, chunks being what has more than one token.
    struct Plain;

    impl Timing for Plain {
        fn step(&self, shape: &Shape) -> f64 {
            let prompt: usize = shape.parts.iter().map(|p| p.tokens).filter(|tokens| *tokens > 1).sum();
            0.010 + 0.001 * prompt as f64
        }
    }

    fn request(arrival: f64, prompt: usize, output: usize) -> Request {
        Request { arrival, prompt, output, ..Request::default() }
    }

    fn workload(requests: Vec<Request>, users: Option<usize>) -> Workload {
        Workload { name: "test".into(), requests, users }
    }

    fn pages(count: usize) -> Vec<Group> {
        vec![Group { page_bytes: 1000, pages: count, ..Group::EMPTY }]
    }

    fn times(simulated: &Simulated) -> Vec<Vec<u32>> {
        let ms = |r: &Record| r.tokens.iter().map(|t| (t * 1e3).round() as u32).collect();
        simulated.records.iter().map(ms).collect()
    }

    /// By hand: two prompts fill the first step and get their first tokens with it. The third arrives in it, and joins
    /// the second; there it has 64 tokens at most beside the others, as nothing is measured yet.
    #[test]
    fn a_schedule_by_hand() {
        let all = workload(vec![request(0.0, 20, 3), request(0.0, 30, 2), request(0.050, 100, 2)], None);
        let setup = Setup { groups: pages(100), ..Setup::default() };
        let simulated = simulate(&all, &setup, &Plain).unwrap();
        // 10 + 50 ms; then 10 + 64 ms beside two next tokens, after which the second has ended; then 10 + 36 ms beside
        // one, after which the first has ended; then 10 ms.
        assert_eq!(times(&simulated), [vec![60, 134, 180], vec![60, 134], vec![180, 190]]);
        assert_eq!((simulated.totals.steps, simulated.totals.preempted), (4, Some(0)));
        assert!((simulated.totals.busy - 0.190).abs() < 1e-9 && simulated.records.iter().all(|r| r.finished));
        assert_eq!(simulate(&all, &setup, &Plain).unwrap(), simulated, "the same each time");
    }

    #[test]
    fn users_of_a_closed_loop_send_one_after_another() {
        let all = workload(vec![request(9.0, 10, 2); 4], Some(2));
        let simulated = simulate(&all, &Setup { groups: pages(100), ..Setup::default() }, &Plain).unwrap();
        // 10 + 20 ms for two prompts, 10 ms for two next tokens; the answers come when the engine is idle.
        assert_eq!(times(&simulated), [vec![30, 40], vec![30, 40], vec![70, 80], vec![70, 80]]);
        let arrivals: Vec<u32> = simulated.records.iter().map(|r| (r.arrival * 1e6).round() as u32).collect();
        assert_eq!(arrivals, [0, 0, 40_020, 40_020]);
    }

    #[test]
    fn beginnings_are_computed_once() {
        let shared = |prompt| Request { shared: vec![Segment { id: 3, tokens: 80 }], ..request(0.0, prompt, 2) };
        let all = workload(vec![shared(90), shared(100), shared(85)], None);
        let setup = Setup { groups: pages(100), ..Setup::default() };
        let simulated = simulate(&all, &setup, &Plain).unwrap();
        // The others wait for the step that computes the first one's beginning, and ends there.
        assert_eq!(simulated.records.iter().map(|r| r.reused).collect::<Vec<_>>(), [0, 80, 80]);
        assert_eq!(times(&simulated)[1][0], 90 + 10 + 10 + 20 + 5);
        let alone = simulate(&all, &Setup { prefixes: false, ..setup }, &Plain).unwrap();
        assert_eq!(alone.records.iter().map(|r| r.reused).sum::<usize>(), 0);
        assert_eq!(times(&alone)[0][0], 10 + 90 + 100 + 85);
    }

    #[test]
    fn full_caches_preempt_and_all_texts_end() {
        let all = workload(vec![request(0.0, 30, 60); 3], None);
        let roomy = simulate(&all, &Setup { groups: pages(100), ..Setup::default() }, &Plain).unwrap();
        // Three prompts of two pages begin; their texts would need six each.
        let tight = simulate(&all, &Setup { groups: pages(10), ..Setup::default() }, &Plain).unwrap();
        assert_eq!((roomy.totals.preempted, roomy.totals.memory), (Some(0), 3.0 * 6000.0));
        assert!(tight.totals.preempted > Some(0) && tight.totals.memory <= 10_000.0, "{:?}", tight.totals);
        assert!(tight.records.iter().all(|r| r.tokens.len() == 60 && r.finished));
        assert!(tight.totals.seconds > roomy.totals.seconds);
        let error = simulate(&all, &Setup { groups: pages(5), ..Setup::default() }, &Plain).unwrap_err();
        assert!(error.contains("request 1") && error.contains("--cache-tokens"), "{error}");
    }

    #[test]
    fn priorities_and_deadlines_count() {
        let mut requests = vec![request(0.0, 10, 3); 3];
        requests[2].priority = 1;
        requests[0].deadline = Some(0.045);
        let setup = Setup { running: 1, groups: pages(100), ..Setup::default() };
        let simulated = simulate(&workload(requests, None), &setup, &Plain).unwrap();
        assert_eq!(times(&simulated)[2], [20, 30, 40]);
        // The first one's only step ends after its deadline.
        assert_eq!((times(&simulated)[0].len(), simulated.records[0].finished), (1, false));
        assert_eq!(times(&simulated)[1], [80, 90, 100]);
    }

    /// Whatever is random: every request gets its tokens, in order, and none before it arrives.
    #[test]
    fn random_workloads_are_served_whole() {
        for seed in 0..20 {
            let lengths = Lengths { prompt: 1..=200, output: 1..=40, shared: 50 * (seed as usize % 3), seed };
            let all = match seed % 3 {
                0 => generated::offline(40, &lengths),
                1 => generated::server(5.0, 40, &lengths),
                _ => generated::closed(6, 40, &lengths),
            };
            let setup = Setup { running: 8, chunk: 64, groups: pages(40 + 10 * seed as usize), ..Setup::default() };
            let simulated = simulate(&all, &setup, &Plain).unwrap();
            for (record, request) in simulated.records.iter().zip(&all.requests) {
                assert_eq!((record.tokens.len(), record.finished), (request.output, true));
                assert!(record.tokens.is_sorted_by(|a, b| a < b) && record.tokens[0] > record.arrival);
            }
        }
    }
}
