//! A calibration: a few steps on this machine, by which the cost model's predictions are scaled.
//!
//! Steps of next tokens, of prompts and of both are measured at some sizes, at the beginning of sequences and after
//! many tokens. Their ratios to the predictions scale steps of other sizes, between the measured ones by the logarithm
//! of the size. The engine's own time in a step and between two is the rest of some short texts.

use super::cost::{Chunk, Costs, Seconds, Shape};
use crate::Error;
use crate::loaded::{Model, Request};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Rounds of measurements; the median of each counts. (A virtual machine's speed changes within seconds.)
const ROUNDS: usize = 7;
/// Next tokens in steps that are measured, as far as the model takes them.
const NEXT: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Tokens of prompts.
const PROMPT: [usize; 6] = [16, 32, 64, 128, 256, 512];
/// Next tokens, and tokens of a prompt beside them.
const MIXED: [(usize, usize); 3] = [(4, 64), (8, 128), (32, 128)];
/// Tokens before a deep step, as far as the model takes them.
const DEEP: usize = 512;
/// Next tokens, and tokens of a prompt, that are evaluated after many tokens.
const DEEP_NEXT: [usize; 3] = [1, 4, 16];
const DEEP_PROMPT: usize = 128;
/// Users, and tokens of their texts, by which the engine's own time is measured.
const USERS: [usize; 2] = [1, 8];
const TEXT: usize = 32;

/// Measured over predicted seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// By tokens, of steps of next tokens, without contexts.
    pub next: Vec<(usize, f64)>,
    /// By tokens, of steps of prompts, without contexts.
    pub prompt: Vec<(usize, f64)>,
    /// By tokens, of steps of both, without contexts.
    pub mixed: Vec<(usize, f64)>,
    /// By next tokens, of contexts.
    pub next_context: Vec<(usize, f64)>,
    /// The same for contexts of prompts.
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
        let next = NEXT.iter().map(|n| Step { next: *n, ..Step::default() });
        let prompt = PROMPT.iter().map(|n| Step { chunk: *n, ..Step::default() });
        let mixed = MIXED.iter().map(|(next, chunk)| Step { next: *next, chunk: *chunk, depth: 0 });
        let deep_prompt = DEEP_PROMPT.min(chunk).min(info.max_context - deep);
        let next_after = DEEP_NEXT.iter().map(|n| Step { next: *n, chunk: 0, depth: deep });
        let after = next_after.chain([Step { next: 0, chunk: deep_prompt, depth: deep }]);
        let after: Vec<Step> = after.filter(|s| s.tokens() <= chunk).collect();
        let at_start = after.iter().map(|step| Step { depth: 0, ..*step });
        let all = next.chain(prompt).chain(mixed).filter(|s| s.tokens() <= chunk && s.chunk <= info.max_context);
        let all: Vec<Step> = after.iter().copied().chain(at_start).chain(all).collect();
        let seconds = timed(model, &all)?;
        let predicted: Vec<Seconds> = all.iter().map(|step| costs.seconds(&step.shape(), None)).collect();
        let own = |measured: f64, predicted: f64| if predicted > 0.0 { (measured / predicted).max(0.0) } else { 1.0 };
        let mut made = Calibration { prompt_context: 1.0, ..Calibration::default() };
        for (i, step) in after.iter().enumerate() {
            let start = i + after.len();
            let ratio = own(seconds[i] - seconds[start], predicted[i].context - predicted[start].context);
            match step.chunk {
                0 => made.next_context.push((step.next, ratio)),
                _ => made.prompt_context = ratio,
            }
        }
        for ((step, seconds), predicted) in all.iter().zip(&seconds).zip(&predicted).skip(2 * after.len()) {
            let scale = made.of_contexts(step.next, step.chunk == 0);
            let list = match (step.next, step.chunk) {
                (_, 0) => &mut made.next,
                (0, _) => &mut made.prompt,
                _ => &mut made.mixed,
            };
            list.push((step.tokens(), own(seconds - scale * predicted.context, predicted.base)));
        }
        made.engine(model, costs)?;
        Ok(made)
    }

    /// Measures the engine's own time, beside that of the model's steps: the median time between two tokens.
    fn engine(&mut self, model: &Model, costs: &Costs) -> Result<(), Error> {
        let mut own = vec![];
        for users in USERS {
            let engine = model.engine(u32::try_from(users).unwrap_or(1))?;
            let prompts: Vec<Vec<i32>> = (0..users).map(|u| vec![token(u * 31, model), token(u, model)]).collect();
            for prompt in &prompts {
                engine.submit(&Request { prompt, tokens: TEXT, ..Request::default() })?;
            }
            let (start, mut ended, mut times) = (Instant::now(), 0, vec![]);
            while ended < users {
                let events = engine.poll(None)?;
                ended += events.iter().filter(|event| event.ended).count();
                times.push(start.elapsed().as_secs_f64());
            }
            let seconds = start.elapsed().as_secs_f64();
            let stats = engine.stats()?;
            let busy = Duration::from_nanos(stats["busy_ns"].as_u64().unwrap_or(0)).as_secs_f64();
            let steps = stats["steps"].as_f64().unwrap_or(1.0).max(1.0);
            self.between = ((seconds - busy) / steps).max(0.0);
            let gap = median(times.windows(2).map(|two| two[1] - two[0]).collect()) - self.between;
            let step = Step { next: users, chunk: 0, depth: TEXT / 2 }.shape();
            own.push(gap - self.seconds(&step, costs.seconds(&step, None)));
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
        let next = shape.parts.iter().filter(|part| part.tokens == 1).count();
        let list = match (next == shape.parts.len(), next) {
            (true, _) => &self.next,
            (false, 0) => &self.prompt,
            _ => &self.mixed,
        };
        ratio(list, tokens) * predicted.base
            + self.of_contexts(next, next == shape.parts.len()) * predicted.context
            + self.per_step
            + self.per_row * shape.rows as f64
    }

    /// The ratio of contexts of steps with so many next tokens, which have nothing else if they are `alone`.
    fn of_contexts(&self, next: usize, alone: bool) -> f64 {
        if alone { ratio(&self.next_context, next) } else { self.prompt_context }
    }

    /// As a document.
    pub fn json(&self) -> Value {
        let by_tokens = |all: &[(usize, f64)]| {
            all.iter().map(|(tokens, ratio)| json!({ "tokens": tokens, "ratio": ratio })).collect::<Vec<_>>()
        };
        json!({
            "next_tokens": by_tokens(&self.next), "prompts": by_tokens(&self.prompt),
            "both": by_tokens(&self.mixed), "contexts_of_next_tokens": by_tokens(&self.next_context),
            "contexts_of_prompts": self.prompt_context,
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
            "measured / predicted time of steps on this machine\n  next tokens  {}\n  prompts      {}\n  \
             both         {}\n  contexts     {}; of prompts {:.2}\n  \
             engine       {:.0} µs a step, {:.1} µs a row, {:.0} µs between steps\n",
            by_tokens(&self.next),
            by_tokens(&self.prompt),
            by_tokens(&self.mixed),
            by_tokens(&self.next_context),
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

/// A step to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    /// Next tokens, each of a sequence.
    next: usize,
    /// Tokens of a prompt.
    chunk: usize,
    /// Tokens before those, of each sequence.
    depth: usize,
}

impl Step {
    fn tokens(self) -> usize {
        self.next + self.chunk
    }

    fn shape(self) -> Shape {
        let depth = self.depth as f64;
        let mut parts = vec![Chunk { tokens: 1, context: depth + 1.0 }; self.next];
        if self.chunk > 0 {
            parts.push(Chunk { tokens: self.chunk, context: depth + (self.chunk as f64 + 1.0) / 2.0 });
        }
        Shape { rows: parts.len(), parts }
    }

    /// The sequences of its parts, with the tokens before.
    fn sequences(self, model: &Model) -> Result<Vec<i32>, Error> {
        let parts = self.next + usize::from(self.chunk > 0);
        let first = model.trial_seq()?;
        let tokens: Vec<i32> = (0..self.depth).map(|i| token(i, model)).collect();
        for part in tokens.chunks(model.info().max_batch_tokens.max(1)) {
            model.trial(0, part, &vec![first; part.len()], &[])?;
        }
        let others = (1..parts).map(|_| if self.depth > 0 { model.seq_fork(first) } else { model.trial_seq() });
        std::iter::once(Ok(first)).chain(others).collect()
    }

    /// Seconds of it, after these sequences.
    fn run(self, model: &Model, seqs: &[i32]) -> Result<f64, Error> {
        // (Not every model's sequences can go back: forks go on.)
        let forks: Vec<i32> = seqs.iter().map(|seq| model.seq_fork(*seq)).collect::<Result<_, _>>()?;
        let mut of = forks[..self.next].to_vec();
        of.extend(forks.last().into_iter().flat_map(|seq| std::iter::repeat_n(*seq, self.chunk)));
        let tokens: Vec<i32> = (0..of.len()).map(|i| token(i * 31, model)).collect();
        let last = (self.chunk > 0).then(|| self.tokens() as u32 - 1);
        let rows: Vec<u32> = (0..self.next as u32).chain(last).collect();
        let start = Instant::now();
        model.trial(0, &tokens, &of, &rows)?;
        let seconds = start.elapsed().as_secs_f64();
        forks.iter().try_for_each(|seq| model.seq_free(*seq))?;
        Ok(seconds)
    }
}

fn token(i: usize, model: &Model) -> i32 {
    ((i * 7919 + 13) % model.info().vocab.max(1)) as i32
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// Seconds of each of these steps on this machine: medians of rounds, after one that counts for nothing.
fn timed(model: &Model, steps: &[Step]) -> Result<Vec<f64>, Error> {
    let seqs: Vec<Vec<i32>> = steps.iter().map(|step| step.sequences(model)).collect::<Result<_, _>>()?;
    let mut all = vec![vec![]; steps.len()];
    for round in 0..=ROUNDS {
        for ((step, seqs), times) in steps.iter().zip(&seqs).zip(&mut all) {
            let seconds = step.run(model, seqs)?;
            times.extend((round > 0).then_some(seconds));
        }
    }
    seqs.iter().flatten().try_for_each(|seq| model.seq_free(*seq))?;
    Ok(all.into_iter().map(median).collect())
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
            mixed: vec![(1, 7.0)],
            next_context: vec![(1, 4.0)],
            prompt_context: 5.0,
            per_step: 1e-3,
            per_row: 1e-4,
            between: 0.0,
        };
        for (next, chunk, base, context) in [(4, 0, 2.0, 4.0), (0, 4, 3.0, 5.0), (1, 4, 7.0, 5.0)] {
            let step = Step { next, chunk, depth: 100 }.shape();
            let predicted = costs().seconds(&step, None);
            let wanted = base * predicted.base + context * predicted.context + 1e-3 + 1e-4 * step.rows as f64;
            assert!((calibration.seconds(&step, predicted) - wanted).abs() < 1e-15);
        }
        assert!(calibration.text().contains("1: 2.00") && calibration.json()["prompts"][0]["ratio"] == 3.0);
    }

    #[test]
    fn medians_of_few() {
        assert_eq!((median(vec![]), median(vec![3.0]), median(vec![9.0, 1.0, 2.0])), (0.0, 3.0, 2.0));
    }
}
