//! The same under llama.cpp's names: sums over all models, without labels.

use super::snapshot::{Snapshot, head};
use std::fmt::Write;
use std::time::Duration;

/// Writes the lines.
pub(super) fn write(out: &mut String, all: &[Snapshot]) {
    let sum = |count: &dyn Fn(&Snapshot) -> u64| -> u64 { all.iter().map(count).sum() };
    let engine = |name: &str| sum(&|of| of.or(name, 0));
    let time = |of: &dyn Fn(&Snapshot) -> Duration| -> f64 { all.iter().map(of).sum::<Duration>().as_secs_f64() };
    let reused = sum(&|of| of.or("reused_tokens", of.times.reused_tokens));
    let prompt = sum(&|of| of.or("prompt_tokens", of.times.prompt_tokens)).saturating_sub(reused);
    let prompt = prompt + sum(&|of| of.times.embedded_tokens);
    let generated = sum(&|of| of.or("generated_tokens", of.times.generated_tokens));
    let (prompt_time, text_time) = (time(&|of| of.times.prompt_time), time(&|of| of.times.text_time));
    let (steps, later) = (engine("steps") + sum(&|of| of.times.embedded), sum(&|of| of.times.later_tokens));
    let computed = sum(&|of| of.times.prompt_tokens.saturating_sub(of.times.reused_tokens));
    let rate = |tokens: u64, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    let longest = all.iter().map(|of| of.times.longest).max().unwrap_or(0);
    let counters: [(&str, &str, f64); 9] = [
        ("prompt_tokens_total", "Tokens of prompts and of embedded texts that were computed.", prompt as f64),
        ("prompt_tokens_cached_total", "Tokens of prompts that others had computed.", reused as f64),
        ("prompt_seconds_total", "Time of prompts.", prompt_time),
        ("tokens_predicted_total", "Generated tokens.", generated as f64),
        ("tokens_predicted_seconds_total", "Time of texts after their first tokens.", text_time),
        ("n_decode_total", "Steps of the engine, and computations of embeddings.", steps as f64),
        ("n_tokens_max", "The longest sequence.", longest as f64),
        ("spec_decode_num_draft_tokens_total", "Tokens that were guessed.", engine("guessed") as f64),
        ("spec_decode_num_accepted_tokens_total", "Guesses that became text.", engine("accepted") as f64),
    ];
    let gauges: [(&str, &str, f64); 5] = [
        ("prompt_tokens_seconds", "Tokens of prompts in a second.", rate(computed, prompt_time)),
        ("predicted_tokens_seconds", "Generated tokens in a second.", rate(later, text_time)),
        ("requests_processing", "Requests in steps.", engine("running") as f64),
        ("requests_deferred", "Requests that have not begun.", engine("waiting") as f64),
        ("n_busy_slots_per_decode", "Tokens of texts in a step.", rate(generated, steps as f64)),
    ];
    // Steps with guesses are not counted: their count is known while nothing was guessed.
    let drafts = ("spec_decode_num_drafts_total", "Steps with guesses.", 0.0);
    let drafts: &[(&str, &str, f64)] = if engine("guessed") == 0 { &[drafts] } else { &[] };
    for (lines, kind) in [(&counters[..], "counter"), (drafts, "counter"), (&gauges[..], "gauge")] {
        for (name, help, value) in lines {
            head(out, &format!("llamacpp:{name}"), help, kind);
            let _ = writeln!(out, "llamacpp:{name} {value}");
        }
    }
}
