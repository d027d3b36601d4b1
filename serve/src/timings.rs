//! Times of a request, as llama.cpp has them.

use llmcc_model::End;
use serde_json::{Value, json};
use std::time::Duration;

/// Counts and times of a request's prompt and text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timings {
    /// Tokens of the prompt that were computed before.
    pub(crate) cached: u64,
    /// Tokens of the prompt that were computed for this request.
    pub(crate) computed: u64,
    /// Generated tokens.
    pub(crate) generated: u64,
    /// Time from the first step to the first token.
    pub(crate) prefill: Duration,
    /// Time from there to the end.
    pub(crate) decode: Duration,
}

impl Timings {
    /// The times of a request that has ended.
    pub(crate) fn of(end: &End) -> Timings {
        Timings {
            cached: end.reused_tokens,
            computed: end.prompt_tokens.saturating_sub(end.reused_tokens),
            generated: end.generated_tokens,
            prefill: end.first_token.saturating_sub(end.waited),
            decode: end.total.saturating_sub(end.first_token),
        }
    }

    /// Steps after the one that computed the prompt, which gave the first token.
    pub(crate) fn steps(&self) -> u64 {
        self.generated.saturating_sub(1)
    }

    /// Their document: milliseconds, and tokens in a second. The first token has no step of its own.
    pub(crate) fn json(&self) -> Value {
        let (prompt, text) = (milliseconds(self.prefill), milliseconds(self.decode));
        json!({
            "cache_n": self.cached,
            "prompt_n": self.computed, "prompt_ms": prompt,
            "prompt_per_token_ms": share(prompt, self.computed), "prompt_per_second": rate(self.computed, prompt),
            "predicted_n": self.generated, "predicted_ms": text,
            "predicted_per_token_ms": share(text, self.steps()), "predicted_per_second": rate(self.steps(), text),
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn share(time: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { time / count as f64 }
}

fn rate(count: u64, time: f64) -> f64 {
    if count == 0 || time <= 0.0 { 0.0 } else { 1e3 / time * count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_has_no_step() {
        let (prefill, decode) = (Duration::from_millis(20), Duration::from_millis(30));
        let times = Timings { cached: 3, computed: 10, generated: 16, prefill, decode }.json();
        for (name, wanted) in [
            ("prompt_per_token_ms", 2.0),
            ("prompt_per_second", 500.0),
            ("predicted_per_token_ms", 2.0),
            ("predicted_per_second", 500.0),
        ] {
            assert!(times[name].as_f64().is_some_and(|got| (got - wanted).abs() < 1e-6), "{name}: {times}");
        }
        let one = Timings { generated: 1, ..Timings::default() }.json();
        assert_eq!((&one["predicted_per_second"], &one["prompt_per_second"]), (&json!(0.0), &json!(0.0)));
    }
}
