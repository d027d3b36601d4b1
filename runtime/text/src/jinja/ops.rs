//! Operators, as Python's.

use std::cmp::Ordering;

use super::ast::Op;
use super::value::{Heap, SCALAR, Value};
use super::{Error, Result, format};

/// `a op b`
pub fn math(heap: &Heap, op: Op, a: &Value, b: &Value) -> Result<Value> {
    if let Value::Undefined(name) = a {
        return Err(Value::undefined_error(name));
    }
    match (op, a, b) {
        (Op::Rem, Value::Str(template), _) => return format::percent(heap, template, b),
        (_, _, Value::Undefined(name)) => return Err(Value::undefined_error(name)),
        (Op::Add, Value::Str(x), Value::Str(y)) => return add_strings(heap, x, x.safe(), y, y.safe()),
        (Op::Add, Value::List(x), Value::List(y)) if x.tuple == y.tuple => {
            heap.room((x.items.len() + y.items.len()) * SCALAR)?;
            return heap.sequence(x.items.iter().chain(&y.items).cloned().collect(), x.tuple);
        }
        (Op::Mul, Value::Str(_) | Value::List(_), n) | (Op::Mul, n, Value::Str(_) | Value::List(_))
            if n.as_int().is_some() =>
        {
            return repeat(heap, if a.as_int().is_some() { b } else { a }, n.as_int().unwrap_or(0));
        }
        _ => {}
    }
    let unsupported =
        || Error::runtime(format!("unsupported operand types for {}: '{}' and '{}'", symbol(op), a.kind(), b.kind()));
    match (a.as_int(), b.as_int()) {
        (Some(x), Some(y)) => integers(op, x, y),
        _ => floats(op, a.as_float().ok_or_else(unsupported)?, b.as_float().ok_or_else(unsupported)?),
    }
}

fn symbol(op: Op) -> &'static str {
    match op {
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::Div => "/",
        Op::FloorDiv => "//",
        Op::Rem => "%",
        Op::Pow => "**",
    }
}

/// `Markup` escapes strings added to it.
fn add_strings(heap: &Heap, x: &str, x_safe: bool, y: &str, y_safe: bool) -> Result<Value> {
    let safe = x_safe || y_safe;
    let part = |text: &str, this: bool| if safe && !this { escape(heap, text) } else { Ok(text.to_owned()) };
    heap.room(x.len() + y.len())?;
    heap.marked(part(x, x_safe)? + &part(y, y_safe)?, safe)
}

/// As `markupsafe.escape`.
pub fn escape(heap: &Heap, text: &str) -> Result<String> {
    heap.room(6 * text.len())?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\'' => out += "&#39;",
            '"' => out += "&#34;",
            c => out.push(c),
        }
    }
    Ok(out)
}

fn repeat(heap: &Heap, value: &Value, n: i128) -> Result<Value> {
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    match value {
        Value::Str(text) => {
            heap.room(text.len().saturating_mul(n))?;
            heap.marked(text.repeat(if text.is_empty() { 0 } else { n }), text.safe())
        }
        Value::List(list) => {
            heap.room((list.items.len() * SCALAR).saturating_mul(n))?;
            let n = if list.items.is_empty() { 0 } else { n };
            heap.sequence(list.items.iter().cycle().take(list.items.len() * n).cloned().collect(), list.tuple)
        }
        _ => Err(Error::runtime("only strings and lists repeat")),
    }
}

fn integers(op: Op, x: i128, y: i128) -> Result<Value> {
    let zero = || Error::runtime("division by zero");
    let value = match op {
        Op::Add => x.checked_add(y),
        Op::Sub => x.checked_sub(y),
        Op::Mul => x.checked_mul(y),
        Op::Div if y == 0 => return Err(zero()),
        Op::Div => return Ok(Value::Float(x as f64 / y as f64)),
        Op::FloorDiv | Op::Rem if y == 0 => return Err(zero()),
        Op::FloorDiv => x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q }),
        Op::Rem => x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }),
        Op::Pow if y < 0 => return floats(op, x as f64, y as f64),
        Op::Pow => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)),
    };
    value.map(Value::Int).ok_or_else(|| Error::limit("an integer of more than 128 bits"))
}

fn floats(op: Op, x: f64, y: f64) -> Result<Value> {
    if y == 0.0 && matches!(op, Op::Div | Op::FloorDiv | Op::Rem) {
        return Err(Error::runtime("float division by zero"));
    }
    let remainder = |x: f64, y: f64| {
        let r = x % y;
        if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
    };
    Ok(Value::Float(match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div => x / y,
        Op::FloorDiv => ((x - remainder(x, y)) / y).round(),
        Op::Rem => remainder(x, y),
        Op::Pow => x.powf(y),
    }))
}

/// `a == b`
pub fn equal(heap: &Heap, a: &Value, b: &Value) -> Result<bool> {
    heap.work(a.weight().min(b.weight()))?;
    same(heap, a, b)
}

/// Costs at most the lesser weight, beside searches for keys.
fn same(heap: &Heap, a: &Value, b: &Value) -> Result<bool> {
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => **x == **y,
        (Value::List(x), Value::List(y)) => {
            if x.tuple != y.tuple || x.items.len() != y.items.len() {
                return Ok(false);
            }
            for (x, y) in x.items.iter().zip(&y.items) {
                if !same(heap, x, y)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(x), Value::Map(y)) => {
            if x.items.len() != y.items.len() {
                return Ok(false);
            }
            for (at, (key, value)) in x.items.iter().enumerate() {
                // Equal mappings mostly have equal order.
                let here = match y.items.get(at) {
                    Some((k, v)) if same(heap, k, key)? => Some(v),
                    _ => super::value::position(heap, &y.items, key)?.map(|at| &y.items[at].1),
                };
                match here {
                    Some(other) if same(heap, value, other)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Namespace(x), Value::Namespace(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Call(x), Value::Call(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Loop(x), Value::Loop(y)) => std::rc::Rc::ptr_eq(x, y),
        _ => match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) => x == y,
            _ => matches!((a.as_float(), b.as_float()), (Some(x), Some(y)) if x == y),
        },
    })
}

/// `a < b` and the like.
pub fn compare(heap: &Heap, a: &Value, b: &Value) -> Result<Option<Ordering>> {
    heap.work(a.weight().min(b.weight()))?;
    order(heap, a, b)
}

fn order(heap: &Heap, a: &Value, b: &Value) -> Result<Option<Ordering>> {
    for v in [a, b] {
        if let Value::Undefined(name) = v {
            return Err(Value::undefined_error(name));
        }
    }
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => return Ok(Some(x.chars().cmp(y.chars()))),
        (Value::List(x), Value::List(y)) if x.tuple == y.tuple => {
            for (x, y) in x.items.iter().zip(&y.items) {
                if !same(heap, x, y)? {
                    return order(heap, x, y);
                }
            }
            return Ok(Some(x.items.len().cmp(&y.items.len())));
        }
        _ => {}
    }
    match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
        (Some(x), Some(y), ..) => Ok(Some(x.cmp(&y))),
        (_, _, Some(x), Some(y)) => Ok(x.partial_cmp(&y)),
        _ => Err(Error::runtime(format!("'{}' and '{}' cannot be compared", a.kind(), b.kind()))),
    }
}

/// `item in container`
pub fn contains(heap: &Heap, container: &Value, item: &Value) -> Result<bool> {
    match container {
        Value::Str(text) => match item {
            Value::Str(part) => {
                heap.work(text.len() + part.len())?;
                Ok(text.contains(&**part))
            }
            Value::Undefined(name) => Err(Value::undefined_error(name)),
            _ => Err(Error::runtime(format!("'in <string>' requires string as left operand, not {}", item.kind()))),
        },
        Value::List(list) => {
            heap.work(list.items.len())?;
            for x in &list.items {
                if equal(heap, x, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(super::value::position(heap, &map.items, item)?.is_some()),
        Value::Undefined(_) => Ok(false),
        _ => Err(Error::runtime(format!("argument of type '{}' is not iterable", container.kind()))),
    }
}

/// `value[start:stop:step]`
pub fn slice(heap: &Heap, value: &Value, parts: [Option<i128>; 3]) -> Result<Value> {
    let step = parts[2].unwrap_or(1);
    if step == 0 {
        return Err(Error::runtime("slice step cannot be zero"));
    }
    match value {
        Value::Str(text) => {
            heap.room(8 * text.len())?;
            let chars: Vec<char> = text.chars().collect();
            heap.marked(
                indices(chars.len(), parts[0], parts[1], step).map(|i| chars[i]).collect::<String>(),
                text.safe(),
            )
        }
        Value::List(list) => {
            heap.room(list.items.len() * SCALAR)?;
            let items = indices(list.items.len(), parts[0], parts[1], step).map(|i| list.items[i].clone()).collect();
            heap.sequence(items, list.tuple)
        }
        Value::Undefined(name) => Err(Value::undefined_error(name)),
        _ => Ok(Value::undefined("slice")),
    }
}

/// Indices of a slice, as Python's `slice.indices`.
fn indices(len: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> impl Iterator<Item = usize> {
    let n = len as i128;
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let clamp = |x: i128| if x < 0 { x.saturating_add(n).max(low) } else { x.min(high) };
    let start = start.map_or(if step > 0 { low } else { high }, clamp);
    let stop = stop.map_or(if step > 0 { high } else { low }, clamp);
    let next = move |i: &i128| i.checked_add(step);
    std::iter::successors(Some(start), next)
        .take_while(move |&i| if step > 0 { i < stop } else { i > stop })
        .filter_map(|i| usize::try_from(i).ok())
}
