//! Reduces an extraction problem before it is solved exactly: drops candidates that cannot be in a cheaper program than another of their class.
//!
//! A candidate `b` of a class is dropped when exchanging it for `a` never costs more: what `a` costs, plus at most the cost of computing from scratch what
//! `a` needs and `b` does not bring along, is no more than what `b` surely costs. The latter includes the classes that only this class reads
//! ("private": they go away with `b`), each at its cheapest.

use super::{Alive, Problem};
use egg::Id;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds of elimination; each may make more classes private.
const MAX_ROUNDS: usize = 8;

/// Drops candidates until nothing changes.
pub(super) fn reduce(p: &Problem, alive: &mut Alive) {
    let most = upper_bounds(p, alive);
    for _ in 0..MAX_ROUNDS {
        restrict_to_reachable(p, alive);
        let users = users(p, alive);
        let bounds = Bounds { p, users, most: &most, least: RefCell::default() };
        let classes: Vec<Id> = alive.keys().copied().collect();
        let changed = classes.into_iter().filter(|class| bounds.eliminate(*class, alive)).count();
        if changed == 0 {
            return;
        }
    }
}

/// Cost of computing each class on its own, nothing shared, by its cheapest candidates.
fn upper_bounds(p: &Problem, alive: &Alive) -> BTreeMap<Id, f64> {
    let mut most: BTreeMap<Id, f64> = BTreeMap::new();
    loop {
        let mut changed = false;
        for (class, candidates) in alive {
            for i in candidates {
                let c = &p.classes[class][*i];
                let cost: Option<f64> = c.needs.iter().map(|n| most.get(n)).sum::<Option<f64>>();
                if let Some(cost) = cost.map(|n| n + c.seconds)
                    && most.get(class).is_none_or(|old| cost < *old)
                {
                    most.insert(*class, cost);
                    changed = true;
                }
            }
        }
        if !changed {
            return most;
        }
    }
}

/// Forgets classes that no remaining candidate needs.
fn restrict_to_reachable(p: &Problem, alive: &mut Alive) {
    let mut seen = BTreeSet::new();
    let mut todo = p.roots.clone();
    while let Some(class) = todo.pop() {
        if seen.insert(class) {
            todo.extend(alive.get(&class).into_iter().flatten().flat_map(|i| p.classes[&class][*i].needs.iter().copied()));
        }
    }
    alive.retain(|class, _| seen.contains(class));
}

/// Classes that read each class; a root is read by nobody we may change.
fn users(p: &Problem, alive: &Alive) -> BTreeMap<Id, BTreeSet<Option<Id>>> {
    let mut users: BTreeMap<Id, BTreeSet<Option<Id>>> = BTreeMap::new();
    for (class, candidates) in alive {
        for need in candidates.iter().flat_map(|i| &p.classes[class][*i].needs) {
            users.entry(*need).or_default().insert(Some(*class));
        }
    }
    for root in &p.roots {
        users.entry(*root).or_default().insert(None);
    }
    users
}

struct Bounds<'a> {
    p: &'a Problem,
    users: BTreeMap<Id, BTreeSet<Option<Id>>>,
    most: &'a BTreeMap<Id, f64>,
    /// Results of [`Bounds::least_of_class`]; candidates dropped since only make them more cautious.
    least: RefCell<BTreeMap<Id, Least>>,
}

/// What is surely paid, and the classes that are surely computed besides.
type Least = (f64, BTreeSet<Id>);

impl Bounds<'_> {
    fn eliminate(&self, class: Id, alive: &mut Alive) -> bool {
        let Some(candidates) = alive.get(&class).cloned() else { return false };
        let costs: Vec<(f64, BTreeSet<Id>)> = candidates.iter().map(|i| self.least(class, *i, alive)).collect();
        let mut dropped = BTreeSet::new();
        for (at_b, b) in candidates.iter().enumerate() {
            let (least, brings) = &costs[at_b];
            let beaten = candidates.iter().any(|a| a != b && !dropped.contains(a) && self.exchange(class, *a, brings) <= *least);
            if beaten {
                dropped.insert(*b);
            }
        }
        if dropped.is_empty() {
            return false;
        }
        alive.insert(class, candidates.into_iter().filter(|i| !dropped.contains(i)).collect());
        true
    }

    /// For choosing a candidate.
    fn least(&self, class: Id, index: usize, alive: &Alive) -> Least {
        let c = &self.p.classes[&class][index];
        let (mut cost, mut brings) = (c.seconds, BTreeSet::new());
        for need in &c.needs {
            let private = self.users.get(need).is_some_and(|u| u.len() == 1 && u.contains(&Some(class)));
            if private {
                let (more, classes) = self.least_of_class(*need, alive);
                cost += more;
                brings.extend(classes);
            } else {
                brings.insert(*need);
            }
        }
        (cost, brings)
    }

    /// For computing a class somehow.
    fn least_of_class(&self, class: Id, alive: &Alive) -> Least {
        if let Some(known) = self.least.borrow().get(&class) {
            return known.clone();
        }
        let each: Vec<Least> = alive.get(&class).into_iter().flatten().map(|i| self.least(class, *i, alive)).collect();
        let cost = each.iter().map(|e| e.0).fold(f64::INFINITY, f64::min);
        let brings = each.into_iter().map(|e| e.1).reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default();
        self.least.borrow_mut().insert(class, (cost, brings.clone()));
        (cost, brings)
    }

    /// The most that choosing a candidate costs when `have` is computed anyway.
    fn exchange(&self, class: Id, index: usize, have: &BTreeSet<Id>) -> f64 {
        let c = &self.p.classes[&class][index];
        let missing = c.needs.iter().filter(|n| !have.contains(n));
        c.seconds + missing.map(|n| self.most.get(n).copied().unwrap_or(f64::INFINITY)).sum::<f64>()
    }
}
