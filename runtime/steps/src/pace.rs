//! How many tokens of prompts a step takes beside generations that wait for their next token.
//!
//! A step takes about as long as one without prompts, and a time for each token of prompts more. Both are measured as
//! steps run. A step takes so many tokens of prompts that it ends within the target.

use std::time::Duration;

/// Fewest tokens of prompts in a step, however slow the machine: prompts go on, too.
const LEAST: usize = 16;
/// Without a target, steps with prompts may take this long ...
const PATIENCE: Duration = Duration::from_millis(50);
/// ... or so many times as long as one without, whichever is longer.
const STRETCH: f64 = 2.0;
/// Weight of the newest measurement.
const NEWEST: f64 = 0.2;

/// Times of steps, and the target.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The time between two tokens of a generation.
    target: Option<Duration>,
    /// Nanoseconds of a step without prompts, as measured.
    plain: Option<f64>,
    /// Nanoseconds of a token of a prompt.
    token: Option<f64>,
}

impl Pace {
    /// Nothing is measured yet. Without a target, it follows from the steps.
    pub fn new(target: Option<Duration>) -> Pace {
        Pace { target, plain: None, token: None }
    }

    /// Most tokens of prompts of a step with generations under way, of `most` tokens.
    pub fn prompt_tokens(&self, most: usize) -> usize {
        let (Some(plain), Some(token)) = (self.plain, self.token) else { return most.min(4 * LEAST) };
        let target = self.target.map_or((STRETCH * plain).max(PATIENCE.as_nanos() as f64), |t| t.as_nanos() as f64);
        let tokens = (target - plain) / token.max(1.0);
        (tokens.max(0.0) as usize).clamp(LEAST.min(most), most)
    }

    /// A step of generations under way and `prompt` tokens of prompts took `time`.
    pub fn learn(&mut self, running: usize, prompt: usize, time: Duration) {
        let ns = time.as_nanos() as f64;
        match (running, prompt) {
            (0, 0) => {}
            (_, 0) => mix(&mut self.plain, ns),
            // (A step of a prompt alone reads all weights, as one without prompts does.)
            (0, prompt) => mix(&mut self.token, (ns - self.plain.unwrap_or(0.0)).max(0.0) / prompt as f64),
            (_, prompt) => match self.plain {
                Some(plain) => mix(&mut self.token, (ns - plain).max(0.0) / prompt as f64),
                None => mix(&mut self.token, ns / prompt as f64),
            },
        }
    }
}

/// Moves a mean towards a measurement.
fn mix(mean: &mut Option<f64>, newest: f64) {
    *mean = Some(mean.map_or(newest, |mean| mean + NEWEST * (newest - mean)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(x: f64) -> Duration {
        Duration::from_secs_f64(x / 1000.0)
    }

    /// Steps of 10 ms, and 0.1 ms for each token of prompts.
    fn measured(target: Option<Duration>) -> Pace {
        let mut pace = Pace::new(target);
        (0..100).for_each(|_| pace.learn(8, 0, ms(10.0)));
        (0..100).for_each(|i| pace.learn(8, 10 + i, ms(10.0 + 0.1 * (10 + i) as f64)));
        pace
    }

    #[test]
    fn steps_end_within_the_target() {
        assert_eq!(measured(Some(ms(30.0))).prompt_tokens(512).abs_diff(200), 0);
        assert_eq!(measured(Some(ms(1000.0))).prompt_tokens(512), 512);
        // No time is left, but prompts go on.
        assert_eq!(measured(Some(ms(5.0))).prompt_tokens(512), LEAST);
        assert_eq!(measured(Some(ms(5.0))).prompt_tokens(8), 8);
        assert_eq!(measured(None).prompt_tokens(1000).abs_diff(400), 0);
    }

    #[test]
    fn without_measurements_steps_are_short() {
        assert_eq!(Pace::new(None).prompt_tokens(512), 4 * LEAST);
        let mut slow = Pace::new(None);
        slow.learn(0, 100, ms(100.0));
        slow.learn(1, 0, ms(400.0));
        // Twice the time of a step without prompts.
        assert_eq!(slow.prompt_tokens(4096), 400);
    }
}
