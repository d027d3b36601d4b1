//! How far apart the predictions of two models are: Kullback-Leibler divergence, agreement, and intervals for both.
//!
//! A token's divergence is `KL(p ‖ q) = Σ p·(ln p − ln q)` in nats over the whole vocabulary, `p` being the
//! reference's probabilities of the next token and `q` the other model's: f64, from the logits, summed in the order of
//! the vocabulary.
//!
//! Tokens of a text depend on each other, so an interval for a mean comes from blocks of [`BLOCK`] consecutive
//! predicted tokens of a window: the mean is a ratio estimate `Σ sums / Σ tokens`, its variance the variance of
//! the blocks' deviations from it, and 95 % are Student's quantile for one degree of freedom fewer than blocks
//! (Cochran, Sampling Techniques, 3rd edition, 1977, sections 6.3 and 9A). A share of tokens has Wilson's interval, too
//! (Wilson 1927), and the wider one counts: blocks that all agree say nothing of their variance.

use serde::{Deserialize, Serialize};

/// Predicted tokens of a block.
pub const BLOCK: usize = 64;
/// The normal distribution's quantile for 95 % on both sides together.
const NORMAL: f64 = 1.959_963_984_540_054;

/// Two predictions of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// `KL(p ‖ q)`, nats.
    pub kl: f64,
    /// Negative log likelihood of the token that follows, by the reference.
    pub reference_nll: f64,
    /// The same by the other model.
    pub nll: f64,
    /// Whether both have the same most probable token.
    pub agrees: bool,
}

/// `x − max` and `ln Σ e^(x − max)`, in f64.
struct LogSoftmax<'a> {
    row: &'a [f32],
    max: f64,
    log_sum: f64,
    top: usize,
}

impl LogSoftmax<'_> {
    /// `None` where a logit is NaN or +∞, or all are −∞.
    fn of(row: &[f32]) -> Option<LogSoftmax<'_>> {
        let (mut top, mut max) = (0, f32::NEG_INFINITY);
        for (i, v) in row.iter().enumerate() {
            if v.is_nan() {
                return None;
            }
            if *v > max {
                (top, max) = (i, *v);
            }
        }
        let max = f64::from(max);
        let sum: f64 = row.iter().map(|v| (f64::from(*v) - max).exp()).sum();
        max.is_finite().then(|| LogSoftmax { row, max, log_sum: sum.ln(), top })
    }

    /// The log-probability of a token.
    fn at(&self, token: usize) -> f64 {
        self.row.get(token).map_or(f64::NEG_INFINITY, |v| f64::from(*v) - self.max - self.log_sum)
    }
}

impl Token {
    /// Compares the logits of two models (`[vocabulary]` each) before the token `next`. `None` where the logits are no
    /// distributions (NaN, +∞), or the divergence is infinite: the other model excludes a token that the reference
    /// does not.
    pub fn compare(reference: &[f32], other: &[f32], next: usize) -> Option<Token> {
        let (p, q) = (LogSoftmax::of(reference)?, LogSoftmax::of(other)?);
        let mut kl = 0.0;
        for token in 0..reference.len() {
            let log = p.at(token);
            let share = log.exp();
            // A probability of 0 adds nothing, whatever the other one is.
            if share > 0.0 {
                kl += share * (log - q.at(token));
            }
        }
        let token = Token { kl: kl.max(0.0), reference_nll: -p.at(next), nll: -q.at(next), agrees: p.top == q.top };
        [token.kl, token.nll, token.reference_nll].iter().all(|x| x.is_finite()).then_some(token)
    }
}

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Lower end of the interval; `None` where there are too few blocks for one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Kullback-Leibler divergence of the tokens of a text, nats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kl {
    /// The mean.
    #[serde(flatten)]
    pub mean: Mean,
    /// The 99th percentile by the nearest rank: 1 token in 100 has more.
    pub p99: f64,
    /// The largest.
    pub largest: f64,
}

/// A text's measurements of a model against a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// Divergence of the predictions.
    pub kl: Kl,
    /// Share of tokens with the same most probable token.
    pub top1: Mean,
    /// Perplexity of the reference.
    pub reference_perplexity: f64,
    /// Perplexity of the model.
    pub perplexity: f64,
    /// Mean of the model's negative log likelihood minus the reference's, nats: the logarithm of the ratio of both
    /// perplexities.
    pub nll_difference: Mean,
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Blocks that intervals are from.
    pub blocks: usize,
}

impl Divergence {
    /// Sums up windows of predicted tokens, in their order. `None` without tokens.
    pub fn of(windows: &[Vec<Token>]) -> Option<Divergence> {
        let blocks: Vec<&[Token]> = windows.iter().flat_map(|w| w.chunks(BLOCK)).collect();
        let tokens = blocks.iter().map(|b| b.len()).sum::<usize>();
        if tokens == 0 {
            return None;
        }
        let mean = |of: fn(&Token) -> f64| Mean::of_blocks(&blocks, of);
        let mut kl: Vec<f64> = windows.iter().flatten().map(|t| t.kl).collect();
        kl.sort_by(f64::total_cmp);
        let rank = (tokens * 99).div_ceil(100).max(1) - 1;
        let positive = |m: Mean| Mean { low: m.low.map(|low| low.max(0.0)), ..m };
        Some(Divergence {
            kl: Kl {
                mean: positive(mean(|t| t.kl)),
                p99: kl.get(rank).copied().unwrap_or_default(),
                largest: kl.last().copied().unwrap_or_default(),
            },
            top1: mean(|t| if t.agrees { 1.0 } else { 0.0 }).of_share(tokens),
            reference_perplexity: mean(|t| t.reference_nll).mean.exp(),
            perplexity: mean(|t| t.nll).mean.exp(),
            nll_difference: mean(|t| t.nll - t.reference_nll),
            tokens,
            blocks: blocks.len(),
        })
    }
}

impl Mean {
    /// The mean of a value that each token has.
    fn of_blocks(blocks: &[&[Token]], of: fn(&Token) -> f64) -> Mean {
        let sums: Vec<(f64, f64)> = blocks.iter().map(|b| (b.iter().map(of).sum(), b.len() as f64)).collect();
        let (sum, n) = sums.iter().fold((0.0, 0.0), |(s, n), (sum, len)| (s + sum, n + len));
        let mean = sum / n;
        let count = sums.len();
        if count < 2 {
            return Mean { mean, low: None, high: None };
        }
        let squares: f64 = sums.iter().map(|(sum, len)| (sum - mean * len).powi(2)).sum();
        let error = (squares * count as f64 / (count - 1) as f64).sqrt() / n;
        let half = student(count - 1) * error;
        Mean { mean, low: Some(mean - half), high: Some(mean + half) }
    }

    /// The same for a share of `n` tokens: the interval is not narrower than Wilson's, and within 0 to 1.
    fn of_share(self, n: usize) -> Mean {
        let (low, high) = wilson(self.mean, n as f64);
        Mean {
            mean: self.mean,
            low: self.low.map(|own| own.min(low).max(0.0)),
            high: self.high.map(|own| own.max(high).min(1.0)),
        }
    }

    /// The interval in words, times `factor`; nothing where there is none.
    pub fn interval(&self, digits: usize, factor: f64) -> String {
        match (self.low, self.high) {
            (Some(low), Some(high)) => format!(" ({:.digits$} to {:.digits$})", low * factor, high * factor),
            _ => String::new(),
        }
    }

    /// The upper end of the interval, or the mean where there is none.
    pub fn most(&self) -> f64 {
        self.high.unwrap_or(self.mean)
    }

    /// The lower end of the interval, or the mean where there is none.
    pub fn least(&self) -> f64 {
        self.low.unwrap_or(self.mean)
    }
}

/// Wilson's 95 % interval for a share `p` of `n` independent trials.
fn wilson(p: f64, n: f64) -> (f64, f64) {
    let z2 = NORMAL * NORMAL;
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = NORMAL * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
    (centre - half, centre + half)
}

/// Student's 97.5 % quantile; exact for 1 and 2 degrees of freedom, else the first terms of its expansion at the normal
/// distribution (Abramowitz and Stegun 26.7.5), within 0.2 %.
fn student(degrees: usize) -> f64 {
    let (z, n) = (NORMAL, degrees as f64);
    match degrees {
        0 => f64::INFINITY,
        1 => 12.706_204_736_174_694,
        2 => 4.302_652_729_911_275,
        _ => {
            let g1 = (z.powi(3) + z) / 4.0;
            let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
            let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
            let g4 =
                (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5) - 1920.0 * z.powi(3) - 945.0 * z) / 92_160.0;
            z + g1 / n + g2 / n.powi(2) + g3 / n.powi(3) + g4 / n.powi(4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) -> bool {
        (a - b).abs() <= within
    }

    /// By hand: p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2), so KL = 1/2·ln 2 − 1/4·ln 2.
    #[test]
    fn divergence_of_a_token() {
        let ln = |x: f32| x.ln();
        let (p, q) = ([ln(0.5), ln(0.25), ln(0.25)], [ln(0.25) + 7.0, ln(0.25) + 7.0, ln(0.5) + 7.0]);
        let t = Token::compare(&p, &q, 2).expect("distributions");
        assert!(near(t.kl, 0.25 * 2f64.ln(), 1e-6) && !t.agrees, "{t:?}");
        assert!(near(t.reference_nll, 4f64.ln(), 1e-6) && near(t.nll, 2f64.ln(), 1e-6), "{t:?}");
        let same = Token::compare(&p, &p, 0).expect("distributions");
        assert!(same.kl == 0.0 && same.agrees);
        // Large logits do not overflow, and excluded tokens count where the reference has them.
        let masked = [1e4f32, f32::NEG_INFINITY];
        assert_eq!(Token::compare(&masked, &masked, 0).map(|t| t.kl), Some(0.0));
        assert_eq!(Token::compare(&masked, &[0.0, 0.0], 0).map(|t| near(t.kl, 2f64.ln(), 1e-12)), Some(true));
        assert_eq!(Token::compare(&[0.0, 0.0], &masked, 0), None);
        assert_eq!(Token::compare(&[f32::NAN, 0.0], &p, 0), None);
        assert_eq!(Token::compare(&[f32::INFINITY, 0.0], &[0.0, 0.0], 0), None);
    }

    #[test]
    fn quantiles_of_student() {
        for (degrees, want) in [(1, 12.706), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (100, 1.9840)] {
            let got = student(degrees);
            assert!((got / want - 1.0).abs() < 2e-3, "{degrees}: {got} {want}");
        }
    }

    /// Blocks of equal length: the textbook interval of a mean of means.
    #[test]
    fn intervals_come_from_blocks() {
        let token = |kl| Token { kl, reference_nll: 1.0, nll: 1.5, agrees: true };
        let windows: Vec<Vec<Token>> = [1.0, 2.0, 3.0, 4.0].map(|kl| vec![token(kl); BLOCK]).to_vec();
        let d = Divergence::of(&windows).expect("tokens");
        let error = (5.0f64 / 3.0 / 4.0).sqrt();
        let low = 2.5 - student(3) * error;
        assert!(near(d.kl.mean.mean, 2.5, 1e-12) && near(d.kl.mean.least(), low.max(0.0), 1e-12), "{d:?}");
        assert!(near(d.kl.mean.most(), 2.5 + student(3) * error, 1e-12), "{d:?}");
        assert_eq!((d.tokens, d.blocks, d.kl.largest, d.kl.p99), (4 * BLOCK, 4, 4.0, 4.0));
        assert!(near(d.nll_difference.mean, 0.5, 1e-12) && near(d.perplexity, 1.5f64.exp(), 1e-12));
        // All agree: the lower end is Wilson's.
        assert!(d.top1.mean == 1.0 && near(d.top1.least(), 0.98522, 1e-4) && d.top1.most() == 1.0, "{d:?}");
        // One block has no interval.
        let one = Divergence::of(&[vec![token(1.0); 3]]).expect("tokens");
        assert_eq!((one.kl.mean.low, one.top1.high, one.blocks), (None, None, 1));
        assert_eq!(Divergence::of(&[vec![]]), None);
    }

    /// The nearest rank, and windows of different lengths that count by their tokens.
    #[test]
    fn percentiles_and_ragged_windows() {
        let token = |kl| Token { kl, reference_nll: 0.0, nll: 0.0, agrees: kl < 0.5 };
        let windows = [(0..150).map(|i| token(f64::from(i) / 150.0)).collect(), vec![token(9.0)]];
        let d = Divergence::of(&windows).expect("tokens");
        assert_eq!((d.tokens, d.blocks, d.kl.largest), (151, 4, 9.0));
        assert_eq!(d.kl.p99, 149.0 / 150.0);
        assert!(near(d.kl.mean.mean, (149.0 / 2.0 + 9.0) / 151.0, 1e-12));
        assert!(near(d.top1.mean, 75.0 / 151.0, 1e-12));
    }
}
