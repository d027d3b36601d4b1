//! A calibration: a few steps on this machine, by which the cost model's predictions are scaled.
//!
//! Steps of next tokens and of prompts are measured at some sizes, at the beginning of sequences and after many tokens.
//! Their ratios to the predictions scale steps of other sizes, between the measured ones by the logarithm of the size.
//! The engine's own time in a step and between two is the rest of some short texts.

use super::cost::{Chunk, Costs, Seconds, Shape};
use crate::Error;
use crate::loaded::{Model, Request};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Repetitions of a measurement; the median counts.
const REPEAT: usize = 5;
/// Sizes of steps that are measured, as far as the model takes them.
const NEXT: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const PROMPT: [usize; 6] = [16, 32, 64, 128, 256, 512];
/// Tokens before those of a deep step, as far as the model takes them.
const DEEP: usize = 1024;
/// Tokens of a prompt that is evaluated after many tokens.
const DEEP_PROMPT: usize = 128;
/// Users, and tokens of their texts, by which the engine's own time is measured.
const USERS: [usize; 2] = [1, 8];
const TEXT: usize = 24;

/// Measured over predicted seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// By tokens, of steps of next tokens, without contexts.
    pub next: Vec<(usize, f64)>,
    /// By tokens, of steps of prompts, without contexts.
    pub prompt: Vec<(usize, f64)>,
    /// Of contexts, of next tokens.
    pub next_context: f64,
    /// Of contexts, of prompts.
    pub prompt_context: f64,
    /// Seconds of the engine in a step.
    pub per_step: f64,
    /// More for each row of logits.
    pub per_row: f64,
    /// Seconds between two steps.
    pub between: f64,
}

impl Calibration {
    /// Measures on this machine.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn measure(model: &Model, costs: &Costs) -> Result<Calibration, Error> {
        let info = model.info();
        let chunk = info.max_batch_tokens;
        let deep = DEEP.min(info.max_context / 2).min(info.cache_tokens / 2);
        // Once for all pages of weights and code.
        timed(model, 1, 0, true)?;
        let (at_start, after) = (timed(model, 1, 0, true)?, timed(model, 1, deep, true)?);
        let context = |m: usize, next: bool| {
            let of = |depth: usize| costs.seconds(&shape(m, depth, next), None).context;
            of(deep) - of(0)
        };
        let own = |measured: f64, predicted: f64| if predicted > 0.0 { (measured / predicted).max(0.0) } else { 1.0 };
        let mut all = Calibration {
            next_context: own(after - at_start, context(1, true)),
            prompt_context: 1.0,
            ..Calibration::default()
        };
        let m = DEEP_PROMPT.min(chunk);
        if deep + m <= info.max_context {
            let (at_start, after) = (timed(model, m, 0, false)?, timed(model, m, deep, false)?);
            all.prompt_context = own(after - at_start, context(m, false));
        }
        for (next, sizes) in [(true, &NEXT[..]), (false, &PROMPT[..])] {
            let ratios = if next { &mut all.next } else { &mut all.prompt };
            let scale = if next { all.next_context } else { all.prompt_context };
            for &m in sizes.iter().filter(|m| **m <= chunk && (next || **m <= info.max_context)) {
                let predicted = costs.seconds(&shape(m, 0, next), None);
                let measured = timed(model, m, 0, next)? - scale * predicted.context;
                ratios.push((m, own(measured, predicted.base)));
            }
        }
        all.engine(model, costs)?;
        Ok(all)
    }

    /// Measures the engine's own time, beside that of the model's steps.
    fn engine(&mut self, model: &Model, costs: &Costs) -> Result<(), Error> {
        let mut own = vec![];
        for users in USERS {
            let engine = model.engine(u32::try_from(users).unwrap_or(1))?;
            let prompts: Vec<Vec<i32>> = (0..users).map(|u| vec![token(u * 31, model), token(u, model)]).collect();
            for prompt in &prompts {
                engine.submit(&Request { prompt, tokens: TEXT, ..Request::default() })?;
            }
            let (start, mut ended) = (Instant::now(), 0);
            while ended < users {
                ended += engine.poll(None)?.iter().filter(|event| event.ended).count();
            }
            let seconds = start.elapsed().as_secs_f64();
            let stats = engine.stats()?;
            let busy = Duration::from_nanos(stats["busy_ns"].as_u64().unwrap_or(0)).as_secs_f64();
            let steps = stats["steps"].as_f64().unwrap_or(1.0).max(1.0);
            let step = shape(users, TEXT / 2, true);
            own.push(busy / steps - self.seconds(&step, costs.seconds(&step, None)));
            self.between = ((seconds - busy) / steps).max(0.0);
        }
        if let [one, many] = own[..] {
            self.per_row = ((many - one) / (USERS[1] - USERS[0]) as f64).max(0.0);
            self.per_step = (one - self.per_row).max(0.0);
        }
        Ok(())
    }

    /// Seconds of a step with these predictions.
    pub fn seconds(&self, shape: &Shape, predicted: Seconds) -> f64 {
        let tokens: usize = shape.parts.iter().map(|part| part.tokens).sum();
        let next = shape.parts.iter().all(|part| part.tokens == 1);
        let (base, context) = match next {
            true => (ratio(&self.next, tokens), self.next_context),
            false => (ratio(&self.prompt, tokens), self.prompt_context),
        };
        base * predicted.base + context * predicted.context + self.per_step + self.per_row * shape.rows as f64
    }

    /// As a document.
    pub fn json(&self) -> Value {
        let by_tokens = |all: &[(usize, f64)]| {
            all.iter().map(|(tokens, ratio)| json!({ "tokens": tokens, "ratio": ratio })).collect::<Vec<_>>()
        };
        json!({
            "next_tokens": by_tokens(&self.next), "prompts": by_tokens(&self.prompt),
            "context_of_next_tokens": self.next_context, "context_of_prompts": self.prompt_context,
            "engine_seconds_per_step": self.per_step, "engine_seconds_per_row": self.per_row,
            "engine_seconds_between_steps": self.between,
        })
    }

    /// In words.
    pub fn text(&self) -> String {
        let by_tokens = |all: &[(usize, f64)]| {
            all.iter().map(|(tokens, ratio)| format!("{tokens}: {ratio:.2}")).collect::<Vec<_>>().join(", ")
        };
        format!(
            "measured / predicted time of steps on this machine\n  next tokens  {}\n  prompts      {}\n  contexts     {:.2} \
             of next tokens, {:.2} of prompts\n  engine       {:.0} µs a step, {:.1} µs a row, {:.0} µs between steps\n",
            by_tokens(&self.next),
            by_tokens(&self.prompt),
            self.next_context,
            self.prompt_context,
            self.per_step * 1e6,
            self.per_row * 1e6,
            self.between * 1e6
        )
    }
}

/// The ratio at so many tokens: between the nearest ones by the logarithm of the tokens, beyond the ends as there.
fn ratio(all: &[(usize, f64)], tokens: usize) -> f64 {
    let after = all.iter().position(|(at, _)| *at >= tokens);
    match (after, all.last()) {
        (Some(0), _) => all[0].1,
        (Some(i), _) => {
            let ((from, a), (to, b)) = (all[i - 1], all[i]);
            let log = |x: usize| (x as f64).ln();
            a + (b - a) * (log(tokens) - log(from)) / (log(to) - log(from))
        }
        (None, Some((_, last))) => *last,
        (None, None) => 1.0,
    }
}

/// A step of `m` next tokens, or of `m` tokens of a prompt, after `depth` tokens.
fn shape(m: usize, depth: usize, next: bool) -> Shape {
    let depth = depth as f64;
    match next {
        true => Shape { parts: vec![Chunk { tokens: 1, context: depth + 1.0 }; m], rows: m },
        false => Shape { parts: vec![Chunk { tokens: m, context: depth + (m as f64 + 1.0) / 2.0 }], rows: 1 },
    }
}

fn token(i: usize, model: &Model) -> i32 {
    ((i * 7919 + 13) % model.info().vocab.max(1)) as i32
}

/// Seconds of such a step on this machine, the median of some.
fn timed(model: &Model, m: usize, depth: usize, next: bool) -> Result<f64, Error> {
    let seqs: Vec<i32> = (0..if next { m } else { 1 }).map(|_| model.trial_seq()).collect::<Result<_, _>>()?;
    let mut at = 0;
    while at < depth {
        let tokens: Vec<i32> = (at..depth.min(at + model.info().max_batch_tokens)).map(|i| token(i, model)).collect();
        for seq in &seqs {
            model.trial(0, &tokens, &vec![*seq; tokens.len()], &[])?;
        }
        at += tokens.len();
    }
    let tokens: Vec<i32> = (0..m).map(|i| token(i * 31, model)).collect();
    let rows: Vec<u32> = if next { (0..m as u32).collect() } else { vec![m as u32 - 1] };
    let mut all = vec![];
    for _ in 0..REPEAT {
        // (Not every model's sequences can go back: forks go on.)
        let forks: Vec<i32> = seqs.iter().map(|seq| model.seq_fork(*seq)).collect::<Result<_, _>>()?;
        let of = if next { forks.clone() } else { vec![forks[0]; m] };
        let start = Instant::now();
        model.trial(0, &tokens, &of, &rows)?;
        all.push(start.elapsed().as_secs_f64());
        forks.iter().try_for_each(|seq| model.seq_free(*seq))?;
    }
    seqs.iter().try_for_each(|seq| model.seq_free(*seq))?;
    all.sort_by(f64::total_cmp);
    Ok(all[REPEAT / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::cost::tests::costs;

    #[test]
    fn ratios_between_sizes() {
        let all = [(1, 2.0), (4, 4.0), (16, 3.0)];
        let near = |tokens: usize, wanted: f64| (ratio(&all, tokens) - wanted).abs() < 1e-12;
        assert!(near(1, 2.0) && near(2, 3.0) && near(4, 4.0) && near(8, 3.5) && near(16, 3.0) && near(99, 3.0));
        assert_eq!((ratio(&all[1..], 1), ratio(&[], 7)), (4.0, 1.0));
    }

    #[test]
    fn ratios_scale_predictions() {
        let calibration = Calibration {
            next: vec![(1, 2.0)],
            prompt: vec![(1, 3.0)],
            next_context: 4.0,
            prompt_context: 5.0,
            per_step: 1e-3,
            per_row: 1e-4,
            between: 0.0,
        };
        for (next, base, context) in [(true, 2.0, 4.0), (false, 3.0, 5.0)] {
            let step = shape(4, 100, next);
            let predicted = costs().seconds(&step, None);
            let wanted = base * predicted.base + context * predicted.context + 1e-3 + 1e-4 * step.rows as f64;
            assert!((calibration.seconds(&step, predicted) - wanted).abs() < 1e-15);
        }
        assert!(calibration.text().contains("1: 2.00") && calibration.json()["prompts"][0]["ratio"] == 3.0);
    }
}
