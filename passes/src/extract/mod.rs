//! Extraction: the cheapest set of kernels that computes the roots.
//!
//! A 0/1 program over kernel nodes: a chosen node needs a chosen node in each class it reads, shared classes are paid once, the sum of predicted
//! seconds is minimal. It is solved exactly, after [`presolve`] has reduced it. Cycles (a class that would need itself) are rare and excluded by a cut when a solution
//! contains one.

mod presolve;

use crate::PassError;
use crate::cost::choose_tiles;
use crate::egraph::{Graph, Term};
use egg::Id;
use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, default_solver, variable};
use llmcc_ir::kernel::{Kernel, ParamKind};
use llmcc_ir::quant::Format;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A way to compute a class.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The kernel with its tiles chosen, or which result of another class's kernel.
    pub how: How,
    /// Children of the node.
    pub children: Vec<Id>,
    /// Classes that must be computed first.
    pub needs: Vec<Id>,
    /// Predicted seconds.
    pub seconds: f64,
}

/// See [`Candidate`].
#[derive(Clone, Debug)]
pub enum How {
    /// A launch.
    Kernel(Arc<Kernel>),
    /// A result of the kernel in the child class.
    Proj(usize),
}

/// All candidates of the classes that the roots may need.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Candidates by class.
    pub classes: BTreeMap<Id, Vec<Candidate>>,
    /// Classes to compute.
    pub roots: Vec<Id>,
}

/// The chosen candidate of each computed class.
pub type Chosen = BTreeMap<Id, usize>;

/// Candidates still considered, by class.
type Alive = BTreeMap<Id, Vec<usize>>;

/// A solved problem.
#[derive(Clone, Debug)]
pub struct Solved {
    /// Choices.
    pub chosen: Chosen,
    /// Sum of predicted seconds.
    pub seconds: f64,
}

/// Matrices with their formats that the first regime packed; later regimes read the same.
pub type Matrices = BTreeSet<(Id, Format)>;

impl Problem {
    /// Collects the candidates reachable from `roots` for steps of size `env`.
    pub fn new(g: &Graph, roots: &[Id], target: &TargetSpec, env: Env, only: Option<&Matrices>) -> Problem {
        Problem::with(g, roots, &mut |class| candidates(g, class, target, env, only))
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
        Problem { classes, roots }
    }

    /// Solves the problem, without the candidates in `forbidden`.
    ///
    /// # Errors
    /// When a class has no implementation.
    pub fn solve(&self, forbidden: &BTreeSet<(Id, usize)>) -> Result<Solved, PassError> {
        let of_class = |(class, candidates): (&Id, &Vec<Candidate>)| {
            (*class, (0..candidates.len()).filter(|i| !forbidden.contains(&(*class, *i))).collect())
        };
        let mut alive: Alive = self.classes.iter().map(of_class).collect();
        presolve::reduce(self, &mut alive);
        let mut cuts: Vec<Vec<(Id, usize)>> = vec![];
        loop {
            let solved = self.solve_with(&alive, &cuts)?;
            match self.cycle(&solved.chosen) {
                Some(cut) => cuts.push(cut),
                None => return Ok(solved),
            }
        }
    }

    fn solve_with(&self, alive: &Alive, cuts: &[Vec<(Id, usize)>]) -> Result<Solved, PassError> {
        let mut vars = ProblemVariables::new();
        let mut x: BTreeMap<(Id, usize), Variable> = BTreeMap::new();
        let mut objective = Expression::from(0.0);
        for (class, candidates) in alive {
            for i in candidates {
                let v = vars.add(variable().binary());
                x.insert((*class, *i), v);
                // Microseconds; the index breaks ties the same way everywhere.
                objective += v * (self.classes[class][*i].seconds * 1e6 + 1e-7 * *i as f64);
            }
        }
        let of_class = |class: Id| -> Expression { x.range((class, 0)..=(class, usize::MAX)).map(|(_, v)| Expression::from(*v)).sum() };
        let mut model = vars.minimise(objective).using(default_solver);
        for root in &self.roots {
            model.add_constraint(constraint!(of_class(*root) >= 1.0));
        }
        // At most one node of a class is chosen, so all its nodes that need a class share one constraint: this form's relaxation is almost always integral.
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
        for cut in cuts {
            let sum: Expression = cut.iter().filter_map(|key| x.get(key)).map(|v| Expression::from(*v)).sum();
            model.add_constraint(constraint!(sum <= cut.len() as f64 - 1.0));
        }
        let solution = model.solve().map_err(|e| PassError::Extract(e.to_string()))?;
        let picked = |class: Id| x.range((class, 0)..=(class, usize::MAX)).find(|(_, v)| solution.value(**v) > 0.5).map(|((_, i), _)| *i);
        self.reachable(picked)
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
        Ok(Solved { chosen, seconds })
    }

    /// A cycle among the chosen candidates.
    fn cycle(&self, chosen: &Chosen) -> Option<Vec<(Id, usize)>> {
        fn visit(p: &Problem, chosen: &Chosen, at: Id, path: &mut Vec<Id>, done: &mut BTreeSet<Id>) -> Option<Vec<(Id, usize)>> {
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

/// Whether a class needs no kernel: parameters and weights.
pub fn available(g: &Graph, class: Id) -> bool {
    let c = &g[class];
    c.data.weight || c.nodes.iter().any(|t| matches!(t, Term::Param(_)))
}

fn candidates(g: &Graph, class: Id, target: &TargetSpec, env: Env, only: Option<&Matrices>) -> Vec<Candidate> {
    let mut nodes: Vec<&Term> = g[class].nodes.iter().collect();
    nodes.sort();
    let mut out = vec![];
    for term in nodes {
        let (how, seconds) = match term {
            Term::Kernel(spec, children) => {
                let allowed = |m: (Id, Format)| only.is_none_or(|o| o.contains(&m));
                if !matrices(g, &spec.kernel, children).into_iter().all(allowed) {
                    continue;
                }
                let mut kernel = spec.kernel.clone();
                let seconds = choose_tiles(&mut kernel, target, env);
                (How::Kernel(Arc::new(kernel)), seconds)
            }
            Term::Proj(i, _) => (How::Proj(*i), 0.0),
            Term::Param(_) | Term::Int(_) | Term::Float(_) | Term::Op(..) => continue,
        };
        let children: Vec<Id> = egg::Language::children(term).iter().map(|c| g.find(*c)).collect();
        let needs: BTreeSet<Id> = children.iter().copied().filter(|c| !available(g, *c)).collect();
        if needs.contains(&class) {
            continue;
        }
        out.push(Candidate { how, children, needs: needs.into_iter().collect(), seconds });
    }
    out
}

/// Weight matrices that a kernel reads.
pub fn matrices(g: &Graph, kernel: &Kernel, children: &[Id]) -> Vec<(Id, Format)> {
    let pairs = kernel.params.iter().zip(children);
    pairs.filter_map(|(p, c)| if let ParamKind::Matrix { format, .. } = p.kind { Some((g.find(*c), format)) } else { None }).collect()
}
