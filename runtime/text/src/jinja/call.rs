//! Attributes, items, and callables: global functions, macros, loops.

use std::cell::Cell;
use std::ffi::CString;
use std::rc::Rc;

use super::ast::{CALLER, KWARGS, VARARGS};
use super::eval::{Given, Interpreter, LoopState};
use super::value::{Callable, Namespace, SCALAR, Value};
use super::{Clock, Error, Kind, Result, methods, ops, print};

/// Longest `range`, as in Jinja's sandbox.
const LONGEST_RANGE: i128 = 100_000;

/// The global function called `name`.
pub fn global(name: &str) -> Option<&'static str> {
    ["range", "dict", "namespace", "joiner", "raise_exception", "strftime_now"].into_iter().find(|f| *f == name)
}

/// `value.name`: Python's attribute, else the item.
pub fn attribute(interpreter: &Interpreter<'_>, value: &Value, name: &str) -> Result<Value> {
    if let Some(found) = python_attribute(interpreter, value, name)? {
        return Ok(found);
    }
    let found = match value {
        Value::Undefined(name) => return Err(Value::undefined_error(name)),
        Value::Map(map) => map.get(&interpreter.heap, name)?.cloned(),
        _ => None,
    };
    Ok(found.unwrap_or_else(|| Value::undefined(name)))
}

/// `value[item]`: the item, else for strings Python's attribute.
pub fn item(interpreter: &Interpreter<'_>, value: &Value, item: &Value) -> Result<Value> {
    let found = match (value, item) {
        (Value::Undefined(name), _) => return Err(Value::undefined_error(name)),
        (Value::Map(map), Value::Str(key)) => map.get(&interpreter.heap, key)?.cloned(),
        (Value::Map(map), _)
            if !matches!(item, Value::List(_) | Value::Map(_)) || matches!(item, Value::List(l) if l.tuple) =>
        {
            super::value::position(&interpreter.heap, &map.items, item)?.map(|at| map.items[at].1.clone())
        }
        (Value::List(list), _) => item.as_int().and_then(|i| list.items.get(index(i, list.items.len())?).cloned()),
        (Value::Str(text), _) => match item.as_int() {
            Some(i) => {
                interpreter.heap.work(text.len())?;
                let at = index(i, text.chars().count());
                at.and_then(|at| text.chars().nth(at))
                    .map(|c| interpreter.heap.marked(c.to_string(), text.safe()))
                    .transpose()?
            }
            None => None,
        },
        _ => None,
    };
    match (found, item) {
        (Some(found), _) => Ok(found),
        (None, Value::Str(name)) => {
            Ok(python_attribute(interpreter, value, name)?.unwrap_or_else(|| Value::undefined(name)))
        }
        (None, _) => Ok(Value::undefined(&format!("{} object[{}]", value.kind(), item.as_int().unwrap_or_default()))),
    }
}

/// An index from the end when negative.
fn index(i: i128, len: usize) -> Option<usize> {
    usize::try_from(if i < 0 { i + len as i128 } else { i }).ok()
}

fn python_attribute(interpreter: &Interpreter<'_>, value: &Value, name: &str) -> Result<Option<Value>> {
    Ok(match value {
        Value::Namespace(ns) => ns.get(&interpreter.heap, name)?,
        Value::Loop(state) => loop_attribute(value, state, name),
        Value::Call(function) => match &**function {
            Callable::Macro { index, .. } => macro_attribute(interpreter, *index, name)?,
            _ => None,
        },
        Value::List(list) if list.named(name).is_some() => list.named(name).cloned(),
        _ if methods::exists(value, name) => {
            Some(Value::Call(Rc::new(Callable::Method(value.clone(), name.to_owned()))))
        }
        _ => None,
    })
}

/// Attributes of Jinja's macros.
fn macro_attribute(interpreter: &Interpreter<'_>, index: usize, name: &str) -> Result<Option<Value>> {
    let Some(m) = interpreter.program.macros.get(index) else { return Ok(None) };
    let heap = &interpreter.heap;
    let [_, caller, varargs, kwargs] = m.uses;
    Ok(Some(match name {
        "name" if m.name == CALLER => Value::None,
        "name" => heap.string(interpreter.label(m.name))?,
        "arguments" => {
            let names = m.params.iter().map(|(param, _)| heap.string(interpreter.label(*param)));
            heap.sequence(names.collect::<Result<_>>()?, true)?
        }
        "catch_kwargs" => Value::Bool(kwargs),
        "catch_varargs" => Value::Bool(varargs),
        "caller" => Value::Bool(caller),
        "explicit_caller" => Value::Bool(m.params.iter().any(|(param, _)| *param == CALLER)),
        _ => return Ok(None),
    }))
}

fn loop_attribute(value: &Value, state: &Rc<LoopState>, name: &str) -> Option<Value> {
    let (i, n) = (state.index.get(), state.items.len());
    let number = |n: usize| Some(Value::Int(n as i128));
    let neighbour = |at: Option<usize>| {
        Some(at.and_then(|at| state.items.get(at).cloned()).unwrap_or_else(|| Value::undefined(name)))
    };
    match name {
        "index" => number(i + 1),
        "index0" => number(i),
        "revindex" => number(n.saturating_sub(i)),
        "revindex0" => number(n.saturating_sub(i + 1)),
        "first" => Some(Value::Bool(i == 0)),
        "last" => Some(Value::Bool(i + 1 == n)),
        "length" => number(n),
        "depth" => number(state.depth + 1),
        "depth0" => number(state.depth),
        "previtem" => neighbour(i.checked_sub(1)),
        "nextitem" => neighbour(Some(i + 1)),
        "cycle" | "changed" => Some(Value::Call(Rc::new(Callable::Method(value.clone(), name.to_owned())))),
        _ => None,
    }
}

impl<'a> Interpreter<'a> {
    /// `function(given)`
    pub fn call(&mut self, function: &Value, given: Given) -> Result<Value> {
        match function {
            Value::Call(callable) => match &**callable {
                Callable::Global(name) => self.call_global(name, given),
                Callable::Macro { index, scope } => self.call_macro(*index, *scope, given),
                Callable::Method(Value::Loop(state), name) => self.call_loop_method(state, name, given),
                Callable::Method(on, name) => methods::call(self, on, name, given),
                Callable::Joiner(separator, used) => {
                    given.finish("joiner", 0)?;
                    if used.replace(true) { Ok(separator.clone()) } else { self.heap.string("") }
                }
            },
            Value::Loop(state) => self.call_loop(state, given),
            Value::Undefined(name) => Err(Value::undefined_error(name)),
            _ => Err(Error::runtime(format!("'{}' object is not callable", function.kind()))),
        }
    }

    fn call_global(&mut self, name: &str, mut given: Given) -> Result<Value> {
        match name {
            "range" => self.range(given),
            "dict" => {
                let first = given.take(0, "");
                let mut pairs = match first {
                    None => Vec::new(),
                    Some(Value::Map(map)) => map.items.clone(),
                    Some(other) => self.pairs(&other)?,
                };
                for (name, value) in given.named {
                    pairs.push((self.heap.string(name)?, value));
                }
                self.heap.map(pairs)
            }
            "namespace" => {
                let mut attrs = Vec::new();
                if let Some(first) = given.take(0, "") {
                    let pairs = if let Value::Map(map) = &first { map.items.clone() } else { self.pairs(&first)? };
                    attrs.extend(pairs.into_iter().filter_map(|(k, v)| Some((k.as_str()?.to_owned(), v))));
                }
                attrs.append(&mut given.named);
                Ok(Value::Namespace(Rc::new(Namespace::new(&self.heap, attrs)?)))
            }
            "joiner" => {
                let separator = match given.take(0, "sep") {
                    Some(separator) => separator,
                    None => self.heap.string(", ")?,
                };
                // A string cannot hold the joiner.
                let separator = self.heap.string(print::text(&self.heap, &separator)?)?;
                Ok(Value::Call(Rc::new(Callable::Joiner(separator, Cell::new(false)))))
            }
            "raise_exception" => {
                let message = given.take(0, "message").unwrap_or(Value::None);
                given.finish(name, 1)?;
                Err(Error::new(Kind::Raised, print::text(&self.heap, &message)?))
            }
            _ => {
                let format = given.take(0, "format").unwrap_or(Value::None);
                given.finish(name, 1)?;
                let format = format.as_str().ok_or_else(|| Error::runtime("strftime_now needs a format"))?;
                self.heap.room(64 * format.len())?;
                self.heap.string(strftime(self.clock, format))
            }
        }
    }

    /// Pairs of a list of two-element lists.
    fn pairs(&self, value: &Value) -> Result<Vec<(Value, Value)>> {
        let pair = |item: &Value| match <[Value; 2]>::try_from(self.iterate(item)?) {
            Ok([key, value]) => Ok((key, value)),
            Err(_) => Err(Error::runtime("dictionary update sequence elements need length 2")),
        };
        self.iterate(value)?.iter().map(pair).collect()
    }

    fn range(&mut self, given: Given) -> Result<Value> {
        let numbers: Option<Vec<i128>> = given.positional.iter().map(Value::as_int).collect();
        let numbers =
            numbers.filter(|_| given.named.is_empty()).ok_or_else(|| Error::runtime("range needs integers"))?;
        let (start, stop, step) = match *numbers.as_slice() {
            [stop] => (0, stop, 1),
            [start, stop] => (start, stop, 1),
            [start, stop, step] if step != 0 => (start, stop, step),
            _ => return Err(Error::runtime("range takes one to three integers, the third not zero")),
        };
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let len = if span <= 0 { 0 } else { (span - 1) / step.saturating_abs() + 1 };
        if len > LONGEST_RANGE {
            return Err(Error::limit(format!("range too big, the largest has {LONGEST_RANGE} elements")));
        }
        self.heap.room(len as usize * SCALAR)?;
        self.heap.list((0..len).map(|i| Value::Int(start + i * step)).collect())
    }

    /// Parameters from positional, then named arguments, then defaults; `varargs`, `kwargs` and
    /// `caller` only where the body names them.
    fn call_macro(&mut self, index: usize, scope: usize, mut given: Given) -> Result<Value> {
        let Some(m) = self.program.macros.get(index) else { return Ok(Value::None) };
        let name = self.label(m.name);
        self.scoped(scope, |s| {
            let mut positional = std::mem::take(&mut given.positional).into_iter();
            for (param, default) in &m.params {
                let label = s.label(*param);
                let named = given.named.iter().position(|(n, _)| n == label).map(|at| given.named.remove(at).1);
                let value = match (positional.next(), named, default) {
                    (Some(_), Some(_), _) => {
                        return Err(Error::runtime(format!("macro '{name}': two values for argument '{label}'")));
                    }
                    (Some(value), ..) | (None, Some(value), _) => value,
                    (None, None, Some(default)) => s.expr(default)?,
                    (None, None, None) => Value::undefined(label),
                };
                s.define(*param, value)?;
            }
            let [_, caller, varargs, kwargs] = m.uses;
            if caller {
                let at = given.named.iter().position(|(n, _)| n == "caller");
                let value = at.map_or_else(|| Value::undefined("caller"), |at| given.named.remove(at).1);
                s.define(CALLER, value)?;
            }
            let rest: Vec<Value> = positional.collect();
            if varargs {
                let rest = s.heap.sequence(rest, true)?;
                s.define(VARARGS, rest)?;
            } else if !rest.is_empty() {
                return Err(Error::runtime(format!(
                    "macro '{name}' takes not more than {} argument(s)",
                    m.params.len()
                )));
            }
            let named = std::mem::take(&mut given.named);
            if kwargs {
                let pairs = named.into_iter().map(|(n, v)| Ok((s.heap.string(n)?, v))).collect::<Result<_>>()?;
                let map = s.heap.map(pairs)?;
                s.define(KWARGS, map)?;
            } else if let Some((argument, _)) = named.first() {
                return Err(Error::runtime(format!("macro '{name}' takes no keyword argument '{argument}'")));
            }
            s.capture(|s| s.body(&m.body).map(drop))
        })
    }

    /// `loop(items)` of a recursive loop.
    fn call_loop(&mut self, state: &LoopState, mut given: Given) -> Result<Value> {
        let Some((index, scope)) = state.recursive else {
            return Err(Error::runtime("the loop must have the 'recursive' marker to be called recursively"));
        };
        let items = given.take(0, "iterable").unwrap_or(Value::None);
        given.finish("loop", 1)?;
        let depth = state.depth + 1;
        self.capture(|s| s.scoped(scope, |s| s.for_loop(index, &items, depth)))
    }

    fn call_loop_method(&mut self, state: &LoopState, name: &str, given: Given) -> Result<Value> {
        if name == "cycle" {
            let n = given.positional.len();
            let value = state.index.get().checked_rem(n).and_then(|at| given.positional.get(at));
            return value.cloned().ok_or_else(|| Error::runtime("no items for cycling given"));
        }
        let now = self.heap.list(given.positional)?;
        let changed = match &*state.changed.borrow() {
            Some(before) => !ops::equal(&self.heap, before, &now)?,
            None => true,
        };
        state.changed.replace(Some(now));
        Ok(Value::Bool(changed))
    }
}

fn strftime(clock: Clock, format: &str) -> String {
    let Ok(format) = CString::new(format) else { return String::new() };
    let tm = clock();
    let mut out = vec![0u8; 256 + 64 * format.as_bytes().len()];
    // SAFETY: `out` has the length passed, `format` is a C string.
    let len = unsafe { libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), &tm) };
    String::from_utf8_lossy(&out[..len]).into_owned()
}
