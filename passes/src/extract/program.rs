//! A problem as a 0/1 program of the solver's.

use super::{Alive, Failure, Goal, INTEGRAL, Kernels, MARGIN, Problem, SOLUTION, Solved};
use egg::Id;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint, default_solver,
    variable,
};
use std::collections::BTreeMap;

struct Program {
    vars: ProblemVariables,
    /// Of each candidate.
    x: BTreeMap<(Id, usize), Variable>,
    /// Of each option of each decision.
    taken: Vec<Vec<Variable>>,
    objective: Expression,
}

impl Problem {
    /// `None` when relaxed kernels are not all taken or left as a whole.
    pub(super) fn solve_with(
        &self,
        alive: &Alive,
        cuts: &[Vec<(Id, usize)>],
        goal: Goal,
        kernels: Kernels,
        unit: f64,
    ) -> Result<Option<Solved>, Failure> {
        let Program { vars, x, taken, objective } = self.program(alive, goal, kernels, unit);
        let of_class = |class: Id| -> Expression {
            x.range((class, 0)..=(class, usize::MAX)).map(|(_, v)| Expression::from(*v)).sum()
        };
        let mut model = vars.minimise(objective).using(default_solver);
        for root in &self.roots {
            model.add_constraint(constraint!(of_class(*root) >= 1.0));
        }
        // At most one node of a class is chosen, so all its nodes that need a class share one
        // constraint: this form's relaxation is almost always integral.
        for (class, candidates) in alive {
            let mut users: BTreeMap<Id, Expression> = BTreeMap::new();
            for i in candidates {
                let Some(v) = x.get(&(*class, *i)) else { continue };
                for need in &self.classes[class][*i].needs {
                    *users.entry(*need).or_default() += *v;
                }
            }
            for (need, sum) in users {
                model.add_constraint(constraint!(of_class(need) - sum >= 0.0));
            }
        }
        self.constrain_decisions(&taken, goal, alive, &x, &mut |c| {
            model.add_constraint(c);
        });
        for cut in cuts {
            let sum: Expression = cut.iter().filter_map(|key| x.get(key)).map(|v| Expression::from(*v)).sum();
            model.add_constraint(constraint!(sum <= cut.len() as f64 - 1.0));
        }
        let solution = model.solve().map_err(|e| match e {
            ResolutionError::Infeasible => Failure::Infeasible,
            _ => Failure::Solver,
        })?;
        if x.values().any(|v| (0.5 - (solution.value(*v) - 0.5).abs()).abs() > INTEGRAL) {
            return Ok(None);
        }
        let picked = |class: Id| {
            x.range((class, 0)..=(class, usize::MAX)).find(|(_, v)| solution.value(**v) > 0.5).map(|((_, i), _)| *i)
        };
        let solved = self.reachable(picked).map_err(|_| Failure::Solver)?;
        if self.keeps_decisions(&solved.chosen, goal) { Ok(Some(solved)) } else { Err(Failure::Solver) }
    }

    /// Variables and what is minimal.
    fn program(&self, alive: &Alive, goal: Goal, kernels: Kernels, unit: f64) -> Program {
        let mut vars = ProblemVariables::new();
        let mut x: BTreeMap<(Id, usize), Variable> = BTreeMap::new();
        let mut objective = Expression::from(0.0);
        // Equal costs: the more exact form, then the lower index.
        let tie = if self.decisions.is_empty() { 1e-7 } else { 1e-8 };
        let scale = SOLUTION / unit;
        let errors = self.decisions.iter().flat_map(|d| &d.options).map(|a| a.error).fold(0.0, f64::max);
        let errors = if errors > 0.0 { SOLUTION / errors } else { 0.0 };
        for (class, candidates) in alive {
            for i in candidates {
                let v = vars.add(match kernels {
                    Kernels::Binary => variable().binary(),
                    Kernels::Relaxed => variable().min(0.0).max(1.0),
                });
                x.insert((*class, *i), v);
                // The index breaks ties the same way everywhere.
                let seconds = if goal == Goal::Seconds { self.classes[class][*i].seconds } else { 0.0 };
                objective += v * (seconds * scale + tie * *i as f64);
            }
        }
        let mut taken: Vec<Vec<Variable>> = vec![];
        for d in &self.decisions {
            taken.push(d.options.iter().map(|_| vars.add(variable().binary())).collect());
            for (rank, (a, v)) in d.options.iter().zip(&taken[taken.len() - 1]).enumerate() {
                objective += *v * if goal == Goal::Error { a.error * errors } else { 1e-5 * rank as f64 };
            }
        }
        Program { vars, x, taken, objective }
    }

    /// Constraints of the decisions; `taken` has a variable for each option.
    fn constrain_decisions(
        &self,
        taken: &[Vec<Variable>],
        goal: Goal,
        alive: &Alive,
        x: &BTreeMap<(Id, usize), Variable>,
        add: &mut dyn FnMut(good_lp::Constraint),
    ) {
        let mut option_of: BTreeMap<Id, Variable> = BTreeMap::new();
        let mut spent = Expression::from(0.0);
        for (d, vars) in self.decisions.iter().zip(taken) {
            add(constraint!(vars.iter().map(|v| Expression::from(*v)).sum::<Expression>() <= 1.0));
            for (a, v) in d.options.iter().zip(vars) {
                option_of.extend(a.stores.iter().map(|s| (*s, *v)));
                if a.error <= self.budget {
                    spent += *v * a.error;
                }
            }
        }
        // A class again needs one constraint only for each option.
        for (class, candidates) in alive {
            let mut users: BTreeMap<Id, Expression> = BTreeMap::new();
            for i in candidates {
                let Some(v) = x.get(&(*class, *i)) else { continue };
                for store in &self.classes[class][*i].requires {
                    *users.entry(*store).or_default() += *v;
                }
            }
            for (store, sum) in users {
                let Some(option) = option_of.get(&store) else { continue };
                add(constraint!(*option - sum >= 0.0));
            }
        }
        if goal == Goal::Seconds && !self.decisions.is_empty() {
            add(constraint!(spent <= (1.0 - MARGIN) * self.budget));
        }
    }
}
