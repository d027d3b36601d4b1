//! Parsing modules and functions.

use super::lex::{Kind, Token};
use super::output;
use super::parse::{Label, Parsed, Parser, Scope, fault, shorten, suggest};
use super::print_graph::ROLES;
use super::tap;
use crate::diag::Place;
use crate::graph::{
    Arg, Call, Entry, Func, Head, Input, ModelInfo, Module, Node, Op, Param, Role, Value, ValueType, Weight,
};
use crate::state::StateSpec;
use std::collections::HashMap;
use std::ops::Range;

/// Words that start a part of a module, beside the words of its states.
const MODULE_WORDS: &[&str] = &["info", "weight", "func", "entry"];

/// The parts of a module read so far.
#[derive(Default)]
struct Parts {
    info: Option<ModelInfo>,
    weights: Vec<Weight>,
    states: Vec<StateSpec>,
    funcs: Vec<Func>,
    /// Index of each function; `None` if its text was wrong, so that its calls cannot be checked.
    names: HashMap<String, Option<usize>>,
    entries: Vec<Entry>,
    next_weight: usize,
    next_state: usize,
}

/// `module "name" { … }`
pub(super) fn module(p: &mut Parser) -> Parsed<Module> {
    let head = p.mark();
    p.expect_word("module")?;
    let name = p.string("the module's name in quotes")?;
    let head = p.since(head);
    let mut parts = Parts::default();
    p.statements(
        |kind, word| kind == Kind::Word && (MODULE_WORDS.contains(&word) || StateSpec::is_word(word)),
        |p| statement(p, &mut parts),
    )?;
    // The missing parts of a text with other errors are probably among those.
    let lacks = |what: &str| fault("missing-part", head.clone(), format!("the module has no `{what}`"));
    let info = match parts.info {
        Some(_) if parts.entries.is_empty() && !p.failed() => return Err(lacks("entry")),
        Some(info) => info,
        None if p.failed() => NO_INFO,
        None => return Err(lacks("info")),
    };
    let Parts { weights, states, funcs, entries, .. } = parts;
    Ok(Module { name, info, weights, states, funcs, entries })
}

fn statement(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    let first = p.peek();
    match p.peek_word() {
        "info" => {
            let info = info(p)?;
            if parts.info.replace(info).is_some() {
                return Err(fault("duplicate-name", first.range(), "`info` is given twice"));
            }
        }
        "weight" => weight(p, parts)?,
        word if StateSpec::is_word(word) => state(p, &mut parts.states, &mut parts.next_state)?,
        "func" => func_of(p, parts)?,
        "entry" => entry(p, parts)?,
        _ => {
            let words = [&["info", "weight"], StateSpec::WORDS, &["func", "entry"]].concat();
            return Err(p.one_of("a part of a module", &words));
        }
    }
    Ok(())
}

/// Sizes in place of those whose text was wrong.
pub(super) const NO_INFO: ModelInfo = ModelInfo { vocab: 0, hidden: 0, max_context: 0 };

/// `info vocab=… hidden=… max_context=…`, shared with plans.
pub(super) fn info(p: &mut Parser) -> Parsed<ModelInfo> {
    p.expect_word("info")?;
    Ok(ModelInfo {
        vocab: p.field_size("vocab")?,
        hidden: p.field_size("hidden")?,
        max_context: p.field_size("max_context")?,
    })
}

/// `kv 0: kv<…>`, `state 0: state<…>` or `adapter 0: adapter<…>`, shared with plans.
pub(super) fn state(p: &mut Parser, states: &mut Vec<StateSpec>, next: &mut usize) -> Parsed<()> {
    let mark = p.mark();
    p.next();
    p.in_order("states", next)?;
    p.expect(b':')?;
    states.push(p.state_spec()?);
    let range = p.since(mark);
    p.places.insert(Place::State { index: states.len() - 1 }, range);
    Ok(())
}

/// `weight 0 "name": f32[2] = [0.5, 1.0]`
fn weight(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    let mark = p.mark();
    p.expect_word("weight")?;
    p.in_order("weights", &mut parts.next_weight)?;
    let name = p.string("the tensor's name in quotes")?;
    p.expect(b':')?;
    let ty = p.tensor_type()?;
    let range = p.since(mark);
    let data = if p.eat(b'=') {
        p.expect(b'[')?;
        Some(p.list(b']', Parser::real)?)
    } else {
        None
    };
    p.places.insert(Place::Tensor { name: name.clone() }, range);
    parts.weights.push(Weight { name, ty, data });
    Ok(())
}

fn func_of(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    // The name is entered even if the rest is wrong: calls of the function are no further errors.
    let name =
        (p.peek_second().kind == Kind::Symbol).then(|| p.str_of(p.peek_second()).trim_start_matches('@').to_string());
    let range = p.peek_second().range();
    match func(p) {
        Ok(f) => {
            let again = parts.names.insert(f.name.clone(), Some(parts.funcs.len())).is_some();
            let message = format!("there is another function `@{}`", shorten(&f.name));
            parts.funcs.push(f);
            if again { Err(fault("duplicate-name", range, message)) } else { Ok(()) }
        }
        Err(e) => {
            parts.names.extend(name.map(|n| (n, None)));
            Err(e)
        }
    }
}

/// `func @name(%x: type role, …) -> (type, …) { … }`
pub(super) fn func(p: &mut Parser) -> Parsed<Func> {
    p.expect_word("func")?;
    let (name, range) = p.symbol("the function's name, `@name`")?;
    let name = name.into_owned();
    p.places.insert(Place::Func { func: name.clone() }, range);
    let mut body = Body {
        scope: Scope::new(),
        func: Func { name, params: vec![], nodes: vec![], results: vec![] },
        returned: false,
    };
    p.expect(b'(')?;
    p.list(b')', |p| body.param(p))?;
    p.expect_kind(Kind::Arrow, "`->` and the types of the results")?;
    p.expect(b'(')?;
    let types_at = p.mark().saturating_sub(1);
    let types = p.list(b')', value_type)?;
    let types_at = p.since(types_at);
    p.statements(|kind, word| kind == Kind::Value || word == "return", |p| body.statement(p))?;
    let Body { func, returned, .. } = body;
    if p.failed() {
        return Ok(func);
    }
    if !returned {
        return Err(fault("missing-part", types_at, format!("`@{}` does not return", shorten(&func.name))));
    }
    let actual: Vec<&ValueType> = func.results.iter().filter_map(|v| func.ty(*v)).collect();
    if !actual.iter().copied().eq(&types) {
        let actual: Vec<String> = actual.iter().map(|t| t.to_string()).collect();
        return Err(fault("result-type", types_at, format!("the function returns ({})", actual.join(", "))));
    }
    Ok(func)
}

fn value_type(p: &mut Parser) -> Parsed<ValueType> {
    let state = StateSpec::is_word(p.peek_word());
    Ok(if state { p.state_spec()?.into() } else { ValueType::Tensor(p.tensor_type()?) })
}

/// A function being read.
struct Body<'a> {
    scope: Scope<'a>,
    func: Func,
    returned: bool,
}

impl<'a> Body<'a> {
    /// `%x: f32[T, 256] role`
    fn param(&mut self, p: &mut Parser<'a>) -> Parsed<()> {
        let (name, range) = p.value_name("a parameter, `%name`")?;
        p.places.insert(Place::FuncParam { func: self.func.name.clone(), param: name.to_string() }, range.clone());
        self.scope.define(Label::Name(name.clone()), range, self.func.params.len())?;
        p.expect(b':')?;
        let ty = value_type(p)?;
        let role = match ROLES.iter().find(|(_, word)| p.peek_word() == *word) {
            Some((role, _)) => {
                p.next();
                *role
            }
            None => Role::Data,
        };
        self.func.params.push(Param { name: name.into_owned(), ty, role });
        Ok(())
    }

    fn statement(&mut self, p: &mut Parser<'a>) -> Parsed<()> {
        if self.returned {
            return Err(p.unexpected("`}` after `return`"));
        }
        if p.eat_word("return") {
            self.returned = true;
            while p.peek().kind == Kind::Value {
                let value = self.value(p)?;
                self.func.results.push(value);
                if !p.eat(b',') {
                    break;
                }
            }
            return Ok(());
        }
        let mark = p.mark();
        let (label, range) = p.label("an operation, `%n = op(…) : type`, or `return`")?;
        let node = p.expect(b'=').and_then(|_| self.node(p));
        // Defined even if the operation is wrong: its uses are no further errors.
        let value = self.func.params.len() + self.func.nodes.len();
        let defined = self.scope.define(label, range, value);
        let node = node?;
        defined?;
        let place = Place::Node { func: self.func.name.clone(), node: self.func.nodes.len(), op: node.op.name() };
        p.places.insert(place, p.since(mark));
        self.func.nodes.push(node);
        Ok(())
    }

    fn value(&self, p: &mut Parser<'a>) -> Parsed<Value> {
        let (label, range) = p.label("a value, `%name`")?;
        Ok(Value(self.scope.find(&label, range)? as u32))
    }

    /// `op{attrs}(args) : type`
    fn node(&self, p: &mut Parser<'a>) -> Parsed<Node> {
        let op = operation(p)?;
        let args = if p.eat(b'(') { p.list(b')', |p| self.value(p))? } else { vec![] };
        p.expect(b':')?;
        Ok(Node { op, args, ty: value_type(p)? })
    }
}

fn operation(p: &mut Parser) -> Parsed<Op> {
    let t = p.expect_kind(Kind::Word, "an operation")?;
    let name = p.str_of(t);
    let Some(head) = Head::parse(name) else {
        let e = *fault("unknown-op", t.range(), format!("no operation `{}`", shorten(name)));
        return Err(Box::new(suggest(e, name, Head::names().into_iter())));
    };
    attributes(p, head, t)
}

/// The attributes of the operation whose name `t` was.
pub(super) fn attributes(p: &mut Parser, head: Head, t: Token) -> Parsed<Op> {
    let values = p.attrs(head.name(), head.attributes(), head.defaults())?;
    head.build(&values)
        .ok_or_else(|| fault("attribute", t.range(), format!("the attributes of `{}` do not fit", head.name())))
}

/// `entry @name { … }`, `entry @name context=n { … }`
fn entry<'a>(p: &mut Parser<'a>, parts: &mut Parts) -> Parsed<()> {
    let (name, range) = entry_name(p)?;
    let mut entry = Entry { context: entry_context(p)?, ..Entry::new(&name) };
    let mut scope = Scope::new();
    let (before, mut results) = (parts.entries.iter().map(|e| e.calls.len()).sum::<usize>(), 0);
    let starts = |kind, word: &str| {
        matches!(kind, Kind::Value | Kind::Symbol) || output::WORDS.contains(&word) || word == tap::WORD
    };
    p.statements(starts, |p: &mut Parser<'a>| {
        if output::WORDS.contains(&p.peek_word()) {
            return output::parse(p, &mut entry.outputs, |p| {
                let (label, range) = p.label("the value of the output, `%n`")?;
                scope.find(&label, range)
            });
        }
        if p.peek_word() == tap::WORD {
            let tap = tap::parse(p, |p| {
                let (label, range) = p.label("a value, `%n`")?;
                scope.find(&label, range)
            })?;
            entry.taps.push(tap);
            return Ok(());
        }
        let mark = p.mark();
        if let Some(call) = call(p, parts, &mut scope, &mut results)? {
            let range = p.since(mark);
            let place = Place::Call { call: before + entry.calls.len(), func: parts.funcs[call.func].name.clone() };
            p.places.insert(place, range);
            entry.calls.push(call);
        }
        Ok(())
    })?;
    let empty = entry.outputs.is_empty() && entry.taps.is_empty() && !binds_states(&entry);
    let again = parts.entries.iter().any(|e| e.name == name);
    parts.entries.push(entry);
    entry_read(p, (&name, range), again, empty)
}

/// Whether a call of it has a state, which it may update in place of giving an output.
fn binds_states(entry: &Entry) -> bool {
    entry.calls.iter().flat_map(|c| &c.args).any(|arg| matches!(arg, Arg::State(_)))
}

/// `entry @name`, shared with plans.
pub(super) fn entry_name(p: &mut Parser) -> Parsed<(String, Range<usize>)> {
    p.expect_word("entry")?;
    let (name, range) = p.symbol("the entry's name, `@name`")?;
    Ok((name.into_owned(), range))
}

/// `context=n`, if it is there, shared with plans.
pub(super) fn entry_context(p: &mut Parser) -> Parsed<Option<usize>> {
    if p.peek_word() == "context" { p.field_size("context").map(Some) } else { Ok(None) }
}

/// Errors of an entry that was read: `again`, another one has its name; `empty`, it gives nothing. Shared with plans,
/// in which regimes say whether an entry without an output updates states.
pub(super) fn entry_read(p: &Parser, (name, range): (&str, Range<usize>), again: bool, empty: bool) -> Parsed<()> {
    match (again, empty && !p.failed()) {
        (true, _) => Err(fault("duplicate-name", range, format!("there is another entry `@{}`", shorten(name)))),
        (_, true) => Err(fault("missing-part", range, format!("the entry `@{}` has no output", shorten(name)))),
        (false, false) => Ok(()),
    }
}

/// `%0, %1 = @func(arg, …)`; nothing if the function's own text was wrong.
fn call<'a>(p: &mut Parser<'a>, parts: &Parts, scope: &mut Scope<'a>, results: &mut usize) -> Parsed<Option<Call>> {
    let mut labels = vec![];
    if p.peek().kind == Kind::Value {
        loop {
            labels.push(p.label("a result, `%n`")?);
            if !p.eat(b',') {
                break;
            }
        }
        p.expect(b'=')?;
    }
    let wanted = labels.len();
    let read = callee(p, parts, scope, wanted);
    // Results are defined after the arguments are read, also if something is wrong with those.
    let mut defined = Ok(());
    for (label, range) in labels {
        defined = defined.and(scope.define(label, range, *results));
        *results += 1;
    }
    let call = read?;
    defined?;
    Ok(call)
}

fn callee<'a>(p: &mut Parser<'a>, parts: &Parts, scope: &Scope<'a>, results: usize) -> Parsed<Option<Call>> {
    let (name, range) = p.symbol("a call, `@function(…)`")?;
    p.expect(b'(')?;
    let args = p.list(b')', |p| arg(p, scope))?;
    let func = match parts.names.get(name.as_ref()) {
        Some(Some(func)) => *func,
        Some(None) => return Ok(None),
        None => {
            let message = format!("no function `@{}` before the entry", shorten(&name));
            return Err(Box::new(suggest(
                *fault("unknown-name", range, message),
                &name,
                parts.names.keys().map(String::as_str),
            )));
        }
    };
    let f = &parts.funcs[func];
    if f.results.len() != results && !p.failed() {
        let message = format!("`@{}` has {} results, not {results}", shorten(&name), f.results.len());
        return Err(fault("result-count", range, message));
    }
    Ok(Some(Call { func, args }))
}

fn arg<'a>(p: &mut Parser<'a>, scope: &Scope<'a>) -> Parsed<Arg> {
    if p.peek().kind == Kind::Value {
        let (label, range) = p.label("a value")?;
        return Ok(Arg::Value(scope.find(&label, range)?));
    }
    if p.eat_word("weight") {
        return Ok(Arg::Weight(p.size("the weight's number")?));
    }
    if StateSpec::is_word(p.peek_word()) {
        p.next();
        return Ok(Arg::State(p.size("the state's number")?));
    }
    match Input::ALL.iter().find(|(_, name)| p.peek_word() == *name) {
        Some((input, _)) => {
            p.next();
            Ok(Arg::Input(*input))
        }
        None => {
            let inputs: Vec<&'static str> = Input::ALL.iter().map(|(_, n)| *n).collect();
            Err(p.one_of("`%value` or one of", &[&["weight"], StateSpec::WORDS, &inputs].concat()))
        }
    }
}
