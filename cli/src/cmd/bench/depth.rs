//! `--depth`: decoding after many tokens, and the memory that takes.

use super::prompt::{prompt, token};
use crate::Error;
use crate::args::BenchArgs;
use crate::loaded::Model;
use crate::report::bytes;
use serde_json::{Value, json};
use std::time::Instant;

/// Decoding of one sequence after some tokens.
pub(super) struct Deep {
    /// Tokens before.
    tokens: usize,
    /// Seconds of a step, the median of the repetitions.
    seconds: f64,
    /// The most memory the process has held so far, in bytes.
    rss: f64,
}

/// How long a sequence gets: each repetition goes on where the last ended.
pub(super) fn tokens(args: &BenchArgs, depth: usize) -> usize {
    args.steps.saturating_add(1).saturating_mul(args.repeat).saturating_add(depth)
}

/// Measures after `depth` tokens.
pub(super) fn decode(model: &Model, args: &BenchArgs, depth: usize) -> Result<Deep, Error> {
    let vocab = model.info().vocab;
    let ids: Vec<i32> = (0..depth).map(|i| token(i, vocab)).collect();
    let seq = model.trial_seq()?;
    prompt(model, seq, &ids)?;
    let step = |i: usize| model.trial(0, &[token(i * 31, vocab)], &[seq], &[0]);
    let mut all = vec![];
    for _ in 0..args.repeat {
        step(0)?;
        let start = Instant::now();
        for i in 1..=args.steps {
            step(i)?;
        }
        all.push(start.elapsed().as_secs_f64() / args.steps as f64);
    }
    model.seq_free(seq)?;
    all.sort_by(f64::total_cmp);
    Ok(Deep { tokens: depth, seconds: all[all.len() / 2], rss: peak_rss() })
}

impl Deep {
    pub(super) fn json(&self) -> Value {
        json!({
            "tokens": self.tokens, "tokens_per_second": 1.0 / self.seconds, "step_seconds": self.seconds,
            "peak_rss_bytes": self.rss,
        })
    }

    pub(super) fn text(&self) -> String {
        let Deep { tokens, seconds, rss } = self;
        let rate = 1.0 / seconds;
        let (ms, rss) = (seconds * 1e3, bytes(*rss));
        format!("decode after {tokens:>7} {rate:8.1} tokens/s   {ms:.2} ms per step, peak RSS {rss}\n")
    }
}

/// Peak resident bytes of this process.
pub(super) fn peak_rss() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|l| l.trim().split(' ').next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}
