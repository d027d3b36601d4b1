//! Counts and times of requests, as Prometheus reads them, under the names that vLLM and llama.cpp gave them.

mod llama;
pub(crate) mod page;
mod snapshot;

use crate::timings::Timings;
use llmcc_model::{Event, Finish};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
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
