//! Printing modules and functions.

use super::names::{Float, List, Name, Quoted};
use super::output;
use super::tap;
use crate::graph::{Arg, Attr, Call, Entry, Func, ModelInfo, Module, Op, Role, Value, Weight};
use crate::state::StateSpec;

/// The text of a module.
pub fn print_module(m: &Module) -> String {
    let mut out = String::new();
    put!(out, "module {} {{\n", Quoted(&m.name));
    info(&mut out, &m.info);
    for (i, w) in m.weights.iter().enumerate() {
        weight(&mut out, i, w);
    }
    states(&mut out, &m.states);
    for f in &m.funcs {
        func(&mut out, f, "  ");
    }
    for e in &m.entries {
        entry(&mut out, m, e);
    }
    out.push_str("}\n");
    out
}

/// The text of a function.
pub fn print_func(f: &Func) -> String {
    let mut out = String::new();
    func(&mut out, f, "");
    out
}

/// `info …`, shared with plans.
pub(super) fn info(out: &mut String, i: &ModelInfo) {
    put!(out, "  info vocab={} hidden={} max_context={}\n", i.vocab, i.hidden, i.max_context);
}

/// `kv …` and `state …` declarations, shared with plans.
pub(super) fn states(out: &mut String, states: &[StateSpec]) {
    for (i, s) in states.iter().enumerate() {
        put!(out, "  {} {i}: {s}\n", state_word(states, i));
    }
}

/// The name of state `i`; all words count all states.
pub(super) fn state_word(states: &[StateSpec], i: usize) -> &'static str {
    states.get(i).map_or("kv", StateSpec::word)
}

fn weight(out: &mut String, i: usize, w: &Weight) {
    put!(out, "  weight {i} {}: {}", Quoted(&w.name), w.ty);
    if let Some(data) = &w.data {
        put!(out, " = [{}]", List(data.iter().map(|x| Float(*x))));
    }
    out.push('\n');
}

fn func(out: &mut String, f: &Func, indent: &str) {
    put!(out, "{indent}func @{}(", Name(&f.name));
    for p in &f.params {
        put!(out, "\n{indent}  %{}: {}{},", Name(&p.name), p.ty, role(p.role));
    }
    if !f.params.is_empty() {
        put!(out, "\n{indent}");
    }
    put!(out, ") -> (");
    for (i, v) in f.results.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        match f.ty(*v) {
            Some(t) => put!(out, "{comma}{t}"),
            None => put!(out, "{comma}?"),
        }
    }
    out.push_str(") {\n");
    for (i, n) in f.nodes.iter().enumerate() {
        put!(out, "{indent}  %{} = ", f.node_value(i).0);
        operation(out, &n.op);
        if !n.args.is_empty() {
            out.push('(');
            values(out, f, &n.args);
            out.push(')');
        }
        put!(out, " : {}\n", n.ty);
    }
    put!(out, "{indent}  return");
    if !f.results.is_empty() {
        out.push(' ');
        values(out, f, &f.results);
    }
    put!(out, "\n{indent}}}\n");
}

/// `name{attribute=value, …}`, also in expressions of weights.
pub(super) fn operation(out: &mut String, op: &Op) {
    out.push_str(op.name());
    let attributes: Vec<_> = op.attributes().into_iter().zip(op.head().defaults()).collect();
    let attributes: Vec<_> =
        attributes.into_iter().filter(|((_, value), usual)| usual.as_ref() != Some(value)).map(|(a, _)| a).collect();
    if !attributes.is_empty() {
        out.push('{');
        for (i, (name, value)) in attributes.iter().enumerate() {
            put!(out, "{}{name}=", if i == 0 { "" } else { ", " });
            match value {
                Attr::Size(n) => put!(out, "{n}"),
                Attr::Real(x) => put!(out, "{}", Float(x.get())),
                Attr::Flag(b) => put!(out, "{b}"),
                Attr::Word(word) => out.push_str(word),
                Attr::Sizes(sizes) => put!(out, "[{}]", List(sizes.iter())),
            }
        }
        out.push('}');
    }
}

fn values(out: &mut String, f: &Func, values: &[Value]) {
    for (i, v) in values.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        match f.params.get(v.0 as usize) {
            Some(p) => put!(out, "{comma}%{}", Name(&p.name)),
            None => put!(out, "{comma}%{}", v.0),
        }
    }
}

pub(super) fn role(r: Role) -> &'static str {
    match r {
        Role::Data => "",
        Role::Weight => " weight",
        Role::SharedWeight => " shared_weight",
        Role::State => " state",
    }
}

/// Every role that has a word, for the parser.
pub(super) const ROLES: &[(Role, &str)] =
    &[(Role::Weight, "weight"), (Role::SharedWeight, "shared_weight"), (Role::State, "state")];

fn entry(out: &mut String, m: &Module, e: &Entry) {
    entry_head(out, &e.name, e.context);
    let mut next = 0;
    for c in &e.calls {
        out.push_str("    ");
        call(out, m, c, &mut next);
    }
    for o in &e.outputs {
        out.push_str("    ");
        output::print(out, o.output, &format!("%{}", o.at));
    }
    for t in &e.taps {
        out.push_str("    ");
        tap::print(out, t, |value| format!("%{value}"));
    }
    out.push_str("  }\n");
}

/// The first line of an entry, shared with plans.
pub(super) fn entry_head(out: &mut String, name: &str, context: Option<usize>) {
    let context = context.map_or(String::new(), |n| format!("context={n} "));
    put!(out, "  entry @{} {context}{{\n", Name(name));
}

fn call(out: &mut String, m: &Module, c: &Call, next: &mut usize) {
    let func = m.funcs.get(c.func);
    let results = func.map_or(0, |f| f.results.len());
    for i in 0..results {
        put!(out, "{}%{}", if i == 0 { "" } else { ", " }, *next + i);
    }
    *next += results;
    if results > 0 {
        out.push_str(" = ");
    }
    match func {
        Some(f) => put!(out, "@{}(", Name(&f.name)),
        None => put!(out, "@\"missing function {}\"(", c.func),
    }
    for (i, a) in c.args.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        match a {
            Arg::Value(v) => put!(out, "%{v}"),
            Arg::Weight(w) => put!(out, "weight {w}"),
            Arg::State(s) => put!(out, "{} {s}", state_word(&m.states, *s)),
            Arg::Input(input) => out.push_str(input.name()),
        }
    }
    out.push_str(")\n");
}
