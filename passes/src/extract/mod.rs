//! Extraction: the cheapest set of kernels that computes the roots.
//!
//! A chosen kernel needs a chosen kernel in each class it reads, shared classes are paid once, and
//! the sum of predicted seconds is minimal. It is found exactly, by eliminating one class after the
//! other (`eliminate`). Cycles (a class that would need itself) are rare and excluded by a cut when
//! a solution contains one.
//!
//! Where a value may be stored in several forms the problem has [`Decision`]s: at most one option
//! of each is taken, kernels can only use taken ones, and the errors of the taken ones together
//! stay within the budget (`budget`).

mod budget;
mod eliminate;
mod network;
mod order;
mod problem;
mod sums;
#[cfg(test)]
mod tests;

use crate::PassError;
use crate::cost::choose_tiles;
use crate::egraph::{Form, Graph, Term, members, store_of};
use egg::Id;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use problem::{Alive, Cut, Goal, SOLUTION};
pub use problem::{Alternative, Candidate, Chosen, Decision, How, Problem, Scope, Solved, Stores};

/// Times that costs are scaled anew.
const RESCALINGS: usize = 3;

impl Problem {
    /// Collects the candidates reachable from `roots`.
    pub fn new(g: &Graph, roots: &[Id], scope: Scope<'_>) -> Problem {
        let caches = caches(g);
        Problem::with(g, roots, &mut |class| candidates(g, class, scope, &caches))
    }

    /// Several problems as one: their costs times the given factors are summed. Class `i` of
    /// problem `p` becomes [`Problem::joint_id`]`(p, i)`.
    pub fn joined(parts: Vec<(Problem, f64)>) -> Problem {
        let mut joint = Problem::of(BTreeMap::new(), vec![]);
        for (at, (part, factor)) in parts.into_iter().enumerate() {
            let map = |ids: Vec<Id>| -> Vec<Id> { ids.into_iter().map(|id| Problem::joint_id(at, id)).collect() };
            for (class, candidates) in part.classes {
                let moved = candidates.into_iter().map(|c| Candidate {
                    children: map(c.children),
                    needs: map(c.needs),
                    requires: map(c.requires),
                    seconds: c.seconds * factor,
                    how: c.how,
                    node: c.node,
                });
                joint.classes.insert(Problem::joint_id(at, class), moved.collect());
            }
            joint.roots.extend(map(part.roots));
        }
        joint
    }

    /// See [`Problem::joined`].
    pub fn joint_id(problem: usize, class: Id) -> Id {
        Id::from((problem << 20) + usize::from(class))
    }

    fn with(g: &Graph, roots: &[Id], candidates: &mut dyn FnMut(Id) -> Vec<Candidate>) -> Problem {
        let roots: Vec<Id> = roots.iter().map(|r| g.find(*r)).filter(|r| !available(g, *r)).collect();
        let mut classes = BTreeMap::new();
        let mut todo = roots.clone();
        while let Some(class) = todo.pop() {
            if classes.contains_key(&class) {
                continue;
            }
            let candidates = candidates(class);
            todo.extend(candidates.iter().flat_map(|c| c.needs.iter().copied()));
            classes.insert(class, candidates);
        }
        Problem::of(classes, roots)
    }

    /// Without decisions.
    fn of(classes: BTreeMap<Id, Vec<Candidate>>, roots: Vec<Id>) -> Problem {
        Problem { classes, roots, decisions: vec![], budget: 1.0, tolerance: 0.0, solutions: Cell::new(0) }
    }

    /// How often it was solved.
    pub fn solutions(&self) -> usize {
        self.solutions.get()
    }

    /// Solves the problem, without the candidates in `forbidden`.
    ///
    /// # Errors
    /// When a class has no implementation, or no implementation keeps to the budget.
    pub fn solve(&self, forbidden: &BTreeSet<(Id, usize)>) -> Result<Solved, PassError> {
        self.solve_for(forbidden, Goal::Seconds)
    }

    /// The program with the smallest sum of errors, the budget aside.
    ///
    /// # Errors
    /// When a class has no implementation.
    pub fn least_error(&self) -> Result<Solved, PassError> {
        self.solve_for(&BTreeSet::new(), Goal::Error)
    }

    fn solve_for(&self, forbidden: &BTreeSet<(Id, usize)>, goal: Goal) -> Result<Solved, PassError> {
        self.solutions.set(self.solutions.get() + 1);
        let lost = if goal == Goal::Seconds { self.beyond_budget() } else { Stores::new() };
        let usable = |class: Id, i: usize| {
            !forbidden.contains(&(class, i)) && !self.classes[&class][i].requires.iter().any(|r| lost.contains(r))
        };
        let of_class = |(class, candidates): (&Id, &Vec<Candidate>)| {
            (*class, (0..candidates.len()).filter(|i| usable(*class, *i)).collect())
        };
        let alive: Alive = self.classes.iter().map(of_class).collect();
        if lost.is_empty() { self.solve_alive(&alive, goal) } else { self.affordable().solve_alive(&alive, goal) }
    }

    /// The same problem without the forms whose error alone is beyond the budget: the time of a solution grows with the
    /// number of forms.
    fn affordable(&self) -> Problem {
        let mut problem = self.clone();
        problem.decisions.iter_mut().for_each(|d| d.options.retain(|a| a.error <= self.budget));
        problem
    }

    fn solve_alive(&self, alive: &Alive, goal: Goal) -> Result<Solved, PassError> {
        let mut unit = self.unit(alive);
        for _ in 0..RESCALINGS {
            let solved = self.solve_scaled(alive, goal, unit)?;
            if solved.seconds <= 0.0 || solved.seconds >= unit * 0.1 {
                return Ok(solved);
            }
            unit = solved.seconds;
        }
        self.solve_scaled(alive, goal, unit)
    }

    /// Stored forms whose error alone is beyond the budget.
    fn beyond_budget(&self) -> Stores {
        let beyond = self.decisions.iter().flat_map(|d| &d.options).filter(|a| a.error > self.budget);
        beyond.flat_map(|a| a.stores.iter().copied()).collect()
    }

    /// A rough cost of the solution, before one is known: every class once, at its cheapest.
    fn unit(&self, alive: &Alive) -> f64 {
        let least = |(class, candidates): (&Id, &Vec<usize>)| {
            candidates.iter().map(|i| self.classes[class][*i].seconds).fold(f64::INFINITY, f64::min)
        };
        let sum: f64 = alive.iter().map(least).filter(|s| s.is_finite()).sum();
        if sum > 0.0 { sum } else { 1.0 }
    }

    /// A candidate's cost, to be minimised.
    fn cost(&self, class: Id, index: usize, goal: Goal, unit: f64) -> f64 {
        // Equal costs: the more exact form, then the lower index, the same everywhere.
        let tie = if self.decisions.is_empty() { 1e-7 } else { 1e-8 };
        let seconds = if goal == Goal::Seconds { self.classes[&class][index].seconds } else { 0.0 };
        seconds * SOLUTION / unit + tie * index as f64
    }

    fn solve_scaled(&self, alive: &Alive, goal: Goal, unit: f64) -> Result<Solved, PassError> {
        let mut cuts: Vec<Cut> = vec![];
        loop {
            let picked = match self.eliminate(alive, &cuts, goal, unit) {
                Ok(picked) => picked,
                Err(budget::Failure::Infeasible) => {
                    return Err(PassError::Extract("no set of kernels satisfies all constraints".into()));
                }
                Err(budget::Failure::Intricate) => return Err(PassError::Intricate),
            };
            let solved = self.reachable(|class| picked.get(&class).copied())?;
            match self.cycle(&solved.chosen) {
                Some(cut) => cuts.push(cut),
                None => return Ok(solved),
            }
        }
    }

    /// Follows the picks from the roots: the part of a solution that is really used.
    fn reachable(&self, picked: impl Fn(Id) -> Option<usize>) -> Result<Solved, PassError> {
        let (mut chosen, mut seconds) = (Chosen::new(), 0.0);
        let mut todo = self.roots.clone();
        while let Some(class) = todo.pop() {
            if chosen.contains_key(&class) {
                continue;
            }
            let i = picked(class).ok_or_else(|| PassError::Extract(format!("class {class} has no kernel")))?;
            let c = &self.classes[&class][i];
            seconds += c.seconds;
            todo.extend(&c.needs);
            chosen.insert(class, i);
        }
        let used: Stores = chosen.iter().flat_map(|(class, i)| &self.classes[class][*i].requires).copied().collect();
        let taken =
            self.decisions.iter().flat_map(|d| &d.options).filter(|a| a.stores.iter().any(|s| used.contains(s)));
        seconds += taken.map(|a| a.seconds).sum::<f64>();
        Ok(Solved { chosen, seconds })
    }

    /// A cycle among the chosen candidates.
    fn cycle(&self, chosen: &Chosen) -> Option<Vec<(Id, usize)>> {
        fn visit(
            p: &Problem,
            chosen: &Chosen,
            at: Id,
            path: &mut Vec<Id>,
            done: &mut BTreeSet<Id>,
        ) -> Option<Vec<(Id, usize)>> {
            if done.contains(&at) {
                return None;
            }
            if let Some(start) = path.iter().position(|c| *c == at) {
                return Some(path[start..].iter().map(|c| (*c, chosen[c])).collect());
            }
            path.push(at);
            for need in &p.classes[&at][chosen[&at]].needs {
                if let Some(cycle) = visit(p, chosen, *need, path, done) {
                    return Some(cycle);
                }
            }
            path.pop();
            done.insert(at);
            None
        }
        let (mut path, mut done) = (vec![], BTreeSet::new());
        self.roots.iter().find_map(|r| visit(self, chosen, *r, &mut path, &mut done))
    }

    /// Candidates in all.
    pub fn size(&self) -> usize {
        self.classes.values().map(Vec::len).sum()
    }
}

/// Whether a class needs no kernel: parameters, as they are cached too, and weights.
pub fn available(g: &Graph, class: Id) -> bool {
    let c = &g[class];
    let is_param = |c: &egg::EClass<Term, crate::egraph::Data>| c.nodes.iter().any(|t| matches!(t, Term::Param(_)));
    let cached_param = || matches!(store_of(g, class), Some((Form::Cached(_), _, of)) if is_param(&g[of]));
    c.data.weight || is_param(c) || cached_param()
}

/// The cached forms of every attention state.
fn caches(g: &Graph) -> BTreeMap<Id, Vec<Id>> {
    let mut out: BTreeMap<Id, Vec<Id>> = BTreeMap::new();
    let mut classes: Vec<Id> = g.classes().map(|c| c.id).collect();
    classes.sort();
    for class in classes {
        if let Some((Form::Cached(_), _, of)) = store_of(g, class) {
            out.entry(of).or_default().push(class);
        }
    }
    out
}

fn candidates(g: &Graph, class: Id, scope: Scope<'_>, caches: &BTreeMap<Id, Vec<Id>>) -> Vec<Candidate> {
    let allowed = |stores: &[Id]| stores.iter().all(|s| scope.only.is_none_or(|o| o.contains(s)));
    if let Some(forms) = caches.get(&class) {
        let stored = |form: &Id| Candidate {
            how: How::Stored,
            node: None,
            children: vec![*form],
            needs: vec![*form],
            requires: vec![],
            seconds: 0.0,
        };
        return forms.iter().filter(|f| allowed(&[**f])).map(stored).collect();
    }
    let mut out = vec![];
    for (at, term) in members(&g[class]).into_iter().enumerate() {
        let children: Vec<Id> = egg::Language::children(term).iter().map(|c| g.find(*c)).collect();
        let stores = stores(g, class, &children);
        let (how, seconds) = match term {
            Term::Kernel(spec, _) if allowed(&stores) => {
                let mut kernel = spec.kernel.clone();
                let seconds = choose_tiles(&mut kernel, scope.target, scope.env);
                (How::Kernel(Arc::new(kernel)), seconds)
            }
            Term::Proj(i, _) if allowed(&stores) => (How::Proj(*i), 0.0),
            _ => continue,
        };
        let needs: BTreeSet<Id> = children.iter().copied().filter(|c| !available(g, *c)).collect();
        // Kernels that the target cannot schedule have no finite cost.
        if needs.contains(&class) || !seconds.is_finite() {
            continue;
        }
        let requires = stores.into_iter().filter(|s| scope.open.contains(s)).collect();
        let needs = needs.into_iter().collect();
        out.push(Candidate { how, node: Some(at), children, needs, requires, seconds });
    }
    out
}

/// Stored forms that a candidate of `class` uses: those it reads, and its class itself.
pub fn stores(g: &Graph, class: Id, children: &[Id]) -> Vec<Id> {
    let all: BTreeSet<Id> = children.iter().copied().chain([class]).filter(|c| store_of(g, *c).is_some()).collect();
    all.into_iter().collect()
}
