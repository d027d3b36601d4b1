//! The page of counts and times.

use super::snapshot::{Snapshot, head};
use super::{Histogram, Metrics, Times, llama};
use crate::model::Model;
use std::fmt::Write;
use std::sync::PoisonError;

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
