//! Counts and times of requests, as Prometheus reads them, under the names that vLLM gave them.

use crate::model::Model;
use llmcc_model::{Event, Finish};
use serde_json::Value;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

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

    fn write(&self, out: &mut String, name: &str, help: &str, model: &str) {
        head(out, name, help, "histogram");
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

    /// The page that Prometheus reads; `name`: the model's.
    pub(crate) fn page(&self, model: &dyn Model, name: &str) -> String {
        let (counts, used) = (model.counts().unwrap_or_default(), model.cache_used());
        let name = &name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        engine_counts(&mut out, &counts, used, name);
        // The engine counts the tokens of requests that have not ended, too.
        let or = |member: &str, ended: u64| counts[member].as_u64().unwrap_or(ended);
        for (metric, help, value) in [
            ("vllm:prompt_tokens_total", "Tokens of prompts.", or("prompt_tokens", times.prompt_tokens)),
            ("vllm:generation_tokens_total", "Generated tokens.", or("generated_tokens", times.generated_tokens)),
            ("vllm:prefix_cache_queries_total", "Tokens of prompts.", or("prompt_tokens", times.prompt_tokens)),
            ("vllm:prefix_cache_hits_total", "Tokens that were computed.", or("reused_tokens", times.reused_tokens)),
        ] {
            head(&mut out, metric, help, "counter");
            let _ = writeln!(out, "{metric}{{model_name=\"{name}\"}} {value}");
        }
        let ended = "vllm:request_success_total";
        head(&mut out, ended, "Ended requests, by the reason.", "counter");
        for (reason, value) in [("stop", times.stopped), ("length", times.limited), ("abort", times.aborted)] {
            let _ = writeln!(out, "{ended}{{model_name=\"{name}\",finished_reason=\"{reason}\"}} {value}");
        }
        for (histogram, metric, help) in [
            (&times.first, "vllm:time_to_first_token_seconds", "From the arrival to the first token."),
            (&times.between, "vllm:inter_token_latency_seconds", "Between two tokens."),
            (&times.per_token, "vllm:time_per_output_token_seconds", "Between two tokens, the mean of a request."),
            (&times.whole, "vllm:e2e_request_latency_seconds", "From the arrival to the end."),
            (&times.waited, "vllm:request_queue_time_seconds", "From the arrival to the first step."),
        ] {
            histogram.write(&mut out, metric, help, name);
        }
        out
    }
}

fn engine_counts(out: &mut String, counts: &Value, used: Option<f64>, name: &str) {
    for (metric, help, member) in [
        ("vllm:num_requests_running", "Requests in steps.", "running"),
        ("vllm:num_requests_waiting", "Requests that have not begun.", "waiting"),
    ] {
        head(out, metric, help, "gauge");
        let _ = writeln!(out, "{metric}{{model_name=\"{name}\"}} {}", counts[member].as_u64().unwrap_or(0));
    }
    if let Some(share) = used {
        let metric = "vllm:kv_cache_usage_perc";
        head(out, metric, "Share of the cache that is in use, kept beginnings included.", "gauge");
        let _ = writeln!(out, "{metric}{{model_name=\"{name}\"}} {share}");
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
        histogram.write(&mut out, "x", "Help.", "m");
        let lines: Vec<&str> = out.lines().skip(2).collect();
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
