//! Rules of the plan level.

use super::{Access, Sink, accesses, format_ok, state_spec, verify_kernel};
use crate::diag::{Diagnostic, Place};
use crate::graph::Weight;
use crate::kernel::{Body, Kernel, Matmul, ParamKind, RowElem, Store};
use crate::plan::{Buffer, Candidates, Launch, Operand, Plan, Regime, Storage, weight_type};
use crate::quant::ROW_GROUPS;
use crate::state::StateSpec;
use crate::tap::Tap;
use crate::target::{Family, RowKind, TargetSpec};
use crate::ty::Dim;
use std::ops::Range;

/// Checks a plan: kernels, weights, and in each regime operands, initialisation and lifetimes.
/// Returns all findings.
pub fn verify_plan(plan: &Plan) -> Vec<Diagnostic> {
    let mut sink = Sink::default();
    sink.unique(plan.kernels.iter().map(|k| (k.name.as_str(), Place::Kernel { kernel: k.name.clone() })));
    for k in &plan.kernels {
        sink.out.extend(verify_kernel(k));
    }
    for (index, spec) in plan.states.iter().enumerate() {
        state_spec(&mut sink, &Place::State { index }, spec);
    }
    for (weight, w) in plan.weights.iter().enumerate() {
        let ok = match w.storage {
            Storage::Matrix { n, k, format } => n > 0 && k > 0 && format_ok(format),
            Storage::Vector { len } => len > 0,
        };
        if !ok {
            sink.error(
                "weight-storage",
                Place::PackedWeight { weight },
                format!("cannot be stored as {:?}", w.storage),
            );
        }
    }
    entries(&mut sink, plan);
    for (i, regime) in plan.regimes.iter().enumerate() {
        RegimeVerifier { plan, regime, index: i, sink: &mut sink }.run();
    }
    unused(&mut sink, plan);
    sink.out
}

/// Checks that a plan is of the kind a target runs: matrices packed in its order, rows that it
/// multiplies. Returns all findings.
pub fn verify_target(plan: &Plan, target: &TargetSpec) -> Vec<Diagnostic> {
    let mut sink = Sink::default();
    let gpu = target.family() == Family::Nvidia;
    for (weight, w) in plan.weights.iter().enumerate() {
        if let Storage::Matrix { format, .. } = w.storage
            && format.packing != target.packing()
        {
            let message = format!("is stored as {format}, but `{}` reads {:?} packing", target.name, target.packing());
            sink.error("target-packing", Place::PackedWeight { weight }, message);
        }
    }
    for (regime, r) in plan.regimes.iter().enumerate() {
        for (buffer, b) in r.buffers.iter().enumerate().filter(|(_, b)| !target.multiplies(b.elem)) {
            let message = format!("has rows of {}, which `{}` does not multiply", RowKind::from(b.elem), target.name);
            sink.error("target-rows", Place::Buffer { regime, buffer }, message);
        }
    }
    if let Some(k) = plan.kernels.iter().find(|k| !gpu && matches!(k.body, Body::TopK(_))) {
        let message = format!("`{}` has the logits where they are read: it needs no candidates", target.name);
        sink.error("target-kernel", Place::Kernel { kernel: k.name.clone() }, message);
    }
    for k in &plan.kernels {
        if let Body::Matmul(Matmul { prologue: Some(p), .. }) = &k.body
            && !target.multiplies(p.elem)
        {
            let message = format!("makes rows of {}, which `{}` does not multiply", RowKind::from(p.elem), target.name);
            sink.error("target-rows", Place::Kernel { kernel: k.name.clone() }, message);
        }
    }
    sink.out
}

/// Checks that every packed weight is stored in the shape its expression has, given the weights of
/// the module. Returns all findings.
pub fn verify_packed(plan: &Plan, weights: &[Weight]) -> Vec<Diagnostic> {
    let mut sink = Sink::default();
    for (weight, w) in plan.weights.iter().enumerate() {
        let place = Place::PackedWeight { weight };
        match weight_type(&w.expr, weights) {
            Err(message) => sink.error("weight-expr", place, message),
            Ok(ty) => {
                let fits = match (w.storage, &ty.shape[..]) {
                    (Storage::Matrix { n, k, .. }, [Dim::Static(a), Dim::Static(b)]) => (n, k) == (*a, *b),
                    (Storage::Vector { len }, _) => ty.elements() == Some(len),
                    (Storage::Matrix { .. }, _) => false,
                };
                if !fits {
                    sink.error(
                        "weight-storage",
                        place,
                        format!("a value of type {ty} cannot be stored as {:?}", w.storage),
                    );
                }
            }
        }
    }
    sink.out
}

/// There are entries with names and outputs of their own, whose regimes stand in their order.
fn entries(sink: &mut Sink, plan: &Plan) {
    if plan.entries.is_empty() {
        sink.error("entries", Place::Whole, "the plan has no entry");
    }
    sink.unique(plan.entries.iter().map(|e| (e.name.as_str(), Place::Whole)));
    for (i, e) in plan.entries.iter().enumerate() {
        let updates = i > 0 && plan.updated_by(i).next().is_some();
        super::outputs(sink, &e.name, (&e.outputs, &e.taps), updates);
        super::entry_context(sink, &e.name, e.context);
    }
    if !plan.regimes.is_sorted_by_key(|r| r.entry) {
        sink.error("entries", Place::Whole, "regimes do not stand in the order of their entries");
    }
    for (regime, r) in plan.regimes.iter().enumerate().filter(|(_, r)| r.entry >= plan.entries.len()) {
        sink.error("entries", Place::Regime { regime }, format!("is of entry {}, which does not exist", r.entry));
    }
    for entry in 0..plan.entries.len() {
        regimes(sink, plan, entry);
    }
}

/// Ascending sizes of an entry; the last serves any.
fn regimes(sink: &mut Sink, plan: &Plan, entry: usize) {
    let name = &plan.entries[entry].name;
    let last = plan.regimes.iter().rposition(|r| r.entry == entry);
    if last.is_none_or(|last| plan.regimes[last].max_tokens.is_some()) {
        let message = format!("the last regime of `@{name}` must serve any number of tokens");
        sink.error("regimes", Place::Whole, message);
    }
    let mut least = 0;
    for (regime, r) in plan.regimes.iter().enumerate().filter(|(_, r)| r.entry == entry) {
        match r.max_tokens {
            None if Some(regime) != last => {
                sink.error("regimes", Place::Regime { regime }, "hides the regimes after it")
            }
            Some(n) if n <= least => sink.error(
                "regimes",
                Place::Regime { regime },
                format!("serves up to {n} tokens, which an earlier one does too"),
            ),
            Some(n) => least = n,
            None => {}
        }
    }
}

fn unused(sink: &mut Sink, plan: &Plan) {
    let launches = || plan.regimes.iter().flat_map(|r| &r.launches);
    for (i, k) in plan.kernels.iter().enumerate() {
        if launches().all(|l| l.kernel != i) {
            sink.warning("unused-kernel", Place::Kernel { kernel: k.name.clone() }, "is never launched");
        }
    }
    for weight in 0..plan.weights.len() {
        if launches().all(|l| !l.operands.contains(&Operand::Weight(weight))) {
            sink.warning("unused-weight", Place::PackedWeight { weight }, "no launch uses it");
        }
    }
}

/// The state of a buffer so far.
#[derive(Clone, Default)]
struct State {
    /// First and last launch that uses it.
    life: Option<(usize, usize)>,
    /// Columns written, ascending, disjoint.
    written: Vec<Range<usize>>,
}

/// The state of an attention state so far.
#[derive(Clone, Copy, Default)]
struct Stored {
    keys: bool,
    values: bool,
}

struct RegimeVerifier<'a> {
    plan: &'a Plan,
    regime: &'a Regime,
    index: usize,
    sink: &'a mut Sink,
}

impl<'a> RegimeVerifier<'a> {
    fn run(mut self) {
        for (i, b) in self.regime.buffers.iter().enumerate() {
            self.buffer(i, b);
        }
        let mut states = vec![State::default(); self.regime.buffers.len()];
        // Where keys are values, only the values are stored.
        let of = |s: &StateSpec| Stored { keys: s.paged().is_some_and(|kv| kv.own_dim() == 0), values: false };
        let mut kv: Vec<Stored> = self.plan.states.iter().map(of).collect();
        for (i, launch) in self.regime.launches.iter().enumerate() {
            self.launch(i, launch, &mut states, &mut kv);
        }
        if let Some(entry) = self.plan.entries.get(self.regime.entry) {
            for o in &entry.outputs {
                let code = if o.output.is_requested() { "output" } else { "hidden" };
                self.result(&mut states, code, o.at, self.plan.info.rows(o.output));
            }
            let in_order = self.regime.launches.is_sorted_by_key(|l| l.call);
            if !entry.taps.is_empty() && !in_order {
                let message = "launches do not stand in the order of their calls, which the entry has taps of";
                self.sink.error("tap", Place::Regime { regime: self.index }, message);
            }
            for (i, tap) in entry.taps.iter().enumerate() {
                self.tap(&mut states, i, tap);
            }
            if let Some(Candidates { slot, k }) = entry.candidates {
                self.result(&mut states, "candidates", slot, (Dim::Rows, llmcc_abi::layout::candidate_cols(k)));
            }
        }
        self.lifetimes(&states);
        for (buffer, s) in states.iter().enumerate().filter(|(_, s)| s.life.is_none()) {
            debug_assert!(s.written.is_empty());
            self.sink.warning("unused-buffer", self.buffer_place(buffer), "no launch uses it");
        }
    }

    fn buffer_place(&self, buffer: usize) -> Place {
        Place::Buffer { regime: self.index, buffer }
    }

    fn buffer(&mut self, i: usize, b: &Buffer) {
        let place = self.buffer_place(i);
        let group_ok = b.elem.group().is_none_or(|group| ROW_GROUPS.contains(&group));
        if b.cols == 0 || !group_ok || !matches!(b.rows, Dim::Tokens | Dim::Rows) {
            return self.sink.error(
                "buffer-type",
                place,
                format!("cannot have {} rows of {} columns as {:?}", b.rows, b.cols, b.elem),
            );
        }
        let Some(slot) = self.plan.slots.get(b.slot) else {
            return self.sink.error("slot-range", place, format!("slot {} does not exist", b.slot));
        };
        // R ≤ T, so that room per token serves logits rows too.
        let (have, per) = match b.rows {
            Dim::Rows => (slot.per_token.saturating_add(slot.per_row), "row"),
            Dim::Tokens | Dim::Static(_) => (slot.per_token, "token"),
        };
        if have < b.row_bytes() {
            self.sink.error(
                "slot-size",
                place,
                format!("needs {} bytes per {per}; slot {} has {have}", b.row_bytes(), b.slot),
            );
        }
    }

    fn launch(&mut self, i: usize, launch: &Launch, states: &mut [State], kv: &mut [Stored]) {
        let Some(kernel) = self.plan.kernels.get(launch.kernel) else {
            let place = Place::Launch { regime: self.index, launch: i, kernel: launch.kernel.to_string() };
            return self.sink.error("launch-kernel", place, "launches a kernel that does not exist");
        };
        let place = Place::Launch { regime: self.index, launch: i, kernel: kernel.name.clone() };
        if launch.operands.len() != kernel.params.len() {
            let message = format!("has {} operands, not {}", launch.operands.len(), kernel.params.len());
            return self.sink.error("launch-operands", place, message);
        }
        for (param, operand) in kernel.params.iter().zip(&launch.operands) {
            if let Some(message) = self.misfit(&param.kind, *operand) {
                self.sink.error("operand-type", place.clone(), format!("operand `{}` {message}", param.name));
            }
        }
        let accesses = accesses(kernel);
        self.aliases(launch, &accesses, &place);
        self.one_group(launch, &place);
        self.reads(launch, kernel, &accesses, states, &place);
        for a in &accesses {
            if let Some(Operand::Buffer(b)) = launch.operands.get(a.param)
                && let Some(s) = states.get_mut(*b)
            {
                s.life = Some((s.life.map_or(i, |l| l.0), i));
                if a.write {
                    s.written.push(a.cols.clone());
                    merge(&mut s.written);
                }
            }
        }
        self.state_order(launch, kernel, kv, &place);
    }

    /// How an operand differs from its parameter.
    fn misfit(&self, kind: &ParamKind, operand: Operand) -> Option<String> {
        match (kind, operand) {
            (ParamKind::Rows { rows, cols, elem }, Operand::Buffer(b)) => match self.regime.buffers.get(b) {
                None => Some(format!("is buffer {b}, which does not exist")),
                Some(have) if (have.rows, have.cols, have.elem) == (*rows, *cols, *elem) => None,
                Some(have) => Some(format!(
                    "must be {rows}×{cols} {elem:?}; buffer {b} is {}×{} {:?}",
                    have.rows, have.cols, have.elem
                )),
            },
            (ParamKind::Matrix { n, k, format }, Operand::Weight(w)) => {
                self.storage(w, Storage::Matrix { n: *n, k: *k, format: *format })
            }
            (ParamKind::Vector { len }, Operand::Weight(w)) => self.storage(w, Storage::Vector { len: *len }),
            (ParamKind::State(spec), Operand::State(s)) => self.state(s, *spec),
            (kind, operand) => Some(format!("cannot be {operand:?}: its parameter is {kind:?}")),
        }
    }

    fn state(&self, state: usize, want: StateSpec) -> Option<String> {
        match self.plan.states.get(state) {
            None => Some(format!("is state {state}, which does not exist")),
            Some(have) => (*have != want).then(|| format!("must be {want}; state {state} is {have}")),
        }
    }

    fn storage(&self, weight: usize, want: Storage) -> Option<String> {
        match self.plan.weights.get(weight) {
            None => Some(format!("is weight {weight}, which does not exist")),
            Some(w) => (w.storage != want).then(|| format!("must be {want:?}; weight {weight} is {:?}", w.storage)),
        }
    }

    /// Two operands of a launch are the same memory only if neither is written.
    fn aliases(&mut self, launch: &Launch, accesses: &[Access], place: &Place) {
        for (i, a) in launch.operands.iter().enumerate() {
            for (j, b) in launch.operands.iter().enumerate().skip(i + 1) {
                let written = accesses.iter().any(|x| x.write && (x.param == i || x.param == j));
                if a == b && written && !matches!(a, Operand::Weight(_)) {
                    self.sink.error(
                        "aliased-operands",
                        place.clone(),
                        format!("operands {i} and {j} are both {a:?}, and one is written"),
                    );
                }
            }
        }
    }

    /// A launch sees one block table, which is that of its states.
    fn one_group(&mut self, launch: &Launch, place: &Place) {
        let state = |o: &Operand| if let Operand::State(s) = o { Some((*s, self.plan.states.get(*s)?)) } else { None };
        let mut states = launch.operands.iter().filter_map(state);
        if let Some((first, spec)) = states.next()
            && let Some((other, _)) = states.find(|(_, s)| !s.lives_as_long_as(spec))
        {
            let message =
                format!("uses states {first} and {other}, whose windows differ: they have different block tables");
            self.sink.error("state-groups", place.clone(), message);
        }
    }

    /// Each read buffer has been written by earlier launches.
    fn reads(&mut self, launch: &Launch, kernel: &Kernel, accesses: &[Access], states: &[State], place: &Place) {
        for a in accesses.iter().filter(|a| !a.write && !a.cols.is_empty()) {
            let Some(Operand::Buffer(b)) = launch.operands.get(a.param) else { continue };
            let Some(state) = states.get(*b) else { continue };
            if !state.written.iter().any(|w| w.start <= a.cols.start && a.cols.end <= w.end) {
                let name = kernel.params.get(a.param).map_or("?", |p| &p.name);
                let message =
                    format!("operand `{name}`: columns {:?} of buffer {b} are read before they are written", a.cols);
                self.sink.error("read-before-write", place.clone(), message);
            }
        }
    }

    /// Keys and values of a step are stored once, and before attention reads them.
    fn state_order(&mut self, launch: &Launch, kernel: &Kernel, kv: &mut [Stored], place: &Place) {
        let state = |param: usize| match launch.operands.get(param) {
            Some(Operand::State(s)) => Some(*s),
            _ => None,
        };
        if let Body::Attention(k) = &kernel.body {
            // An entry that stores nothing of it reads what another entry has stored.
            let elsewhere = |i| {
                (0..self.plan.entries.len()).any(|e| e != self.regime.entry && self.plan.updated_by(e).any(|s| s == i))
            };
            if let Some((i, s)) = state(k.kv).and_then(|i| Some((i, kv.get(i)?)))
                && !(s.keys && s.values)
                && (self.plan.updated_by(self.regime.entry).any(|s| s == i) || !elsewhere(i))
            {
                self.sink.error(
                    "state-order",
                    place.clone(),
                    format!("reads state {i} before keys and values are stored"),
                );
            }
            return;
        }
        for s in kernel.body.segments() {
            let (param, keys) = match s.store {
                Store::KvKey(p) => (p, true),
                Store::KvValue(p) => (p, false),
                Store::Rows { .. } => continue,
            };
            let Some((i, stored)) = state(param).and_then(|i| Some((i, kv.get_mut(i)?))) else { continue };
            let (done, what) = if keys { (&mut stored.keys, "keys") } else { (&mut stored.values, "values") };
            if std::mem::replace(done, true) {
                self.sink.error("state-order", place.clone(), format!("stores the {what} of state {i} a second time"));
            }
        }
    }

    /// When the call of a tap ends, its slots hold its rows and routes; both live until then.
    fn tap(&mut self, states: &mut [State], index: usize, tap: &Tap) {
        let end = self.regime.launches.partition_point(|l| l.call <= tap.call);
        let routes = tap.routes.map(|r| (r.at, r.width()));
        for (slot, cols) in [Some((tap.at, tap.width())), routes].into_iter().flatten() {
            let buffers = self.regime.buffers.iter().enumerate().filter(|(_, b)| b.slot == slot);
            let first = |i: usize| states.get(i)?.life.map(|l| l.0).filter(|first| *first < end);
            let last = buffers.filter_map(|(i, b)| Some((first(i)?, i, b))).max_by_key(|(first, i, _)| (*first, *i));
            match last {
                Some((_, i, b))
                    if (b.rows, b.cols, b.elem) == (tap.rows, cols, RowElem::F32)
                        && states[i].written.iter().eq([&(0..cols)]) =>
                {
                    if let Some(life) = &mut states[i].life {
                        life.1 = life.1.max(end - 1);
                    }
                }
                _ => {
                    let message = format!(
                        "slot {slot} of tap {index} does not hold f32 [{}, {cols}] when call {} has ended",
                        tap.rows, tap.call
                    );
                    self.sink.error("tap", Place::Regime { regime: self.index }, message);
                }
            }
        }
    }

    /// The last buffer of the slot of a result is that result; it lives to the end of the step.
    fn result(&mut self, states: &mut [State], what: &'static str, slot: usize, (rows, cols): (Dim, usize)) {
        let place = Place::Regime { regime: self.index };
        let buffers = self.regime.buffers.iter().enumerate().filter(|(_, b)| b.slot == slot);
        let last =
            buffers.filter_map(|(i, b)| Some((states.get(i)?.life?.0, i, b))).max_by_key(|(first, i, _)| (*first, *i));
        match last {
            Some((_, i, b))
                if (b.rows, b.cols, b.elem) == (rows, cols, RowElem::F32)
                    && states[i].written.iter().eq([&(0..cols)]) =>
            {
                if let Some(life) = &mut states[i].life {
                    life.1 = self.regime.launches.len();
                }
            }
            _ => {
                let message = format!("slot {slot} does not end with f32 {what} [{rows}, {cols}], all written");
                self.sink.error(what, place, message);
            }
        }
    }

    /// Buffers that live at the same time have different slots. Threads of one launch run side by
    /// side, so a buffer may not take the place of another in the launch that reads it last.
    fn lifetimes(&mut self, states: &[State]) {
        let used = |i: usize| Some((self.regime.buffers.get(i)?.slot, states[i].life?));
        let used: Vec<_> = (0..states.len()).filter_map(|i| Some((i, used(i)?))).collect();
        for (at, (i, (slot, a))) in used.iter().enumerate() {
            for (j, (other, b)) in &used[at + 1..] {
                if slot == other && a.0 <= b.1 && b.0 <= a.1 {
                    let message = format!(
                        "is in use in launches {}..={}, buffer {j} in the same slot {slot} in {}..={}",
                        a.0, a.1, b.0, b.1
                    );
                    self.sink.error("slot-overlap", self.buffer_place(*i), message);
                }
            }
        }
    }
}

/// Joins ranges that touch.
fn merge(ranges: &mut Vec<Range<usize>>) {
    ranges.sort_by_key(|r| (r.start, r.end));
    let mut out: Vec<Range<usize>> = vec![];
    for r in ranges.drain(..) {
        match out.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    *ranges = out;
}
