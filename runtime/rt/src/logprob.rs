//! Logarithms of the probabilities that the model gives to tokens.
//!
//! `logprob(t) = x[t] - max - ln Σ exp(x[i] - max)`, the log-softmax of a row of logits, in f64,
//! with sums in the order of ids and with this runtime's own exponential function and logarithm:
//! equal logits give equal bits on every machine. It is the model's distribution, before bias,
//! penalty, temperature and filters.

use crate::error::Result;
use crate::sample::{INFINITE, NAN, candidates, exp, more_probable, numeric};

/// Up to so many of the most probable tokens are found by insertion; more by sorting.
const INSERTED: usize = 64;

/// A row of logits, with the base of its log-probabilities.
pub struct LogProbs<'a> {
    logits: &'a [f32],
    best: usize,
    max: f64,
    log_sum: f64,
}

/// A token and its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// Its id.
    pub token: i32,
    /// `ln` of its probability: at most 0, -infinity if that is 0.
    pub logprob: f64,
}

impl<'a> LogProbs<'a> {
    /// From a row of f32 `[vocab]`.
    ///
    /// # Errors
    /// NaN or +infinity among the logits; no finite logit.
    pub fn new(logits: &'a [f32]) -> Result<LogProbs<'a>> {
        let mut best = 0;
        for (i, &x) in logits.iter().enumerate() {
            if x.is_nan() {
                return Err(numeric(NAN));
            }
            if x > logits[best] {
                best = i;
            }
        }
        let max = match logits.get(best) {
            Some(x) if x.is_finite() => f64::from(*x),
            _ => return Err(numeric(INFINITE)),
        };
        Ok(LogProbs { logits, best, max, log_sum: ln(sum_of_weights(logits, max)) })
    }

    /// Log-probability of a token; `None` outside the vocabulary.
    pub fn of(&self, token: i32) -> Option<f64> {
        let logit = usize::try_from(token).ok().and_then(|t| self.logits.get(t))?;
        Some(f64::from(*logit) - self.max - self.log_sum)
    }

    /// The `n` most probable tokens (all, if there are fewer), the most probable first, equal ones
    /// by id.
    pub fn top(&self, n: usize) -> Vec<LogProb> {
        let of = |token: usize| LogProb {
            token: token as i32,
            logprob: f64::from(self.logits[token]) - self.max - self.log_sum,
        };
        match n {
            0 => Vec::new(),
            1 => vec![of(self.best)],
            2..=INSERTED => self.inserted(n).into_iter().map(of).collect(),
            _ => {
                let mut kept = candidates(self.logits, n);
                kept.sort_unstable_by(more_probable);
                kept.iter().map(|c| of(c.token as usize)).collect()
            }
        }
    }

    fn inserted(&self, n: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::with_capacity(n + 1);
        for (i, &x) in self.logits.iter().enumerate() {
            if kept.len() < n || kept.last().is_some_and(|&last| x > self.logits[last]) {
                let at = kept.partition_point(|&k| self.logits[k] >= x);
                kept.insert(at, i);
                kept.truncate(n);
            }
        }
        kept
    }
}

/// `Σ exp(x - max)` by id. The exponentials of a block come first, as these vectorise and a sum in
/// order does not.
fn sum_of_weights(logits: &[f32], max: f64) -> f64 {
    let mut sum = 0.0;
    let mut weights = [0.0; 64];
    for block in logits.chunks(weights.len()) {
        for (weight, &x) in weights.iter_mut().zip(block) {
            *weight = exp(f64::from(x) - max);
        }
        for weight in &weights[..block.len()] {
            sum += weight;
        }
    }
    sum
}

/// `ln x` for `x >= 1`, within 2 ulp. Plain arithmetic only, so the same everywhere.
fn ln(x: f64) -> f64 {
    // x = 2^e · m with m in [√½, √2).
    let mut e = ((x.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits((x.to_bits() & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m >= std::f64::consts::SQRT_2 {
        (m, e) = (m / 2.0, e + 1);
    }
    // ln m = 2 artanh((m - 1) / (m + 1)); |s| <= 0.172, the first dropped term is below 2^-60.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (1..=11).rev() {
        sum = (sum + 1.0 / f64::from(2 * k + 1)) * square;
    }
    // ln 2 in two parts, so that the large product is exact.
    let (high, low) = (e as f64 * 6.931_471_803_691_238e-1, e as f64 * 1.908_214_929_270_587_7e-10);
    high + (2.0 * s + (2.0 * s * sum + low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_is_exact_to_the_last_bits() {
        for i in 0..200_000u32 {
            let x = 1.0 + f64::from(i) * f64::from(i) * 1.7e-4;
            assert!((ln(x) - x.ln()).abs() <= 5e-16 * x.ln().max(1e-3), "ln({x}) is {}, not {}", ln(x), x.ln());
        }
        assert_eq!((ln(1.0), ln(2.0)), (0.0, std::f64::consts::LN_2));
    }

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let logits: Vec<f32> = (0..1000u32).map(|i| (i.wrapping_mul(2654435761) >> 16) as f32 / 4000.0 - 8.0).collect();
        let p = LogProbs::new(&logits).unwrap();
        let total: f64 = (0..1000).map(|t| p.of(t).unwrap().exp()).sum();
        assert!((total - 1.0).abs() < 1e-12);
        let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((0..1000).all(|t| (p.of(t).unwrap() - (f64::from(logits[t as usize]) - sum.ln())).abs() < 1e-12));
        assert_eq!((p.of(1000), p.of(-1)), (None, None));
        let with_zero = [0.0, f32::NEG_INFINITY];
        let p = LogProbs::new(&with_zero).unwrap();
        assert_eq!((p.of(0), p.of(1)), (Some(0.0), Some(f64::NEG_INFINITY)));
    }

    #[test]
    fn the_most_probable_come_first_and_equal_ones_by_id() {
        // Many equal values.
        let logits: Vec<f32> = (0..500u32).map(|i| (i.wrapping_mul(2654435761) >> 27) as f32).collect();
        let mut order: Vec<usize> = (0..500).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let p = LogProbs::new(&logits).unwrap();
        for n in [0, 1, 2, 63, 64, 65, 400, 500, 600] {
            let top: Vec<usize> = p.top(n).iter().map(|t| t.token as usize).collect();
            assert_eq!(top, order[..n.min(500)], "{n}");
            assert!(p.top(n).iter().all(|t| Some(t.logprob) == p.of(t.token)));
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for logits in [&[1.0, f32::NAN][..], &[f32::INFINITY, 0.0], &[f32::NEG_INFINITY; 2], &[]] {
            assert!(LogProbs::new(logits).is_err());
        }
    }
}
