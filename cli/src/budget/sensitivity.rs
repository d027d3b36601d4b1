//! How much damage the rounding of each group of matrices does, from trials of one group each.
//!
//! A group has the matrices that decisions connect: alternatives for the same tensors (a matrix with and without a
//! gain, three matrices or one of all rows) belong together. In a trial only the matrices of a group are stored in
//! another format than their own. Its divergence is taken to be `Σ n·(s·e² + a)` over them, `n` being elements and `e`
//! relative errors: `s` for the rounding of the weights, to second order, and `a` for the rounding of the operands of
//! such products. Two trials, of 4 and of 8 bits, give both.
//!
//! The groups of a kind are tried together: the same matrices of all layers. A trial of each part of the layers, with
//! all their matrices of 4 bits, tells how the damage of a kind is divided among them.

use crate::sets;
use llmcc_ir::graph::{Arg, Module};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::{Elem, Format};
use llmcc_passes::Stored;
use llmcc_passes::damage::{Damage, Offer, Sensitivity};
use llmcc_passes::module::parts::Part;
use std::collections::{BTreeMap, BTreeSet};

/// Formats of trials: of few bits, and of many.
pub const TRIED: [Format; 2] = [Format::new(Elem::named("c4"), 32), Format::new(Elem::W8, 128)];

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

/// The groups of matrices that are tried together.
#[derive(Debug, PartialEq)]
pub struct Places {
    /// Groups that calls of the same function bind to the same parameters.
    pub kinds: Vec<Group>,
    /// Groups of the same part of the layers; empty where no function has several parts.
    pub parts: Vec<Group>,
}

impl Places {
    /// `parts`: the part that each function of the module is; empty: all are whole.
    pub fn of(module: &Module, parts: &[Part], groups: &[Group]) -> Places {
        let whole = |of: usize| parts.iter().filter(|p| p.of == of).count() < 2;
        let (mut kinds, mut of_parts): (BTreeMap<_, Group>, BTreeMap<usize, Group>) = Default::default();
        for group in groups {
            let (mut kind, mut own) = (BTreeSet::new(), BTreeSet::new());
            for call in module.calls() {
                let part = parts.get(call.func).copied().unwrap_or(Part { of: call.func, part: 0 });
                let bound = |arg: &Arg| matches!(arg, Arg::Weight(w) if group.contains(w));
                for (param, _) in call.args.iter().enumerate().filter(|(_, arg)| bound(arg)) {
                    kind.insert((part.of, param));
                    own.extend((!whole(part.of)).then_some(part.part));
                }
            }
            kinds.entry(kind).or_default().extend(group);
            own.iter().for_each(|part| of_parts.entry(*part).or_default().extend(group));
        }
        Places { kinds: kinds.into_values().collect(), parts: of_parts.into_values().collect() }
    }
}

/// A form that is stored, as it was offered; `None` where there was no offer.
pub fn offered<'a>(offers: &'a [Offer], s: &Stored) -> Option<(&'a Offer, Format)> {
    Some((offers.iter().find(|o| o.weights == s.weights)?, Format::parse(&s.form)?))
}

/// The predicted damage of a form that is stored.
pub fn damage_of(damage: &Damage, offers: &[Offer], s: &Stored) -> f64 {
    offered(offers, s).map_or(0.0, |(o, format)| damage.of(&o.weights, format, s.error, o.elements))
}

/// The damage that the matrices of a group do in their forms, by sensitivities.
pub fn predicted(
    module: &Module,
    offers: &[Offer],
    stored: &[Stored],
    group: &Group,
    weights: &BTreeMap<usize, Sensitivity>,
) -> f64 {
    let damage = Damage { weights: weights.clone(), ..Damage::default() };
    let own = stored.iter().filter(|s| belong(module, &s.weights, group));
    own.map(|s| damage_of(&damage, offers, s)).sum()
}

/// A trial of a part of the layers.
pub struct PartTrial<'a> {
    /// Its matrices.
    pub group: &'a Group,
    /// Its measured divergence.
    pub kl: f64,
    /// The divergence predicted by kinds of matrices.
    pub predicted: f64,
}

/// Least factor by which the damage of a part may differ from that of the others: trials have noise.
const LEAST: f64 = 0.1;

/// Divides the damage of kinds among the parts of the layers. The sum of predicted damages stays.
pub fn by_parts(weights: &mut BTreeMap<usize, Sensitivity>, parts: &[PartTrial<'_>]) {
    let known: Vec<&PartTrial<'_>> = parts.iter().filter(|p| p.predicted > 0.0).collect();
    let ratios = || known.iter().map(|p| p.kl / p.predicted);
    let mean = ratios().sum::<f64>() / known.len().max(1) as f64;
    if parts.len() < 2 || mean <= 0.0 || !mean.is_finite() {
        return;
    }
    let factors: Vec<f64> = ratios().map(|r| r.max(LEAST * mean)).collect();
    let before: f64 = known.iter().map(|p| p.predicted).sum();
    let after: f64 = known.iter().zip(&factors).map(|(p, factor)| p.predicted * factor).sum();
    for (part, factor) in known.iter().zip(factors) {
        for weight in part.group {
            if let Some(s) = weights.get_mut(weight) {
                s.per_square *= factor * before / after;
                s.of_operands *= factor * before / after;
            }
        }
    }
}

/// Any rounding does damage.
pub fn all_count(groups: &[Group]) -> BTreeMap<usize, Sensitivity> {
    let all = Sensitivity { per_square: 1.0, of_operands: 1.0 };
    groups.iter().flatten().map(|i| (*i, all)).collect()
}

/// Forces a group into a format where nothing was allowed.
pub fn trial(mut damage: Damage, group: &Group, format: Format) -> Damage {
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
            if let Some((offer, _)) = offered(offers, s).filter(|(_, format)| format.is_quantized()) {
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
    fn damage_is_divided_among_parts() {
        fn trial(group: &Group, kl: f64) -> PartTrial<'_> {
            PartTrial { group, kl, predicted: 1.0 }
        }
        let one = Sensitivity { per_square: 2.0, of_operands: 1.0 };
        let mut weights: BTreeMap<usize, Sensitivity> = (0..4).map(|i| (i, one)).collect();
        let (first, second) = (Group::from([0, 1]), Group::from([2]));
        by_parts(&mut weights, &[trial(&first, 3.0), trial(&second, 1.0)]);
        let of = |factor: f64| Sensitivity { per_square: 2.0 * factor, of_operands: factor };
        assert_eq!(weights.into_values().collect::<Vec<_>>(), [of(1.5), of(1.5), of(0.5), one]);
        // A part without measured damage keeps some, and a single part all.
        let mut weights = BTreeMap::from([(0, one), (2, one)]);
        by_parts(&mut weights, &[trial(&first, 4.0), trial(&second, 0.0)]);
        assert!(weights[&2].per_square > 0.0 && weights[&0].per_square > 1.8 * one.per_square, "{weights:?}");
        let mut weights = BTreeMap::from([(0, one)]);
        by_parts(&mut weights, &[trial(&first, 4.0)]);
        assert_eq!(weights[&0], one);
    }

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
