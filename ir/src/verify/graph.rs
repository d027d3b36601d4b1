//! Rules of the graph level.

use super::{Sink, state_spec};
use crate::diag::{Diagnostic, Place};
use crate::graph::{
    Arg, Attr, Call, Entry, Func, Input, Module, Node, Op, Param, Reads, Role, Stage, Value, ValueType, Weight,
};
use crate::output::{EntryOutput, Output};
use crate::quant::Packing;
use crate::tap::Tap;
use crate::ty::{Dim, TensorType};
use std::collections::{BTreeMap, HashMap};

/// Checks a module: every function, the weights, the entries. Returns all findings.
pub fn verify_module(module: &Module) -> Vec<Diagnostic> {
    let mut sink = Sink::default();
    let sizes =
        [("vocabulary", module.info.vocab), ("width", module.info.hidden), ("context", module.info.max_context)];
    for (what, _) in sizes.iter().filter(|(_, n)| *n == 0) {
        sink.error("model-info", Place::Whole, format!("the {what} of the model is 0"));
    }
    sink.unique(module.funcs.iter().map(|f| (f.name.as_str(), Place::Func { func: f.name.clone() })));
    for f in &module.funcs {
        sink.out.extend(verify_func(f));
    }
    sink.unique(module.weights.iter().map(|w| (w.name.as_str(), Place::Tensor { name: w.name.clone() })));
    for w in &module.weights {
        weight(&mut sink, w);
    }
    for (index, spec) in module.states.iter().enumerate() {
        state_spec(&mut sink, &Place::State { index }, spec);
    }
    entries(&mut sink, module);
    sink.out
}

fn weight(sink: &mut Sink, w: &Weight) {
    let place = || Place::Tensor { name: w.name.clone() };
    let Some(elements) = w.ty.elements() else {
        return sink.error("weight-type", place(), format!("a weight cannot have the type {}", w.ty));
    };
    let coded = w.ty.dtype.coded();
    let no_matrix = coded.is_some() && w.ty.shape.len() != 2;
    if !w.ty.dtype.is_float() || elements == 0 || !(1..=3).contains(&w.ty.shape.len()) || no_matrix {
        let message = format!("must be a float vector, matrix or stack of matrices, not {}", w.ty);
        sink.error("weight-type", place(), message);
    }
    if coded.is_some_and(|f| f.packing != Packing::Panel || !f.has_its_group()) {
        sink.error("weight-type", place(), format!("codes have the order of a checkpoint, not of {}", w.ty));
    }
    if let Some(data) = w.data.as_ref().filter(|d| d.len() != elements) {
        sink.error("weight-data", place(), format!("has {} values for {}", data.len(), w.ty));
    }
}

/// Entries: calls, outputs, and the use of weights and states by all of them.
fn entries(sink: &mut Sink, module: &Module) {
    if module.entries.is_empty() {
        sink.error("entries", Place::Whole, "the module has no entry");
    }
    sink.unique(module.entries.iter().map(|e| (e.name.as_str(), Place::Whole)));
    let mut uses = Uses { states: vec![], weights: HashMap::new() };
    let mut first = 0;
    for (i, e) in module.entries.iter().enumerate() {
        entry_context(sink, &e.name, e.context);
        uses.states.push(vec![Used::default(); module.states.len()]);
        let results = calls(sink, module, e, first, &mut uses);
        first += e.calls.len();
        let updates = i > 0 && uses.states.last().is_some_and(|states| states.iter().any(|used| used.updates > 0));
        outputs(sink, &e.name, (&e.outputs, &e.taps), updates);
        output_types(sink, module, e, &results);
        taps(sink, module, e, &results);
        given_rows(sink, module, e);
    }
    for index in 0..module.states.len() {
        let adapter = module.states[index].adapter().is_some();
        let by_entry: Vec<Used> = uses.states.iter().map(|states| states[index]).collect();
        judge(sink, &Place::State { index }, adapter, &by_entry);
    }
    if let Some((entry, index)) = module.tracks().mixed {
        let name = &module.entries[entry].name;
        let message = format!("entry `{name}` updates it with states that other entries update apart from it");
        sink.error("state-calls", Place::State { index }, message);
    }
    across(sink, module);
    shared(sink, module, &uses.weights);
}

/// An entry that reads a state of another track, whose tokens have positions of their own, reads all of it.
fn across(sink: &mut Sink, module: &Module) {
    let tracks = module.tracks();
    let entries = module.entries.iter().zip(&tracks.entries);
    let calls = entries.flat_map(|(e, track)| e.calls.iter().map(move |call| (call, *track)));
    for (call, (Call { func, args }, track)) in calls.enumerate() {
        let Some(func) = module.funcs.get(*func) else { continue };
        for (param, arg) in args.iter().enumerate() {
            let Arg::State(index) = arg else { continue };
            let other = tracks.states.get(*index).is_some_and(|of| *of != track);
            let adapter = module.states.get(*index).is_some_and(|s| s.adapter().is_some());
            if other && !adapter && !func.reads_all(Value(param as u32)) {
                let message = format!(
                    "reads state {index}, which another entry updates for tokens of its own, by their positions: only \
                     `attention` with `causal=false`, no bias and no window reads such a state"
                );
                sink.error("state-calls", Place::Call { call, func: func.name.clone() }, message);
            }
        }
    }
}

/// The use of a module's states and weights by its calls.
struct Uses<'m> {
    /// By entry, then state.
    states: Vec<Vec<Used>>,
    /// By weight.
    weights: HashMap<usize, Vec<WeightUse<'m>>>,
}

/// Checks the calls of an entry, the first of which is number `first` of the module. Returns the types of its values;
/// `None` for one that has no type.
fn calls<'m>(
    sink: &mut Sink,
    module: &'m Module,
    e: &'m Entry,
    first: usize,
    uses: &mut Uses<'m>,
) -> Vec<Option<ValueType>> {
    let mut results: Vec<Option<ValueType>> = vec![];
    for (i, call) in (first..).zip(&e.calls) {
        let Some(func) = module.funcs.get(call.func) else {
            sink.error(
                "call-func",
                Place::Call { call: i, func: call.func.to_string() },
                "calls a function that does not exist",
            );
            continue;
        };
        let place = || Place::Call { call: i, func: func.name.clone() };
        if call.args.len() != func.params.len() {
            sink.error("call-args", place(), format!("has {} arguments, not {}", call.args.len(), func.params.len()));
        }
        call_args(sink, module, call, func, &results, &place());
        position_tables(sink, e.context.unwrap_or(module.info.max_context), func, &place());
        for (arg, param) in call.args.iter().zip(&func.params) {
            match arg {
                Arg::State(s) => {
                    let used = uses.states.last_mut().and_then(|states| states.get_mut(*s));
                    used.into_iter().for_each(|used| used.by(func, param));
                }
                Arg::Weight(w) => uses.weights.entry(*w).or_default().push(WeightUse {
                    role: param.role,
                    call: i,
                    bound: call,
                    place: place(),
                }),
                Arg::Value(_) | Arg::Input(_) => {}
            }
        }
        results.extend(func.results.iter().map(|v| func.ty(*v).cloned()));
    }
    results
}

/// How the calls of an entry use a state.
#[derive(Clone, Copy, Default)]
struct Used {
    updates: usize,
    /// Calls that only read it.
    reads: usize,
    /// Reads before any call that updates it.
    early: usize,
}

impl Used {
    /// Counts the call of a function whose parameter the state is.
    fn by(&mut self, func: &Func, param: &Param) {
        if func.params.iter().position(|p| std::ptr::eq(p, param)).is_some_and(|i| func.updates(i)) {
            self.updates += 1;
        } else {
            self.reads += 1;
            self.early += usize::from(self.updates == 0);
        }
    }
}

/// One call of an entry updates a state; later ones may read the updated state. An entry may read a state that another
/// one updates. No entry changes an `adapter`.
fn judge(sink: &mut Sink, place: &Place, adapter: bool, by_entry: &[Used]) {
    let updated = by_entry.iter().any(|u| u.updates > 0);
    let all_reads: usize = by_entry.iter().map(|u| u.reads).sum();
    if !updated && all_reads == 0 {
        return sink.warning("unused-state", place.clone(), "no call uses it");
    }
    if !updated && !adapter {
        let message = format!("is read by {all_reads} calls and updated by none");
        return sink.error("state-calls", place.clone(), message);
    }
    for Used { updates, early, .. } in by_entry {
        let message = match updates {
            1 if *early > 0 => {
                format!("is read by {early} calls before the one that updates it: they would see the last step's")
            }
            0 | 1 => continue,
            n => format!("is updated by {n} calls; each layer has its own"),
        };
        sink.error("state-calls", place.clone(), message);
    }
}

/// A table that is read by positions has a row for each of the `most` that there may be.
fn position_tables(sink: &mut Sink, most: usize, func: &Func, place: &Place) {
    for node in &func.nodes {
        let Op::EmbedPositions { every, shift } = node.op else { continue };
        let table = node.args.first().and_then(|v| func.ty(*v)?.tensor());
        let rows = table.and_then(|t| t.shape.first()?.known());
        let rows = rows.map(|n| n.saturating_mul(every).saturating_sub(shift));
        if let Some(rows) = rows.filter(|n| *n < most) {
            sink.error("positions", place.clone(), format!("a table of {rows} positions, of {most} that there are"));
        }
    }
}

fn call_args(sink: &mut Sink, module: &Module, call: &Call, func: &Func, results: &[Option<ValueType>], place: &Place) {
    for (arg, param) in call.args.iter().zip(&func.params) {
        let ty = match *arg {
            Arg::Value(v) => results.get(v).cloned(),
            Arg::Weight(w) => module.weights.get(w).map(|w| Some(ValueType::Tensor(w.ty.clone()))),
            Arg::State(s) => module.states.get(s).map(|s| Some(ValueType::from(*s))),
            Arg::Input(input) => Some(Some(input.ty(given_columns(param)).into())),
        };
        let Some(ty) = ty else {
            sink.error(
                "call-arg",
                place.clone(),
                format!("argument `{}` is {arg:?}, which is not defined (yet)", param.name),
            );
            continue;
        };
        let role = match param.role {
            Role::Data => matches!(arg, Arg::Value(_) | Arg::Input(_)),
            Role::Weight | Role::SharedWeight => matches!(arg, Arg::Weight(_)),
            Role::State => matches!(arg, Arg::State(_)),
        };
        if !role {
            sink.error(
                "call-role",
                place.clone(),
                format!("argument `{}` must be {}, not {arg:?}", param.name, role_name(param.role)),
            );
        } else if let Some(ty) = ty.filter(|t| *t != param.ty) {
            sink.error("call-type", place.clone(), format!("argument `{}` must be {}, not {ty}", param.name, param.ty));
        }
    }
}

/// Columns of a parameter.
fn given_columns(param: &Param) -> usize {
    param.ty.tensor().and_then(|t| t.shape.last()?.known()).unwrap_or(0)
}

/// All calls of an entry that take an array of rows with its tokens take as many columns.
fn given_rows(sink: &mut Sink, module: &Module, e: &Entry) {
    let mut known: BTreeMap<Input, usize> = BTreeMap::new();
    let bound = e.calls.iter().filter_map(|c| Some((module.funcs.get(c.func)?, c)));
    for (param, arg) in bound.flat_map(|(f, c)| f.params.iter().zip(&c.args)) {
        let Arg::Input(input) = *arg else { continue };
        let columns = given_columns(param);
        let first = *known.entry(input).or_insert(columns);
        if input.has_columns() && first != columns {
            let message = format!("entry `{}` takes rows of {first} and of {columns} columns with its tokens", e.name);
            return sink.error("given-rows", Place::Whole, message);
        }
    }
}

/// A parameter that a weight is bound to.
struct WeightUse<'m> {
    role: Role,
    /// Number of the call among those of the module.
    call: usize,
    /// The call.
    bound: &'m Call,
    place: Place,
}

/// A weight that several parameters read should be declared shared by all of them, unless its
/// stored form is the same each time: calls of one function with the same weights.
fn shared(sink: &mut Sink, module: &Module, uses: &HashMap<usize, Vec<WeightUse<'_>>>) {
    for (i, w) in module.weights.iter().enumerate() {
        let Some(uses) = uses.get(&i) else {
            sink.warning("unused-weight", Place::Tensor { name: w.name.clone() }, "no call uses it");
            continue;
        };
        let alike = |u: &WeightUse| {
            let (a, b) = (u.bound, uses[0].bound);
            let same = std::ptr::eq(a, b) || weights_of(a).eq(weights_of(b));
            same && (a.func == b.func || module.funcs[a.func].extends(&module.funcs[b.func]))
        };
        if uses.iter().all(alike) && of_different_calls(uses) {
            continue;
        }
        for used in uses.iter().filter(|u| u.role == Role::Weight) {
            sink.warning(
                "unshared-weight",
                used.place.clone(),
                format!("`{}` is used elsewhere too: it will be stored twice", w.name),
            );
        }
    }
}

/// The weights that a call binds, and `None` for its other arguments.
fn weights_of(call: &Call) -> impl Iterator<Item = Option<usize>> + '_ {
    call.args.iter().map(|arg| if let Arg::Weight(w) = arg { Some(*w) } else { None })
}

/// No call binds the weight twice. Uses stand in the order of calls.
fn of_different_calls(uses: &[WeightUse<'_>]) -> bool {
    uses.windows(2).all(|pair| pair[0].call != pair[1].call)
}

/// The outputs of an entry have the types of their kinds.
fn output_types(sink: &mut Sink, module: &Module, e: &Entry, results: &[Option<ValueType>]) {
    for o in &e.outputs {
        let want: ValueType = {
            let (rows, columns) = module.info.rows(o.output);
            TensorType::rows(rows, columns).into()
        };
        let (code, word) = if o.output.is_requested() { ("output", "output") } else { ("hidden", "hidden output") };
        let message = match results.get(o.at) {
            None => {
                format!("`@{}` has {} values; the {word} is number {}", e.name, results.len(), o.at)
            }
            Some(Some(ty)) if *ty != want => format!("the {word} of `@{}` must be {want}, not {ty}", e.name),
            // An undefined result is reported at its function.
            Some(_) => continue,
        };
        sink.error(code, Place::Whole, message);
    }
}

/// A tap's rows and routes are results of its call, of their types; its weights are weights of the module.
fn taps(sink: &mut Sink, module: &Module, e: &Entry, results: &[Option<ValueType>]) {
    let results_of = |call: &Call| module.funcs.get(call.func).map_or(0, |f| f.results.len());
    for (i, tap) in e.taps.iter().enumerate() {
        let first: usize = e.calls.iter().take(tap.call).map(results_of).sum();
        let own = first..first + e.calls.get(tap.call).map_or(0, results_of);
        let routes = tap.routes.map(|r| (r.at, TensorType::rows(tap.rows, r.width())));
        for (at, want) in [Some((tap.at, tap.ty())), routes].into_iter().flatten() {
            let want = ValueType::from(want);
            let found = results.get(at).filter(|_| own.contains(&at));
            let message = match found {
                None => format!("tap {i} of `@{}`: value {at} is no result of its call {}", e.name, tap.call),
                Some(Some(ty)) if *ty != want => {
                    format!("tap {i} of `@{}`: value {at} must be {want}, not {ty}", e.name)
                }
                Some(_) => continue,
            };
            sink.error("tap", Place::Whole, message);
        }
        let unknown = |name: &&str| module.weights.iter().all(|w| w.name != **name);
        if let Some(name) = tap.weights.iter().map(|w| w.name.as_str()).find(unknown) {
            sink.error("tap", Place::Whole, format!("tap {i} of `@{}`: there is no weight `{name}`", e.name));
        }
    }
}

/// Taps stand in the order of their calls, have columns and weights, and know their experts. Shared with plans.
fn check_taps(sink: &mut Sink, name: &str, taps: &[Tap]) {
    if !taps.is_sorted_by_key(|t| t.call) {
        sink.error("tap", Place::Whole, format!("the taps of `@{name}` do not stand in the order of their calls"));
    }
    for (i, tap) in taps.iter().enumerate() {
        let mut wrong = |what: String| sink.error("tap", Place::Whole, format!("tap {i} of `@{name}` {what}"));
        if tap.columns == 0 || !matches!(tap.rows, Dim::Tokens | Dim::Rows) {
            wrong(format!("cannot have {} rows of {} columns", tap.rows, tap.columns));
        }
        if tap.weights.is_empty() {
            wrong("has no weight that multiplies it".into());
        }
        if let Some(r) = tap.routes.filter(|r| r.top == 0 || r.experts == 0) {
            wrong(format!("is for {} of {} experts", r.top, r.experts));
        }
        let experts = tap.routes.map_or(0, |r| r.experts);
        for (j, w) in tap.weights.iter().enumerate() {
            if w.expert.is_some_and(|e| e >= experts) {
                wrong(format!("has a weight `{}` of an expert that there is not", w.name));
            }
            if tap.weights[..j].contains(w) {
                wrong(format!("names `{}` twice", w.name));
            }
        }
    }
}

/// An entry has outputs or taps, or, after the first one, updates states. It has outputs of each kind once, and one at
/// most with the rows that the caller asks for. Shared with plans.
pub(super) fn outputs(sink: &mut Sink, name: &str, (outputs, taps): (&[EntryOutput], &[Tap]), updates: bool) {
    check_taps(sink, name, taps);
    if outputs.is_empty() && taps.is_empty() && !updates {
        sink.error("output", Place::Whole, format!("`@{name}` has no output, and updates no state"));
    }
    for (i, o) in outputs.iter().enumerate() {
        if outputs[..i].iter().any(|other| other.output.is_requested() == o.output.is_requested()) {
            let message = format!("`@{name}` has more outputs like `{}`: give one", o.output.word());
            sink.error("output", Place::Whole, message);
        }
        if let Output::Rows(rows) = o.output
            && rows.width == 0
        {
            sink.error("model-info", Place::Whole, format!("the width of the output of `@{name}` is 0"));
        }
    }
}

/// A sequence has tokens. Shared with plans.
pub(super) fn entry_context(sink: &mut Sink, name: &str, context: Option<usize>) {
    if context == Some(0) {
        sink.error("model-info", Place::Whole, format!("the context of `@{name}` is 0"));
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Data => "a value or an input",
        Role::Weight | Role::SharedWeight => "a weight",
        Role::State => "an attention state",
    }
}

/// Checks one function. Returns all findings.
pub fn verify_func(func: &Func) -> Vec<Diagnostic> {
    let mut v = FuncVerifier { func, sink: Sink::default(), weights: vec![], appended: HashMap::new() };
    let place = |p: &Param| Place::FuncParam { func: func.name.clone(), param: p.name.clone() };
    v.sink.unique(func.params.iter().map(|p| (p.name.as_str(), place(p))));
    for p in &func.params {
        v.param(p, place(p));
        v.weights.push(match p.role {
            Role::Data | Role::State => Known::Run,
            Role::Weight => Known::Compile,
            Role::SharedWeight => Known::Shared,
        });
    }
    for (i, node) in func.nodes.iter().enumerate() {
        v.node(i, node);
    }
    v.results();
    v.sink.out
}

/// When a value is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// When running.
    Run,
    /// When compiling.
    Compile,
    /// When compiling, but other functions read it too.
    Shared,
}

struct FuncVerifier<'a> {
    func: &'a Func,
    sink: Sink,
    /// Per value.
    weights: Vec<Known>,
    /// States that an append has replaced: by which node.
    appended: HashMap<Value, usize>,
}

impl FuncVerifier<'_> {
    fn param(&mut self, p: &Param, place: Place) {
        let ok = match (&p.ty, p.role) {
            (ValueType::State(spec), Role::State) => return state_spec(&mut self.sink, &place, spec),
            (ValueType::Tensor(t), Role::Data) => matches!(t.shape.first(), Some(Dim::Tokens | Dim::Rows)),
            (ValueType::Tensor(t), Role::Weight | Role::SharedWeight) => {
                t.dtype.is_float() && (1..=3).contains(&t.shape.len()) && t.elements().is_some_and(|n| n > 0)
            }
            (ValueType::State(_), _) | (ValueType::Tensor(_), Role::State) => false,
        };
        if !ok {
            self.sink.error(
                "param-role",
                place,
                format!("a parameter of type {} cannot be {}", p.ty, role_name(p.role)),
            );
        }
    }

    fn node(&mut self, i: usize, node: &Node) {
        let place = Place::Node { func: self.func.name.clone(), node: i, op: node.op.name() };
        let defined = self.func.params.len() + i;
        let mut types = vec![];
        for v in &node.args {
            match self.func.ty(*v).filter(|_| (v.0 as usize) < defined) {
                Some(ty) => types.push(ty.clone()),
                None => {
                    self.sink.error("undefined-value", place.clone(), format!("value {} is not defined before", v.0))
                }
            }
        }
        if types.len() == node.args.len() {
            match node.op.infer(&types) {
                Err(message) => self.sink.error("ill-typed", place.clone(), message),
                Ok(ty) if ty != node.ty => {
                    self.sink.error("recorded-type", place.clone(), format!("is {ty}, but recorded as {}", node.ty))
                }
                Ok(_) => {}
            }
            self.attributes(&node.op, &place);
            self.states(i, node, &place);
        }
        let known: Vec<Known> =
            node.args.iter().map(|v| self.weights.get(v.0 as usize).copied().unwrap_or(Known::Run)).collect();
        self.roles(node, &known, &place);
        self.weights.push(if node.op.facts().packs() && known.iter().all(|k| *k != Known::Run) {
            Known::Compile
        } else {
            Known::Run
        });
    }

    /// Numbers in attributes are finite.
    fn attributes(&mut self, op: &Op, place: &Place) {
        for (_, value) in op.attributes() {
            if let Attr::Real(x) = value
                && !x.get().is_finite()
            {
                self.sink.error("attribute", place.clone(), format!("has the attribute {x}, which is not finite"));
            }
        }
    }

    /// Which arguments must, and which must not, be weights.
    fn roles(&mut self, node: &Node, known: &[Known], place: &Place) {
        let (name, facts) = (node.op.name(), node.op.facts());
        if facts.stage == Stage::Pack && known.contains(&Known::Run) {
            self.sink.error(
                "weights-only",
                place.clone(),
                format!("`{name}` is for weights; an argument is known only when running"),
            );
        }
        if facts.packs() && known.contains(&Known::Shared) && !known.contains(&Known::Run) {
            self.sink.error(
                "shared-weight",
                place.clone(),
                format!("`{name}` rewrites a weight that other functions read too"),
            );
        }
        for (i, ((_, reads), known)) in facts.each_arg().zip(known).enumerate() {
            if reads.weight() && *known == Known::Run {
                self.sink.error(
                    "needs-weight",
                    place.clone(),
                    format!("argument {} of `{name}` must be a weight", i + 1),
                );
            }
        }
    }

    /// A state is replaced once, and afterwards only the new one, if there is one, is read.
    fn states(&mut self, i: usize, node: &Node, place: &Place) {
        let facts = node.op.facts();
        let replaced = |arg: usize| matches!(facts.args.get(arg), Some((_, Reads::Replaced | Reads::Updated)));
        for (arg, v) in
            node.args.iter().enumerate().filter(|(_, v)| self.func.ty(**v).is_some_and(|t| t.state().is_some()))
        {
            if let Some(by) = self.appended.get(v) {
                self.sink.error(
                    "stale-state",
                    place.clone(),
                    format!("uses the state {} that node {by} has replaced", v.0),
                );
            }
            if replaced(arg) {
                self.appended.insert(*v, i);
            }
        }
    }

    fn results(&mut self) {
        let place = || Place::Func { func: self.func.name.clone() };
        for v in &self.func.results {
            match self.func.ty(*v) {
                None => self.sink.error("undefined-value", place(), format!("result {} is not defined", v.0)),
                Some(ValueType::State(_)) => self.sink.error(
                    "state-result",
                    place(),
                    format!("result {} is a state; states are updated in place", v.0),
                ),
                Some(ValueType::Tensor(_)) => {}
            }
        }
    }
}
