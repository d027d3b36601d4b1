//! The passes in order.

use crate::choose::{Choosing, choose};
use crate::cost::choose_tiles;
use crate::damage::Offer;
use crate::dump::{Costs, Dump, LEGEND};
use crate::egraph::convert::{Converted, convert};
use crate::egraph::{Form, Graph, store_of};
use crate::explain::explain;
use crate::extract::{self, Candidate, Problem, Scope, Solved, Stores};
use crate::measure::{Measured, measure};
use crate::memory::ResultBuffers;
use crate::observers::{Core, FuncOf};
use crate::options::INVARIANT;
use crate::pack::WeightSource;
use crate::rounding::Operations;
use crate::schedule::{FuncSchedule, Source, Step, state_param};
use crate::storage::{self, Matrix, Products, Storages};
use crate::{
    Choice, Compiled, FuncStats, Options, PassError, RegimeSpec, Stored, candidates, memory, plan, regimes, rules,
    schedule,
};
use egg::Id;
use llmcc_ir::diag::{Diagnostic, Place, Severity};
use llmcc_ir::graph::{Arg, Entry, Func, Module, Reads, Value, ValueType};
use llmcc_ir::kernel::Kernel;
use llmcc_ir::plan::Plan;
use llmcc_ir::quant::Format;
use llmcc_ir::state::StateSpec;
use llmcc_ir::target::Family;
use llmcc_ir::text::dot::Dot;
use llmcc_ir::verify::{verify_kernel, verify_module, verify_packed, verify_plan, verify_target};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A pass: one line of [`PIPELINE`].
pub struct Pass {
    /// Name in errors.
    pub name: &'static str,
    /// Its task, in a few words.
    pub about: &'static str,
    run: fn(&mut State<'_>) -> Result<(), PassError>,
    /// Checks the state afterwards; skipped in release builds unless [`Pass::always`].
    check: fn(&State<'_>) -> Vec<Diagnostic>,
    /// Whether the check runs in release builds too: at the borders of the pipeline.
    always: bool,
}

/// All passes in order.
pub const PIPELINE: &[Pass] = &[
    Pass {
        name: "convert",
        about: "one e-graph per distinct function",
        run: convert_all,
        check: check_classes,
        always: true,
    },
    Pass { name: "saturate", about: "equalities", run: saturate, check: check_classes, always: false },
    Pass {
        name: "store",
        about: "forms of weights and states, with their errors",
        run: store,
        check: check_storages,
        always: false,
    },
    Pass { name: "implement", about: "kernels and their fusions", run: implement, check: check_classes, always: false },
    Pass {
        name: "choose",
        about: "one form of everything, within the error budget",
        run: choose_forms,
        check: check_forms,
        always: false,
    },
    Pass {
        name: "extract",
        about: "the cheapest kernels per regime, in order",
        run: extract_all,
        check: check_schedules,
        always: false,
    },
    Pass { name: "assemble", about: "launches of all calls", run: assemble, check: check_launches, always: false },
    Pass {
        name: "candidates",
        about: "the most probable tokens, on GPUs",
        run: add_candidates,
        check: check_launches,
        always: false,
    },
    Pass { name: "memory", about: "buffers share slots", run: assign_memory, check: check_plan, always: true },
];

/// Runs all passes.
///
/// # Errors
/// See [`crate::compile`].
pub fn run(module: &Module, opts: &Options, weights: Option<Known<'_>>) -> Result<Compiled, PassError> {
    let core = Core::new(module);
    let mut state = State::new(module, &core, opts, weights);
    for pass in PIPELINE {
        (pass.run)(&mut state)?;
        if pass.always || cfg!(debug_assertions) {
            let found = (pass.check)(&state);
            if let Some(d) = found.iter().find(|d| d.severity == Severity::Error) {
                return Err(PassError::Verify { pass: pass.name, what: d.to_string() });
            }
        }
    }
    let (egraph, egraph_dot) = match opts.explain.egraph {
        true => (state.egraphs(), state.egraphs_dot()),
        false => Default::default(),
    };
    let plan = state.plan.take().ok_or_else(|| PassError::Extract("no plan".into()))?;
    let schedules: Vec<_> = (0..state.schedules.len()).map(|regime| state.by_func(regime)).collect();
    let cost = |entry: &Entry, (regime, spec): (&Cow<'_, [FuncSchedule]>, &RegimeSpec)| {
        let of_call = |c: &llmcc_ir::graph::Call| regime[c.func].steps.iter().map(|s| s.seconds);
        let candidates = candidates::cost(&plan, entry, opts.target, spec.env);
        entry.calls.iter().flat_map(of_call).chain(candidates).collect()
    };
    let by_regime = || schedules.iter().zip(regimes(opts.target));
    let costs = module.entries.iter().flat_map(|e| by_regime().map(|r| cost(e, r)).collect::<Vec<_>>()).collect();
    drop(schedules);
    Ok(Compiled {
        plan,
        costs,
        explain: state.explain,
        egraph,
        egraph_dot,
        solutions: state.solutions,
        stats: state.funcs.into_iter().map(|f| f.stats).collect(),
        stored: state.stored,
        error: state.error,
        damage: state.damage,
        offers: state.offers,
        measured: state.measured,
    })
}

/// Where errors of weights come from.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The weights, to measure samples of.
    pub source: &'a dyn WeightSource,
    /// Errors that are known, and not measured.
    pub whole: &'a Measured,
}

/// Everything the passes have made so far.
struct State<'a> {
    whole: &'a Module,
    /// Where the functions of the whole module get their kernels.
    of: &'a [FuncOf],
    /// The module without observers: all that kernels and stored forms are chosen for.
    module: &'a Module,
    opts: &'a Options,
    weights: Option<Known<'a>>,
    measured: Measured,
    stored: Vec<Stored>,
    error: Option<f64>,
    damage: Option<f64>,
    offers: Vec<Offer>,
    funcs: Vec<FuncState<'a>>,
    /// By regime, then function.
    schedules: Vec<Vec<FuncSchedule>>,
    /// By regime, then function, then observer of the function.
    observing: Vec<Vec<Vec<FuncSchedule>>>,
    explain: Vec<Choice>,
    /// Extraction problems solved.
    solutions: usize,
    plan: Option<Plan>,
    /// Buffers that the caller reads.
    results: ResultBuffers,
}

impl<'a> State<'a> {
    fn new(whole: &'a Module, core: &'a Core<'_>, opts: &'a Options, weights: Option<Known<'a>>) -> State<'a> {
        State {
            whole,
            of: &core.funcs,
            module: &core.module,
            opts,
            weights,
            measured: Measured::new(),
            stored: vec![],
            error: None,
            damage: None,
            offers: vec![],
            funcs: vec![],
            schedules: vec![],
            observing: vec![],
            explain: vec![],
            solutions: 0,
            plan: None,
            results: ResultBuffers::default(),
        }
    }

    /// The schedules of all functions of the whole module in a regime.
    fn by_func(&self, regime: usize) -> Cow<'_, [FuncSchedule]> {
        let (own, observing) = (&self.schedules[regime], &self.observing[regime]);
        if self.of.len() == own.len() {
            return Cow::Borrowed(own);
        }
        let mut observing: Vec<_> = observing.iter().map(|of_func| of_func.iter()).collect();
        let of = |f: &FuncOf| match f {
            FuncOf::Core(at) => own.get(*at).cloned(),
            FuncOf::Observes(at) => observing.get_mut(*at)?.next().cloned(),
        };
        self.of.iter().filter_map(of).collect::<Vec<_>>().into()
    }

    /// The e-graphs as text.
    fn egraphs(&self) -> String {
        self.funcs.iter().fold(LEGEND.to_owned(), |all, f| all + &f.dump().text())
    }

    /// The e-graphs in DOT.
    fn egraphs_dot(&self) -> String {
        let mut dot = Dot::new(&self.module.name);
        self.funcs.iter().for_each(|f| f.dump().dot(&mut dot));
        dot.finish()
    }
}

/// A function on its way through the passes.
struct FuncState<'a> {
    func: &'a Func,
    graph: Graph,
    roots: Vec<Id>,
    results: usize,
    values: Vec<Id>,
    matrices: BTreeMap<Id, Matrix>,
    storages: Storages,
    /// Stored forms that may be used.
    stores: Option<Stores>,
    /// How values are computed.
    operations: Option<Operations>,
    /// Functions that take its kernels.
    observers: Vec<Observer<'a>>,
    stats: FuncStats,
    /// Costs of its kernels by regime, if they are asked for.
    costs: Vec<Costs>,
}

/// A function that computes what another one does, and shows more of it.
struct Observer<'a> {
    func: &'a Func,
    /// Its results, then the updated states.
    roots: Vec<Id>,
    /// How its values are computed.
    operations: Option<Operations>,
}

/// The kernels of a function in a regime.
struct Extracted {
    schedule: FuncSchedule,
    /// Kernels of its observers.
    observing: Vec<FuncSchedule>,
    choices: Vec<Choice>,
    /// Extraction problems solved for them.
    solutions: usize,
}

fn convert_all(s: &mut State<'_>) -> Result<(), PassError> {
    if let Some(d) = verify_module(s.whole).into_iter().find(|d| d.severity == Severity::Error) {
        return Err(PassError::Invalid { func: s.module.name.clone(), what: d.to_string() });
    }
    check_inputs(s.whole)?;
    // (Matrices of an artifact may have taken gains for another target.)
    let free = s.opts.inside.is_some() || s.opts.formats.iter().copied().all(exact_enough_to_change);
    let may_change = !s.opts.keep_scales && free;
    for (at, func) in s.module.funcs.iter().enumerate() {
        let Converted { graph, roots, results, values } = convert(func, may_change)?;
        let stats = FuncStats { func: func.name.clone(), ..FuncStats::default() };
        let (matrices, storages) = (BTreeMap::new(), Storages::default());
        let states = roots.get(results..).unwrap_or_default();
        let observers = s.of.iter().zip(&s.whole.funcs).filter(|(of, _)| **of == FuncOf::Observes(at));
        let observers = observers.map(|(_, func)| Observer::new(func, &values, states)).collect::<Result<_, _>>()?;
        s.funcs.push(FuncState {
            func,
            graph,
            roots,
            results,
            values,
            matrices,
            storages,
            stores: None,
            operations: None,
            observers,
            stats,
            costs: vec![],
        });
    }
    Ok(())
}

/// Whether a rewrite may change a matrix that will be stored in `format`.
///
/// f32 holds the product of a weight and a gain as well as the gain itself, and 8 bits round far
/// coarser than that. f16 and bf16 would round a second time. 4 bits lose more: a gain that varies
/// inside a group widens its range. Measured on stories260K (`tests/goldens/README.md`): perplexity
/// 4.150 with `w4g32` as it is, 4.247 with the gains folded first; 3.673 and 3.672 with `w8g32`. An
/// unfolded gain costs nothing that can be measured.
fn exact_enough_to_change(format: Format) -> bool {
    format == Format::F32 || (format.is_quantized() && format.def().bits() >= 8)
}

/// Kernels read tokens, positions and logits rows from the batch itself, so every call must bind the
/// parameter used as such to that array.
fn check_inputs(module: &Module) -> Result<(), PassError> {
    for call in module.calls() {
        let Some(func) = module.funcs.get(call.func) else { continue };
        for node in &func.nodes {
            for (i, (_, reads)) in node.op.facts().args.iter().enumerate() {
                let Reads::Input(wanted) = reads else { continue };
                let bound = node.args.get(i).and_then(|v| call.args.get(v.0 as usize));
                if bound != Some(&Arg::Input(*wanted)) {
                    let what = format!("argument {} of `{}` must be the input {wanted:?}", i + 1, node.op.name());
                    return Err(PassError::invalid(func, what));
                }
            }
        }
    }
    Ok(())
}

fn saturate(s: &mut State<'_>) -> Result<(), PassError> {
    for f in &mut s.funcs {
        let done = rules::saturate(std::mem::take(&mut f.graph), &s.opts.trial);
        f.stats.saturated = done.graph.total_number_of_nodes();
        f.stats.iterations = done.iterations;
        f.stats.applied = done.applied;
        f.graph = done.graph;
    }
    Ok(())
}

fn store(s: &mut State<'_>) -> Result<(), PassError> {
    if s.opts.formats.is_empty() {
        return Err(PassError::Extract("no weight format is allowed".into()));
    }
    for (i, f) in s.funcs.iter_mut().enumerate() {
        f.matrices = storage::matrices(s.module, s.opts, i, &f.graph)?;
    }
    let matrices: Vec<BTreeMap<Id, Matrix>> = s.funcs.iter().map(|f| f.matrices.clone()).collect();
    if let Some(inside) = &s.opts.inside {
        s.measured = inside.matrices.clone();
    } else if s.opts.formats.len() > 1 {
        let Known { source, whole } = s.weights.ok_or(PassError::Unmeasured)?;
        let all: BTreeSet<_> =
            matrices.iter().flat_map(BTreeMap::values).flat_map(|m| m.bound.iter().cloned()).collect();
        let measured = measure(all.into_iter().collect(), &s.opts.formats, whole, s.module, source);
        s.measured = measured.map_err(|e| PassError::Weights(e.to_string()))?;
    }
    let products = Products::new(s.module, s.opts, &matrices, &s.measured);
    for f in &mut s.funcs {
        f.storages = products.storages(&f.matrices, &f.graph);
    }
    Ok(())
}

fn choose_forms(s: &mut State<'_>) -> Result<(), PassError> {
    let funcs: Vec<Choosing<'_>> = s.funcs.iter().map(FuncState::choosing).collect();
    if let Some(chosen) = choose(s.module, s.opts, &funcs, &s.measured)? {
        s.funcs.iter_mut().zip(chosen.stores).for_each(|(f, stores)| f.stores = Some(stores));
        s.stored = chosen.report;
        s.error = Some(chosen.error);
        s.damage = chosen.damage;
        s.offers = chosen.offers;
        s.solutions += chosen.solutions;
    }
    Ok(())
}

fn implement(s: &mut State<'_>) -> Result<(), PassError> {
    for f in &mut s.funcs {
        let read_often = crate::implement::read_often(f.func, &f.values);
        crate::implement::implement(&mut f.graph, s.opts, &f.storages, &read_often);
        f.stats.nodes = f.graph.total_number_of_nodes();
    }
    Ok(())
}

fn extract_all(s: &mut State<'_>) -> Result<(), PassError> {
    for (index, regime) in regimes(s.opts.target).iter().enumerate() {
        let (mut schedules, mut observing) = (vec![], vec![]);
        for f in &mut s.funcs {
            let extracted = f.extract(index, regime, s.opts)?;
            schedules.push(extracted.schedule);
            observing.push(extracted.observing);
            s.explain.extend(extracted.choices);
            s.solutions += extracted.solutions;
        }
        s.schedules.push(schedules);
        s.observing.push(observing);
    }
    Ok(())
}

fn assemble(s: &mut State<'_>) -> Result<(), PassError> {
    let mut assembler = plan::Assembler::new(s.whole);
    for entry in 0..s.whole.entries.len() {
        for (at, regime) in regimes(s.opts.target).iter().enumerate() {
            assembler.regime(entry, regime.max_tokens, &s.by_func(at))?;
        }
    }
    let (mut plan, results) = assembler.finish();
    set_cache_types(&mut plan, s);
    s.plan = Some(plan);
    s.results = results;
    Ok(())
}

/// States are cached in the type that the functions which update them chose.
fn set_cache_types(plan: &mut Plan, s: &State<'_>) {
    for call in s.module.calls() {
        let Some(f) = s.funcs.get(call.func) else { continue };
        for store in f.stores.iter().flatten() {
            let Some((Form::Cached(dtype), _, state)) = store_of(&f.graph, *store) else { continue };
            if let Some(Arg::State(state)) = state_param(&f.graph, state).and_then(|p| call.args.get(p))
                && let Some(kv) = plan.states.get_mut(*state).and_then(StateSpec::paged_mut)
            {
                kv.dtype = dtype;
            }
        }
    }
}

fn add_candidates(s: &mut State<'_>) -> Result<(), PassError> {
    if let Some(plan) = &mut s.plan {
        candidates::add(plan, s.whole, s.opts.target, &mut s.results);
    }
    Ok(())
}

fn assign_memory(s: &mut State<'_>) -> Result<(), PassError> {
    match &mut s.plan {
        Some(plan) => memory::assign(plan, &s.results),
        None => Ok(()),
    }
}

/// Results still have the type that the function declares.
fn check_classes(s: &State<'_>) -> Vec<Diagnostic> {
    let mut found = vec![];
    for f in &s.funcs {
        for (v, root) in f.func.results.iter().zip(&f.roots) {
            if f.graph[*root].data.ty.as_ref() != f.func.ty(*v) {
                found.push(f.wrong("recorded-type", "a result changed its type in the e-graph"));
            }
        }
    }
    found
}

/// Matrices are packed as the target reads them, and only attention states have types to choose from.
fn check_storages(s: &State<'_>) -> Vec<Diagnostic> {
    let mut found = vec![];
    let packing = s.opts.target.packing();
    for f in &s.funcs {
        if f.storages.packed.values().flatten().any(|(format, _)| format.packing != packing) {
            found.push(f.wrong("target-packing", format!("a matrix has a form that is not in {packing:?} packing")));
        }
        let is_paged = |class: &Id| {
            f.graph[*class].data.ty.as_ref().and_then(ValueType::state).is_some_and(|s| s.paged().is_some())
        };
        if !f.storages.cached.keys().all(is_paged) {
            found.push(f.wrong("kv-spec", "a type was to be chosen for a value that is not an attention state"));
        }
    }
    found
}

/// Chosen forms are forms of the e-graph, and their error is within the budget.
fn check_forms(s: &State<'_>) -> Vec<Diagnostic> {
    let unknown = |f: &FuncState<'_>| f.stores.iter().flatten().any(|store| store_of(&f.graph, *store).is_none());
    let mut found: Vec<Diagnostic> = s
        .funcs
        .iter()
        .filter(|f| unknown(f))
        .map(|f| f.wrong("weight-storage", "a chosen form is not a stored form"))
        .collect();
    if let (Some(error), Some(budget)) = (s.error, s.opts.error_budget)
        && error > budget
    {
        let message = format!("the chosen forms have an error of {error}, the budget is {budget}");
        found.push(Diagnostic::error("weight-storage", Place::Whole, message));
    }
    found
}

/// Every regime has the launches of every function: kernels that the verifier accepts, whose inputs are
/// there when they run.
fn check_schedules(s: &State<'_>) -> Vec<Diagnostic> {
    let (regimes, funcs) = (regimes(s.opts.target).len(), s.funcs.len());
    if s.schedules.len() != regimes || s.schedules.iter().any(|regime| regime.len() != funcs) {
        let message = format!("schedules are not {regimes} regimes of {funcs} functions each");
        return vec![Diagnostic::error("regimes", Place::Whole, message)];
    }
    let mut found = vec![];
    let own = s.schedules.iter().flatten().zip(s.funcs.iter().map(|f| (f, f.func)).cycle());
    let observers = s.funcs.iter().flat_map(|f| f.observers.iter().map(move |o| (f, o.func))).cycle();
    let observing = s.observing.iter().flatten().flatten().zip(observers);
    for (schedule, (f, func)) in own.chain(observing) {
        let results = func.results.len();
        if schedule.results.len() != results {
            found.push(f.wrong("recorded-type", format!("{} of {results} results", schedule.results.len())));
        }
        for (at, step) in schedule.steps.iter().enumerate() {
            // Kernels get their names when launches are put together.
            let named = Kernel { name: format!("{}.{at}", f.func.name), ..step.kernel.clone() };
            found.extend(verify_kernel(&named));
            if step.inputs.iter().any(|source| matches!(source, Source::Result(launch, _) if *launch >= at)) {
                found.push(f.wrong("read-before-write", format!("launch {at} reads the result of a later one")));
            }
        }
    }
    found
}

/// Packed weights have the shapes of their expressions, and the target runs the plan. Kernels are checked
/// when they are extracted, lifetimes once buffers have slots.
fn check_launches(s: &State<'_>) -> Vec<Diagnostic> {
    let Some(plan) = &s.plan else { return vec![Diagnostic::error("regimes", Place::Whole, "there is no plan")] };
    let rules = [verify_packed(plan, &s.module.weights), verify_target(plan, s.opts.target)];
    rules.into_iter().flatten().collect()
}

/// All rules of plans.
fn check_plan(s: &State<'_>) -> Vec<Diagnostic> {
    let rules = s.plan.as_ref().map(verify_plan);
    rules.into_iter().flatten().chain(check_launches(s)).collect()
}

impl FuncState<'_> {
    /// A finding of a check in this function.
    fn wrong(&self, code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, Place::Func { func: self.func.name.clone() }, message)
    }

    fn choosing(&self) -> Choosing<'_> {
        Choosing {
            func: self.func,
            graph: &self.graph,
            roots: &self.roots,
            matrices: &self.matrices,
            storages: &self.storages,
        }
    }

    /// Chooses and orders the kernels of one regime. The first regime decides which stored forms
    /// are used; the others use the same. Where bits may not depend on the regime, all have the same
    /// kernels but for their tiles.
    fn extract(&mut self, index: usize, r: &RegimeSpec, opts: &Options) -> Result<Extracted, PassError> {
        let fixed = opts.target.gpu().is_some() && opts.target.wish.invariant;
        let env = if fixed { INVARIANT } else { r.env };
        let only = self.stores.clone();
        let scope = Scope { target: opts.target, env, only: only.as_ref(), open: &Stores::new() };
        let problem = Problem::new(&self.graph, &self.roots, scope);
        let mut solved = problem.solve(&BTreeSet::new())?;
        match &mut self.operations {
            // On GPUs regimes sum products in different orders anyway.
            Some(first) if opts.target.family() == Family::Cpu => {
                if !first.are_of(&self.graph, &problem, &solved.chosen) {
                    solved = problem.solve(&first.others(&self.graph, &problem))?;
                }
            }
            Some(_) => {}
            None => {
                self.stores = Some(used_stores(&self.graph, &problem, &solved));
                self.stats.candidates = problem.size();
                self.operations = Some(Operations::new(&self.graph, &problem, &solved.chosen));
            }
        }
        if opts.explain.egraph {
            self.costs.push(Costs::of(&problem, &solved));
        }
        let mut schedule = schedule::schedule(&self.graph, self.func, &problem, &solved, &self.roots[..self.results])?;
        let mut observing = self.observe(scope, &solved)?;
        if fixed {
            let tiles = |step: &mut Step| step.seconds = choose_tiles(&mut step.kernel, opts.target, r.env);
            std::iter::once(&mut schedule).chain(&mut observing).flat_map(|s| &mut s.steps).for_each(tiles);
        }
        let choices = match opts.explain.alternatives {
            true => explain(&self.func.name, index, &problem, &solved, &schedule)?,
            false => vec![],
        };
        Ok(Extracted { schedule, observing, choices, solutions: problem.solutions() })
    }

    /// The schedules of the observers in a regime that is solved: the same kernels for all that these compute.
    fn observe(&mut self, scope: Scope<'_>, solved: &Solved) -> Result<Vec<FuncSchedule>, PassError> {
        let mut schedules = vec![];
        for o in &mut self.observers {
            let problem = Problem::new(&self.graph, &o.roots, scope);
            let mut forbidden = beside(&self.graph, &problem, solved, self.stores.as_ref());
            let mut own = problem.solve(&forbidden)?;
            match &mut o.operations {
                Some(first) if scope.target.family() == Family::Cpu => {
                    if !first.are_of(&self.graph, &problem, &own.chosen) {
                        forbidden.extend(first.others(&self.graph, &problem));
                        own = problem.solve(&forbidden)?;
                    }
                }
                Some(_) => {}
                None => o.operations = Some(Operations::new(&self.graph, &problem, &own.chosen)),
            }
            let results = &o.roots[..o.func.results.len()];
            schedules.push(schedule::schedule(&self.graph, o.func, &problem, &own, results)?);
        }
        Ok(schedules)
    }

    fn dump(&self) -> Dump<'_> {
        Dump { func: &self.func.name, graph: &self.graph, costs: &self.costs }
    }
}

impl<'a> Observer<'a> {
    /// The observer whose values have these classes, with the states' last classes.
    fn new(func: &'a Func, values: &[Id], states: &[Id]) -> Result<Observer<'a>, PassError> {
        let class = |v: &Value| values.get(v.0 as usize).copied();
        let roots: Option<Vec<Id>> = func.results.iter().map(class).collect();
        let mut roots = roots.ok_or_else(|| PassError::invalid(func, "a result is undefined".into()))?;
        roots.extend(states);
        Ok(Observer { func, roots, operations: None })
    }
}

/// The candidates of a problem that a solution of the observed function rules out: others of the classes that it
/// computes, and those that use stored forms which it does not.
fn beside(g: &Graph, problem: &Problem, solved: &Solved, used: Option<&Stores>) -> BTreeSet<(Id, usize)> {
    let ruled_out = |class: &Id, i: usize, c: &Candidate| match solved.chosen.get(class) {
        Some(chosen) => i != *chosen,
        None => !extract::stores(g, *class, &c.children).iter().all(|s| used.is_none_or(|u| u.contains(s))),
    };
    let of_class = |(class, all): (&Id, &Vec<Candidate>)| {
        let out = all.iter().enumerate().filter(|(i, c)| ruled_out(class, *i, c)).map(|(i, _)| (*class, i));
        out.collect::<Vec<_>>()
    };
    problem.classes.iter().flat_map(of_class).collect()
}

/// Stored forms that the chosen kernels use.
fn used_stores(g: &Graph, problem: &Problem, solved: &Solved) -> Stores {
    let of_class = |(class, i): (&Id, &usize)| extract::stores(g, *class, &problem.classes[class][*i].children);
    solved.chosen.iter().flat_map(of_class).collect()
}
