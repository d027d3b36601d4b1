//! Figures of a workload that was served, or that is predicted to be: times of tokens, throughput, goodput.

use super::request::Workload;
use crate::units::bytes;
use serde_json::{Value, json};
use std::fmt::Write;

/// One request, as it was served. Times are in seconds from the start of the workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// When it arrived.
    pub arrival: f64,
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens of these that other requests had computed.
    pub reused: usize,
    /// When each of its tokens was there.
    pub tokens: Vec<f64>,
    /// Whether its text has all its tokens.
    pub finished: bool,
}

/// Counts of all requests together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Seconds from the start to the last token.
    pub seconds: f64,
    /// Seconds in steps.
    pub busy: f64,
    /// Steps.
    pub steps: u64,
    /// Tokens that were guessed.
    pub guessed: u64,
    /// Guesses that became part of texts.
    pub accepted: u64,
    /// Sequences that gave their pages back and were computed again; `None`: not counted.
    pub preempted: Option<u64>,
    /// Most bytes of memory: of the process, or by the formula.
    pub memory: f64,
    /// Joules, where they can be had.
    pub joules: Option<f64>,
}

/// Times that a good request keeps, in seconds; `None`: any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Targets {
    /// From the arrival to the first token.
    pub first: Option<f64>,
    /// Between two tokens, the mean over a request.
    pub between: Option<f64>,
}

/// A workload's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The workload's name.
    pub name: String,
    /// Users at once, of a closed loop.
    pub users: Option<usize>,
    /// Requests.
    pub requests: usize,
    /// Requests that ended before their texts did.
    pub unfinished: usize,
    /// Generated tokens.
    pub generated: usize,
    /// Tokens of prompts that other requests had computed, and all.
    pub reused: (usize, usize),
    /// Seconds from arrivals to first tokens, ascending.
    pub first: Vec<f64>,
    /// Seconds between two tokens of a request, ascending.
    pub between: Vec<f64>,
    /// Requests that kept the targets.
    pub good: usize,
    /// The targets.
    pub targets: Targets,
    /// The rest.
    pub totals: Totals,
}

impl Figures {
    /// The figures of these requests.
    pub fn of(workload: &Workload, records: &[Record], targets: Targets, totals: Totals) -> Figures {
        let since = |r: &Record| r.tokens.first().map(|first| first - r.arrival);
        let mut first: Vec<f64> = records.iter().filter_map(since).collect();
        let gaps = |r: &Record| r.tokens.windows(2).map(|two| two[1] - two[0]).collect::<Vec<_>>();
        let mut between: Vec<f64> = records.iter().flat_map(gaps).collect();
        first.sort_by(f64::total_cmp);
        between.sort_by(f64::total_cmp);
        Figures {
            name: workload.name.clone(),
            users: workload.users,
            requests: records.len(),
            unfinished: records.iter().filter(|r| !r.finished).count(),
            generated: records.iter().map(|r| r.tokens.len()).sum(),
            reused: (records.iter().map(|r| r.reused).sum(), records.iter().map(|r| r.prompt).sum()),
            first,
            between,
            good: records.iter().filter(|r| targets.kept_by(r)).count(),
            targets,
            totals,
        }
    }

    /// Generated tokens per second.
    pub fn throughput(&self) -> f64 {
        self.per_second(self.generated)
    }

    /// Requests per second that kept the targets (as DistServe's, Zhong et al. 2024, arXiv 2401.09670).
    pub fn goodput(&self) -> f64 {
        self.per_second(self.good)
    }

    fn per_second(&self, count: usize) -> f64 {
        if self.totals.seconds > 0.0 { count as f64 / self.totals.seconds } else { 0.0 }
    }

    /// The part of the time in which no step ran.
    fn idle(&self) -> f64 {
        if self.totals.seconds > 0.0 { 1.0 - self.totals.busy / self.totals.seconds } else { 0.0 }
    }

    fn joules_per_token(&self) -> Option<f64> {
        self.totals.joules.filter(|_| self.generated > 0).map(|joules| joules / self.generated as f64)
    }

    /// As a document.
    pub fn json(&self) -> Value {
        let [first, between] = [&self.first, &self.between].map(|all| {
            let [half, p95, p99] = quantiles(all);
            json!({ "p50_ms": half, "p95_ms": p95, "p99_ms": p99 })
        });
        let t = &self.totals;
        let ms = |seconds: Option<f64>| seconds.map(|s| s * 1e3);
        json!({
            "workload": self.name, "users": self.users, "requests": self.requests, "unfinished": self.unfinished,
            "seconds": t.seconds, "tokens_per_second": self.throughput(), "generated_tokens": self.generated,
            "requests_per_second": self.per_second(self.requests - self.unfinished),
            "time_to_first_token": first, "between_tokens": between,
            "targets": { "first_ms": ms(self.targets.first), "between_ms": ms(self.targets.between) },
            "good_requests": self.good, "goodput_requests_per_second": self.goodput(),
            "reused_prompt_tokens": self.reused.0, "prompt_tokens": self.reused.1,
            "guessed": t.guessed, "accepted": t.accepted, "preempted": t.preempted, "steps": t.steps,
            "busy_seconds": t.busy, "idle": self.idle(), "memory_bytes": t.memory, "joules": t.joules,
            "joules_per_token": self.joules_per_token(),
        })
    }

    /// In words: a line and some below it.
    pub fn text(&self) -> String {
        let t = &self.totals;
        let reused = 100.0 * self.reused.0 as f64 / self.reused.1.max(1) as f64;
        let rate = self.throughput();
        let mut s = match self.users {
            Some(users) => format!("serve   {users:>5} users   {rate:8.1} tokens/s   {} requests", self.requests),
            None => format!("serve   {}   {rate:.1} tokens/s", self.name),
        };
        let _ =
            writeln!(s, ", {reused:.0} % of prompts reused, {:.1} % of the time outside steps", self.idle() * 100.0);
        for (name, all) in [("first token", &self.first), ("next token", &self.between)] {
            let [half, p95, p99] = quantiles(all);
            let _ = writeln!(s, "        {name:<11} half within {half:.1} ms, 95 % {p95:.1} ms, 99 % {p99:.1} ms");
        }
        let bound = |name: &str, limit: Option<f64>| limit.map(|s| format!("{name} within {:.0} ms", s * 1e3));
        let bounds: Vec<String> = [bound("first token", self.targets.first), bound("next", self.targets.between)]
            .into_iter()
            .flatten()
            .collect();
        if !bounds.is_empty() {
            let (good, all) = (self.good, self.requests);
            let _ = writeln!(
                s,
                "        goodput     {:.2} requests/s, {good} of {all} with {}",
                self.goodput(),
                bounds.join(", ")
            );
        }
        if t.guessed > 0 {
            let share = 100.0 * t.accepted as f64 / t.guessed as f64;
            let _ = writeln!(s, "        guesses     {share:.0} % of {} right", t.guessed);
        }
        let mut rest = vec![format!("{} at most", bytes(t.memory))];
        rest.extend(self.joules_per_token().map(|joules| format!("{joules:.3} J per token")));
        rest.extend(t.preempted.filter(|n| *n > 0).map(|n| format!("{n} sequences preempted")));
        rest.extend(Some(self.unfinished).filter(|n| *n > 0).map(|n| format!("{n} requests past their deadlines")));
        let _ = writeln!(s, "        memory      {}", rest.join(", "));
        s
    }
}

impl Targets {
    /// Whether a request kept them: all its tokens came, the first and the others in time.
    fn kept_by(&self, r: &Record) -> bool {
        let (Some(first), Some(last)) = (r.tokens.first(), r.tokens.last()) else { return false };
        let gaps = r.tokens.len() - 1;
        let between = if gaps > 0 { (last - first) / gaps as f64 } else { 0.0 };
        r.finished
            && self.first.is_none_or(|most| first - r.arrival <= most)
            && self.between.is_none_or(|most| between <= most)
    }
}

/// The value below which a share of the ascending `all` lies; 0 of none.
pub fn quantile(all: &[f64], share: f64) -> f64 {
    let at = (share * all.len() as f64) as usize;
    all.get(at.min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Half, 95 % and 99 %, in milliseconds.
pub fn quantiles(all: &[f64]) -> [f64; 3] {
    [0.5, 0.95, 0.99].map(|share| quantile(all, share) * 1e3)
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

    #[test]
    fn good_requests_keep_both_targets() {
        let record = |arrival: f64, tokens: &[f64], finished| Record {
            arrival,
            prompt: 10,
            reused: 5,
            tokens: tokens.into(),
            finished,
        };
        let records = [
            record(0.0, &[0.1, 0.2, 0.3], true),
            record(1.0, &[1.5, 1.6], true),
            record(2.0, &[2.1, 2.4, 2.5], true),
            record(3.0, &[3.1], false),
            record(4.0, &[], false),
        ];
        let workload = Workload { name: "five".into(), requests: vec![], users: None };
        let totals = Totals { seconds: 5.0, busy: 4.0, joules: Some(18.0), ..Totals::default() };
        let of = |first, between| Figures::of(&workload, &records, Targets { first, between }, totals);
        assert_eq!([of(None, None).good, of(Some(0.2), None).good, of(Some(0.2), Some(0.15)).good], [3, 2, 1]);
        let figures = of(Some(0.2), Some(0.15));
        assert_eq!((figures.generated, figures.unfinished, figures.reused), (9, 2, (25, 50)));
        let document = figures.json();
        assert_eq!(document["goodput_requests_per_second"], 0.2);
        assert_eq!(document["joules_per_token"], 2.0);
        let text = figures.text();
        for part in ["1 of 5", "first token within 200 ms", "2.000 J per token", "2 requests past", "50 % of prompts"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
