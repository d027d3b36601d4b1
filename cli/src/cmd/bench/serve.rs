//! `--serve`, `--scenario`: workloads that an engine serves.

use super::energy::Meter;
use super::prompt::token;
use crate::Error;
use crate::args::BenchArgs;
use crate::loaded::{Engine, Event, Model, Request};
use crate::workload::figures::{Figures, Record, Totals};
use crate::workload::{Scenario, Workload};
use llmcc_steps::RUNNING;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The workloads that are asked for.
///
/// # Errors
/// A trace that cannot be read.
pub(super) fn workloads(args: &BenchArgs) -> Result<Vec<Workload>, Error> {
    let closed = |users: &usize| Scenario::Closed { users: *users, requests: users.saturating_mul(args.requests) };
    let all = args.serve.iter().map(closed).chain(args.scenario.iter().cloned());
    all.map(|scenario| scenario.workload(&args.workload.lengths())).collect()
}

/// Measures workloads, one after the other, with an artifact of so many bytes of weights, on a GPU or not.
///
/// # Errors
/// Errors of the artifact.
pub(super) fn all(
    model: &Model,
    args: &BenchArgs,
    workloads: &[Workload],
    with: (usize, bool),
) -> Result<Vec<Figures>, Error> {
    if !workloads.is_empty() {
        warm_up(model)?;
    }
    workloads.iter().map(|workload| serve(model, args, workload, with)).collect()
}

/// Serves a prompt as long as a step, so that no workload pays for what the first one of its size does once.
fn warm_up(model: &Model) -> Result<(), Error> {
    let info = model.info();
    let longest = info.max_context.min(info.cache_tokens).saturating_sub(2).max(1);
    let prompt: Vec<i32> = (0..info.max_batch_tokens.min(longest)).map(|i| token(i, info.vocab)).collect();
    let engine = model.engine(1)?;
    engine.submit(&Request { prompt: &prompt, tokens: 1, ..Request::default() })?;
    while !engine.poll(None)?.iter().any(|event| event.ended) {}
    Ok(())
}

/// A workload under way.
struct Served<'a> {
    workload: &'a Workload,
    start: Instant,
    records: Vec<Record>,
    /// Indices of requests that have not ended, by their numbers in the engine.
    asked: HashMap<u64, usize>,
    sent: usize,
}

/// Measures a workload.
fn serve(
    model: &Model,
    args: &BenchArgs,
    workload: &Workload,
    (weights, gpu): (usize, bool),
) -> Result<Figures, Error> {
    let running = workload.users.unwrap_or(0).max(RUNNING);
    let engine = model.engine(u32::try_from(args.workload.running.unwrap_or(running)).unwrap_or(u32::MAX))?;
    let vocab = model.info().vocab;
    let prompts: Vec<Vec<i32>> = (0..workload.requests.len()).map(|i| workload.prompt(i, vocab)).collect();
    let record = |prompt: &Vec<i32>| Record { prompt: prompt.len(), ..Record::default() };
    let records = prompts.iter().map(record).collect();
    let meter = Meter::start(gpu);
    let mut served = Served { workload, start: Instant::now(), records, asked: HashMap::new(), sent: 0 };
    loop {
        while served.due().is_some_and(|wait| wait.is_zero()) {
            served.send(&engine, &prompts[served.sent], args.lookup)?;
        }
        let wait = served.due();
        if wait.is_none() && served.asked.is_empty() {
            break;
        }
        for event in engine.poll(wait)? {
            served.take(&event);
        }
    }
    let seconds = served.start.elapsed().as_secs_f64();
    let joules = meter.map(|meter| meter.joules());
    let stats = engine.stats()?;
    let count = |name: &str| stats[name].as_u64().unwrap_or(0);
    let busy = Duration::from_nanos(count("busy_ns")).as_secs_f64();
    let totals = Totals {
        seconds,
        busy,
        steps: count("steps"),
        guessed: count("guessed"),
        accepted: count("accepted"),
        preempted: None,
        memory: memory(model, weights)?,
        joules,
    };
    Ok(Figures::of(workload, &served.records, args.workload.targets(), totals))
}

/// Bytes of weights, of activations, and of the pages in use: of ended requests, too, whose pages stay until others
/// need them. On a GPU all bytes that it holds.
fn memory(model: &Model, weights: usize) -> Result<f64, Error> {
    let stats: serde_json::Value = serde_json::from_str(&model.stats()?).unwrap_or_default();
    let bytes = |name: &str| stats[name].as_f64().unwrap_or(0.0);
    Ok((weights as f64 + bytes("activation_bytes") + bytes("kv_bytes_used")).max(bytes("device_bytes")))
}

impl Served<'_> {
    /// How long the next request is not sent yet; `None`: until another has ended, or there is none.
    fn due(&self) -> Option<Duration> {
        let request = self.workload.requests.get(self.sent)?;
        match self.workload.users {
            Some(users) => (self.asked.len() < users).then_some(Duration::ZERO),
            None => Some(Duration::from_secs_f64(request.arrival).saturating_sub(self.start.elapsed())),
        }
    }

    fn send(&mut self, engine: &Engine, prompt: &[i32], lookup: bool) -> Result<(), Error> {
        let (i, of) = (self.sent, &self.workload.requests[self.sent]);
        let now = self.start.elapsed().as_secs_f64();
        // A request that is sent late has waited since it was due.
        let arrival = if self.workload.users.is_some() { now } else { of.arrival };
        let timeout = of.deadline.map(|seconds| Duration::from_secs_f64((arrival + seconds - now).max(0.0)));
        let request = Request { prompt, tokens: of.output, priority: of.priority, timeout, lookup };
        self.asked.insert(engine.submit(&request)?, i);
        self.records[i].arrival = arrival;
        self.sent += 1;
        Ok(())
    }

    /// Notes an event, and its time.
    fn take(&mut self, event: &Event) {
        let Some(&i) = self.asked.get(&event.request) else { return };
        let record = &mut self.records[i];
        if event.token {
            record.tokens.push(self.start.elapsed().as_secs_f64());
        }
        if event.ended {
            (record.reused, record.finished) = (event.reused as usize, !event.late);
            self.asked.remove(&event.request);
        }
    }
}
