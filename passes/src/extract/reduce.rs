//! Candidates that no cheapest solution has, found before the search for it.
//!
//! A long expression that a kernel may cut at any of its parts has thousands of candidates, and ties all parts
//! together: elimination takes time exponential in their number. Nearly all cuts lose against another one, whatever
//! the rest of the program is. Candidate `a` of a class loses against `b` if `b` requires no other stored form and
//! needs no class that `a` does not need too, at least by all ways to compute what it needs, and if `b` is cheaper
//! than `a` and all classes together that are computed for `a` alone. In an acyclic solution with `a`, `b` in its
//! place computes the same (what `b` needs is computed before, so no cycle appears), for less: so the cheapest
//! solution is among the rest. No cost is estimated, and nothing is left out that could be chosen.

use super::network::Requires;
use super::problem::{Alive, Problem};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds: each may find candidates that lose because of those that lost before.
const ROUNDS: usize = 8;

/// A set of numbers of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn of(len: usize) -> Set {
        Set(vec![0; len.div_ceil(64)])
    }

    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn unite(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn intersect(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|i| self.has(*i))
    }
}

/// A candidate.
#[derive(Clone, Debug)]
struct Way {
    index: usize,
    cost: f64,
    needs: Vec<usize>,
    requires: BTreeSet<Id>,
}

/// Classes by number, with their candidates.
struct Ways {
    classes: Vec<Vec<Way>>,
    roots: Vec<usize>,
}

impl Problem {
    /// The candidates without those that lose against others. `cost` is that of a candidate, ties broken.
    pub(super) fn reduced(&self, alive: &Alive, requires: &Requires, cost: impl Fn(Id, usize) -> f64) -> Alive {
        let places: BTreeMap<Id, usize> = alive.keys().enumerate().map(|(i, class)| (*class, i)).collect();
        let way = |class: Id, index: usize| {
            let needs = self.classes[&class][index].needs.iter();
            // One that needs a class without candidates is impossible.
            let needs: Option<Vec<usize>> = needs.map(|need| places.get(need).copied()).collect();
            let requires = requires.get(&(class, index)).cloned().unwrap_or_default();
            Some(Way { index, cost: cost(class, index), needs: needs?, requires })
        };
        let classes = alive.iter().map(|(class, of)| of.iter().filter_map(|i| way(*class, *i)).collect()).collect();
        let roots = self.roots.iter().filter_map(|root| places.get(root).copied()).collect();
        let mut ways = Ways { classes, roots };
        for _ in 0..ROUNDS {
            if !ways.round() {
                break;
            }
        }
        let used = ways.reached(None);
        let left = |(i, class): (usize, &Id)| {
            let kept = ways.classes[i].iter().map(|way| way.index).collect();
            used.has(i).then_some((*class, kept))
        };
        alive.keys().enumerate().filter_map(left).collect()
    }
}

impl Ways {
    /// Removes the candidates that lose; whether there were any.
    fn round(&mut self) -> bool {
        let (certain, below) = (self.certain(), self.below());
        let reachable: Vec<Set> = (0..self.classes.len()).map(|class| self.reached(Some(class))).collect();
        let least: Vec<f64> =
            self.classes.iter().map(|of| of.iter().map(|w| w.cost).fold(f64::INFINITY, f64::min)).collect();
        let bounds = Bounds { certain, below, reachable, least };
        let mut lost = false;
        for class in 0..self.classes.len() {
            let of = std::mem::take(&mut self.classes[class]);
            let before = of.len();
            self.classes[class] = bounds.best(class, of);
            lost |= self.classes[class].len() < before;
        }
        lost
    }

    /// For each class, the classes that are computed where it is, whatever is chosen; it is one of them.
    fn certain(&self) -> Vec<Set> {
        let len = self.classes.len();
        let own = |class| {
            let mut set = Set::of(len);
            set.insert(class);
            set
        };
        let mut certain: Vec<Set> = (0..len).map(own).collect();
        loop {
            let mut changed = false;
            for class in 0..len {
                let each = self.classes[class].iter().map(|way| together(&certain, &way.needs, len));
                let common = each.reduce(|mut a, b| {
                    a.intersect(&b);
                    a
                });
                let mut set = own(class);
                set.unite(&common.unwrap_or_else(|| Set::of(len)));
                changed |= set != certain[class];
                certain[class] = set;
            }
            if !changed {
                return certain;
            }
        }
    }

    /// The classes that are reached from one, or from the roots.
    fn reached(&self, from: Option<usize>) -> Set {
        self.reached_without(from.map_or_else(|| self.roots.clone(), |class| vec![class]), None)
    }

    fn reached_without(&self, mut todo: Vec<usize>, without: Option<usize>) -> Set {
        let mut seen = Set::of(self.classes.len());
        while let Some(class) = todo.pop() {
            if !seen.has(class) && without != Some(class) {
                seen.insert(class);
                todo.extend(
                    self.classes[class].iter().flat_map(|way| &way.needs).copied().filter(|need| !seen.has(*need)),
                );
            }
        }
        seen
    }

    /// For each class, the others that are computed for it alone: no root reaches them another way.
    fn below(&self) -> Vec<Set> {
        let len = self.classes.len();
        let of = |class: usize| {
            let others = self.reached_without(self.roots.clone(), Some(class));
            let mut below = Set::of(len);
            (0..len).filter(|i| *i != class && !others.has(*i)).for_each(|i| below.insert(i));
            below
        };
        (0..len).map(of).collect()
    }
}

/// All that is certain with these classes.
fn together(certain: &[Set], needs: &[usize], len: usize) -> Set {
    let mut all = Set::of(len);
    needs.iter().for_each(|need| all.unite(&certain[*need]));
    all
}

/// What is known before a round.
struct Bounds {
    certain: Vec<Set>,
    below: Vec<Set>,
    reachable: Vec<Set>,
    /// Least cost of each class itself.
    least: Vec<f64>,
}

impl Bounds {
    /// The candidates of a class without those that lose.
    fn best(&self, class: usize, mut of: Vec<Way>) -> Vec<Way> {
        of.sort_by(|a, b| a.needs.len().cmp(&b.needs.len()).then(a.cost.total_cmp(&b.cost)));
        let mut kept: Vec<(Way, Set)> = vec![];
        for way in of {
            let certain = together(&self.certain, &way.needs, self.certain.len());
            if kept.iter().any(|(other, _)| self.beats(class, other, &way, &certain)) {
                continue;
            }
            kept.retain(|(other, certain)| !self.beats(class, &way, other, certain));
            kept.push((way, certain));
        }
        let mut kept: Vec<Way> = kept.into_iter().map(|(way, _)| way).collect();
        kept.sort_by_key(|way| way.index);
        kept
    }

    /// Whether `b` beats `a`, with which `certain` are computed.
    fn beats(&self, class: usize, b: &Way, a: &Way, certain: &Set) -> bool {
        if !b.needs.iter().all(|need| certain.has(*need)) || !b.requires.is_subset(&a.requires) {
            return false;
        }
        if b.cost < a.cost {
            return true;
        }
        let saved = |x: &usize| self.below[class].has(*x) && !b.needs.iter().any(|need| self.reachable[*need].has(*x));
        b.cost < a.cost + certain.iter().filter(saved).map(|x| self.least[x]).sum::<f64>()
    }
}
