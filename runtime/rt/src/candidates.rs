//! Choosing from the most probable tokens of a row, which a GPU finds, without its other logits.
//!
//! The token is the one that [`sample`](crate::sample::sample) chooses from all logits, bit for
//! bit, or none is chosen and all logits are needed. Weights of candidates are computed here as
//! there; of all other tokens only the sum of weights is known, within [`CANDIDATE_SUM_ERROR`].
//! That decides which tokens a top-p keeps, unless the sum of the first few falls within the error
//! of its goal, or the candidates do not reach it.
//!
//! A repetition penalty of more than 1 lowers logits. So no other token exceeds the last candidate,
//! and those that a top-k keeps are known if so many candidates still do.

use llmcc_abi::layout::CANDIDATE_SUM_ERROR;

use crate::error::{Error, Result, Status};
use crate::sample::{Candidate, INFINITE, NAN, Sampling, draw_from, filter_and_draw, more_probable, numeric, weigh};

/// Temperatures at which the sum of weights is within its error.
const TEMPERATURES: std::ops::RangeInclusive<f32> = 2e-3..=1e3;

/// The part of a row of logits that a caller needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Want {
    /// All logits.
    #[default]
    Logits,
    /// The most probable token.
    Best,
    /// The most probable tokens, and the weight of all at a temperature.
    Top {
        /// `log2(e)` over the temperature.
        scale: f32,
    },
}

/// A row's most probable tokens, the most probable first.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    logits: &'a [f32],
    /// Token ids.
    tokens: &'a [f32],
    /// Sum of the weights of all tokens, relative to the most probable one (weight 1).
    sum: f32,
}

impl Want {
    /// The least request that serves both.
    pub(crate) fn both(self, other: Want) -> Want {
        match (self, other) {
            (Want::Best, Want::Best) => Want::Best,
            (Want::Top { scale }, Want::Best) | (Want::Best, Want::Top { scale }) => Want::Top { scale },
            (a, b) if a == b => a,
            _ => Want::Logits,
        }
    }

    /// See [`llmcc_abi::GpuCtx::wanted`].
    pub(crate) fn count(self) -> i32 {
        match self {
            Want::Logits => 0,
            Want::Best => 1,
            Want::Top { .. } => i32::MAX,
        }
    }

    /// See [`llmcc_abi::GpuCtx::scales`].
    pub(crate) fn scale(self) -> f32 {
        if let Want::Top { scale } = self { scale } else { std::f32::consts::LOG2_E }
    }
}

impl<'a> Candidates<'a> {
    /// Reads a row of candidates (`llmcc_abi::layout::candidate_cols`), requested as `want`.
    pub(crate) fn of(row: &'a [f32], want: Want) -> Option<Candidates<'a>> {
        let (&sum, found) = row.split_last()?;
        let (logits, tokens) = found.split_at(found.len() / 2);
        let n = match want {
            Want::Logits => return None,
            Want::Best => 1.min(logits.len()),
            Want::Top { .. } => logits.len(),
        };
        Some(Candidates { logits: &logits[..n], tokens: &tokens[..n], sum })
    }

    /// Whether a token is one of them.
    pub(crate) fn have(&self, token: i32) -> bool {
        self.tokens.contains(&(token as f32))
    }

    /// Candidates from numbers: logits and ids, and the sum of all weights.
    pub fn new(logits: &'a [f32], tokens: &'a [f32], sum: f32) -> Candidates<'a> {
        Candidates { logits, tokens, sum }
    }
}

/// The request to make of a device that finds `found` candidates of `vocab` tokens, to sample with
/// `params`.
pub fn want(params: &Sampling, found: usize, vocab: usize) -> Want {
    // Typical sampling depends on all tokens.
    if found == 0 || params.typical_p > 0.0 || params.check().is_err() {
        return Want::Logits;
    }
    if params.penalizes() {
        let few = greedy(params) || (params.top_k > 0 && (params.top_k as usize) < found) || found >= vocab;
        let lowers = params.repetition_penalty > 1.0;
        return if few && lowers { Want::Top { scale: std::f32::consts::LOG2_E } } else { Want::Logits };
    }
    if greedy(params) {
        return Want::Best;
    }
    let filtered = params.has_top_p() || params.min_p > 0.0;
    if complete(params, found, vocab) || (filtered && TEMPERATURES.contains(&params.temperature)) {
        return Want::Top { scale: std::f32::consts::LOG2_E / params.temperature.max(*TEMPERATURES.start()) };
    }
    Want::Logits
}

/// Whether a choice among `found` candidates depends on them alone, not on the sum of all weights.
pub(crate) fn alone(params: &Sampling, found: usize) -> bool {
    greedy(params) || (params.top_k > 0 && params.top_k as usize <= found)
}

/// Whether the most probable token is chosen.
fn greedy(params: &Sampling) -> bool {
    params.temperature == 0.0 || params.top_k == 1
}

/// Whether top-k keeps candidates only.
fn complete(params: &Sampling, found: usize, vocab: usize) -> bool {
    (params.top_k > 0 && params.top_k as usize <= found) || found >= vocab
}

/// Chooses a token as [`sample`](crate::sample::sample) would from all `vocab` logits after
/// `history`; `None` if it cannot be known without them. `params` are those by which [`want`] asked
/// for candidates.
///
/// # Errors
/// As `sample`.
pub fn choose(c: &Candidates, params: &Sampling, history: &[i32], vocab: usize, draw: u64) -> Result<Option<i32>> {
    let (Some(&max), Some(&first)) = (c.logits.first(), c.tokens.first()) else { return Ok(None) };
    if max.is_nan() {
        return Err(numeric(NAN));
    }
    if !max.is_finite() {
        return Err(numeric(INFINITE));
    }
    if let Some(bad) = c.tokens.iter().find(|t| !(0.0..vocab as f32).contains(*t)) {
        return Err(Error::new(Status::Internal, format!("the GPU chose token {bad} of {vocab}")));
    }
    let found = c.logits.len();
    let of = |(logit, token): (&f32, &f32)| Candidate { logit: *logit, token: *token as u32, weight: 0.0 };
    let mut kept: Vec<Candidate> = c.logits.iter().zip(c.tokens).map(of).collect();
    if params.penalizes() {
        return Ok(choose_penalized(kept, params, params.seen(history), vocab, draw));
    }
    if greedy(params) {
        return Ok(Some(first as i32));
    }
    if complete(params, found, vocab) {
        if params.top_k > 0 {
            kept.truncate(params.top_k as usize);
        }
        kept.sort_unstable_by_key(|c| c.token);
        weigh(&mut kept, max, params);
        return Ok(Some(filter_and_draw(kept, params, draw, first as i32)));
    }
    weigh(&mut kept, max, params);
    let Some(n) = prefix(&kept, f64::from(c.sum), params) else { return Ok(None) };
    kept.truncate(n);
    if !params.has_top_p() {
        // Only a top-p orders by probability.
        kept.sort_unstable_by_key(|c| c.token);
    }
    Ok(Some(draw_from(&kept, params, draw, first as i32)))
}

/// The same, of candidates among which those `seen` are penalized, by more than 1.
fn choose_penalized(mut kept: Vec<Candidate>, params: &Sampling, seen: &[i32], vocab: usize, draw: u64) -> Option<i32> {
    // No other token has more.
    let bound = kept.last().filter(|_| kept.len() < vocab).map(|c| c.logit);
    kept.sort_unstable_by_key(|c| c.token);
    let mut penalized = vec![false; kept.len()];
    for token in seen {
        if let Ok(i) = kept.binary_search_by_key(&i64::from(*token), |c| i64::from(c.token)) {
            penalized[i] = true;
        }
    }
    for (c, _) in kept.iter_mut().zip(penalized).filter(|(_, penalized)| *penalized) {
        c.logit = params.penalized(c.logit) + 0.0;
    }
    kept.sort_unstable_by(more_probable);
    let most = if greedy(params) { 1 } else { params.top_k as usize };
    if most > 0 {
        kept.truncate(most);
    }
    let (best, last) = (kept.first()?, kept.last()?);
    if bound.is_some_and(|bound| last.logit <= bound) {
        return None;
    }
    let (best, max) = (best.token as i32, best.logit);
    if greedy(params) {
        return Some(best);
    }
    kept.sort_unstable_by_key(|c| c.token);
    weigh(&mut kept, max, params);
    Some(filter_and_draw(kept, params, draw, best))
}

/// How many of the most probable tokens top-p and min-p keep, where all tokens (or those that a
/// top-k keeps, more than there are candidates) weigh `sum` or less; `None` if that is not certain.
fn prefix(candidates: &[Candidate], sum: f64, params: &Sampling) -> Option<usize> {
    // By min-p, if fewer than there are.
    let by_min_p = candidates.iter().position(|c| params.min_p > 0.0 && c.weight < f64::from(params.min_p));
    if !params.has_top_p() {
        return by_min_p;
    }
    let known: f64 = candidates.iter().map(|c| c.weight).sum();
    let (most, least) = (sum * (1.0 + CANDIDATE_SUM_ERROR), sum * (1.0 - CANDIDATE_SUM_ERROR));
    // A top-k keeps an unknown part of the rest. Sums in another order differ in the last bits.
    let least = if params.top_k > 0 { known * (1.0 - 1e-9) } else { least };
    if !(most.is_finite() && least > 0.0) {
        return None;
    }
    let (certain, possible) = (most * f64::from(params.top_p), least * f64::from(params.top_p));
    let mut reached = 0.0;
    for (i, c) in candidates.iter().enumerate() {
        // Top-p keeps this one for sure; all that min-p would keep are behind.
        if by_min_p == Some(i) {
            return by_min_p;
        }
        reached += c.weight;
        if reached >= certain {
            return Some(i + 1);
        }
        if reached >= possible {
            return if by_min_p == Some(i + 1) { by_min_p } else { None };
        }
    }
    None
}

#[cfg(test)]
#[path = "candidates_tests.rs"]
mod tests;
