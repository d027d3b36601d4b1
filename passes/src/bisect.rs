//! The part of a compilation behind a difference: rewrites, kinds of fusion and approximations are left out one by
//! one, and what remains is evaluated against the graph level.
//!
//! Plans are evaluated by [`llmcc_ir::eval`] as they stand, a kernel after the other, with every rounding that they
//! have; machine code is no part of it. The reference is the graph level in f64, with the keys and values that the
//! module
//! says: f32, where their rounding is to be found.

use crate::delta::ddmin;
use crate::implement::PHASES;
use crate::options::{ActPolicy, Options};
use crate::pack::{PackError, WeightSource, lossless, pack, rows::Rows, weight_offsets};
use crate::pipeline;
use crate::{Compiled, PassError};
use llmcc_ir::eval::{Batch, EvalError, State, TappedRows, eval_module, eval_plan, eval_plan_taps, eval_taps};
use llmcc_ir::graph::{Arg, Call, Module, TAP, Weight};
use llmcc_ir::kernel::Kernel;
use llmcc_ir::kv::KvDType;
use llmcc_ir::plan::{Plan, Storage, WeightExpr};
use llmcc_ir::quant::Format;
use llmcc_ir::state::StateSpec;
use llmcc_ir::tap::Tap;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Differences below this part of the largest number of a row are rounding in f32, whatever the plain program has.
const ROUNDING: f64 = 1e-5;

/// A part of a compilation that can be left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// A rewrite, by its name.
    Rewrite(String),
    /// A phase that makes larger kernels of smaller ones, by its name.
    Kernels(&'static str),
    /// The stored form of weights of the module, in place of f32: of those that have one form, with their name.
    Stored(BTreeSet<usize>, String),
    /// Inputs of products in fewer bits than f32.
    Activations(ActPolicy),
    /// Keys and values in fewer bits than f32.
    Cache(KvDType),
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suspect::Rewrite(name) => write!(f, "rewrite {name}"),
            Suspect::Kernels(name) => write!(f, "kernels of the phase {name}"),
            Suspect::Stored(_, name) => f.write_str(name),
            Suspect::Activations(act) => write!(f, "inputs of products as {act}"),
            Suspect::Cache(dtype) => write!(f, "keys and values as {dtype}"),
        }
    }
}

/// A model, how it is compiled, and tokens.
pub struct Job<'a> {
    /// Graph level, with keys and values in f32 (else their rounding is taken to be right); with an entry `tap` the
    /// first
    /// differing value is found.
    pub module: &'a Module,
    /// One format.
    pub options: &'a Options,
    /// The weights.
    pub source: &'a dyn WeightSource,
    /// The step that is evaluated, from empty states.
    pub batch: &'a Batch,
}

/// A program that was evaluated.
struct Ran {
    compiled: Compiled,
    outputs: Vec<f64>,
}

/// The cause of a difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The suspects that make it together; without any of them it is gone.
    pub suspects: Vec<Suspect>,
    /// The difference that they alone make.
    pub difference: f64,
    /// The first value that products read and that differs.
    pub first: Option<Place>,
    /// Kernels that compute the call of that value, or the one before it: those that the plain program has not.
    pub kernels: Vec<Kernel>,
}

/// A value of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The call, counted from 0, and its function.
    pub call: usize,
    /// See `call`.
    pub func: usize,
    /// The weights that it is multiplied by.
    pub weights: Vec<String>,
    /// Row and column where it differs most.
    pub at: (usize, usize),
    /// There: the value of the graph, and the program's.
    pub values: (f64, f64),
}

/// The result of a search. Differences are relative to the largest number of their row.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Differences beyond this one count.
    pub tolerance: f64,
    /// The difference of the program without any suspect.
    pub plain: f64,
    /// The difference of the program as it is compiled.
    pub whole: f64,
    /// Each suspect alone, the largest difference first; only where the whole program differs.
    pub alone: Vec<(Suspect, f64)>,
    /// The cause, where the whole program differs.
    pub cause: Option<Cause>,
    /// Programs that were compiled and evaluated.
    pub programs: usize,
}

/// Why no cause was found.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    /// A program that must be compiled cannot be.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A weight cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The module or a program cannot be evaluated on the tokens.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

/// Finds the cause of a difference beyond `tolerance`; without one, of a difference that rounding in f32 does not
/// explain: beyond twice that of the program without suspects, which has f32 everywhere. `say` hears of progress.
///
/// # Errors
/// [`BisectError`].
pub fn find(job: &Job<'_>, tolerance: Option<f64>, say: &mut dyn FnMut(&str)) -> Result<Found, BisectError> {
    let weights = job.weights()?;
    let mut search = Search { job, reference: job.reference(&weights)?, programs: 0 };
    let whole = search.run(job.options)?;
    let suspects = job.removable(job.suspects(&whole.compiled));
    let none = search.run(&job.with(&suspects, &[]))?;
    let [whole_difference, plain] = [&whole, &none].map(|ran| search.difference(&ran.outputs));
    let tolerance = tolerance.unwrap_or((2.0 * plain).max(ROUNDING));
    let mut found =
        Found { tolerance, plain, whole: whole_difference, alone: vec![], cause: None, programs: search.programs };
    if whole_difference <= tolerance {
        return Ok(found);
    }
    for suspect in &suspects {
        say(&format!("{suspect} alone"));
        if let Some(difference) = search.try_out(&suspects, std::slice::from_ref(suspect)) {
            found.alone.push((suspect.clone(), difference));
        }
    }
    found.alone.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let behind = match found.alone.first().filter(|(_, difference)| *difference > tolerance) {
        Some((suspect, _)) => vec![suspect.clone()],
        None => ddmin(&suspects, &mut |part| {
            say(&format!("{} of {} suspects together", part.len(), suspects.len()));
            search.try_out(&suspects, part).is_some_and(|difference| difference > tolerance)
        }),
    };
    let ran = search.run(&job.with(&suspects, &behind))?;
    let difference = search.difference(&ran.outputs);
    let first = job.first(&ran.compiled.plan, &weights, tolerance)?;
    let kernels = job.new_kernels(&ran.compiled.plan, &none.compiled.plan, first.as_ref());
    found.cause = Some(Cause { suspects: behind, difference, first, kernels });
    found.programs = search.programs;
    Ok(found)
}

/// A search in progress.
struct Search<'a> {
    job: &'a Job<'a>,
    reference: Vec<f64>,
    programs: usize,
}

impl Search<'_> {
    fn run(&mut self, options: &Options) -> Result<Ran, BisectError> {
        self.programs += 1;
        self.job.run(options)
    }

    /// The difference of the program with some of the suspects; `None` if there is no such program.
    fn try_out(&mut self, all: &[Suspect], with: &[Suspect]) -> Option<f64> {
        let ran = self.run(&self.job.with(all, with)).ok()?;
        Some(self.difference(&ran.outputs))
    }

    fn difference(&self, outputs: &[f64]) -> f64 {
        let columns = self.job.columns();
        apart(&self.reference, outputs, columns).map_or(0.0, |(difference, _)| difference)
    }
}

/// The largest difference of two lists of rows relative to the largest number of its row of the first, and where it is.
/// Infinite where one is no number.
fn apart(want: &[f64], got: &[f64], columns: usize) -> Option<(f64, usize)> {
    let mut worst: Option<(f64, usize)> = None;
    for (row, (want, got)) in want.chunks(columns.max(1)).zip(got.chunks(columns.max(1))).enumerate() {
        let largest = want.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
        for (column, (a, b)) in want.iter().zip(got).enumerate() {
            let by = (a - b).abs() / largest;
            let by = if by.is_nan() { f64::INFINITY } else { by };
            if worst.is_none_or(|(most, _)| by > most) {
                worst = Some((by, row * columns + column));
            }
        }
    }
    worst
}

impl Job<'_> {
    fn columns(&self) -> usize {
        self.module.info.rows(self.module.output()).1
    }

    /// The weights of the module in f32; nothing for those whose numbers the module has.
    fn weights(&self) -> Result<Vec<Vec<f32>>, BisectError> {
        let values = |(i, w): (usize, &Weight)| match w.data {
            Some(_) => Ok(vec![]),
            None => Rows::new(&WeightExpr::Weight(i), self.module, self.source)
                .map(|rows| rows.all())
                .map_err(|e| e.into_error(&w.name).into()),
        };
        self.module.weights.iter().enumerate().map(values).collect()
    }

    /// The outputs of the graph level.
    fn reference(&self, weights: &[Vec<f32>]) -> Result<Vec<f64>, BisectError> {
        let mut states = empty(&self.module.states);
        Ok(eval_module(self.module, &|i| weights[i].clone(), &mut states, self.batch)?)
    }

    fn run(&self, options: &Options) -> Result<Ran, BisectError> {
        let compiled = pipeline::run(self.module, options, None)?;
        let plan = &compiled.plan;
        let packed = self.packed(plan)?;
        let weights: Vec<Cow<'_, [u8]>> = slices(plan, &packed);
        let mut states = empty(&plan.states);
        let outputs = eval_plan(plan, &weights, &mut states, self.batch)?;
        Ok(Ran { outputs: outputs.into_iter().map(f64::from).collect(), compiled })
    }

    fn packed(&self, plan: &Plan) -> Result<Vec<u8>, BisectError> {
        let mut bytes = vec![];
        pack(plan, self.module, self.source, &mut bytes, &mut |_| ())?;
        Ok(bytes)
    }

    /// All that a program has and can be without.
    fn suspects(&self, compiled: &Compiled) -> Vec<Suspect> {
        let applied: BTreeSet<&String> = compiled.stats.iter().flat_map(|s| s.applied.keys()).collect();
        let mut out: Vec<Suspect> = applied.into_iter().map(|name| Suspect::Rewrite(name.clone())).collect();
        out.extend(PHASES.iter().map(|p| Suspect::Kernels(p.name)));
        if self.options.act != ActPolicy::F32 {
            out.push(Suspect::Activations(self.options.act));
        }
        out.extend(compiled.plan.kv().map(|kv| kv.dtype).find(|d| *d != KvDType::F32).map(Suspect::Cache));
        out.extend(self.stored(&compiled.plan));
        out
    }

    /// The weights that lose something in the form that a plan stores them in, by the weights that have one form.
    fn stored(&self, plan: &Plan) -> Vec<Suspect> {
        let mut formats: BTreeMap<usize, BTreeSet<Format>> = BTreeMap::new();
        for w in &plan.weights {
            let Storage::Matrix { format, .. } = w.storage else { continue };
            if !lossless(&w.expr, format, self.module) {
                w.expr.leaves(&mut |i| formats.entry(i).or_default().extend([format]));
            }
        }
        let is_matrix =
            |i: &usize| self.module.weights.get(*i).is_some_and(|w| w.data.is_none() && w.ty.shape.len() > 1);
        let suspect = |group: BTreeSet<usize>| {
            let first = *group.first()?;
            let of_group: BTreeSet<Format> = group.iter().filter_map(|i| formats.get(i)).flatten().copied().collect();
            let formats: Vec<String> = of_group.iter().map(Format::to_string).collect();
            let more = match group.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} like it"),
            };
            let name = format!("{}{more} as {}", self.module.weights[first].name, formats.join(" and "));
            (!formats.is_empty()).then_some(Suspect::Stored(group, name))
        };
        let groups = alike(self.module).into_iter().map(|g| g.into_iter().filter(is_matrix).collect());
        groups.filter_map(suspect).collect()
    }

    /// Those without which, all together, the module can still be compiled: some fusions and rewrites make the only
    /// program that there is.
    fn removable(&self, all: Vec<Suspect>) -> Vec<Suspect> {
        let compiles = |all: &[Suspect]| pipeline::run(self.module, &self.with(all, &[]), None).is_ok();
        if compiles(&all) {
            return all;
        }
        let mut out = vec![];
        for suspect in all {
            out.push(suspect);
            if !compiles(&out) {
                out.pop();
            }
        }
        out
    }

    /// The options with some of the suspects only.
    fn with(&self, all: &[Suspect], some: &[Suspect]) -> Options {
        let mut options = self.options.clone();
        for suspect in all.iter().filter(|s| !some.contains(s)) {
            match suspect {
                Suspect::Rewrite(name) => drop(options.trial.without.insert(name.clone())),
                Suspect::Kernels(name) => drop(options.trial.without.insert((*name).to_owned())),
                Suspect::Stored(weights, _) => options.trial.plain.extend(weights),
                Suspect::Activations(_) => options.act = ActPolicy::F32,
                Suspect::Cache(_) => options.kv = vec![KvDType::F32],
            }
        }
        options
    }

    /// The first input of products that differs by more than `tolerance`.
    fn first(&self, plan: &Plan, weights: &[Vec<f32>], tolerance: f64) -> Result<Option<Place>, BisectError> {
        let Some(at) = self.module.entries.iter().position(|e| e.name == TAP) else { return Ok(None) };
        let entry = &self.module.entries[at];
        let mut states = empty(&self.module.states);
        let want = eval_taps(self.module, entry, &|i| weights[i].clone(), &mut states, self.batch)?;
        let packed = self.packed(plan)?;
        let mut states = empty(&plan.states);
        let got = eval_plan_taps(plan, at, &slices(plan, &packed), &mut states, self.batch)?;
        let differs = |(tap, (want, got)): (&Tap, (&TappedRows, &TappedRows))| {
            let (difference, i) = apart(&want.rows, &got.rows, tap.width())?;
            (difference > tolerance).then(|| Place {
                call: tap.call,
                func: self.module.entries[0].calls.get(tap.call).map_or(0, |c| c.func),
                weights: tap.weights.iter().map(|w| w.name.clone()).collect(),
                at: (i / tap.width().max(1), i % tap.width().max(1)),
                values: (want.rows[i], got.rows[i]),
            })
        };
        Ok(entry.taps.iter().zip(want.iter().zip(&got)).find_map(differs))
    }

    /// Kernels of the step that the other plan has not: of the call of a place and the one before it, or of all calls.
    fn new_kernels(&self, plan: &Plan, other: &Plan, place: Option<&Place>) -> Vec<Kernel> {
        let known =
            |k: &Kernel| other.kernels.iter().any(|o| (&o.params, &o.body, o.rows) == (&k.params, &k.body, k.rows));
        let near = |call: usize| place.is_none_or(|p| call == p.call || call + 1 == p.call);
        let launches = plan.regime_for(0, self.batch.env().tokens).into_iter().flat_map(|r| &r.launches);
        let used: BTreeSet<usize> = launches.filter(|l| near(l.call)).map(|l| l.kernel).collect();
        used.into_iter().filter_map(|i| plan.kernels.get(i)).filter(|k| !known(k)).cloned().collect()
    }
}

/// The weights of a module by those that have one form: all calls of a function bind theirs to the same parameter.
fn alike(module: &Module) -> Vec<BTreeSet<usize>> {
    let mut groups: Vec<BTreeSet<usize>> = vec![];
    for (func, param) in module.funcs.iter().enumerate().flat_map(|(i, f)| (0..f.params.len()).map(move |p| (i, p))) {
        let bound = |c: &Call| match c.args.get(param) {
            Some(Arg::Weight(w)) => Some(*w),
            _ => None,
        };
        let mut group: BTreeSet<usize> = module.calls().filter(|c| c.func == func).filter_map(bound).collect();
        let (same, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|g| !g.is_disjoint(&group));
        group.extend(same.into_iter().flatten());
        groups = others;
        groups.push(group);
    }
    groups.sort();
    groups
}

/// Empty states.
fn empty(specs: &[StateSpec]) -> Vec<State> {
    specs.iter().map(|s| State::new(*s)).collect()
}

/// The weights of a plan in its packed bytes.
fn slices<'a>(plan: &Plan, packed: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
    let offsets = weight_offsets(plan);
    let bytes = plan.weights.iter().zip(offsets).map(|(w, at)| {
        let at = at as usize;
        packed[at..at + w.storage.bytes()].into()
    });
    bytes.collect()
}
