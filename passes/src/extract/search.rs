//! Branch and bound over the candidates themselves: for problems on which the solver's arithmetic
//! fails.
//!
//! It decides class by class, cheapest candidate first, and leaves a branch when what is paid and
//! the least that open classes cost reaches the best solution. Exact and without any tolerance, but
//! exponential where little can be bounded.

use super::{Alive, Chosen, Goal, Problem, Solved};
use crate::PassError;
use egg::Id;
use std::collections::BTreeMap;

/// Decisions after which it gives up: some seconds.
const MOST: usize = 2_000_000;

/// The best solution with candidates of `alive`.
///
/// # Errors
/// There is none, or it would take too long to find.
pub(super) fn search(p: &Problem, alive: &Alive, goal: Goal) -> Result<Solved, PassError> {
    let least = |(class, candidates): (&Id, &Vec<usize>)| {
        (*class, candidates.iter().map(|i| p.classes[class][*i].seconds).fold(f64::INFINITY, f64::min))
    };
    let least = alive.iter().map(least).collect();
    let mut search = Search { p, alive, goal, least, best: None, steps: 0 };
    search.visit(&mut Chosen::new(), p.roots.clone());
    match search.best {
        _ if search.steps > MOST => Err(PassError::Extract("choosing them takes too long".into())),
        Some((_, solved)) => Ok(solved),
        None => Err(PassError::Extract("no set of kernels keeps to all constraints".into())),
    }
}

struct Search<'a> {
    p: &'a Problem,
    alive: &'a Alive,
    goal: Goal,
    /// Cost of the cheapest candidate of each class.
    least: BTreeMap<Id, f64>,
    /// With what is minimal.
    best: Option<(f64, Solved)>,
    steps: usize,
}

impl Search<'_> {
    /// Decides the last of the open classes, then the others.
    fn visit(&mut self, chosen: &mut Chosen, mut open: Vec<Id>) {
        self.steps += 1;
        open.retain(|class| !chosen.contains_key(class));
        open.sort_unstable();
        open.dedup();
        if self.steps > MOST || !self.p.keeps_decisions(chosen, self.goal) || self.bound(chosen, &open) {
            return;
        }
        let Some(class) = open.pop() else { return self.leaf(chosen) };
        let mut candidates = self.alive.get(&class).cloned().unwrap_or_default();
        candidates.sort_by(|a, b| self.p.classes[&class][*a].seconds.total_cmp(&self.p.classes[&class][*b].seconds));
        for i in candidates {
            chosen.insert(class, i);
            let more = open.iter().chain(&self.p.classes[&class][i].needs).copied().collect();
            self.visit(chosen, more);
            chosen.remove(&class);
        }
    }

    /// Whether nothing better than the best is left.
    fn bound(&self, chosen: &Chosen, open: &[Id]) -> bool {
        let Some((best, _)) = &self.best else { return false };
        let value = match self.goal {
            Goal::Seconds => {
                self.paid(chosen)
                    + open.iter().map(|c| self.least.get(c).copied().unwrap_or(f64::INFINITY)).sum::<f64>()
            }
            Goal::Error => self.p.taken(chosen).map(|a| a.error).sum(),
        };
        value >= *best
    }

    fn paid(&self, chosen: &Chosen) -> f64 {
        chosen.iter().map(|(class, i)| self.p.classes[class][*i].seconds).sum()
    }

    fn leaf(&mut self, chosen: &Chosen) {
        if self.p.cycle(chosen).is_some() {
            return;
        }
        let seconds = self.paid(chosen);
        let value = match self.goal {
            Goal::Seconds => seconds,
            Goal::Error => self.p.taken(chosen).map(|a| a.error).sum(),
        };
        self.best = Some((value, Solved { chosen: chosen.clone(), seconds }));
    }
}
