//! A problem as a sum of functions of few variables.

use super::budget::Failure;
use super::eliminate::{Network, Prices, Values, Weighed};
use super::problem::{Alive, Alternative, Cut, Decision, Goal, MARGIN, Problem, SOLUTION};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// The variables of a class.
struct Class {
    /// 0: it is not computed; otherwise by which candidate of those that are possible.
    how: usize,
    /// Whether it is computed, as its readers ask. Its own variable, since tables of two values are
    /// small.
    computed: usize,
    /// The variable of the decision whose values each leave the fewest candidates, if any leaves
    /// fewer. Possible candidates are listed for each of its values, so that `how` has few.
    decision: Option<usize>,
    /// Possible candidates by value of the decision; once only if there is none.
    possible: Vec<Vec<usize>>,
}

impl Class {
    /// The variables that say which candidate is taken.
    fn scope(&self) -> Vec<usize> {
        [self.how].into_iter().chain(self.decision).collect()
    }

    /// The candidate that values of these variables mean.
    fn candidate(&self, values: &[usize]) -> Taken {
        let possible = &self.possible[if self.decision.is_some() { values[1] } else { 0 }];
        match values[0].checked_sub(1) {
            None => Taken::None,
            Some(at) => possible.get(at).map_or(Taken::Impossible, |i| Taken::Index(*i)),
        }
    }
}

/// The candidate that computes a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    None,
    Index(usize),
    Impossible,
}

impl Problem {
    /// The cheapest candidates, `unit` being a time of the same order as that of the solution.
    ///
    /// # Errors
    /// There are none, or it takes too long.
    pub(super) fn eliminate(
        &self,
        alive: &Alive,
        cuts: &[Cut],
        goal: Goal,
        unit: f64,
    ) -> Result<BTreeMap<Id, usize>, Failure> {
        let mut net = Network::default();
        let taken = self.decisions.iter().map(|d| self.add_decision(&mut net, d, goal, unit)).collect();
        let requirements = Requirements { p: self, requires: self.implied(alive), taken };
        let classes: BTreeMap<Id, Class> =
            alive.iter().map(|(class, of)| (*class, requirements.class(&mut net, *class, of))).collect();
        for (class, variables) in &classes {
            requirements.add_costs(&mut net, *class, variables, |i| self.cost(*class, i, goal, unit));
            requirements.add_needs(&mut net, *class, variables, &classes);
            requirements.add_requirements(&mut net, *class, variables);
        }
        cuts.iter().for_each(|cut| requirements.add_cut(&mut net, cut, &classes));
        let tree = net.tree().ok_or(Failure::Intricate)?;
        let Values { of, .. } = match goal {
            Goal::Seconds => tree.within(self.budget * (1.0 - MARGIN), self.tolerance)?,
            Goal::Error => tree.minimum(self.error_counts()).ok_or(Failure::Infeasible)?.0,
        };
        let picked = |(class, variables): (&Id, &Class)| {
            let values: Vec<usize> = variables.scope().iter().map(|v| of[*v]).collect();
            let Taken::Index(i) = variables.candidate(&values) else { return None };
            Some((*class, i))
        };
        Ok(classes.iter().filter_map(picked).collect())
    }

    /// A variable: which option is taken; the number of options: none.
    fn add_decision(&self, net: &mut Network, of: &Decision, goal: Goal, unit: f64) -> usize {
        let seconds = |a: &Alternative| if goal == Goal::Seconds { a.seconds * SOLUTION / unit } else { 0.0 };
        let taken = net.variable(of.options.len() + 1);
        net.add(vec![taken], |v| match of.options.get(v[0]) {
            // Equal costs: the more exact form.
            Some(a) => Weighed { cost: seconds(a) + 1e-5 * v[0] as f64, error: a.error },
            None => Weighed::default(),
        });
        taken
    }

    /// Prices where the largest error is as dear as a solution's time is otherwise.
    fn error_counts(&self) -> Prices {
        let largest = self.decisions.iter().flat_map(|d| &d.options).map(|a| a.error).fold(0.0, f64::max);
        Prices { cost: 1.0, error: if largest > 0.0 { SOLUTION / largest } else { 0.0 } }
    }

    /// The stored forms that each candidate requires, itself or by all ways to compute its inputs.
    fn implied(&self, alive: &Alive) -> Requires {
        let own = |class: &Id, i: &usize| self.classes[class][*i].requires.iter().copied().collect::<BTreeSet<Id>>();
        let all = alive.iter().flat_map(|(class, of)| of.iter().map(|i| (*class, *i)));
        let mut requires: Requires = all.map(|(class, i)| ((class, i), own(&class, &i))).collect();
        for _ in 0..IMPLIED {
            let of_class = |class: &Id| {
                let each = alive.get(class).into_iter().flatten().map(|i| requires[&(*class, *i)].clone());
                each.reduce(|a, b| &a & &b).unwrap_or_default()
            };
            let classes: BTreeMap<Id, BTreeSet<Id>> = alive.keys().map(|class| (*class, of_class(class))).collect();
            for ((class, i), requires) in &mut requires {
                let needs = self.classes[class][*i].needs.iter().filter_map(|need| classes.get(need));
                requires.extend(needs.flatten());
            }
        }
        requires
    }
}

/// Stored forms by candidate.
type Requires = BTreeMap<(Id, usize), BTreeSet<Id>>;

/// Kernels through which a requirement is followed.
const IMPLIED: usize = 4;

/// The parts from which a network is made.
struct Requirements<'a> {
    p: &'a Problem,
    requires: Requires,
    /// The variable of each decision.
    taken: Vec<usize>,
}

impl Requirements<'_> {
    /// The variables of a class.
    fn class(&self, net: &mut Network, class: Id, candidates: &[usize]) -> Class {
        let allowed = |d: usize, option: usize| -> Vec<usize> {
            candidates.iter().copied().filter(|i| self.allows(class, *i, d, option)).collect()
        };
        let by_option = |d: usize| (0..=self.p.decisions[d].options.len()).map(|o| allowed(d, o)).collect::<Vec<_>>();
        let most = |possible: &[Vec<usize>]| possible.iter().map(Vec::len).max().unwrap_or(0);
        let none = (None, vec![candidates.to_vec()]);
        let each = self.taken.iter().enumerate().map(|(d, taken)| (Some(*taken), by_option(d)));
        let (decision, possible) = each.fold(none, |a, b| if most(&b.1) < most(&a.1) { b } else { a });
        let values = most(&possible) + 1;
        Class { how: net.variable(values), computed: net.variable(2), decision, possible }
    }

    /// Stored forms, of those that a decision is about, that a candidate requires.
    fn asks(&self, class: Id, index: usize, decision: usize) -> impl Iterator<Item = &Id> {
        let options = &self.p.decisions[decision].options;
        self.requires[&(class, index)].iter().filter(|store| options.iter().any(|a| a.stores.contains(store)))
    }

    /// Whether a candidate can be used when this option of a decision is taken.
    fn allows(&self, class: Id, index: usize, decision: usize, option: usize) -> bool {
        let taken = self.p.decisions[decision].options.get(option);
        self.asks(class, index, decision).all(|store| taken.is_some_and(|a| a.stores.contains(store)))
    }

    fn add_costs(&self, net: &mut Network, class: Id, variables: &Class, cost: impl Fn(usize) -> f64) {
        let root = self.p.roots.contains(&class);
        net.add(variables.scope(), |v| match variables.candidate(v) {
            Taken::Index(i) => Weighed { cost: cost(i), error: 0.0 },
            Taken::None if !root => Weighed::default(),
            Taken::None | Taken::Impossible => Weighed::FORBIDDEN,
        });
        net.forbid(vec![variables.how, variables.computed], |v| (v[0] == 0) == (v[1] == 1));
    }

    fn add_needs(&self, net: &mut Network, class: Id, variables: &Class, classes: &BTreeMap<Id, Class>) {
        let of = |i: &usize| self.p.classes[&class][*i].needs.iter().copied();
        let needs: BTreeSet<Id> = variables.possible.iter().flatten().flat_map(of).collect();
        for need in needs {
            let reads = |v: &[usize]| match variables.candidate(v) {
                Taken::Index(i) => self.p.classes[&class][i].needs.contains(&need),
                Taken::None | Taken::Impossible => false,
            };
            let mut scope = variables.scope();
            let Some(read) = classes.get(&need) else {
                net.forbid(scope, reads);
                continue;
            };
            scope.push(read.computed);
            net.forbid(scope, |v| v[v.len() - 1] == 0 && reads(v));
        }
    }

    /// Requirements of candidates on decisions other than the class's own.
    fn add_requirements(&self, net: &mut Network, class: Id, variables: &Class) {
        let all: BTreeSet<usize> = variables.possible.iter().flatten().copied().collect();
        for d in (0..self.taken.len()).filter(|d| variables.decision != Some(self.taken[*d])) {
            let asks = |i: &usize| {
                let own = &self.p.classes[&class][*i].requires;
                self.asks(class, *i, d).any(|store| own.contains(store))
            };
            if all.iter().any(asks) {
                let mut scope = variables.scope();
                scope.push(self.taken[d]);
                let lacks = |v: &[usize]| match variables.candidate(v) {
                    Taken::Index(i) => !self.allows(class, i, d, v[v.len() - 1]),
                    Taken::None | Taken::Impossible => false,
                };
                net.forbid(scope, lacks);
            }
        }
    }

    /// Forbids candidates together.
    fn add_cut(&self, net: &mut Network, cut: &Cut, classes: &BTreeMap<Id, Class>) {
        let scope: BTreeSet<usize> = cut.iter().flat_map(|(class, _)| classes[class].scope()).collect();
        let scope: Vec<usize> = scope.into_iter().collect();
        let value = |v: &[usize], of: usize| v[scope.binary_search(&of).unwrap_or(0)];
        let chosen = |v: &[usize], (class, i): &(Id, usize)| {
            let of: Vec<usize> = classes[class].scope().into_iter().map(|of| value(v, of)).collect();
            classes[class].candidate(&of) == Taken::Index(*i)
        };
        net.forbid(scope.clone(), |v| cut.iter().all(|c| chosen(v, c)));
    }
}
