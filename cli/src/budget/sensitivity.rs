//! How much damage the rounding of each group of matrices does, from trials of one group each.
//!
//! A group has the matrices that decisions connect: alternatives for the same tensors (a matrix with and without a
//! gain, three matrices or one of all rows) belong together. In a trial only the matrices of a group are stored in
//! another format than their own. Its divergence is taken to be `Σ n·(s·e² + a)` over them, `n` being elements and `e`
//! relative errors: `s` for the rounding of the weights, to second order, and `a` for the rounding of the operands of
//! such products. Two trials, of 4 and of 8 bits, give both.

use crate::sets;
use llmcc_ir::graph::Module;
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::{Elem, Format};
use llmcc_passes::Stored;
use llmcc_passes::damage::{Damage, Offer, Sensitivity};
use std::collections::{BTreeMap, BTreeSet};

/// Formats of trials: of few bits, and of many.
pub const TRIED: [Format; 2] = [Format::new(Elem::W4, 32), Format::new(Elem::W8, 128)];

/// Matrices that are tried together: indices of the module's weights.
pub type Group = BTreeSet<usize>;

/// The weights with at least two dimensions in expressions; gains of norms and the like are no matrices.
fn matrices<'a>(module: &Module, weights: impl IntoIterator<Item = &'a WeightExpr>) -> Group {
    let mut found = Group::new();
    let is_matrix = |i: usize| module.weights.get(i).is_some_and(|w| w.ty.shape.len() > 1);
    weights.into_iter().for_each(|w| {
        w.leaves(&mut |i| {
            if is_matrix(i) {
                found.insert(i);
            }
        });
    });
    found
}

/// The groups of a model's offers, in the order of their first weights.
pub fn groups(module: &Module, offers: &[Offer]) -> Vec<Group> {
    sets::joined(offers.iter().map(|offer| matrices(module, &offer.weights)))
}

/// Whether weights have matrices of a group.
pub fn belong(module: &Module, weights: &BTreeSet<WeightExpr>, group: &Group) -> bool {
    !matrices(module, weights).is_disjoint(group)
}

/// Forbids everything but the checkpoint's own types.
pub fn nothing_rounded(groups: &[Group]) -> Damage {
    let all = Sensitivity { per_square: 1.0, of_operands: 1.0 };
    Damage { weights: groups.iter().flatten().map(|i| (*i, all)).collect(), ..Damage::default() }
}

/// Forces a group into a format, and forbids everything else.
pub fn trial(groups: &[Group], group: &Group, format: Format) -> Damage {
    let mut damage = nothing_rounded(groups);
    damage.weights.retain(|i, _| !group.contains(i));
    damage.only = group.iter().map(|i| (*i, vec![format])).collect();
    damage
}

/// Forces the forms of a choice.
pub fn forced(module: &Module, damage: &Damage, stored: &[Stored]) -> Damage {
    let mut only: BTreeMap<usize, Vec<Format>> = BTreeMap::new();
    for s in stored {
        let Some(format) = Format::parse(&s.form) else { continue };
        for i in matrices(module, &s.weights) {
            only.entry(i).or_default().push(format);
        }
    }
    Damage { most: f64::INFINITY, only, ..damage.clone() }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trial {
    /// Measured divergence, beyond that of the model with nothing rounded.
    pub kl: f64,
    /// `Σ n·e²` over the matrices that were rounded.
    pub squares: f64,
    /// `Σ n` over them.
    pub elements: f64,
}

impl Trial {
    /// The result of a choice among offers that rounds matrices of `group` only; its divergence is `kl`.
    pub fn of(module: &Module, offers: &[Offer], stored: &[Stored], group: &Group, kl: f64) -> Trial {
        let mut all = Trial { kl: kl.max(0.0), ..Trial::default() };
        for s in stored.iter().filter(|s| belong(module, &s.weights, group)) {
            let quantized = Format::parse(&s.form).is_some_and(Format::is_quantized);
            if let Some(offer) = offers.iter().find(|o| o.weights == s.weights).filter(|_| quantized) {
                all.squares += offer.elements * s.error * s.error;
                all.elements += offer.elements;
            }
        }
        all
    }
}

/// The sensitivity that explains one trial or two, of few bits and of many; not negative.
pub fn fit(trials: &[Trial]) -> Sensitivity {
    let known: Vec<&Trial> = trials.iter().filter(|t| t.elements > 0.0).collect();
    let one = |t: &Trial| match t.squares > 0.0 {
        true => Sensitivity { per_square: t.kl / t.squares, of_operands: 0.0 },
        false => Sensitivity { per_square: 0.0, of_operands: t.kl / t.elements },
    };
    match known[..] {
        [] => Sensitivity::default(),
        [only] => one(only),
        [few, many, ..] => {
            let determinant = few.squares * many.elements - many.squares * few.elements;
            if determinant <= 0.0 {
                return one(few);
            }
            let of_operands = (few.squares * many.kl - many.squares * few.kl) / determinant;
            let per_square = (few.kl * many.elements - many.kl * few.elements) / determinant;
            match (per_square < 0.0, of_operands < 0.0) {
                (_, true) => one(few),
                // The trial of many bits does as much damage: the operands do it.
                (true, false) => Sensitivity { per_square: 0.0, of_operands: most(few, many) },
                (false, false) => Sensitivity { per_square, of_operands },
            }
        }
    }
}

fn most(few: &Trial, many: &Trial) -> f64 {
    (few.kl / few.elements).max(many.kl / many.elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_trials_tell_weights_from_operands() {
        let trial =
            |e: f64, s: f64, a: f64| Trial { kl: 100.0 * (s * e * e + a), squares: 100.0 * e * e, elements: 100.0 };
        let near = |found: Sensitivity, s: f64, a: f64| {
            assert!((found.per_square - s).abs() < 1e-9 * s.max(1.0), "{found:?} {s}");
            assert!((found.of_operands - a).abs() < 1e-9 * a.max(1.0), "{found:?} {a}");
        };
        near(fit(&[trial(0.1, 3.0, 0.002), trial(0.006, 3.0, 0.002)]), 3.0, 0.002);
        near(fit(&[trial(0.1, 3.0, 0.0), trial(0.006, 3.0, 0.0)]), 3.0, 0.0);
        near(fit(&[trial(0.1, 3.0, 0.0)]), 3.0, 0.0);
        near(fit(&[]), 0.0, 0.0);
        // Neither becomes negative.
        let noise = fit(&[Trial { kl: 1.0, ..trial(0.1, 1.0, 0.0) }, Trial { kl: 2.0, ..trial(0.006, 1.0, 0.0) }]);
        near(noise, 0.0, 0.02);
        let none = fit(&[Trial { kl: 1.0, ..trial(0.1, 1.0, 0.0) }, Trial { kl: 0.0, ..trial(0.006, 1.0, 0.0) }]);
        near(none, 1.0, 0.0);
        assert_eq!(fit(&[Trial { kl: 0.5, squares: 0.0, elements: 10.0 }]).of_operands, 0.05);
    }
}
