//! The interpreter: statements, expressions and scopes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::ast::{Args, Cmp, Expr, LOOP, Name, Post, Program, Stmt, StmtKind, Target};
use super::value::{Callable, Charge, Heap, Value};
use super::{Clock, Error, Result, ops, print};

/// Expressions, blocks and calls inside each other while rendering. A level takes under a kilobyte
/// of stack in the runtime's build, so a thread of any host has room.
const DEEPEST: usize = 200;
/// Work of an expression or statement by itself.
const STEP: usize = 32;

/// Variables of a block.
#[derive(Default)]
struct Frame {
    vars: Vec<(Name, Value)>,
    parent: Option<usize>,
}

/// `loop` of one `for`.
pub struct LoopState {
    pub(super) items: Vec<Value>,
    pub(super) index: Cell<usize>,
    pub(super) depth: usize,
    /// The statement, when it is recursive, and its scope.
    pub(super) recursive: Option<(usize, usize)>,
    pub(super) changed: RefCell<Option<Value>>,
    pub(super) _charge: Charge,
}

/// Effect of a statement on the statements after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Next,
    Break,
    Continue,
}

/// Arguments of a call.
#[derive(Default)]
pub struct Given {
    pub positional: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

impl Given {
    /// The argument at `index` or called `name`; taken, so that [`Given::finish`] finds arguments
    /// that nobody asked for.
    pub fn take(&mut self, index: usize, name: &str) -> Option<Value> {
        if let Some(value) = self.positional.get_mut(index) {
            return Some(std::mem::replace(value, Value::undefined("")));
        }
        let at = self.named.iter().position(|(n, _)| n == name)?;
        Some(self.named.remove(at).1)
    }

    /// Fails when there were more than `positional` arguments, or named ones are left.
    pub fn finish(&self, what: &str, positional: usize) -> Result<()> {
        if let Some((name, _)) = self.named.first() {
            return Err(Error::runtime(format!("{what}: unexpected argument '{name}'")));
        }
        if self.positional.len() > positional {
            return Err(Error::runtime(format!(
                "{what} takes at most {positional} arguments, not {}",
                self.positional.len()
            )));
        }
        Ok(())
    }
}

/// One rendering.
pub struct Interpreter<'a> {
    pub(super) program: &'a Program,
    pub(super) heap: Heap,
    pub(super) clock: Clock,
    globals: Vec<Option<Value>>,
    frames: Vec<Frame>,
    pub(super) scope: usize,
    out: String,
    out_charge: Charge,
    depth: usize,
}

impl<'a> Interpreter<'a> {
    pub fn new(program: &'a Program, heap: &Heap, variables: &[(String, Value)], clock: Clock) -> Interpreter<'a> {
        let given: HashMap<&str, &Value> = variables.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let global = |name: &String| match given.get(name.as_str()) {
            Some(value) => Some((*value).clone()),
            None => super::call::global(name).map(|f| Value::Call(Rc::new(Callable::Global(f)))),
        };
        Interpreter {
            program,
            heap: heap.clone(),
            clock,
            globals: program.names.iter().map(global).collect(),
            frames: vec![Frame::default()],
            scope: 0,
            out: String::new(),
            out_charge: heap.no_charge(),
            depth: 0,
        }
    }

    pub fn run(mut self) -> Result<String> {
        self.body(&self.program.body)?;
        Ok(self.out)
    }

    fn emit(&mut self, text: &str) -> Result<()> {
        self.heap.grow(&mut self.out_charge, text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    /// The output of `f`.
    pub fn capture(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<Value> {
        let charge = std::mem::replace(&mut self.out_charge, self.heap.no_charge());
        let out = std::mem::take(&mut self.out);
        f(self)?;
        let text = std::mem::replace(&mut self.out, out);
        self.out_charge = charge;
        self.heap.string(text)
    }

    /// Runs `f` in a new scope inside `parent`.
    pub fn scoped<T>(&mut self, parent: usize, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = self.scope;
        self.frames.push(Frame { vars: Vec::new(), parent: Some(parent) });
        self.scope = self.frames.len() - 1;
        let result = f(self);
        self.frames.pop();
        self.scope = outer;
        result
    }

    /// Runs `f` one level deeper.
    pub fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEEPEST {
            return Err(Error::limit(format!("calls and blocks are nested more than {DEEPEST} levels deep")));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn lookup(&self, name: Name) -> Result<Value> {
        let mut scope = Some(self.scope);
        while let Some(frame) = scope.and_then(|s| self.frames.get(s)) {
            self.heap.work(frame.vars.len() + 1)?;
            if let Some((_, value)) = frame.vars.iter().rev().find(|(n, _)| *n == name) {
                return Ok(value.clone());
            }
            scope = frame.parent;
        }
        match self.globals.get(name as usize) {
            Some(Some(value)) => Ok(value.clone()),
            _ => Ok(Value::undefined(self.label(name))),
        }
    }

    pub fn label(&self, name: Name) -> &'a str {
        self.program.names.get(name as usize).map_or("", String::as_str)
    }

    /// Sets a variable of the innermost scope.
    pub fn define(&mut self, name: Name, value: Value) -> Result<()> {
        let Some(frame) = self.frames.get_mut(self.scope) else { return Ok(()) };
        self.heap.work(frame.vars.len() + 1)?;
        match frame.vars.iter_mut().find(|(n, _)| *n == name) {
            Some(place) => place.1 = value,
            None => frame.vars.push((name, value)),
        }
        Ok(())
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => self.define(*name, value),
            Target::Attr(name, attr) => match self.lookup(*name)? {
                Value::Namespace(ns) => ns.set(&self.heap, attr, value),
                _ => Err(Error::runtime("cannot assign attribute on non-namespace object")),
            },
            Target::Tuple(targets) => {
                let items = self.iterate(&value)?;
                if items.len() != targets.len() {
                    return Err(Error::runtime(format!(
                        "{} values to unpack into {} names",
                        items.len(),
                        targets.len()
                    )));
                }
                targets.iter().zip(items).try_for_each(|(target, item)| self.assign(target, item))
            }
        }
    }

    /// Elements of a value, as Python's `iter`.
    pub fn iterate(&self, value: &Value) -> Result<Vec<Value>> {
        match value {
            Value::List(list) => {
                self.heap.room(list.items.len() * STEP)?;
                Ok(list.items.clone())
            }
            Value::Map(map) => {
                self.heap.room(map.items.len() * STEP)?;
                Ok(map.items.iter().map(|(k, _)| k.clone()).collect())
            }
            Value::Str(text) => {
                // A string of its own for every character.
                self.heap.room(text.chars().count().saturating_mul(4 * STEP))?;
                let mut buffer = [0; 4];
                text.chars().map(|c| self.heap.string(&*c.encode_utf8(&mut buffer))).collect()
            }
            // Python fails for None, and so do templates that loop over `tools` when there are
            // none.
            Value::Undefined(_) | Value::None => Ok(Vec::new()),
            _ => Err(Error::runtime(format!("'{}' object is not iterable", value.kind()))),
        }
    }

    pub fn body(&mut self, body: &'a [Stmt]) -> Result<Flow> {
        for stmt in body {
            self.heap.work(STEP)?;
            let flow = match &stmt.kind {
                StmtKind::Text(text) => self.emit(text).map(|()| Flow::Next),
                _ => self.deeper(|s| s.statement(stmt)),
            };
            let flow = flow.map_err(|e| e.at(stmt.line))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, stmt: &'a Stmt) -> Result<Flow> {
        match &stmt.kind {
            StmtKind::Text(text) => self.emit(text)?,
            StmtKind::Print(expr) => {
                let value = self.expr(expr)?;
                match &value {
                    Value::Str(text) => self.emit(text)?,
                    other => {
                        let text = print::text(&self.heap, other)?;
                        self.emit(&text)?;
                    }
                }
            }
            StmtKind::For(index) => {
                let Some(each) = self.program.loops.get(*index) else { return Ok(Flow::Next) };
                let iter = self.expr(&each.iter)?;
                self.for_loop(*index, &iter, 0)?;
            }
            StmtKind::If(branches) => {
                for (condition, body) in branches {
                    let is = match condition {
                        Some(condition) => self.expr(condition)?.is_true(),
                        None => true,
                    };
                    if is {
                        return self.body(body);
                    }
                }
            }
            StmtKind::Set(target, expr) => {
                let value = self.expr(expr)?;
                self.assign(target, value)?;
            }
            StmtKind::SetBlock(target, filters, body) => {
                let text = self.filtered_block(filters, body)?;
                self.assign(target, text)?;
            }
            StmtKind::Filter(filters, body) => {
                let value = self.filtered_block(filters, body)?;
                let text = print::text(&self.heap, &value)?;
                self.emit(&text)?;
            }
            StmtKind::Macro(index) => {
                if let Some(m) = self.program.macros.get(*index) {
                    self.define(m.name, Value::Call(Rc::new(Callable::Macro { index: *index, scope: self.scope })))?;
                }
            }
            StmtKind::Call(call, index) => self.call_block(call, *index)?,
            StmtKind::With(values, body) => {
                // Values see the scope outside.
                let values: Vec<_> = values.iter().map(|(t, e)| Ok((t, self.expr(e)?))).collect::<Result<_>>()?;
                return self.scoped(self.scope, |s| {
                    values.into_iter().try_for_each(|(target, value)| s.assign(target, value))?;
                    s.body(body)
                });
            }
            StmtKind::Scope(body) => return self.scoped(self.scope, |s| s.body(body)),
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn filtered_block(&mut self, filters: &'a [Post], body: &'a [Stmt]) -> Result<Value> {
        let scope = self.scope;
        let text = self.capture(|s| s.scoped(scope, |s| s.body(body)).map(drop))?;
        self.posts(text, filters)
    }

    fn call_block(&mut self, call: &'a Expr, index: usize) -> Result<()> {
        let Expr::Post(base, posts) = call else { return Ok(()) };
        let Some((Post::Call(args), before)) = posts.split_last() else { return Ok(()) };
        let base = self.expr(base)?;
        let function = self.posts(base, before)?;
        let mut given = self.given(args)?;
        given.named.push(("caller".into(), Value::Call(Rc::new(Callable::Macro { index, scope: self.scope }))));
        let value = self.call(&function, given)?;
        let text = print::text(&self.heap, &value)?;
        self.emit(&text)
    }

    /// Runs the loop over `iter`, `depth` recursions deep.
    pub fn for_loop(&mut self, index: usize, iter: &Value, depth: usize) -> Result<()> {
        let Some(each) = self.program.loops.get(index) else { return Ok(()) };
        let mut items = self.iterate(iter)?;
        if let Some(condition) = &each.cond {
            let mut kept = Vec::new();
            for item in items {
                let keep = self.scoped(self.scope, |s| {
                    s.assign(&each.target, item.clone())?;
                    Ok(s.expr(condition)?.is_true())
                })?;
                if keep {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            return self.scoped(self.scope, |s| s.body(&each.otherwise)).map(drop);
        }
        let mut charge = self.heap.no_charge();
        self.heap.grow(&mut charge, items.len() * STEP)?;
        let recursive = each.recursive.then_some((index, self.scope));
        let state = Rc::new(LoopState {
            items,
            index: Cell::new(0),
            depth,
            recursive,
            changed: RefCell::new(None),
            _charge: charge,
        });
        for (i, item) in state.items.iter().enumerate() {
            state.index.set(i);
            let flow = self.scoped(self.scope, |s| {
                s.define(LOOP, Value::Loop(state.clone()))?;
                s.assign(&each.target, item.clone())?;
                s.body(&each.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    pub fn expr(&mut self, expr: &'a Expr) -> Result<Value> {
        self.heap.work(STEP)?;
        match expr {
            Expr::None => Ok(Value::None),
            Expr::Bool(b) => Ok(Value::Bool(*b)),
            Expr::Int(n) => Ok(Value::Int(*n)),
            Expr::Float(x) => Ok(Value::Float(*x)),
            Expr::Str(text) => self.heap.string(text.as_str()),
            Expr::Name(name) => self.lookup(*name),
            _ => self.deeper(|s| s.compound(expr)),
        }
    }

    fn compound(&mut self, expr: &'a Expr) -> Result<Value> {
        match expr {
            Expr::List(items) => {
                let items = self.all(items)?;
                self.heap.list(items)
            }
            Expr::Tuple(items) => {
                let items = self.all(items)?;
                self.heap.sequence(items, true)
            }
            Expr::Map(items) => {
                let pairs = items.iter().map(|(k, v)| Ok((self.expr(k)?, self.expr(v)?))).collect::<Result<_>>()?;
                self.heap.map(pairs)
            }
            Expr::Post(base, posts) => {
                let base = self.expr(base)?;
                self.posts(base, posts)
            }
            Expr::Not(value) => Ok(Value::Bool(!self.expr(value)?.is_true())),
            Expr::Neg(value) => match self.expr(value)? {
                Value::Float(x) => Ok(Value::Float(-x)),
                other => ops::math(&self.heap, super::ast::Op::Sub, &Value::Int(0), &other),
            },
            Expr::Pos(value) => {
                let value = self.expr(value)?;
                ops::math(&self.heap, super::ast::Op::Add, &Value::Int(0), &value)
            }
            Expr::And(terms) => self.first(terms, |v| !v.is_true()),
            Expr::Or(terms) => self.first(terms, Value::is_true),
            Expr::Concat(terms) => {
                let values = self.all(terms)?;
                let weight = values.iter().fold(0usize, |sum, v| sum.saturating_add(v.weight()));
                self.heap.room(weight)?;
                let mut out = String::new();
                values.iter().try_for_each(|value| print::write_text(&self.heap, &mut out, value))?;
                self.heap.string(out)
            }
            Expr::Math(first, rest) => {
                let mut value = self.expr(first)?;
                for (op, term) in rest {
                    let term = self.expr(term)?;
                    value = ops::math(&self.heap, *op, &value, &term)?;
                }
                Ok(value)
            }
            Expr::Compare(first, rest) => self.comparison(first, rest),
            Expr::If(parts, otherwise) => {
                let (condition, then) = &**parts;
                if self.expr(condition)?.is_true() {
                    self.expr(then)
                } else {
                    otherwise.as_ref().map_or_else(|| Ok(Value::undefined("")), |e| self.expr(e))
                }
            }
            _ => self.expr(expr),
        }
    }

    fn all(&mut self, items: &'a [Expr]) -> Result<Vec<Value>> {
        items.iter().map(|e| self.expr(e)).collect()
    }

    /// The first term that `ends` the chain, else the last.
    fn first(&mut self, terms: &'a [Expr], ends: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::None;
        for term in terms {
            last = self.expr(term)?;
            if ends(&last) {
                break;
            }
        }
        Ok(last)
    }

    /// `a < b < c`: every neighbours' comparison holds.
    fn comparison(&mut self, first: &'a Expr, rest: &'a [(Cmp, Expr)]) -> Result<Value> {
        let mut left = self.expr(first)?;
        for (cmp, term) in rest {
            let right = self.expr(term)?;
            if !compare(&self.heap, *cmp, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub fn posts(&mut self, mut value: Value, posts: &'a [Post]) -> Result<Value> {
        for post in posts {
            self.heap.work(STEP)?;
            value = match post {
                Post::Attr(name) => super::call::attribute(self, &value, name)?,
                Post::Item(item) => {
                    let item = self.expr(item)?;
                    super::call::item(self, &value, &item)?
                }
                Post::Slice(parts) => self.slice(&value, parts)?,
                Post::Call(args) => {
                    let given = self.given(args)?;
                    self.call(&value, given)?
                }
                Post::Filter(name, args) => {
                    let given = self.given(args)?;
                    self.filter(name, value, given)?
                }
                Post::Test(name, negated, args) => {
                    let given = self.given(args)?;
                    Value::Bool(self.test(name, &value, given)? != *negated)
                }
            };
        }
        Ok(value)
    }

    fn slice(&mut self, value: &Value, parts: &'a [Option<Expr>; 3]) -> Result<Value> {
        let mut bounds = [None; 3];
        for (bound, part) in bounds.iter_mut().zip(parts) {
            *bound = match part {
                None => None,
                Some(part) => match self.expr(part)? {
                    Value::None => None,
                    n => Some(n.as_int().ok_or_else(|| Error::runtime("slice indices must be integers or None"))?),
                },
            };
        }
        ops::slice(&self.heap, value, bounds)
    }

    fn given(&mut self, args: &'a Args) -> Result<Given> {
        let mut given = Given::default();
        for (star, expr) in &args.positional {
            let value = self.expr(expr)?;
            if *star {
                given.positional.extend(self.iterate(&value)?);
            } else {
                given.positional.push(value);
            }
        }
        for (name, expr) in &args.named {
            given.named.push((name.clone(), self.expr(expr)?));
        }
        if let Some(expr) = &args.mapping {
            match self.expr(expr)? {
                Value::Map(map) => {
                    for (key, value) in &map.items {
                        let key = key.as_str().ok_or_else(|| Error::runtime("keywords must be strings"))?;
                        self.heap.room(key.len())?;
                        given.named.push((key.to_owned(), value.clone()));
                    }
                }
                other => {
                    return Err(Error::runtime(format!("argument after ** must be a mapping, not {}", other.kind())));
                }
            }
        }
        Ok(given)
    }
}

/// `a cmp b`
pub fn compare(heap: &Heap, cmp: Cmp, a: &Value, b: &Value) -> Result<bool> {
    Ok(match cmp {
        Cmp::Eq => ops::equal(heap, a, b)?,
        Cmp::Ne => !ops::equal(heap, a, b)?,
        Cmp::Lt => ops::compare(heap, a, b)?.is_some_and(|o| o.is_lt()),
        Cmp::Le => ops::compare(heap, a, b)?.is_some_and(|o| o.is_le()),
        Cmp::Gt => ops::compare(heap, a, b)?.is_some_and(|o| o.is_gt()),
        Cmp::Ge => ops::compare(heap, a, b)?.is_some_and(|o| o.is_ge()),
        Cmp::In => ops::contains(heap, b, a)?,
        Cmp::NotIn => !ops::contains(heap, b, a)?,
    })
}
