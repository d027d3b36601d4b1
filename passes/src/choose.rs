//! Which stored form everything has: one exact program over all functions.
//!
//! A function's kernels are costed as often as it is called, and the error of a weight counts for
//! every tensor that the calls bind, so a budget couples the functions. Their extraction problems
//! are therefore joined into one ([`Problem::joined`]) with a decision for each weight and state:
//! the solution takes forms, fusions and kernels together. That is exact without enumerating
//! the Pareto fronts of the functions, and the fronts would have to be large: 4 groups of weights
//! in 6 formats are 1296 combinations for a layer. Afterwards each function is extracted for each
//! regime with the taken forms only, as if there had been no choice.

use crate::damage::{self, Aim, Offer};
use crate::egraph::{Form, Graph, Term};
use crate::extract::{Alternative, Decision, Problem, Scope, Solved, Stores};
use crate::measure::Measured;
use crate::schedule::state_param;
use crate::storage::{Matrix, Storages};
use crate::{Options, PassError, Stored, regimes, storage};
use egg::Id;
use llmcc_ir::graph::{Arg, F32, Func, Module};
use llmcc_ir::plan::WeightExpr;
use llmcc_ir::quant::Format;
use std::collections::{BTreeMap, BTreeSet};

/// Decisions named where a budget cannot be kept.
const NAMED: usize = 3;
/// Where the fewest bytes are wanted, they count as the time in which a memory of 100 GB/s reads them.
const SECONDS_PER_BYTE: f64 = 1e-11;
/// Damages are measured to some percent, so that no program has to be better than this.
const TOLERANCE: f64 = 0.005;
/// So much of the time of kernels decides among programs of about as many bytes, or as much damage.
const SPEED: f64 = 1e-3;

/// A function whose forms are chosen.
pub struct Choosing<'a> {
    /// The function.
    pub func: &'a Func,
    /// With all kernels.
    pub graph: &'a Graph,
    /// Classes to compute.
    pub roots: &'a [Id],
    /// Its matrices.
    pub matrices: &'a BTreeMap<Id, Matrix>,
    /// Their forms.
    pub storages: &'a Storages,
}

/// The choice.
pub struct Chosen {
    /// Forms that each function may use: the taken ones, and all about which there was nothing to
    /// decide.
    pub stores: Vec<Stores>,
    /// One entry per decision.
    pub report: Vec<Stored>,
    /// √(Σ nᵢ·eᵢ² / Σ nᵢ) over the parameters that products read.
    pub error: f64,
    /// Sum of the predicted damages of the forms taken, where it is bounded.
    pub damage: Option<f64>,
    /// Everything that could have been chosen for matrices.
    pub offers: Vec<Offer>,
    /// How often the program was solved.
    pub solutions: usize,
}

/// The subject of a decision: the tensors that are stored alike, or the states that are cached
/// alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Matrix(BTreeSet<WeightExpr>),
    Cache(BTreeSet<usize>),
}

/// A decision in the making.
struct Open {
    subject: Subject,
    name: String,
    /// Elements of all its matrices.
    elements: f64,
    /// Elements of a row of these.
    columns: usize,
    /// By ascending error.
    options: Vec<Choice>,
}

/// A form that a value may have.
struct Choice {
    form: Form,
    /// Relative error.
    error: f64,
    /// Its part of Σ nᵢ·eᵢ² / Σ nᵢ.
    square: f64,
    /// Its predicted damage, where that is bounded.
    damage: f64,
    /// Classes of the form, in the joint problem.
    stores: Vec<Id>,
}

impl Choice {
    /// Its share of the budget, 1 being all of it: beyond that, and infinite, where a budget is so
    /// small that its square is 0.
    fn share(&self, opts: &Options) -> f64 {
        match (&opts.damage, opts.error_budget) {
            (Some(damage), _) => damage.share(self.damage),
            (None, Some(most)) if self.square > 0.0 => self.square / most / most,
            (None, _) => 0.0,
        }
    }
}

/// Chooses the forms of all functions; `None` when there is nothing to choose.
///
/// # Errors
/// [`PassError::Budget`] when no program keeps to the budget.
pub fn choose(
    module: &Module,
    opts: &Options,
    funcs: &[Choosing<'_>],
    measured: &Measured,
) -> Result<Option<Chosen>, PassError> {
    let all: Vec<BTreeMap<Id, Matrix>> = funcs.iter().map(|f| f.matrices.clone()).collect();
    let parameters = storage::parameters(module, &all).max(1.0);
    let open = open_decisions(module, opts, funcs, measured, parameters);
    if open.is_empty() {
        return Ok(None);
    }
    let problem = joint_problem(module, opts, funcs, &open);
    let solved = match problem.solve(&BTreeSet::new()) {
        Ok(solved) => solved,
        Err(e) => return Err(out_of_reach(module, problem, opts, &open).unwrap_or(e)),
    };
    let taken: Vec<Option<usize>> = open.iter().map(|o| taken(&problem, &solved, o)).collect();
    let square: f64 = squares(&open, &taken).sum();
    let damage = || open.iter().zip(&taken).filter_map(|(o, t)| Some(o.options[(*t)?].damage)).sum();
    Ok(Some(Chosen {
        stores: funcs.iter().enumerate().map(|(at, f)| allowed(at, f.graph, &open, &taken)).collect(),
        report: report(&problem, &solved, &open, &taken, opts.explain.alternatives),
        error: square.sqrt(),
        damage: opts.damage.as_ref().map(|_| damage()),
        offers: open.iter().filter_map(Open::offer).collect(),
        solutions: problem.solutions(),
    }))
}

/// The terms of Σ nᵢ·eᵢ² / Σ nᵢ for the forms taken.
fn squares<'a>(open: &'a [Open], taken: &'a [Option<usize>]) -> impl Iterator<Item = f64> + 'a {
    open.iter().zip(taken).filter_map(|(o, t)| Some(o.options[(*t)?].square))
}

/// The error of a budget that cannot be kept.
fn out_of_reach(module: &Module, mut problem: Problem, opts: &Options, open: &[Open]) -> Option<PassError> {
    let budget = opts.error_budget?;
    for (d, o) in problem.decisions.iter_mut().zip(open) {
        d.options.iter_mut().zip(&o.options).for_each(|(a, c)| a.error = c.square);
    }
    let solved = problem.least_error().ok()?;
    let taken: Vec<Option<usize>> = open.iter().map(|o| taken(&problem, &solved, o)).collect();
    let least = squares(open, &taken).sum::<f64>().sqrt();
    let mut parts: Vec<(&Open, &Choice)> =
        open.iter().zip(&taken).filter_map(|(o, t)| Some((o, &o.options[(*t)?]))).collect();
    parts.retain(|(_, c)| c.square > 0.0);
    parts.sort_by(|a, b| b.1.square.total_cmp(&a.1.square));
    let name = |(o, c): &(&Open, &Choice)| format!("{} ({} {})", o.tensors(module), c.form, rounded_up(c.error));
    let worst = parts.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    (least > budget).then(|| PassError::Budget { least: rounded_up(least), worst })
}

/// Three digits, not less than the number: a budget that may be asked for.
fn rounded_up(x: f64) -> String {
    let text = format!("{x:.2e}");
    if text.parse::<f64>().is_ok_and(|t| t < x) {
        format!("{:.2e}", x + 10f64.powi(x.log10().floor() as i32 - 2))
    } else {
        text
    }
}

/// All values that have several forms; values of different functions that are stored alike are one.
fn open_decisions(
    module: &Module,
    opts: &Options,
    funcs: &[Choosing<'_>],
    measured: &Measured,
    parameters: f64,
) -> Vec<Open> {
    let mut open: Vec<Open> = vec![];
    for (at, f) in funcs.iter().enumerate() {
        // (A form that a bound of damage leaves alone is reported, too.)
        let is_open = |forms: &[(Format, Option<F32>)]| {
            forms.len() > 1 || opts.damage.is_some() && forms.iter().any(|(_, error)| error.is_some())
        };
        for (class, forms) in f.storages.packed.iter().filter(|(_, forms)| is_open(forms)) {
            let Some(m) = f.matrices.get(class) else { continue };
            let elements = (m.elements * m.bound.len()) as f64;
            let options = forms.iter().filter_map(|(format, _)| {
                let error = m.error(*format, measured)?;
                let square = error * error * elements / parameters;
                let damage = opts.damage.as_ref().map_or(0.0, |d| d.of(&m.bound, *format, error, elements));
                let choice = option(at, f.graph, *class, Form::Packed(*format), error)?;
                Some(Choice { square, damage, ..choice })
            });
            let name = format!("{}.{}", f.func.name, name_of(&m.expr, f.func));
            let subject = Subject::Matrix(m.bound.clone());
            let options = options.collect();
            join(&mut open, Open { subject, name, elements, columns: m.columns, options });
        }
        for (class, forms) in f.storages.cached.iter().filter(|(_, forms)| forms.len() > 1) {
            let options = forms.iter().filter_map(|(dtype, error)| {
                option(at, f.graph, *class, Form::Cached(*dtype), error.map_or(0.0, |e| e.get().into()))
            });
            let states = states(module, at, f.graph, *class);
            join(
                &mut open,
                Open {
                    subject: Subject::Cache(states),
                    name: format!("{}.cache", f.func.name),
                    elements: 0.0,
                    columns: 1,
                    options: options.collect(),
                },
            );
        }
    }
    open
}

fn option(at: usize, g: &Graph, class: Id, form: Form, error: f64) -> Option<Choice> {
    let store = |t: &Term| matches!(t, Term::Store(f, _, [of]) if *f == form && g.find(*of) == class);
    let found = g.classes().filter(|c| c.nodes.iter().any(store)).map(|c| c.id).min()?;
    Some(Choice { form, error, square: 0.0, damage: 0.0, stores: vec![Problem::joint_id(at, found)] })
}

/// Adds a decision; joins it with those about the same tensors or states.
fn join(open: &mut Vec<Open>, mut new: Open) {
    let same = |a: &Subject, b: &Subject| match (a, b) {
        (Subject::Cache(x), Subject::Cache(y)) => !x.is_disjoint(y),
        _ => a == b,
    };
    while let Some(i) = open.iter().position(|o| same(&o.subject, &new.subject)) {
        let old = open.remove(i);
        if let (Subject::Cache(all), Subject::Cache(more)) = (&mut new.subject, &old.subject) {
            all.extend(more);
        }
        for o in &mut new.options {
            o.stores.extend(old.options.iter().filter(|p| p.form == o.form).flat_map(|p| p.stores.iter().copied()));
        }
    }
    open.push(new);
}

/// The states that the calls of a function bind to the parameter which `class` updates.
fn states(module: &Module, func: usize, g: &Graph, class: Id) -> BTreeSet<usize> {
    let Some(param) = state_param(g, class) else { return BTreeSet::new() };
    let bound = module.calls().filter(|c| c.func == func).filter_map(|c| c.args.get(param));
    bound.filter_map(|a| if let Arg::State(s) = a { Some(*s) } else { None }).collect()
}

fn joint_problem(module: &Module, opts: &Options, funcs: &[Choosing<'_>], open: &[Open]) -> Problem {
    let aim = opts.damage.as_ref().map(|d| d.aim).unwrap_or_default();
    let speed = if aim == Aim::Fastest { 1.0 } else { SPEED };
    let part = |(at, f): (usize, &Choosing<'_>)| {
        let contested: Stores =
            classes(f.graph).filter(|id| open.iter().any(|o| o.has(Problem::joint_id(at, *id)))).collect();
        let calls = module.calls_once().filter(|c| c.func == at).count();
        let scope = Scope { target: opts.target, env: regimes(opts.target)[0].env, only: None, open: &contested };
        (Problem::new(f.graph, f.roots, scope), calls as f64 * speed)
    };
    let mut problem = Problem::joined(funcs.iter().enumerate().map(part).collect());
    let alternative = |o: &Open, c: &Choice| {
        let bytes = o.bytes(c.form);
        let (error, seconds) = match aim {
            Aim::Fastest => (c.share(opts), 0.0),
            Aim::Smallest => (c.share(opts), bytes * SECONDS_PER_BYTE),
            // Nats count as seconds.
            Aim::LeastDamage { bytes: most } => (bytes / most.max(1.0), c.damage),
        };
        Alternative { stores: c.stores.clone(), error, seconds }
    };
    problem.tolerance = if opts.damage.is_some() { TOLERANCE } else { 0.0 };
    let decision = |o: &Open| Decision { options: o.options.iter().map(|c| alternative(o, c)).collect() };
    problem.decisions = open.iter().map(decision).collect();
    problem
}

fn classes(g: &Graph) -> impl Iterator<Item = Id> {
    g.classes().map(|c| c.id)
}

impl Open {
    fn has(&self, store: Id) -> bool {
        self.options.iter().any(|o| o.stores.contains(&store))
    }

    /// Bytes of weights in a form, but for rows that fill up the last block.
    fn bytes(&self, form: Form) -> f64 {
        match form {
            Form::Packed(format) => damage::bytes(self.elements, self.columns, format),
            Form::Cached(_) => 0.0,
        }
    }

    /// The weights it is about.
    fn weights(&self) -> BTreeSet<WeightExpr> {
        match &self.subject {
            Subject::Matrix(bound) => bound.clone(),
            Subject::Cache(_) => BTreeSet::new(),
        }
    }

    /// The offer that it is; `None` for a cache.
    fn offer(&self) -> Option<Offer> {
        let form = |c: &Choice| match c.form {
            Form::Packed(format) => Some((format, c.error)),
            Form::Cached(_) => None,
        };
        match &self.subject {
            Subject::Cache(_) => None,
            Subject::Matrix(bound) => Some(Offer {
                subject: self.name.clone(),
                weights: bound.clone(),
                elements: self.elements,
                columns: self.columns,
                forms: self.options.iter().filter_map(form).collect(),
            }),
        }
    }

    /// The tensors it is about, in few words.
    fn tensors(&self, module: &Module) -> String {
        let weights = self.weights();
        let Some(first) = weights.first() else { return self.name.clone() };
        let name = crate::pack::leaf_names(first, module);
        if weights.len() == 1 { name } else { format!("{name} and {} like it", weights.len() - 1) }
    }
}

/// The option of a decision that a solution uses.
fn taken(problem: &Problem, solved: &Solved, open: &Open) -> Option<usize> {
    let used = |store: &Id| solved.chosen.iter().any(|(class, i)| problem.classes[class][*i].requires.contains(store));
    open.options.iter().position(|o| o.stores.iter().any(used))
}

/// Classes of stored forms of function `at` except those that lost a decision.
fn allowed(at: usize, g: &Graph, open: &[Open], taken: &[Option<usize>]) -> Stores {
    let lost = |id: Id| {
        let id = Problem::joint_id(at, id);
        open.iter().zip(taken).any(|(o, t)| o.has(id) && t.is_none_or(|t| !o.options[t].stores.contains(&id)))
    };
    let is_store = |c: &&egg::EClass<Term, crate::egraph::Data>| c.nodes.iter().any(|t| matches!(t, Term::Store(..)));
    g.classes().filter(is_store).map(|c| c.id).filter(|id| !lost(*id)).collect()
}

/// One entry per decision that the solution takes, with the fastest program that takes another if
/// `alternatives`.
fn report(
    problem: &Problem,
    solved: &Solved,
    open: &[Open],
    taken_by: &[Option<usize>],
    alternatives: bool,
) -> Vec<Stored> {
    let mut out = vec![];
    for (o, at) in open.iter().zip(taken_by) {
        let Some(at) = *at else { continue };
        let Choice { form, error, stores, .. } = &o.options[at];
        let other = if alternatives { without(problem, stores) } else { None };
        let runner_up = other.as_ref().map(|other| changes(problem, other, open, taken_by)).unwrap_or_default();
        let gap = other.map_or(0.0, |other| other.seconds - solved.seconds);
        out.push(Stored {
            subject: o.name.clone(),
            form: form.to_string(),
            error: *error,
            weights: o.weights(),
            runner_up,
            gap,
        });
    }
    out
}

/// The fastest program within the budget that does not use these forms.
fn without(problem: &Problem, stores: &[Id]) -> Option<Solved> {
    let uses = |c: &crate::extract::Candidate| c.requires.iter().any(|r| stores.contains(r));
    let of_class = |(class, candidates): (&Id, &Vec<crate::extract::Candidate>)| {
        let class = *class;
        candidates.iter().enumerate().filter(|(_, c)| uses(c)).map(move |(i, _)| (class, i)).collect::<Vec<_>>()
    };
    problem.solve(&problem.classes.iter().flat_map(of_class).collect()).ok()
}

/// The decisions in which `other` differs.
fn changes(problem: &Problem, other: &Solved, open: &[Open], taken_by: &[Option<usize>]) -> String {
    let mut parts = vec![];
    for (o, before) in open.iter().zip(taken_by) {
        let now = taken(problem, other, o);
        if now != *before
            && let Some(now) = now
        {
            parts.push(format!("{} {}", o.name, o.options[now].form));
        }
    }
    parts.join(", ")
}

/// Names of the parameters in an expression.
fn name_of(e: &WeightExpr, func: &Func) -> String {
    let mut names: Vec<&str> = vec![];
    e.leaves(&mut |i| names.extend(func.params.get(i).map(|p| p.name.as_str())));
    names.dedup();
    names.join("·")
}
