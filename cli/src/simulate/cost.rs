//! Seconds of a step: the cost model's predictions in the manifest, once for every launch that the artifact's tables
//! have, as a function of the step's tokens, rows and contexts.
//!
//! The predictions are those by which the compiler chose: of kernels of the artifact, at some sizes of steps, with the
//! part that grows with the context apart. Between the sizes they are interpolated. Two things are approximate. A
//! step's parts attend separately: next tokens as in a step of these alone, each chunk of a prompt as in a step of its
//! own. And on machines with described rates a launch takes as long as the slower of its bytes and its operations, at
//! those rates.

use crate::machines::Rates;
use crate::manifest::Version;
use crate::predicted::{KernelCost, Point};
use llmcc_codegen::tables::{Regime, Tables};

/// The part of a step that is of one sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    /// Tokens.
    pub tokens: usize,
    /// Tokens that one of them attends to, on average.
    pub context: f64,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Its parts.
    pub parts: Vec<Chunk>,
    /// Rows of logits.
    pub rows: usize,
}

/// Seconds of a step, by what they grow with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Without contexts.
    pub base: f64,
    /// More for the contexts.
    pub context: f64,
}

impl Seconds {
    /// All of them.
    pub fn sum(self) -> f64 {
        self.base + self.context
    }
}

/// Costs of an artifact's steps.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    regimes: Vec<(Option<usize>, Vec<Launched>)>,
    /// From this many multiply-adds per second and core on, rows are of 8 bits.
    narrow_from: f64,
}

/// A kernel, and how often a step launches it.
#[derive(Clone, Debug)]
struct Launched {
    cost: KernelCost,
    launches: f64,
}

impl Costs {
    /// The costs of a version with these tables. `None`: its manifest has no predictions for its kernels.
    pub fn of(version: &Version, tables: &Tables) -> Option<Costs> {
        let predicted = &version.predicted;
        let regime = |r: &Regime| {
            let key = r.max_tokens.map_or(-1, |m| m as i64);
            let kernel = |(name, launches): &(String, usize)| {
                let cost = predicted.kernels.iter().find(|k| (k.regime, &k.kernel) == (key, name))?;
                Some(Launched { cost: cost.clone(), launches: *launches as f64 })
            };
            Some((r.max_tokens, r.kernels.iter().map(kernel).collect::<Option<Vec<_>>>()?))
        };
        let regimes: Vec<_> = tables.regimes.iter().map(regime).collect::<Option<_>>()?;
        let machine = &predicted.machine;
        // (Where both kinds are as fast, all count as wide ones.)
        let narrow_from = match machine.int8_macs > machine.f32_macs {
            true => machine.int8_macs,
            false => f64::INFINITY,
        };
        (!regimes.is_empty()).then_some(Costs { regimes, narrow_from })
    }

    /// The kernels of steps of so many tokens.
    fn serving(&self, tokens: usize) -> &[Launched] {
        let fits = self.regimes.iter().find(|(most, _)| most.is_none_or(|most| tokens <= most));
        fits.or(self.regimes.last()).map_or(&[], |(_, kernels)| kernels)
    }

    /// Predicted seconds of a step: on the artifact's target, or on a machine with these rates.
    pub fn seconds(&self, shape: &Shape, on: Option<&Rates>) -> Seconds {
        let tokens: usize = shape.parts.iter().map(|part| part.tokens).sum();
        let base = |l: &Launched| {
            let m = if l.cost.of_logits { shape.rows } else { tokens };
            let point = l.cost.at(m as f64);
            // (Without rows there is nothing to launch.)
            if m == 0 { 0.0 } else { l.launches * self.base(&l.cost, point, on) }
        };
        let contexts = self.contexts(shape);
        Seconds {
            base: self.serving(tokens).iter().map(base).sum(),
            context: contexts.iter().map(|(m, context)| self.attending(*m, *context, on)).sum(),
        }
    }

    /// The parts of a step as they attend: next tokens together, with their average context, and each chunk.
    fn contexts(&self, shape: &Shape) -> Vec<(usize, f64)> {
        let (next, chunks): (Vec<&Chunk>, Vec<&Chunk>) = shape.parts.iter().partition(|part| part.tokens == 1);
        let mut all: Vec<(usize, f64)> = chunks.iter().map(|part| (part.tokens, part.context)).collect();
        if !next.is_empty() {
            all.push((next.len(), next.iter().map(|part| part.context).sum::<f64>() / next.len() as f64));
        }
        all
    }

    /// Seconds more that `m` tokens take for so much context each.
    fn attending(&self, m: usize, context: f64, on: Option<&Rates>) -> f64 {
        let more = |l: &Launched| {
            let point = l.cost.at(m as f64);
            let seconds = match on {
                None => point.us_per_context * 1e-6,
                Some(rates) => {
                    self.roofline(&l.cost, point.bytes_per_context / rates.states, point.macs_per_context, rates)
                }
            };
            l.launches * seconds * context
        };
        self.serving(m).iter().filter(|l| !l.cost.of_logits).map(more).sum()
    }

    fn base(&self, cost: &KernelCost, point: Point, on: Option<&Rates>) -> f64 {
        match on {
            None => point.us * 1e-6,
            Some(rates) => rates.launch + self.roofline(cost, point.bytes / rates.memory, point.macs, rates),
        }
    }

    /// The longer of the time that bytes take and that of multiply-adds.
    fn roofline(&self, cost: &KernelCost, bytes: f64, macs: f64, rates: &Rates) -> f64 {
        let peak = if cost.peak >= self.narrow_from { rates.narrow } else { rates.wide };
        bytes.max(macs / peak)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::predicted::{Machine, Predicted};

    fn kernel(regime: i64, name: &str, of_logits: bool, us: &[(f64, f64, f64)]) -> KernelCost {
        let point = |&(m, us, us_per_context): &(f64, f64, f64)| Point {
            m,
            us,
            us_per_context,
            bytes: 1e6,
            bytes_per_context: if us_per_context > 0.0 { 1e3 * m } else { 0.0 },
            macs: 1e6 * m,
            macs_per_context: if us_per_context > 0.0 { 1e3 * m } else { 0.0 },
        };
        KernelCost { regime, kernel: name.into(), of_logits, peak: 1e9, points: us.iter().map(point).collect() }
    }

    /// Two layers: a step of up to 4 tokens takes 220 µs (20 µs of them for logits), and 2 µs per token and token of
    /// context; a larger one 40 µs and 20 µs a token.
    pub fn costs() -> Costs {
        let machine = Machine { f32_macs: 1e9, int8_macs: 1e9, ..Machine::default() };
        let kernels = vec![
            kernel(4, "a", false, &[(1.0, 100.0, 0.0), (4.0, 100.0, 0.0)]),
            kernel(4, "attention", false, &[(1.0, 0.0, 1.0), (4.0, 0.0, 4.0)]),
            kernel(4, "head", true, &[(1.0, 20.0, 0.0), (4.0, 20.0, 0.0)]),
            kernel(-1, "b", false, &[(5.0, 70.0, 0.0), (512.0, 20.0 + 512.0 * 10.0, 0.0)]),
            kernel(-1, "attention", false, &[(5.0, 0.0, 0.5), (512.0, 0.0, 51.2)]),
            kernel(-1, "head", true, &[(1.0, 20.0, 0.0), (512.0, 20.0, 0.0)]),
        ];
        let version =
            Version { predicted: Predicted { machine, kernels, ..Predicted::default() }, ..Version::default() };
        let regime = |max_tokens, first: &str| Regime {
            max_tokens,
            kernels: vec![(first.into(), 2), ("attention".into(), 2), ("head".into(), 1)],
        };
        let tables = Tables { regimes: vec![regime(Some(4), "a"), regime(None, "b")], ..Tables::default() };
        Costs::of(&version, &tables).unwrap()
    }

    fn step(parts: &[(usize, f64)], rows: usize) -> Shape {
        Shape { parts: parts.iter().map(|&(tokens, context)| Chunk { tokens, context }).collect(), rows }
    }

    #[test]
    fn a_step_is_all_of_its_launches() {
        let us = |parts: &[(usize, f64)], rows| {
            let seconds = costs().seconds(&step(parts, rows), None);
            ((seconds.base * 1e6).round(), (seconds.context * 1e6).round())
        };
        assert_eq!(us(&[(1, 10.0)], 1), (220.0, 20.0));
        assert_eq!(us(&[(1, 10.0), (1, 30.0)], 2), (220.0, 80.0));
        assert_eq!(us(&[(1, 10.0)], 0), (200.0, 20.0), "no logits are asked for");
        // 100 tokens of a prompt: 2·(20 + 1000) µs, and twice about 10 µs for each token of context.
        let (base, context) = us(&[(100, 50.0)], 1);
        assert!((base - 2060.0).abs() < 2.0 && (context - 1000.0).abs() < 10.0, "{base} {context}");
        // Beside a next token: one more token of the step, whose context counts as in a step of its own.
        let (more, both) = us(&[(1, 10.0), (100, 50.0)], 2);
        assert!((more - base - 20.0).abs() < 2.0 && (both - context - 20.0).abs() < 1.0, "{more} {both}");
    }

    #[test]
    fn twice_the_rate_is_never_slower() {
        let rates = Rates { memory: 1e9, states: 1e9, wide: 1e9, narrow: 2e9, launch: 1e-6 };
        let faster = [
            Rates { memory: 2e9, ..rates },
            Rates { states: 2e9, ..rates },
            Rates { wide: 2e9, ..rates },
            Rates { launch: 0.5e-6, ..rates },
            Rates { narrow: 4e9, ..rates },
        ];
        for parts in [&[(1, 100.0)][..], &[(1, 5.0), (1, 900.0)], &[(64, 400.0)], &[(1, 10.0), (300, 200.0)]] {
            let seconds = |rates: &Rates| costs().seconds(&step(parts, 1), Some(rates)).sum();
            let plain = seconds(&rates);
            assert!(plain > 0.0 && faster.iter().all(|rates| seconds(rates) <= plain), "{parts:?}");
            let all = Rates { memory: 2e9, states: 2e9, wide: 2e9, narrow: 4e9, launch: 0.5e-6 };
            assert!((seconds(&all) * 2.0 - plain).abs() < 1e-9 * plain, "all rates twice: half the time");
        }
    }

    #[test]
    fn rows_of_8_bits_have_their_own_rate() {
        let machine = Machine { f32_macs: 1e9, int8_macs: 4e9, ..Machine::default() };
        let wide = KernelCost { peak: 2e9, ..kernel(-1, "wide", false, &[(1.0, 1.0, 0.0)]) };
        let narrow = KernelCost { peak: 4e9, ..kernel(-1, "narrow", false, &[(1.0, 1.0, 0.0)]) };
        let of = |k: KernelCost| {
            let kernels = vec![(k.kernel.clone(), 1)];
            let predicted = Predicted { machine: machine.clone(), kernels: vec![k], ..Predicted::default() };
            let tables = Tables { regimes: vec![Regime { max_tokens: None, kernels }], ..Tables::default() };
            let costs = Costs::of(&Version { predicted, ..Version::default() }, &tables).unwrap();
            let rates = Rates { memory: f64::INFINITY, states: 1e9, wide: 1e9, narrow: 2e9, launch: 0.0 };
            costs.seconds(&step(&[(1, 1.0)], 1), Some(&rates)).base
        };
        assert_eq!((of(wide), of(narrow)), (1e-3, 0.5e-3));
    }

    #[test]
    fn without_predictions_there_are_no_costs() {
        let tables =
            Tables { regimes: vec![Regime { max_tokens: None, kernels: vec![("a".into(), 1)] }], ..Tables::default() };
        assert!(Costs::of(&Version::default(), &tables).is_none());
        assert!(Costs::of(&Version::default(), &Tables::default()).is_none());
    }
}
