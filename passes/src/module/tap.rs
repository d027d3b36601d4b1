//! The entry `tap`: the computation of the first entry, which shows the inputs of its products.
//!
//! It is made of the module as the front end lifts it, before any rewrite: the checkpoint's weight multiplies a tap's
//! rows, whichever gains are folded into weights later. Its functions are the first entry's with other results, and the
//! [pipeline](crate::pipeline) takes the kernels of the first entry for them.

use llmcc_ir::graph::{Arg, Call, Entry, Func, Module, Node, Op, Role, TAP, Value, picked_row};
use llmcc_ir::tap::{Routes, Tap, TappedWeight};
use llmcc_ir::ty::Dim;
use std::collections::{BTreeMap, BTreeSet};

/// Adds the entry `tap`. Returns the names of weights whose products it does not show, sorted: weights of products by
/// heads (latent attention excepted), and matrices that are computed from their tensors otherwise than by choosing and
/// scaling rows.
///
/// # Errors
/// A message where there is such an entry already, or no product.
pub fn add(module: &mut Module) -> Result<Vec<String>, String> {
    if module.entries.iter().any(|e| e.name == TAP) {
        return Err(format!("there is an entry `{TAP}` already"));
    }
    let Some(first) = module.entries.first() else { return Err("the module has no entry".into()) };
    let found: Vec<Products> = module.funcs.iter().map(Products::of).collect();
    // Calls after the last that has a product show nothing.
    let last = first.calls.iter().rposition(|c| found.get(c.func).is_some_and(|p| !p.inputs.is_empty()));
    let Some(last) = last else { return Err("no product of the model multiplies rows by a tensor".into()) };
    let calls = first.calls[..=last].to_vec();
    let mut maker = Maker { module, found, calls, made: BTreeMap::new() };
    let entry = maker.entry();
    let left = maker.left();
    let made = std::mem::take(&mut maker.made);
    let mut funcs: Vec<(usize, Func)> = made.into_values().map(|m| (m.index, m.func)).collect();
    funcs.sort_by_key(|(index, _)| *index);
    module.funcs.extend(funcs.into_iter().map(|(_, f)| f));
    module.entries.push(entry);
    Ok(left)
}

/// An input of products of a function, with their weights.
struct Input {
    x: Value,
    /// Columns of a product's input.
    columns: usize,
    rows: Dim,
    /// Routes, whose place is a value of the function.
    routes: Option<Routes>,
    /// Parameters that multiply it, and the only expert that each belongs to.
    weights: Vec<(usize, Option<usize>)>,
}

/// The products of a function.
struct Products {
    inputs: Vec<Input>,
    /// Parameters that other products read.
    left: BTreeSet<usize>,
}

impl Products {
    fn of(f: &Func) -> Products {
        let mut found = Products { inputs: vec![], left: BTreeSet::new() };
        for node in &f.nodes {
            if let (Op::MatMul, [x, w]) = (&node.op, &node.args[..]) {
                found.add(f, (*x, *w), None);
            }
            if let (Op::ExpertMatMul { experts, top, .. }, [x, w, routes]) = (&node.op, &node.args[..]) {
                found.add(f, (*x, *w), Some((*routes, *experts, *top)));
            }
            if let (Op::HeadMatMul { .. }, [_, w]) = (&node.op, &node.args[..]) {
                leaves(f, *w).into_iter().for_each(|p| found.add_by_heads(f, p));
            }
        }
        found
    }

    /// Adds the product of `x` and `w`, of experts if there are `routes` with their number and the chosen ones'.
    fn add(&mut self, f: &Func, (x, w): (Value, Value), routes: Option<(Value, usize, usize)>) {
        let matrix = |v: Value| match f.ty(v)?.tensor()?.shape[..] {
            [rows, Dim::Static(columns)] => Some((rows, columns)),
            _ => None,
        };
        let (Some((rows, width)), Some((_, columns))) = (matrix(x), matrix(w)) else { return };
        let Some(owners) = owners(f, w) else { return self.left.extend(leaves(f, w)) };
        let routes =
            routes.map(|(at, experts, top)| Routes { at: at.0 as usize, experts, top, apart: width != columns });
        let weights = by_expert(&owners, routes.map_or(1, |r| r.experts));
        self.push(Input { x, columns, rows, routes, weights });
    }

    /// Adds a parameter that products by heads read. Latent attention (arXiv 2405.04434) absorbs the matrix that makes
    /// keys and values into queries and results: the checkpoint's tensor multiplies the latents that are cached.
    fn add_by_heads(&mut self, f: &Func, param: usize) {
        let columns = f.params[param].ty.tensor().and_then(|t| t.shape.last()?.known());
        let latent = |n: &Node| {
            let (Op::KvAppend, [kv, _, v, ..]) = (&n.op, &n.args[..]) else { return None };
            f.ty(*kv)?.state()?.paged()?.latent.then_some(*v)
        };
        let latents = f.nodes.iter().filter_map(latent);
        let matrix = |x: Value| match f.ty(x)?.tensor()?.shape[..] {
            [rows, Dim::Static(n)] if Some(n) == columns => Some((x, rows, n)),
            _ => None,
        };
        match latents.filter_map(matrix).collect::<Vec<_>>()[..] {
            [(x, rows, columns)] => {
                self.push(Input { x, columns, rows, routes: None, weights: vec![(param, None)] });
            }
            _ => _ = self.left.insert(param),
        }
    }

    /// Adds weights to an input, which may be known.
    fn push(&mut self, new: Input) {
        let same = |i: &&mut Input| (i.x, i.columns, i.routes) == (new.x, new.columns, new.routes);
        match self.inputs.iter_mut().find(same) {
            Some(input) => {
                let more: Vec<_> = new.weights.into_iter().filter(|w| !input.weights.contains(w)).collect();
                input.weights.extend(more);
            }
            None => self.inputs.push(new),
        }
    }
}

/// The parameter that each row of a matrix comes from (`None`: a row of zeros), if its columns are the tensor's.
fn owners(f: &Func, w: Value) -> Option<Vec<Option<usize>>> {
    let at = w.0 as usize;
    let rows = || {
        let shape = &f.ty(w)?.tensor()?.shape;
        let (_, rows) = shape.split_last()?;
        rows.iter().try_fold(1usize, |n, d| n.checked_mul(d.known()?))
    };
    if let Some(p) = f.params.get(at) {
        let weight = matches!(p.role, Role::Weight | Role::SharedWeight);
        return weight.then(|| Some(vec![Some(at); rows()?])).flatten();
    }
    let node = f.nodes.get(at - f.params.len())?;
    let first = *node.args.first()?;
    if let Op::SliceRows { start, len } = node.op {
        return owners(f, first)?.get(start..start.checked_add(len)?).map(<[_]>::to_vec);
    }
    if let Op::PickRows { run, start, len, pairs } = node.op {
        let of = owners(f, first)?;
        return (0..of.len() / run * len).map(|i| of.get(picked_row([run, start, len, pairs], i)).copied()).collect();
    }
    if let Op::FillRows { run, to } = node.op {
        let filled = |rows: &[Option<usize>]| [rows, &vec![None; to.saturating_sub(rows.len())]].concat();
        return Some(owners(f, first)?.chunks(run).flat_map(filled).collect());
    }
    if node.op == Op::ConcatRows {
        let parts: Option<Vec<_>> = node.args.iter().map(|part| owners(f, *part)).collect();
        return Some(parts?.concat());
    }
    // A tensor as it is stored.
    if node.op == Op::Transpose && (first.0 as usize) < f.params.len() {
        return Some(vec![Some(first.0 as usize); rows()?]);
    }
    let scaled = matches!(node.op, Op::Flatten | Op::ScaleRows | Op::UnitRows | Op::StandardRows { .. });
    scaled.then(|| owners(f, first)).flatten()
}

/// The parameters that rows come from, in their order, each with the only expert whose rows come from it, if it is one.
fn by_expert(owners: &[Option<usize>], experts: usize) -> Vec<(usize, Option<usize>)> {
    let rows = (owners.len() / experts.max(1)).max(1);
    let mut found: Vec<(usize, Option<usize>)> = vec![];
    for (row, owner) in owners.iter().enumerate() {
        let Some(param) = *owner else { continue };
        let expert = (experts > 1).then_some(row / rows);
        match found.iter_mut().rev().find(|(p, _)| *p == param) {
            Some((_, of)) if *of != expert => *of = None,
            Some(_) => {}
            None => found.push((param, expert)),
        }
    }
    found
}

/// The weight parameters that a value is computed from.
fn leaves(f: &Func, w: Value) -> BTreeSet<usize> {
    let (mut todo, mut seen, mut found) = (vec![w], BTreeSet::new(), BTreeSet::new());
    while let Some(v) = todo.pop() {
        let at = v.0 as usize;
        match at.checked_sub(f.params.len()) {
            None => found.extend(matches!(f.params[at].role, Role::Weight | Role::SharedWeight).then_some(at)),
            Some(node) if seen.insert(v) => todo.extend(f.nodes.get(node).map_or(&[][..], |n| &n.args)),
            Some(_) => {}
        }
    }
    found
}

/// A function made for the entry.
struct Made {
    /// Its index in the module.
    index: usize,
    func: Func,
    /// Results of the original function that it has too, by their numbers there.
    kept: Vec<usize>,
}

/// Makes the entry of the first entry's calls.
struct Maker<'a> {
    module: &'a Module,
    found: Vec<Products>,
    calls: Vec<Call>,
    /// By the index of the original function.
    made: BTreeMap<usize, Made>,
}

impl Maker<'_> {
    fn entry(&mut self) -> Entry {
        let mut entry = Entry::new(TAP);
        // Values of the first entry, and the same ones of this entry.
        let mut values: BTreeMap<usize, usize> = BTreeMap::new();
        let (mut old, mut new) = (0, 0);
        for (index, call) in self.calls.clone().into_iter().enumerate() {
            let results = self.module.funcs[call.func].results.len();
            let (func, kept) = self.func(call.func);
            values.extend(kept.iter().enumerate().map(|(at, result)| (old + result, new + at)));
            entry.taps.extend(self.taps(index, &call, new));
            let arg = |a: &Arg| match a {
                Arg::Value(v) => Arg::Value(values.get(v).copied().unwrap_or(usize::MAX)),
                other => *other,
            };
            entry.calls.push(Call { func, args: call.args.iter().map(arg).collect() });
            old += results;
            new += self.made.get(&call.func).map_or(results, |m| m.func.results.len());
        }
        entry
    }

    /// The function to call instead, and which results of the original it has first.
    fn func(&mut self, original: usize) -> (usize, Vec<usize>) {
        let f = &self.module.funcs[original];
        if self.found[original].inputs.is_empty() {
            return (original, (0..f.results.len()).collect());
        }
        if let Some(made) = self.made.get(&original) {
            return (made.index, made.kept.clone());
        }
        let used = self.results_used(original);
        let kept: Vec<usize> = (0..f.results.len()).filter(|r| used.contains(r)).collect();
        let mut func = Func { name: self.name(&f.name), ..f.clone() };
        func.results = kept.iter().map(|r| f.results[*r]).collect();
        for input in &self.found[original].inputs {
            let routes = input.routes.map(|r| Value(r.at as u32));
            for v in std::iter::once(input.x).chain(routes) {
                if !func.results.contains(&v) {
                    func.results.push(v);
                }
            }
        }
        let index = self.module.funcs.len() + self.made.len();
        self.made.insert(original, Made { index, func, kept: kept.clone() });
        (index, kept)
    }

    /// A name that no function has.
    fn name(&self, original: &str) -> String {
        let mut name = format!("{TAP}.{original}");
        while self.module.funcs.iter().chain(self.made.values().map(|m| &m.func)).any(|f| f.name == name) {
            name.insert_str(0, "tap.");
        }
        name
    }

    /// Results of a function that later calls read, in any of its calls.
    fn results_used(&self, func: usize) -> BTreeSet<usize> {
        let values = self.calls.iter().flat_map(|c| &c.args);
        let read: BTreeSet<usize> =
            values.filter_map(|a| if let Arg::Value(v) = a { Some(*v) } else { None }).collect();
        let mut first = 0;
        let mut used = BTreeSet::new();
        for call in &self.calls {
            let results = self.module.funcs[call.func].results.len();
            if call.func == func {
                used.extend((0..results).filter(|r| read.contains(&(first + r))));
            }
            first += results;
        }
        used
    }

    /// The taps of a call whose results are values from `first` on.
    fn taps(&self, index: usize, call: &Call, first: usize) -> Vec<Tap> {
        let Some(made) = self.made.get(&call.func) else { return vec![] };
        let place = |v: Value| first + made.func.results.iter().position(|r| *r == v).unwrap_or_default();
        let tap = |input: &Input| {
            let name = |(param, expert): &(usize, Option<usize>)| {
                Some(TappedWeight { name: self.tensor(call, *param)?, expert: *expert })
            };
            let mut weights: Vec<TappedWeight> = vec![];
            // Parameters may be bound to the same weight.
            for w in input.weights.iter().filter_map(name) {
                if !weights.contains(&w) {
                    weights.push(w);
                }
            }
            let routes = input.routes.map(|r| Routes { at: place(Value(r.at as u32)), ..r });
            let (rows, columns) = (input.rows, input.columns);
            (!weights.is_empty()).then(|| Tap { at: place(input.x), call: index, rows, columns, routes, weights })
        };
        self.found[call.func].inputs.iter().filter_map(tap).collect()
    }

    /// The tensor of the checkpoint that a call binds to a parameter.
    fn tensor(&self, call: &Call, param: usize) -> Option<String> {
        match call.args.get(param)? {
            Arg::Weight(w) => self.module.weights.get(*w).filter(|w| w.data.is_none()).map(|w| w.name.clone()),
            Arg::Value(_) | Arg::State(_) | Arg::Input(_) => None,
        }
    }

    /// Weights of products that are not shown.
    fn left(&self) -> Vec<String> {
        let of_call = |c: &Call| self.found[c.func].left.iter().filter_map(|p| self.tensor(c, *p)).collect::<Vec<_>>();
        let names: BTreeSet<String> = self.calls.iter().flat_map(of_call).collect();
        names.into_iter().collect()
    }
}
