//! Choosing the next token from logits.
//!
//! The filters run in the order of Hugging Face Transformers: repetition penalty, temperature,
//! top-k, top-p, min-p, typical-p, then one draw. (llama.cpp applies the temperature last, so the same top-p
//! keeps other tokens there.) Equal logits are ordered by token id.
//!
//! Results are reproducible on every machine: weights are computed in f64 by this file's own
//! exponential function, and draw number `n` of a seed is output number `n` of SplitMix64 (Steele,
//! Lea, Flood 2014) started at that seed, whatever was drawn before.

use crate::error::{Error, Result, Status};
use crate::reserve::need;

/// How to choose. By default the most probable token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the most probable token.
    pub temperature: f32,
    /// Keeps this many of the most probable tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the fewest most probable tokens whose probabilities reach this sum: at least one, and
    /// with 1 all.
    pub top_p: f32,
    /// Drops tokens less probable than this fraction of the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen before (Keskar et al. 2019);
    /// more than 0, and 1 does nothing.
    pub repetition_penalty: f32,
    /// How many of the last tokens count as seen; 0: all, prompt included.
    pub repetition_window: u32,
    /// Start of the random numbers.
    pub seed: u64,
    /// Keeps the tokens that are about as surprising as one is on average, up to this sum of their probabilities
    /// (Meister et al. 2023); 0 keeps all. Only a model's own settings ask for it.
    pub typical_p: f32,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Refuses values outside their ranges.
    pub fn check(&self) -> Result<()> {
        let least = f32::from_bits(1);
        let checks = [
            ("temperature", self.temperature, 0.0..=f32::MAX, "0 (the most probable token) or a positive number"),
            ("top_p", self.top_p, 0.0..=1.0, "a number from 0 to 1 (1: all tokens)"),
            ("min_p", self.min_p, 0.0..=1.0, "a number from 0 (all tokens) to 1"),
            ("repetition_penalty", self.repetition_penalty, least..=f32::MAX, "a positive number (1: off)"),
        ];
        match checks.into_iter().find(|(_, value, range, _)| !range.contains(value)) {
            Some((name, value, _, use_)) => Err(Error::invalid(format!("{name} is {value}; use {use_}"))),
            None => Ok(()),
        }
    }

    /// Whether earlier tokens change logits.
    pub(crate) fn penalizes(&self) -> bool {
        self.repetition_penalty != 1.0
    }

    /// The tokens of `history` that count as seen.
    pub(crate) fn seen<'a>(&self, history: &'a [i32]) -> &'a [i32] {
        let window = if self.repetition_window == 0 { history.len() } else { self.repetition_window as usize };
        &history[history.len().saturating_sub(window)..]
    }

    /// Logit `x` of a token that was seen.
    pub(crate) fn penalized(&self, x: f32) -> f32 {
        if x > 0.0 { x / self.repetition_penalty } else { x * self.repetition_penalty }
    }

    /// Whether top-p may drop tokens.
    pub(crate) fn has_top_p(&self) -> bool {
        self.top_p < 1.0
    }
}

/// A token that may still be chosen.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub logit: f32,
    pub token: u32,
    /// Relative to the most probable token, which has 1.
    pub weight: f64,
}

/// Chooses a token from `logits`. `history` is the sequence so far; `draw` numbers the random draws
/// of one seed.
///
/// # Errors
/// Parameters out of range; NaN or +infinity among the logits; no finite logit.
pub fn sample(logits: &[f32], params: &Sampling, history: &[i32], draw: u64) -> Result<i32> {
    params.check()?;
    // Sampling allocates a few lists of the vocabulary's size.
    need(logits.len().saturating_mul(4 * size_of::<Candidate>()))?;
    let penalized;
    let mut logits = logits;
    if params.penalizes() {
        penalized = penalize(logits, params, history);
        logits = &penalized;
    }
    let best = argmax(logits)?;
    if params.temperature == 0.0 || params.top_k == 1 {
        return Ok(best as i32);
    }
    let mut kept = candidates(logits, params.top_k as usize);
    weigh(&mut kept, logits[best], params);
    Ok(filter_and_draw(kept, params, draw, best as i32))
}

/// Sets the weights of tokens, whose largest logit is `max`.
pub(crate) fn weigh(tokens: &mut [Candidate], max: f32, params: &Sampling) {
    let (max, temperature) = (f64::from(max), f64::from(params.temperature));
    for c in tokens {
        c.weight = exp((f64::from(c.logit) - max) / temperature);
    }
}

/// Applies top-p and min-p to the tokens top-k has kept, by token id, and draws. `best` is the most
/// probable token.
pub(crate) fn filter_and_draw(mut kept: Vec<Candidate>, params: &Sampling, draw: u64, best: i32) -> i32 {
    if params.has_top_p() {
        top_p(&mut kept, f64::from(params.top_p));
    }
    if params.min_p > 0.0 {
        kept.retain(|c| c.weight >= f64::from(params.min_p));
    }
    if params.typical_p > 0.0 && params.typical_p < 1.0 {
        typical_p(&mut kept, f64::from(params.typical_p));
    }
    draw_from(&kept, params, draw, best)
}

/// One draw among tokens, in this order.
pub(crate) fn draw_from(kept: &[Candidate], params: &Sampling, draw: u64, best: i32) -> i32 {
    let total: f64 = kept.iter().map(|c| c.weight).sum();
    let mut rest = uniform(params.seed, draw) * total;
    for c in kept {
        rest -= c.weight;
        if rest < 0.0 {
            return c.token as i32;
        }
    }
    // Rounding may leave a remainder of a few ulps.
    kept.iter().rev().find(|c| c.weight > 0.0).map_or(best, |c| c.token as i32)
}

/// There is no most probable token.
pub(crate) fn numeric(what: &str) -> Error {
    Error::new(Status::Numeric, format!("cannot choose a token: {what}; the model's weights or inputs are damaged"))
}

pub(crate) const NAN: &str = "the logits hold NaN";
pub(crate) const INFINITE: &str = "no logit is finite";

/// Index of the largest logit, the first of equals.
fn argmax(logits: &[f32]) -> Result<usize> {
    let mut best = 0;
    for (i, &x) in logits.iter().enumerate() {
        if x.is_nan() {
            return Err(numeric(NAN));
        }
        if x > logits[best] {
            best = i;
        }
    }
    match logits.get(best) {
        Some(x) if x.is_finite() => Ok(best),
        _ => Err(numeric(INFINITE)),
    }
}

fn penalize(logits: &[f32], params: &Sampling, history: &[i32]) -> Vec<f32> {
    let mut out = logits.to_vec();
    for &token in params.seen(history) {
        if let (Some(to), Some(&x)) = (out.get_mut(token as usize), logits.get(token as usize)) {
            // From the original, so that a token seen twice is penalized once.
            *to = params.penalized(x);
        }
    }
    out
}

pub(crate) fn more_probable(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The `k` most probable tokens (0: all), by token id.
pub(crate) fn candidates(logits: &[f32], k: usize) -> Vec<Candidate> {
    // Adding 0 makes -0 equal to 0 for `total_cmp`.
    let all = logits.iter().zip(0..).map(|(&logit, token)| Candidate { logit: logit + 0.0, token, weight: 0.0 });
    let mut kept: Vec<Candidate> = all.collect();
    if k > 0 && k < kept.len() {
        kept.select_nth_unstable_by(k - 1, more_probable);
        kept.truncate(k);
        kept.sort_unstable_by_key(|c| c.token);
    }
    kept
}

/// Keeps the fewest most probable candidates that have the share `p` of the weight, sorted.
fn top_p(kept: &mut Vec<Candidate>, p: f64) {
    let goal = kept.iter().map(|c| c.weight).sum::<f64>() * p;
    let mut sorted = 0;
    let mut sum = 0.0;
    // Sorts as much as is needed: most often a few dozen of a hundred thousand.
    while sorted < kept.len() {
        let block = (4 * sorted).max(64).min(kept.len() - sorted);
        let rest = &mut kept[sorted..];
        if block < rest.len() {
            rest.select_nth_unstable_by(block - 1, more_probable);
        }
        rest[..block].sort_unstable_by(more_probable);
        for (i, c) in rest[..block].iter().enumerate() {
            sum += c.weight;
            if sum >= goal {
                kept.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += block;
    }
}

/// Keeps the candidates whose surprise is nearest to the mean one, until they have the share `p` of the weight; those
/// that are as near as the last of them, too. Surprises differ as logits do, over the temperature: so the order is that
/// of the distances to the mean logit, which needs no logarithm.
fn typical_p(kept: &mut Vec<Candidate>, p: f64) {
    kept.retain(|c| c.weight > 0.0);
    let total: f64 = kept.iter().map(|c| c.weight).sum();
    let mean = kept.iter().map(|c| c.weight * f64::from(c.logit)).sum::<f64>() / total;
    let distance = |c: &Candidate| (f64::from(c.logit) - mean).abs();
    let mut nearest: Vec<(f64, f64)> = kept.iter().map(|c| (distance(c), c.weight)).collect();
    nearest.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut sum = 0.0;
    let last = nearest.iter().find(|(_, weight)| {
        sum += weight;
        sum >= p * total
    });
    if let Some(&(farthest, _)) = last {
        kept.retain(|c| distance(c) <= farthest);
    }
}

/// Draw number `draw` of `seed`, uniform in `[0, 1)`.
fn uniform(seed: u64, draw: u64) -> f64 {
    let mut z = seed.wrapping_add(draw.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 53) as f64
}

/// `e^x` for `x <= 0`, within 2 ulp; 0 below -700. Plain arithmetic only, so the same everywhere,
/// and without branches, so it vectorises.
pub(crate) fn exp(x: f64) -> f64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52: adding it rounds to an integer in the low bits.
    let y = x.max(-700.0);
    let shifted = y * std::f64::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    // ln 2 in two parts, so that n * LN2_HI is exact.
    let r = (y - n * 6.931_471_803_691_238e-1) - n * 1.908_214_929_270_587_7e-10;
    // Taylor series: |r| <= 0.35, the first dropped term is below 2^-56.
    let mut sum = 1.0 / 6_227_020_800.0;
    for inverse in
        [479_001_600.0, 39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0]
    {
        sum = sum * r + 1.0 / inverse;
    }
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    if x < -700.0 { 0.0 } else { sum * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw_all(logits: &[f32], params: Sampling) -> Vec<f64> {
        let n = 40_000;
        let mut counts = vec![0.0; logits.len()];
        (0..n).for_each(|i| counts[sample(logits, &params, &[], i).unwrap() as usize] += 1.0 / n as f64);
        counts
    }

    fn close(a: &[f64], b: &[f64]) {
        // Standard error of 40 000 draws is at most 0.0025.
        assert!(a.iter().zip(b).all(|(x, y)| (x - y).abs() < 0.0125), "{a:?} {b:?}");
    }

    #[test]
    fn exp_is_exact_to_the_last_bits() {
        for i in 0..200_000 {
            let x = -f64::from(i) * 0.0035;
            let error = (exp(x) - x.exp()).abs() / x.exp();
            assert!(error < 5e-16 || x < -700.0, "exp({x}) is {error:e} off");
        }
        assert_eq!((exp(0.0), exp(f64::NEG_INFINITY)), (1.0, 0.0));
    }

    #[test]
    fn splitmix_matches_its_published_outputs() {
        // First outputs for seed 1234567, as in the reference implementation's test vectors.
        let expected = [6457827717110365317u64, 3203168211198807973, 9817491932198370423];
        for (i, x) in expected.into_iter().enumerate() {
            assert_eq!(uniform(1234567, i as u64), (x >> 11) as f64 / (1u64 << 53) as f64);
        }
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        let logits = [0.5, 2.0, -1.0, 2.0];
        assert_eq!(sample(&logits, &Sampling::default(), &[], 0).unwrap(), 1);
        let penalty = Sampling { repetition_penalty: 1.5, ..Default::default() };
        assert_eq!(sample(&logits, &penalty, &[1, 1, 1], 0).unwrap(), 3);
        let window = Sampling { repetition_window: 1, ..penalty };
        assert_eq!(sample(&logits, &window, &[1, 0], 0).unwrap(), 1);
        assert_eq!(sample(&[-1.0, -1.2], &penalty, &[0], 0).unwrap(), 1);
    }

    #[test]
    fn draws_follow_the_distribution() {
        let p = [0.5f64, 0.25, 0.125, 0.0625, 0.0625];
        let logits: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
        let one = Sampling { temperature: 1.0, seed: 3, ..Default::default() };
        close(&draw_all(&logits, one), &p);
        close(&draw_all(&logits, Sampling { top_k: 2, ..one }), &[2. / 3., 1. / 3., 0., 0., 0.]);
        close(&draw_all(&logits, Sampling { top_p: 0.6, ..one }), &[2. / 3., 1. / 3., 0., 0., 0.]);
        // No share keeps the most probable token, as in Transformers and llama.cpp.
        close(&draw_all(&logits, Sampling { top_p: 0.0, ..one }), &[1., 0., 0., 0., 0.]);
        close(&draw_all(&logits, Sampling { min_p: 0.2, ..one }), &[4. / 7., 2. / 7., 1. / 7., 0., 0.]);
        let hot = [0.25f64, 0.0625, 0.015625, 0.00390625, 0.00390625].map(|x| x / 0.3359375);
        close(&draw_all(&logits, Sampling { temperature: 0.5, ..one }), &hot);
    }

    /// The kept tokens are the same as in Transformers' `TypicalLogitsWarper`.
    #[test]
    fn typical_tokens_are_as_surprising_as_the_mean() {
        let p = [0.5f64, 0.2, 0.15, 0.1, 0.05];
        let logits: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
        let kept = |mass: f32| {
            let one = Sampling { temperature: 1.0, typical_p: mass, ..Default::default() };
            let mut all = candidates(&logits, 0);
            weigh(&mut all, logits[0], &one);
            typical_p(&mut all, f64::from(mass));
            all.iter().map(|c| c.token).collect::<Vec<_>>()
        };
        // The entropy is 1.333; surprises are 0.693, 1.609, 1.897, 2.303, 2.996.
        assert_eq!(kept(0.1), [1]);
        assert_eq!(kept(0.3), [1, 2]);
        assert_eq!(kept(0.5), [0, 1, 2]);
        assert_eq!(kept(0.9), [0, 1, 2, 3]);
        assert_eq!(kept(0.99), [0, 1, 2, 3, 4]);
        let one = Sampling { temperature: 1.0, typical_p: 0.3, ..Default::default() };
        close(&draw_all(&logits, one), &[0., 4. / 7., 3. / 7., 0., 0.]);
    }

    #[test]
    fn top_p_is_the_prefix_of_the_full_sort() {
        let logits: Vec<f32> = (0..5000u32).map(|i| (i.wrapping_mul(2654435761) >> 20) as f32 / 900.0).collect();
        for p in [0.01, 0.3, 0.9, 0.999, 1.0] {
            let mut fast = candidates(&logits, 0);
            fast.iter_mut().for_each(|c| c.weight = exp(f64::from(c.logit) - 5.0));
            let mut slow = fast.clone();
            slow.sort_by(more_probable);
            let goal = fast.iter().map(|c| c.weight).sum::<f64>() * p;
            let mut sum = 0.0;
            let keep = slow.iter().take_while(|c| (sum < goal, sum += c.weight).0).count();
            top_p(&mut fast, p);
            assert_eq!(fast.len(), keep);
            assert!(fast.iter().zip(&slow).all(|(a, b)| a.token == b.token));
        }
    }

    #[test]
    fn bad_numbers_are_refused() {
        let one = Sampling { temperature: 1.0, ..Default::default() };
        for logits in [&[1.0, f32::NAN][..], &[f32::INFINITY, 0.0], &[f32::NEG_INFINITY; 2], &[]] {
            assert_eq!(sample(logits, &one, &[], 0).unwrap_err().status, Status::Numeric);
        }
        assert_eq!(sample(&[f32::NEG_INFINITY, 0.0], &one, &[], 0).unwrap(), 1);
        for bad in [
            Sampling { temperature: -1.0, ..one },
            Sampling { temperature: f32::NAN, ..one },
            Sampling { top_p: 1.5, ..one },
            Sampling { min_p: -0.1, ..one },
            Sampling { repetition_penalty: f32::INFINITY, ..one },
            Sampling { repetition_penalty: 0.0, ..one },
        ] {
            assert_eq!(sample(&[1.0], &bad, &[], 0).unwrap_err().status, Status::Invalid);
        }
    }

    #[test]
    fn tiny_temperatures_do_not_overflow() {
        let cold = Sampling { temperature: 1e-30, ..Default::default() };
        assert_eq!(sample(&[1.0, 3.0, 2.0], &cold, &[], 5).unwrap(), 1);
    }
}
