//! Counts and times of requests, as Prometheus reads them, under the names that vLLM and llama.cpp gave them.

mod llama;

use crate::model::Model;
use crate::timings::Timings;
use llmcc_model::{Event, Finish};
use serde_json::Value;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the histograms, in seconds; vLLM's.
const FIRST: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const BETWEEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// Counts and times since the server began.
#[derive(Default)]
pub(crate) struct Metrics {
    times: Mutex<Times>,
}

struct Times {
    first: Histogram,
    between: Histogram,
    /// Mean times between the tokens of requests.
    per_token: Histogram,
    whole: Histogram,
    waited: Histogram,
    /// Ended requests: finished, at a limit of tokens, failed or cancelled.
    stopped: u64,
    limited: u64,
    aborted: u64,
    /// Tokens of prompts, of these reused, and of texts, of requests that ended.
    prompt_tokens: u64,
    reused_tokens: u64,
    generated_tokens: u64,
    /// Times of prompts and of texts, and tokens of texts after the first one of each.
    prompt_time: Duration,
    text_time: Duration,
    later_tokens: u64,
    /// The longest sequence.
    longest: u64,
    /// Tokens of texts that became embeddings, and computations of these.
    embedded_tokens: u64,
    embedded: u64,
}

impl Default for Times {
    fn default() -> Times {
        let [between, per_token] = [(); 2].map(|()| Histogram::new(BETWEEN));
        let [whole, waited] = [(); 2].map(|()| Histogram::new(WHOLE));
        Times {
            first: Histogram::new(FIRST),
            between,
            per_token,
            whole,
            waited,
            stopped: 0,
            limited: 0,
            aborted: 0,
            prompt_tokens: 0,
            reused_tokens: 0,
            generated_tokens: 0,
            prompt_time: Duration::ZERO,
            text_time: Duration::ZERO,
            later_tokens: 0,
            longest: 0,
            embedded_tokens: 0,
            embedded: 0,
        }
    }
}

struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    fn add(&mut self, seconds: f64) {
        if let Some(at) = self.bounds.iter().position(|bound| seconds <= *bound) {
            self.counts[at] += 1;
        }
        self.sum += seconds;
        self.count += 1;
    }

    /// Writes the lines of a model.
    fn write(&self, out: &mut String, name: &str, model: &str) {
        let mut so_far = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            so_far += count;
            let _ = writeln!(out, "{name}_bucket{{model_name=\"{model}\",le=\"{bound:?}\"}} {so_far}");
        }
        let _ = writeln!(out, "{name}_bucket{{model_name=\"{model}\",le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{name}_sum{{model_name=\"{model}\"}} {}", self.sum);
        let _ = writeln!(out, "{name}_count{{model_name=\"{model}\"}} {}", self.count);
    }
}

impl Metrics {
    /// Counts texts that became embeddings together.
    pub(crate) fn embedded(&self, tokens: usize) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.embedded_tokens += tokens as u64;
        times.embedded += 1;
    }

    /// Counts an event of a request that began at `began`, and whose last token came at `last`.
    pub(crate) fn observe(&self, event: &Event, began: Instant, last: &mut Option<Instant>) {
        let now = Instant::now();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if event.token.is_some() {
            match last.replace(now) {
                None => times.first.add((now - began).as_secs_f64()),
                Some(before) => times.between.add((now - before).as_secs_f64()),
            }
        }
        let Some(end) = &event.end else { return };
        times.prompt_tokens += end.prompt_tokens;
        times.reused_tokens += end.reused_tokens;
        times.generated_tokens += end.generated_tokens;
        times.waited.add(end.waited.as_secs_f64());
        let own = Timings::of(end);
        times.prompt_time += own.prefill;
        times.text_time += own.decode;
        times.later_tokens += own.steps();
        times.longest = times.longest.max(end.prompt_tokens + end.generated_tokens);
        match (&end.error, event.finish) {
            (Some(_), _) => times.aborted += 1,
            (None, Some(Finish::Length | Finish::Context)) => times.limited += 1,
            (None, _) => times.stopped += 1,
        }
        if end.error.is_none() {
            times.whole.add(end.total.as_secs_f64());
        }
        if end.error.is_none() && end.generated_tokens > 1 {
            let rest = end.total.saturating_sub(end.first_token).as_secs_f64();
            times.per_token.add(rest / (end.generated_tokens - 1) as f64);
        }
    }
}

/// A model with its counts and times, for the page.
pub(crate) struct View<'a> {
    pub(crate) name: &'a str,
    pub(crate) model: &'a dyn Model,
    pub(crate) metrics: &'a Metrics,
}

/// A histogram of a model's times.
type Of = fn(&Times) -> &Histogram;
/// A count of a model.
type Count = fn(&Snapshot<'_>) -> u64;

/// A model's state at the moment of the page.
struct Snapshot<'a> {
    /// Its name, as labels have it.
    name: String,
    counts: Value,
    used: Option<f64>,
    times: MutexGuard<'a, Times>,
}

impl Snapshot<'_> {
    /// A count of the engine's, which has the tokens of requests that have not ended, too.
    fn or(&self, member: &str, ended: u64) -> u64 {
        self.counts[member].as_u64().unwrap_or(ended)
    }
}

/// The page that Prometheus reads.
pub(crate) fn page(models: &[View]) -> String {
    let all: Vec<Snapshot> = models
        .iter()
        .map(|view| Snapshot {
            name: view.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"),
            counts: view.model.counts().unwrap_or_default(),
            used: view.model.cache_used(),
            times: view.metrics.times.lock().unwrap_or_else(PoisonError::into_inner),
        })
        .collect();
    let mut out = String::new();
    gauges(&mut out, &all);
    counters(&mut out, &all);
    histograms(&mut out, &all);
    llama::write(&mut out, &all);
    out
}

fn gauges(out: &mut String, all: &[Snapshot]) {
    for (metric, help, member) in [
        ("vllm:num_requests_running", "Requests in steps.", "running"),
        ("vllm:num_requests_waiting", "Requests that have not begun.", "waiting"),
    ] {
        head(out, metric, help, "gauge");
        for of in all {
            let _ = writeln!(out, "{metric}{{model_name=\"{}\"}} {}", of.name, of.or(member, 0));
        }
    }
    if all.iter().any(|of| of.used.is_some()) {
        let metric = "vllm:kv_cache_usage_perc";
        head(out, metric, "Share of the cache that is in use, kept beginnings included.", "gauge");
        for (of, share) in all.iter().filter_map(|of| of.used.map(|share| (of, share))) {
            let _ = writeln!(out, "{metric}{{model_name=\"{}\"}} {share}", of.name);
        }
    }
}

fn counters(out: &mut String, all: &[Snapshot]) {
    let prompt: Count = |of| of.or("prompt_tokens", of.times.prompt_tokens);
    let generated: Count = |of| of.or("generated_tokens", of.times.generated_tokens);
    let reused: Count = |of| of.or("reused_tokens", of.times.reused_tokens);
    let metrics: [(&str, &str, Count); 4] = [
        ("vllm:prompt_tokens_total", "Tokens of prompts.", prompt),
        ("vllm:generation_tokens_total", "Generated tokens.", generated),
        ("vllm:prefix_cache_queries_total", "Tokens of prompts.", prompt),
        ("vllm:prefix_cache_hits_total", "Tokens that were computed.", reused),
    ];
    for (metric, help, value) in metrics {
        head(out, metric, help, "counter");
        for of in all {
            let _ = writeln!(out, "{metric}{{model_name=\"{}\"}} {}", of.name, value(of));
        }
    }
    let ended = "vllm:request_success_total";
    head(out, ended, "Ended requests, by the reason.", "counter");
    for of in all {
        let times = &of.times;
        for (reason, value) in [("stop", times.stopped), ("length", times.limited), ("abort", times.aborted)] {
            let _ = writeln!(out, "{ended}{{model_name=\"{}\",finished_reason=\"{reason}\"}} {value}", of.name);
        }
    }
}

fn histograms(out: &mut String, all: &[Snapshot]) {
    let metrics: [(&str, &str, Of); 5] = [
        ("vllm:time_to_first_token_seconds", "From the arrival to the first token.", |t| &t.first),
        ("vllm:inter_token_latency_seconds", "Between two tokens.", |t| &t.between),
        ("vllm:time_per_output_token_seconds", "Between two tokens, the mean of a request.", |t| &t.per_token),
        ("vllm:e2e_request_latency_seconds", "From the arrival to the end.", |t| &t.whole),
        ("vllm:request_queue_time_seconds", "From the arrival to the first step.", |t| &t.waited),
    ];
    for (metric, help, histogram) in metrics {
        head(out, metric, help, "histogram");
        all.iter().for_each(|of| histogram(&of.times).write(out, metric, &of.name));
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let mut histogram = Histogram::new(&[0.1, 1.0]);
        [0.05, 0.1, 0.5, 7.0].into_iter().for_each(|seconds| histogram.add(seconds));
        let mut out = String::new();
        histogram.write(&mut out, "x", "m");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines,
            [
                "x_bucket{model_name=\"m\",le=\"0.1\"} 2",
                "x_bucket{model_name=\"m\",le=\"1.0\"} 3",
                "x_bucket{model_name=\"m\",le=\"+Inf\"} 4",
                "x_sum{model_name=\"m\"} 7.65",
                "x_count{model_name=\"m\"} 4",
            ]
        );
    }
}
