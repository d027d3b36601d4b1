//! `--serve`: users that ask an engine, each for the next text when its last one has ended.

use super::prompt::token;
use crate::Error;
use crate::args::BenchArgs;
use crate::loaded::{Engine, Model};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How some users were served.
pub(super) struct Served {
    users: usize,
    requests: usize,
    seconds: f64,
    generated: usize,
    /// Tokens of prompts that other requests had computed, and all.
    reused: (u64, usize),
    /// Seconds from a request to its first token, ascending.
    first: Vec<f64>,
    /// Seconds between two tokens of a request, ascending.
    between: Vec<f64>,
    /// The part of the time in which no step ran.
    idle: f64,
}

/// A request under way.
struct Asked {
    since: Instant,
    tokens: usize,
}

/// Measures with `users` at once.
pub(super) fn serve(model: &Model, args: &BenchArgs, users: usize) -> Result<Served, Error> {
    let engine = model.engine(u32::try_from(users.max(64)).unwrap_or(u32::MAX))?;
    let total = users * args.requests;
    let mut served = Served {
        users,
        requests: total,
        seconds: 0.0,
        generated: 0,
        reused: (0, total * args.serve_prompt),
        first: vec![],
        between: vec![],
        idle: 0.0,
    };
    let (start, mut asked, mut sent): (_, HashMap<u64, Asked>, _) = (Instant::now(), HashMap::new(), 0);
    while sent < total || !asked.is_empty() {
        while sent < total && asked.len() < users {
            let prompt = prompt(sent, args, model.info().vocab);
            asked.insert(engine.submit(&prompt, args.serve_tokens)?, Asked { since: Instant::now(), tokens: 0 });
            sent += 1;
        }
        take(&engine, &mut asked, &mut served)?;
    }
    served.seconds = start.elapsed().as_secs_f64();
    let busy = Duration::from_nanos(engine.stats()?["busy_ns"].as_u64().unwrap_or(0));
    served.idle = 1.0 - busy.as_secs_f64() / served.seconds;
    served.first.sort_by(f64::total_cmp);
    served.between.sort_by(f64::total_cmp);
    Ok(served)
}

/// The prompt of request `i`: a beginning that all have, and tokens that no other has.
fn prompt(i: usize, args: &BenchArgs, vocab: usize) -> Vec<i32> {
    let own = |at: usize| token(if at < args.serve_shared { at } else { at + (i + 1) * 7001 }, vocab);
    (0..args.serve_prompt).map(own).collect()
}

/// Waits for events, and notes their times.
fn take(engine: &Engine, asked: &mut HashMap<u64, Asked>, served: &mut Served) -> Result<(), Error> {
    for event in engine.poll()? {
        let now = Instant::now();
        let Some(own) = asked.get_mut(&event.request) else { continue };
        if event.token {
            let seconds = (now - own.since).as_secs_f64();
            match own.tokens {
                0 => served.first.push(seconds),
                _ => served.between.push(seconds),
            }
            (own.since, own.tokens, served.generated) = (now, own.tokens + 1, served.generated + 1);
        }
        if event.ended {
            served.reused.0 += event.reused;
            asked.remove(&event.request);
        }
    }
    Ok(())
}

/// The value below which a share of the ascending `all` lies; 0 of none.
fn quantile(all: &[f64], share: f64) -> f64 {
    let at = (share * all.len() as f64) as usize;
    all.get(at.min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Half, 95 % and 99 %, in milliseconds.
fn quantiles(all: &[f64]) -> [f64; 3] {
    [0.5, 0.95, 0.99].map(|share| quantile(all, share) * 1e3)
}

impl Served {
    pub(super) fn json(&self) -> Value {
        let [first, between] = [&self.first, &self.between].map(|all| {
            let [half, p95, p99] = quantiles(all);
            json!({ "p50_ms": half, "p95_ms": p95, "p99_ms": p99 })
        });
        json!({
            "users": self.users, "requests": self.requests, "seconds": self.seconds,
            "tokens_per_second": self.generated as f64 / self.seconds,
            "time_to_first_token": first, "between_tokens": between,
            "reused_prompt_tokens": self.reused.0, "prompt_tokens": self.reused.1, "idle": self.idle,
        })
    }

    pub(super) fn text(&self) -> String {
        let rate = self.generated as f64 / self.seconds;
        let reused = 100.0 * self.reused.0 as f64 / self.reused.1.max(1) as f64;
        let mut s = format!("serve   {:>5} users   {rate:8.1} tokens/s   {} requests", self.users, self.requests);
        let _ = writeln!(s, ", {reused:.0} % of prompts reused, {:.1} % of the time outside steps", self.idle * 100.0);
        for (name, all) in [("first token", &self.first), ("next token", &self.between)] {
            let [half, p95, p99] = quantiles(all);
            let _ = writeln!(s, "        {name:<11} half within {half:.1} ms, 95 % {p95:.1} ms, 99 % {p99:.1} ms");
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_list() {
        let all: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(quantiles(&all), [100e3, 190e3, 198e3]);
        assert_eq!((quantiles(&[]), quantiles(&[2.0])), ([0.0; 3], [2e3; 3]));
    }
}
