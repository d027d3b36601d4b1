//! Graphs of the three levels in DOT, the language of Graphviz.
//!
//! Boxes are operations, calls and launches; ellipses are parameters, results, weights and states. An edge goes from a
//! value to its reader. Each function, entry and regime of a plan is a cluster. The text depends on the item alone, so
//! that two graphs can be compared by their lines.

use super::Item;
use super::print_graph::{operation, role};
use crate::graph::{Arg, Call, Entry, Func, Module, Value};
use crate::kernel::Kernel;
use crate::plan::{Operand, Plan, Regime};
use crate::verify::accesses;
use std::collections::{BTreeMap, BTreeSet};

/// A graph under construction: statements, and the depth at which they stand.
pub struct Dot {
    out: String,
    depth: usize,
}

impl Dot {
    /// The beginning of a graph that is drawn from top to bottom.
    #[must_use]
    pub fn new(name: &str) -> Dot {
        let mut dot = Dot { out: format!("digraph {} {{\n", quoted(name)), depth: 1 };
        dot.line("node [fontname=\"monospace\", fontsize=10];");
        dot
    }

    fn line(&mut self, text: &str) {
        put!(self.out, "{:indent$}{text}\n", "", indent = 2 * self.depth);
    }

    /// A box with a label: a step of the work.
    pub fn step(&mut self, id: &str, label: &str) {
        self.line(&format!("{} [shape=box, label={}];", quoted(id), quoted(label)));
    }

    /// An ellipse with a label: a value.
    pub fn value(&mut self, id: &str, label: &str) {
        self.line(&format!("{} [label={}];", quoted(id), quoted(label)));
    }

    /// An edge, with a label or none.
    pub fn edge(&mut self, from: &str, to: &str, label: &str) {
        let label = if label.is_empty() { String::new() } else { format!(" [label={}]", quoted(label)) };
        self.line(&format!("{} -> {}{label};", quoted(from), quoted(to)));
    }

    /// Opens a cluster.
    pub fn open(&mut self, id: &str, label: &str) {
        self.line(&format!("subgraph {} {{", quoted(&format!("cluster_{id}"))));
        self.depth += 1;
        self.line(&format!("label={};", quoted(label)));
    }

    /// Closes the innermost cluster.
    pub fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.line("}");
    }

    /// The whole text.
    #[must_use]
    pub fn finish(mut self) -> String {
        while self.depth > 1 {
            self.close();
        }
        self.out.push_str("}\n");
        self.out
    }
}

/// A string of DOT. A line break in it ends a line of a label.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The graph of several items, a cluster each.
#[must_use]
pub fn items(items: &[Item]) -> String {
    let mut dot = Dot::new("lir");
    for (i, item) in items.iter().enumerate() {
        let id = format!("i{i}");
        match item {
            Item::Module(m) => add_module(&mut dot, &id, m),
            Item::Func(f) => add_func(&mut dot, &id, f),
            Item::Kernel(k) => add_kernel(&mut dot, &id, k),
            Item::Plan(p) => add_plan(&mut dot, &id, p),
        }
    }
    dot.finish()
}

/// The graph of a module: its functions, and the entries that call them.
#[must_use]
pub fn module(m: &Module) -> String {
    let mut dot = Dot::new(&m.name);
    add_module(&mut dot, "m", m);
    dot.finish()
}

/// The graph of a plan: the launches of each regime.
#[must_use]
pub fn plan(p: &Plan) -> String {
    let mut dot = Dot::new(&p.name);
    add_plan(&mut dot, "p", p);
    dot.finish()
}

fn add_func(dot: &mut Dot, id: &str, f: &Func) {
    let node = |v: Value| format!("{id}.{}", v.0);
    dot.open(id, &format!("func @{}", f.name));
    for (i, p) in f.params.iter().enumerate() {
        dot.value(&node(Value(i as u32)), &format!("%{}\n{}{}", p.name, p.ty, role(p.role)));
    }
    for (i, n) in f.nodes.iter().enumerate() {
        let mut label = String::new();
        operation(&mut label, &n.op);
        put!(label, "\n{}", n.ty);
        let this = node(f.node_value(i));
        dot.step(&this, &label);
        for (at, arg) in n.args.iter().enumerate() {
            let label = if n.args.len() > 1 { at.to_string() } else { String::new() };
            dot.edge(&node(*arg), &this, &label);
        }
    }
    for (i, v) in f.results.iter().enumerate() {
        let result = format!("{id}.result{i}");
        dot.value(&result, &format!("result {i}"));
        dot.edge(&node(*v), &result, "");
    }
    dot.close();
}

fn add_module(dot: &mut Dot, id: &str, m: &Module) {
    for (i, f) in m.funcs.iter().enumerate() {
        add_func(dot, &format!("{id}.f{i}"), f);
    }
    for e in &m.entries {
        add_entry(dot, &format!("{id}.{}", e.name), m, e);
    }
}

fn add_entry(dot: &mut Dot, id: &str, m: &Module, e: &Entry) {
    let mut results: Vec<(String, usize)> = vec![];
    let mut states: BTreeSet<usize> = BTreeSet::new();
    dot.open(id, &format!("{} of {}", e.name, m.name));
    for (i, call) in e.calls.iter().enumerate() {
        let this = format!("{id}.call{i}");
        dot.step(&this, &called(m, call));
        for arg in &call.args {
            match arg {
                Arg::Value(v) => {
                    let (from, at) = results.get(*v).cloned().unwrap_or((format!("{id}.missing{v}"), 0));
                    dot.edge(&from, &this, &at.to_string());
                }
                Arg::State(s) => {
                    if states.insert(*s) {
                        dot.value(&format!("{id}.state{s}"), &state(m, *s));
                    }
                    dot.edge(&format!("{id}.state{s}"), &this, "");
                }
                // The inputs of an entry reach most calls, and each weight one: the label has them.
                Arg::Weight(_) | Arg::Input(_) => {}
            }
        }
        let of_call = m.funcs.get(call.func).map_or(0, |f| f.results.len());
        results.extend((0..of_call).map(|at| (this.clone(), at)));
    }
    for o in &e.outputs {
        if let Some((from, at)) = results.get(o.at) {
            let name = o.output.word();
            dot.value(&format!("{id}.{name}"), name);
            dot.edge(from, &format!("{id}.{name}"), &at.to_string());
        }
    }
    dot.close();
}

/// A call with its weights, by their names, and the inputs of the entry.
fn called(m: &Module, call: &Call) -> String {
    let mut label = format!("@{}", m.funcs.get(call.func).map_or("?", |f| &f.name));
    for arg in &call.args {
        match arg {
            Arg::Weight(w) => put!(label, "\n{}", m.weights.get(*w).map_or("?", |w| &w.name)),
            Arg::Input(input) => put!(label, "\n{}", input.name()),
            Arg::Value(_) | Arg::State(_) => {}
        }
    }
    label
}

fn state(m: &Module, i: usize) -> String {
    m.states.get(i).map_or("?".into(), |s| format!("{} {i}\n{s}", s.word()))
}

fn add_kernel(dot: &mut Dot, id: &str, k: &Kernel) {
    dot.open(id, &format!("kernel @{} rows {}", k.name, k.rows));
    let body = format!("{id}.body");
    dot.step(&body, k.body.name());
    let used: BTreeSet<(usize, bool)> = accesses(k).iter().map(|a| (a.param, a.write)).collect();
    for (i, p) in k.params.iter().enumerate() {
        let param = format!("{id}.{i}");
        dot.value(&param, &format!("%{}", p.name));
        if used.contains(&(i, false)) {
            dot.edge(&param, &body, "");
        }
        if used.contains(&(i, true)) {
            dot.edge(&body, &param, "");
        }
    }
    dot.close();
}

fn add_plan(dot: &mut Dot, id: &str, p: &Plan) {
    for (i, r) in p.regimes.iter().enumerate() {
        let entry = p.entries.get(r.entry).map_or("?", |e| &e.name);
        let label = match r.max_tokens {
            Some(n) => format!("{entry} of {}, at most {n} tokens", p.name),
            None => format!("{entry} of {}, any number of tokens", p.name),
        };
        let cluster = format!("{id}.r{i}");
        dot.open(&cluster, &label);
        add_regime(dot, &cluster, p, r);
        dot.close();
    }
}

/// Launches in order. A buffer leads from the launch that wrote it last to its readers, a state from its writers, too;
/// weights stand in the labels.
fn add_regime(dot: &mut Dot, id: &str, p: &Plan, r: &Regime) {
    let mut written: BTreeMap<(bool, usize), String> = BTreeMap::new();
    for (i, l) in r.launches.iter().enumerate() {
        let this = format!("{id}.{i}");
        let Some(kernel) = p.kernels.get(l.kernel) else { continue };
        let mut label = format!("{}: @{}", l.call, kernel.name);
        for o in &l.operands {
            if let Operand::Weight(w) = o {
                put!(label, "\nweight {w}");
            }
        }
        dot.step(&this, &label);
        let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
        for a in accesses(kernel) {
            let place = match l.operands.get(a.param) {
                Some(Operand::Buffer(b)) => (false, *b),
                Some(Operand::State(s)) => (true, *s),
                Some(Operand::Weight(_)) | None => continue,
            };
            let places = if a.write { &mut writes } else { &mut reads };
            places.insert(place);
        }
        for place in &reads {
            if let Some(from) = written.get(place) {
                dot.edge(from, &this, &label_of(p, r, *place));
            }
        }
        written.extend(writes.into_iter().map(|place| (place, this.clone())));
    }
}

/// A buffer with its type, or a state.
fn label_of(p: &Plan, r: &Regime, (is_state, at): (bool, usize)) -> String {
    match (is_state, r.buffers.get(at)) {
        (true, _) => format!("{} {at}", p.states.get(at).map_or("state", |s| s.word())),
        (false, Some(b)) => format!("{}[{}, {}]", b.elem, b.rows, b.cols),
        (false, None) => "?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Source;

    /// Names of nodes and edges of a graph; panics where the text is no DOT.
    fn parts(text: &str) -> (BTreeSet<String>, Vec<(String, String)>) {
        let (mut nodes, mut edges, mut depth) = (BTreeSet::new(), vec![], 0i32);
        for line in text.lines().map(str::trim) {
            assert_eq!(line.replace("\\\\", "").replace("\\\"", "").matches('"').count() % 2, 0, "{line}");
            let names: Vec<&str> = line.split('"').collect();
            match line {
                "}" => depth -= 1,
                l if l.starts_with("digraph") || l.starts_with("subgraph") => {
                    assert!(l.ends_with(" {"), "{l}");
                    depth += 1;
                }
                l if l.starts_with("node [") || l.starts_with("label=") => assert!(l.ends_with(';'), "{l}"),
                l if l.contains("\" -> \"") => edges.push((names[1].into(), names[3].into())),
                l => {
                    assert!(l.ends_with("];") && l.starts_with('"'), "{l}");
                    assert!(nodes.insert(names[1].to_owned()), "twice: {l}");
                }
            }
        }
        assert_eq!(depth, 0, "{text}");
        (nodes, edges)
    }

    #[test]
    fn every_edge_joins_nodes() {
        let files = ["module", "plan", "kernels", "more_kernels"];
        for (file, most) in files.iter().zip([40, 3, 20, 20]) {
            let path = format!("{}/tests/lir/{file}.lir", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).unwrap();
            let source = Source::parse(&text).unwrap();
            let graph = items(&source.items);
            let (nodes, edges) = parts(&graph);
            assert!(edges.len() >= most, "{file}: {} edges", edges.len());
            for (from, to) in &edges {
                assert!(nodes.contains(from) && nodes.contains(to), "{file}: {from} -> {to}\n{graph}");
            }
        }
    }

    #[test]
    fn readers_follow_writers() {
        let text = "func @f(%x: f32[T, 8]) -> (f32[T, 8]) {\n  %y = add(%x, %x) : f32[T, 8]\n  return %y\n}\n";
        let (nodes, edges) = parts(&items(&Source::parse(text).unwrap().items));
        assert_eq!(nodes.len(), 3);
        let edges: Vec<_> = edges.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(edges, [("i0.0", "i0.1"), ("i0.0", "i0.1"), ("i0.1", "i0.result0")]);
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b\\c\nd\u{1b}"), "\"a\\\"b\\\\c\\nd \"");
        let text = "func @\"a\\\"b\"(%x: f32[T, 8]) -> (f32[T, 8]) {\n  return %x\n}\n";
        let graph = items(&Source::parse(text).unwrap().items);
        assert!(graph.contains("label=\"func @a\\\"b\";"), "{graph}");
        parts(&graph);
    }
}
