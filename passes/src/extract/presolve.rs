//! Reduces an extraction problem before it is solved exactly: drops candidates that cannot be in a
//! cheaper program than another of their class.
//!
//! A candidate `b` of a class is dropped when exchanging it for `a` never costs more: what `a`
//! costs, plus at most the cost of computing from scratch what `a` needs and `b` does not bring
//! along, is no more than what `b` surely costs. The latter includes the classes that only this
//! class reads ("private": they go away with `b`), each at its cheapest.
//!
//! With decisions about stored forms, `a` must also require no form that the program would not use
//! anyway. What is computed from scratch requires none at all, and `b` is taken apart into the ways
//! in which its private classes may be computed: in each, what it uses is known, and each must be
//! beaten.

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
                if !c.requires.is_empty() {
                    continue;
                }
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
            todo.extend(
                alive.get(&class).into_iter().flatten().flat_map(|i| p.classes[&class][*i].needs.iter().copied()),
            );
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
    /// Results of [`Bounds::least_of_class`]; candidates dropped since only make them more
    /// cautious.
    least: RefCell<BTreeMap<Id, Least>>,
}

/// Ways that a candidate is taken apart into.
const MAX_WAYS: usize = 64;

/// What is certain about a way of computing something.
#[derive(Clone)]
struct Least {
    /// Seconds paid.
    cost: f64,
    /// Classes computed besides.
    brings: BTreeSet<Id>,
    /// Stored forms used.
    uses: BTreeSet<Id>,
}

impl Least {
    fn join(&mut self, other: &Least) {
        self.cost += other.cost;
        self.brings.extend(&other.brings);
        self.uses.extend(&other.uses);
    }

    /// What is certain of both.
    fn either(self, other: &Least) -> Least {
        Least {
            cost: self.cost.min(other.cost),
            brings: self.brings.intersection(&other.brings).copied().collect(),
            uses: self.uses.intersection(&other.uses).copied().collect(),
        }
    }
}

impl Bounds<'_> {
    fn eliminate(&self, class: Id, alive: &mut Alive) -> bool {
        let Some(candidates) = alive.get(&class).cloned() else { return false };
        let ways: Vec<Vec<Least>> = candidates.iter().map(|i| self.ways(class, *i, alive)).collect();
        let mut dropped = BTreeSet::new();
        for (b, ways) in candidates.iter().zip(&ways) {
            let beaten = |way: &Least| {
                candidates.iter().any(|a| a != b && !dropped.contains(a) && self.exchange(class, *a, way) <= way.cost)
            };
            if ways.iter().all(beaten) {
                dropped.insert(*b);
            }
        }
        if dropped.is_empty() {
            return false;
        }
        alive.insert(class, candidates.into_iter().filter(|i| !dropped.contains(i)).collect());
        true
    }

    /// Whether only `class` reads `need`.
    fn private(&self, class: Id, need: Id) -> bool {
        self.users.get(&need).is_some_and(|u| u.len() == 1 && u.contains(&Some(class)))
    }

    /// For choosing a candidate: at least one of these holds.
    fn ways(&self, class: Id, index: usize, alive: &Alive) -> Vec<Least> {
        let c = &self.p.classes[&class][index];
        let open = |need: &Id| {
            self.private(class, *need) && alive.get(need).into_iter().flatten().any(|i| self.requires(*need, *i))
        };
        let (open, closed): (Vec<Id>, Vec<Id>) = c.needs.iter().partition(|n| open(n));
        let mut ways = vec![self.base(class, index, &closed, alive)];
        for need in open {
            let each: Vec<Least> =
                alive.get(&need).into_iter().flatten().map(|i| self.least(need, *i, alive)).collect();
            if ways.len() * each.len() > MAX_WAYS {
                return vec![self.least(class, index, alive)];
            }
            let with = |way: &Least, more: &Least| {
                let mut way = way.clone();
                way.join(more);
                way
            };
            ways = ways.iter().flat_map(|way| each.iter().map(|more| with(way, more))).collect();
        }
        ways
    }

    fn requires(&self, class: Id, index: usize) -> bool {
        !self.p.classes[&class][index].requires.is_empty()
    }

    /// For choosing a candidate, whatever way its private classes are computed.
    fn least(&self, class: Id, index: usize, alive: &Alive) -> Least {
        self.base(class, index, &self.p.classes[&class][index].needs, alive)
    }

    /// For choosing a candidate, counting these of its needs.
    fn base(&self, class: Id, index: usize, needs: &[Id], alive: &Alive) -> Least {
        let c = &self.p.classes[&class][index];
        let mut all = Least { cost: c.seconds, brings: BTreeSet::new(), uses: c.requires.iter().copied().collect() };
        for need in needs {
            if self.private(class, *need) {
                all.join(&self.least_of_class(*need, alive));
            } else {
                all.brings.insert(*need);
            }
        }
        all
    }

    /// For computing a class somehow.
    fn least_of_class(&self, class: Id, alive: &Alive) -> Least {
        if let Some(known) = self.least.borrow().get(&class) {
            return known.clone();
        }
        let each = alive.get(&class).into_iter().flatten().map(|i| self.least(class, *i, alive));
        let none = Least { cost: f64::INFINITY, brings: BTreeSet::new(), uses: BTreeSet::new() };
        let least = each.reduce(|a, b| a.either(&b)).unwrap_or(none);
        self.least.borrow_mut().insert(class, least.clone());
        least
    }

    /// The most that choosing a candidate costs when what `way` brings is computed anyway; infinite
    /// if that needs a form that `way` does not use.
    fn exchange(&self, class: Id, index: usize, way: &Least) -> f64 {
        let c = &self.p.classes[&class][index];
        if c.requires.iter().any(|r| !way.uses.contains(r)) {
            return f64::INFINITY;
        }
        let missing = c.needs.iter().filter(|n| !way.brings.contains(n));
        c.seconds + missing.map(|n| self.most.get(n).copied().unwrap_or(f64::INFINITY)).sum::<f64>()
    }
}
