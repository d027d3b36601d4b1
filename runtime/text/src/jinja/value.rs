//! Values of templates, and the heap that counts them.
//!
//! Every value knows its *weight*, the bytes it would take written out without sharing, and its
//! depth. So before anything walks a value, the walk's cost is known; and since values are
//! immutable, doubling one is seen when it happens. Namespaces are the exception: they cannot be
//! put into other values.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::eval::LoopState;
use super::{Error, Result};

/// Bytes that scalars, and elements of lists, count for.
pub(super) const SCALAR: usize = 32;
/// Bytes of a string beside its text.
const STRING: usize = 96;
/// Lists and mappings inside each other; JSON from the caller has 128 at most.
const DEEPEST: usize = 160;

/// Limits of one rendering, and the amounts used.
struct Meter {
    alive: Cell<usize>,
    most: usize,
    work: Cell<u64>,
}

/// Where values live: counts bytes alive and work done.
#[derive(Clone)]
pub struct Heap(Rc<Meter>);

impl Heap {
    /// Room for `bytes` alive at once, and for `work`: about a byte touched each, and some
    /// nanoseconds at most.
    pub fn new(bytes: usize, work: u64) -> Heap {
        Heap(Rc::new(Meter { alive: Cell::new(0), most: bytes, work: Cell::new(work) }))
    }

    /// Counts work.
    pub(super) fn work(&self, n: usize) -> Result<()> {
        match self.0.work.get().checked_sub(n as u64) {
            Some(left) => {
                self.0.work.set(left);
                Ok(())
            }
            None => {
                self.0.work.set(0);
                Err(Error::limit("the template takes too long"))
            }
        }
    }

    /// Whether `bytes` more can be had, and the work of filling them. For temporary memory, and
    /// before a result is made.
    pub(super) fn room(&self, bytes: usize) -> Result<()> {
        self.fits(bytes)?;
        self.work(bytes)
    }

    /// Whether `bytes` more can be had.
    pub(super) fn fits(&self, bytes: usize) -> Result<()> {
        let fits = self.0.alive.get().checked_add(bytes).is_some_and(|n| n <= self.0.most);
        if fits { Ok(()) } else { Err(Error::limit("the template takes too much memory")) }
    }

    /// Takes `bytes` until the charge is dropped.
    fn charge(&self, bytes: usize) -> Result<Charge> {
        self.room(bytes)?;
        self.0.alive.set(self.0.alive.get() + bytes);
        Ok(Charge { heap: self.clone(), bytes })
    }

    /// Moves a charge's size by the growth of a buffer.
    pub(super) fn grow(&self, charge: &mut Charge, by: usize) -> Result<()> {
        self.room(by)?;
        self.0.alive.set(self.0.alive.get() + by);
        charge.bytes += by;
        Ok(())
    }

    pub(super) fn no_charge(&self) -> Charge {
        Charge { heap: self.clone(), bytes: 0 }
    }

    /// A string.
    pub(super) fn string(&self, text: impl Into<Box<str>>) -> Result<Value> {
        self.marked(text, false)
    }

    /// A string that is `Markup` if `safe`.
    pub(super) fn marked(&self, text: impl Into<Box<str>>, safe: bool) -> Result<Value> {
        let text = text.into();
        let charge = self.charge(text.len() + STRING)?;
        Ok(Value::Str(Str(Rc::new(Text { text, safe, _charge: charge }))))
    }

    pub(super) fn list(&self, items: Vec<Value>) -> Result<Value> {
        self.sequence(items, false)
    }

    pub(super) fn sequence(&self, items: Vec<Value>, tuple: bool) -> Result<Value> {
        let (weight, depth) = measure(items.iter())?;
        let charge = self.charge((items.len() + 1) * SCALAR)?;
        Ok(Value::List(Rc::new(Seq { items, tuple, group: false, weight, depth, _charge: charge })))
    }

    /// A tuple of `groupby`, whose members have names.
    pub(super) fn group(&self, grouper: Value, list: Value) -> Result<Value> {
        let items = vec![grouper, list];
        let (weight, depth) = measure(items.iter())?;
        let charge = self.charge((items.len() + 1) * SCALAR)?;
        Ok(Value::List(Rc::new(Seq { items, tuple: true, group: true, weight, depth, _charge: charge })))
    }

    /// A mapping; later keys replace earlier ones, in their place.
    pub(super) fn map(&self, pairs: Vec<(Value, Value)>) -> Result<Value> {
        let mut items: Vec<(Value, Value)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            match position(self, &items, &key)? {
                Some(at) => items[at].1 = value,
                None => items.push((key, value)),
            }
        }
        self.distinct_map(items)
    }

    fn distinct_map(&self, items: Vec<(Value, Value)>) -> Result<Value> {
        let (weight, depth) = measure(items.iter().flat_map(|(k, v)| [k, v]))?;
        let charge = self.charge((2 * items.len() + 1) * SCALAR)?;
        Ok(Value::Map(Rc::new(Map { items, weight, depth, _charge: charge })))
    }

    /// A value from the caller's JSON. Recursion is bounded by the parser's.
    ///
    /// # Errors
    /// It is larger than the heap.
    pub fn json(&self, json: &crate::json::Json) -> Result<Value> {
        use crate::json::Json;
        match json {
            Json::Null => Ok(Value::None),
            Json::Bool(b) => Ok(Value::Bool(*b)),
            Json::Int(n) => Ok(Value::Int(*n)),
            Json::Float(x) => Ok(Value::Float(*x)),
            Json::String(text) => self.string(text.as_str()),
            Json::List(items) => self.list(items.iter().map(|x| self.json(x)).collect::<Result<_>>()?),
            // Keys of parsed JSON are distinct.
            Json::Map(items) => self.distinct_map(
                items.iter().map(|(k, v)| Ok((self.string(k.as_str())?, self.json(v)?))).collect::<Result<_>>()?,
            ),
        }
    }
}

/// Weight and depth of a container.
fn measure<'v>(items: impl Iterator<Item = &'v Value>) -> Result<(usize, usize)> {
    let (mut weight, mut depth) = (SCALAR, 1);
    for item in items {
        if matches!(item, Value::Namespace(_) | Value::Call(_) | Value::Loop(_)) {
            return Err(Error::runtime(format!("a {} cannot be put into a list or mapping", item.kind())));
        }
        weight = weight.saturating_add(item.weight());
        depth = depth.max(item.depth() + 1);
    }
    if depth > DEEPEST {
        return Err(Error::limit(format!("lists or mappings are nested more than {DEEPEST} levels deep")));
    }
    Ok((weight, depth))
}

/// Index of `key`.
pub(super) fn position(heap: &Heap, items: &[(Value, Value)], key: &Value) -> Result<Option<usize>> {
    if matches!(key, Value::Map(_)) || matches!(key, Value::List(list) if !list.tuple) {
        return Err(Error::runtime(format!("unhashable type: '{}'", key.kind())));
    }
    heap.work(items.len())?;
    for (at, (k, _)) in items.iter().enumerate() {
        if super::ops::equal(heap, k, key)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Bytes alive; given back when dropped.
pub(super) struct Charge {
    heap: Heap,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.heap.0.alive.set(self.heap.0.alive.get().saturating_sub(self.bytes));
    }
}

/// A string.
#[derive(Clone)]
pub struct Str(Rc<Text>);

struct Text {
    text: Box<str>,
    safe: bool,
    _charge: Charge,
}

impl Str {
    /// Whether it is `Markup`.
    pub(super) fn safe(&self) -> bool {
        self.0.safe
    }
}

impl std::ops::Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

/// A list or tuple.
pub struct Seq {
    pub(super) items: Vec<Value>,
    pub(super) tuple: bool,
    /// With the members `grouper` and `list`.
    group: bool,
    weight: usize,
    depth: usize,
    _charge: Charge,
}

impl Seq {
    /// A member of a tuple of `groupby`.
    pub(super) fn named(&self, name: &str) -> Option<&Value> {
        match name {
            "grouper" if self.group => self.items.first(),
            "list" if self.group => self.items.get(1),
            _ => None,
        }
    }
}

/// A mapping, in order of insertion.
pub struct Map {
    pub(super) items: Vec<(Value, Value)>,
    weight: usize,
    depth: usize,
    _charge: Charge,
}

impl Map {
    /// The value of a string key.
    pub(super) fn get(&self, heap: &Heap, key: &str) -> Result<Option<&Value>> {
        heap.work(self.items.len())?;
        Ok(self.items.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v))
    }
}

/// `namespace()`: the only value that changes.
pub struct Namespace(RefCell<(Vec<(String, Value)>, Charge)>);

impl Namespace {
    pub(super) fn new(heap: &Heap, attrs: Vec<(String, Value)>) -> Result<Namespace> {
        let ns = Namespace(RefCell::new((Vec::new(), heap.no_charge())));
        attrs.into_iter().try_for_each(|(name, value)| ns.set(heap, &name, value))?;
        Ok(ns)
    }

    pub(super) fn get(&self, heap: &Heap, name: &str) -> Result<Option<Value>> {
        let attrs = &self.0.borrow().0;
        heap.work(attrs.len())?;
        Ok(attrs.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
    }

    pub(super) fn set(&self, heap: &Heap, name: &str, value: Value) -> Result<()> {
        if matches!(value, Value::Namespace(_) | Value::Call(_) | Value::Loop(_)) {
            return Err(Error::runtime(format!("a {} cannot be put into a namespace", value.kind())));
        }
        if name.starts_with('_') {
            return Err(Error::runtime(format!("a namespace cannot have the attribute '{name}'")));
        }
        let (attrs, charge) = &mut *self.0.borrow_mut();
        heap.work(attrs.len())?;
        match attrs.iter_mut().find(|(n, _)| n == name) {
            Some(place) => place.1 = value,
            None => {
                heap.grow(charge, name.len() + STRING)?;
                attrs.push((name.to_owned(), value));
            }
        }
        Ok(())
    }
}

/// Values that can be called.
pub enum Callable {
    /// A global function.
    Global(&'static str),
    /// A method of a value.
    Method(Value, String),
    /// A macro, and the scope that it was defined in.
    Macro {
        /// Which of the template's.
        index: usize,
        /// Where its body's names are looked up.
        scope: usize,
    },
    /// `joiner(separator)`, and whether it was called.
    Joiner(Value, Cell<bool>),
}

/// A value.
#[derive(Clone)]
pub enum Value {
    /// With the name that has no value.
    Undefined(Rc<str>),
    /// `none`
    None,
    /// `true`, `false`
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A string.
    Str(Str),
    /// A list or tuple.
    List(Rc<Seq>),
    /// A mapping.
    Map(Rc<Map>),
    /// A namespace.
    Namespace(Rc<Namespace>),
    /// A function, method or macro.
    Call(Rc<Callable>),
    /// `loop`
    Loop(Rc<LoopState>),
}

impl Value {
    pub(super) fn undefined(name: &str) -> Value {
        // Such values may be many, and a template's names long.
        let end = name.char_indices().nth(40).map_or(name.len(), |(at, _)| at);
        Value::Undefined(name[..end].into())
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_safe(&self) -> bool {
        matches!(self, Value::Str(text) if text.safe())
    }

    pub(super) fn weight(&self) -> usize {
        match self {
            Value::Str(text) => SCALAR + text.len(),
            Value::List(list) => list.weight,
            Value::Map(map) => map.weight,
            _ => SCALAR,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Value::List(list) => list.depth,
            Value::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// Python's truth.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(n) => *n != 0,
            Value::Float(x) => *x != 0.0,
            Value::Str(text) => !text.is_empty(),
            Value::List(list) => !list.items.is_empty(),
            Value::Map(map) => !map.items.is_empty(),
            Value::Namespace(_) | Value::Call(_) | Value::Loop(_) => true,
        }
    }

    /// An integer; booleans are.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(n) => Some(*n),
            Value::Bool(b) => Some(i128::from(*b)),
            _ => None,
        }
    }

    /// A number.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(x) => Some(*x),
            other => other.as_int().map(|n| n as f64),
        }
    }

    /// Python's name of the type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(text) if text.safe() => "Markup",
            Value::Str(_) => "str",
            Value::List(list) if list.tuple => "tuple",
            Value::List(_) => "list",
            Value::Map(_) => "dict",
            Value::Namespace(_) => "namespace",
            Value::Call(_) => "function",
            Value::Loop(_) => "loop",
        }
    }

    /// The error of using an undefined value.
    pub(super) fn undefined_error(name: &str) -> Error {
        Error::runtime(format!("'{name}' is undefined"))
    }
}
