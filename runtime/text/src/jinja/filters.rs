//! Jinja's filters and tests. `tojson` is Transformers': `json.dumps` without HTML escapes.

use std::cmp::Ordering;

use super::ast::Cmp;
use super::eval::{Given, Interpreter, compare};
use super::value::{SCALAR, Value};
use super::{Error, Result, call, format, known, methods, ops, print};

/// Filters that are methods of strings too.
const AS_METHODS: [&str; 5] = ["upper", "lower", "capitalize", "trim", "center"];

impl<'a> Interpreter<'a> {
    /// `value|name(given)`
    pub fn filter(&mut self, name: &str, value: Value, mut given: Given) -> Result<Value> {
        self.heap.work(SCALAR)?;
        match name {
            "default" | "d" => {
                let default = given.take(0, "default_value");
                let falsy = given.take(1, "boolean").is_some_and(|b| b.is_true());
                given.finish(name, 2)?;
                if matches!(value, Value::Undefined(_)) || falsy && !value.is_true() {
                    return default.map_or_else(|| self.heap.string(""), Ok);
                }
                Ok(value)
            }
            "length" | "count" => {
                given.finish(name, 0)?;
                self.length(&value)
            }
            "tojson" => self.json_text(&value, given),
            "safe" | "e" | "escape" | "forceescape" | "string" | "title" | "replace" | "indent" | "format"
            | "truncate" | "wordcount" | "urlencode" | "pprint" => self.text_filter(name, value, given),
            _ if AS_METHODS.contains(&name) => {
                let text = self.soft_string(&value)?;
                if name == "center" && given.positional.is_empty() && given.named.is_empty() {
                    given.positional.push(Value::Int(80));
                }
                methods::call(self, &text, if name == "trim" { "strip" } else { name }, given)
            }
            "int" | "float" | "abs" | "round" => self.number_filter(name, &value, given),
            "map" | "select" | "reject" | "selectattr" | "rejectattr" => self.each(name, &value, given),
            "items" | "dictsort" => self.mapping_filter(name, &value, given),
            "attr" => {
                let name = given.take(0, "name").unwrap_or(Value::None);
                given.finish("attr", 1)?;
                match (&value, name.as_str()) {
                    (Value::Undefined(name), _) => Err(Value::undefined_error(name)),
                    (Value::Map(_), Some(name)) if !methods::exists(&value, name) => Ok(Value::undefined(name)),
                    (_, Some(name)) => call::attribute(self, &value, name),
                    _ => Err(Error::runtime("attr needs the name of an attribute")),
                }
            }
            _ => self.list_filter(name, value, given),
        }
    }

    fn length(&self, value: &Value) -> Result<Value> {
        self.heap.work(value.as_str().map_or(1, str::len))?;
        let n = match value {
            Value::Str(text) => text.chars().count(),
            Value::List(list) => list.items.len(),
            Value::Map(map) => map.items.len(),
            Value::Undefined(_) => 0,
            Value::Loop(state) => state.items.len(),
            _ => return Err(Error::runtime(format!("object of type '{}' has no len()", value.kind()))),
        };
        Ok(Value::Int(n as i128))
    }

    /// A string; `Markup` stays `Markup`.
    fn soft_string(&self, value: &Value) -> Result<Value> {
        match value {
            Value::Str(_) => Ok(value.clone()),
            other => self.heap.string(print::text(&self.heap, other)?),
        }
    }

    fn json_text(&self, value: &Value, mut given: Given) -> Result<Value> {
        let ensure_ascii = given.take(0, "ensure_ascii").is_some_and(|b| b.is_true());
        let indent = given.take(1, "indent").unwrap_or(Value::None);
        let separators = given.take(2, "separators").unwrap_or(Value::None);
        let sort_keys = given.take(3, "sort_keys").is_some_and(|b| b.is_true());
        given.finish("tojson", 4)?;
        let indent = match &indent {
            Value::None => None,
            Value::Str(text) => Some(text.to_string()),
            other => {
                let n = other.as_int().ok_or_else(|| Error::runtime("tojson: indent needs an integer or a string"))?;
                let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
                self.heap.room(n)?;
                Some(" ".repeat(n))
            }
        };
        let separators = match &separators {
            Value::None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
            other => match <[Value; 2]>::try_from(self.iterate(other)?) {
                Ok([item, key]) => (print::text(&self.heap, &item)?, print::text(&self.heap, &key)?),
                Err(_) => return Err(Error::runtime("tojson: separators needs two strings")),
            },
        };
        let text = print::json(&self.heap, value, &print::JsonStyle { indent, separators, ensure_ascii, sort_keys })?;
        self.heap.string(text)
    }

    fn text_filter(&mut self, name: &str, value: Value, mut given: Given) -> Result<Value> {
        let heap = self.heap.clone();
        let text = self.soft_string(&value)?;
        let Value::Str(on) = &text else { return Ok(text) };
        heap.room(on.len().saturating_mul(2))?;
        match name {
            "string" | "pprint" => {
                given.finish(name, 0)?;
                if name == "pprint" { heap.string(print::repr_text(&heap, &value)?) } else { Ok(text) }
            }
            "safe" => {
                given.finish(name, 0)?;
                heap.marked(&**on, true)
            }
            "e" | "escape" if on.safe() => Ok(text),
            "e" | "escape" | "forceescape" => {
                given.finish(name, 0)?;
                heap.marked(ops::escape(&heap, on)?, true)
            }
            "title" => {
                given.finish(name, 0)?;
                heap.string(title_words(on))
            }
            "replace" => {
                let (old, new) =
                    (given.take(0, "old").unwrap_or(Value::None), given.take(1, "new").unwrap_or(Value::None));
                let count = given.take(2, "count").filter(|c| !matches!(c, Value::None));
                given.finish(name, 3)?;
                let count = count
                    .map_or(Some(-1), |c| c.as_int())
                    .ok_or_else(|| Error::runtime("replace: count needs an integer"))?;
                let (old, new) = (print::text(&heap, &old)?, print::text(&heap, &new)?);
                heap.string(methods::replace(&heap, on, &old, &new, count)?)
            }
            "indent" => self.indent(on, given),
            "format" => {
                let args = if given.named.is_empty() {
                    heap.sequence(given.positional, true)?
                } else {
                    let pairs =
                        given.named.into_iter().map(|(k, v)| Ok((heap.string(k)?, v))).collect::<Result<_>>()?;
                    heap.map(pairs)?
                };
                format::percent(&heap, on, &args)
            }
            "truncate" => self.truncate(on, given),
            "wordcount" => {
                given.finish(name, 0)?;
                Ok(Value::Int(
                    on.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).count() as i128
                ))
            }
            "urlencode" => {
                given.finish(name, 0)?;
                heap.room(3 * on.len())?;
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'/');
                heap.string(
                    on.bytes()
                        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
                        .collect::<String>(),
                )
            }
            _ => Err(Error::runtime(format!("the filter '{name}' is not supported in chat templates"))),
        }
    }

    fn indent(&mut self, on: &super::value::Str, mut given: Given) -> Result<Value> {
        let width = given.take(0, "width").unwrap_or(Value::Int(4));
        let first = given.take(1, "first").is_some_and(|b| b.is_true());
        let blank = given.take(2, "blank").is_some_and(|b| b.is_true());
        given.finish("indent", 3)?;
        let indention = match &width {
            Value::Str(text) => text.to_string(),
            other => {
                let n = other.as_int().ok_or_else(|| Error::runtime("indent: width needs an integer or a string"))?;
                let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
                self.heap.room(n)?;
                " ".repeat(n)
            }
        };
        let safe = on.safe();
        let text = format!("{}\n", &**on);
        let breaks = methods::lines(&text, false).len() + 1;
        self.heap.room(breaks.saturating_mul(indention.len() + 1).saturating_add(text.len()))?;
        let mut out = String::new();
        if blank {
            // The added line break is the one that Jinja's own way of splitting needs.
            out = methods::lines(&text, false).join(&format!("\n{indention}"));
        } else {
            for (i, line) in methods::lines(&text, false).into_iter().enumerate() {
                if i > 0 {
                    out.push('\n');
                    if !line.is_empty() {
                        out += &indention;
                    }
                }
                out += line;
            }
        }
        if first {
            out.insert_str(0, &indention);
        }
        self.heap.marked(out, safe)
    }

    fn truncate(&mut self, on: &super::value::Str, mut given: Given) -> Result<Value> {
        let length = given.take(0, "length").map_or(Some(255), |v| v.as_int());
        let kill = given.take(1, "killwords").is_some_and(|b| b.is_true());
        let end = given.take(2, "end").map_or_else(|| Ok("...".to_owned()), |e| print::text(&self.heap, &e))?;
        let leeway =
            given.take(3, "leeway").map_or(Some(5), |v| if matches!(v, Value::None) { Some(5) } else { v.as_int() });
        given.finish("truncate", 4)?;
        let (Some(length), Some(leeway)) = (length, leeway) else {
            return Err(Error::runtime("truncate needs integers"));
        };
        let (n, ending) = (on.chars().count() as i128, end.chars().count() as i128);
        if length < ending {
            return Err(Error::runtime("truncate: the length is less than that of the end"));
        }
        if n <= length.saturating_add(leeway) {
            return Ok(Value::Str(on.clone()));
        }
        let cut: String = on.chars().take(usize::try_from(length - ending).unwrap_or(usize::MAX)).collect();
        let cut = if kill { &*cut } else { cut.rsplit_once(' ').map_or(&*cut, |(head, _)| head) };
        self.heap.marked(cut.to_owned() + &end, on.safe())
    }

    fn number_filter(&mut self, name: &str, value: &Value, mut given: Given) -> Result<Value> {
        match name {
            "abs" => {
                given.finish(name, 0)?;
                match value {
                    Value::Float(x) => Ok(Value::Float(x.abs())),
                    other => {
                        let n = other
                            .as_int()
                            .ok_or_else(|| Error::runtime(format!("bad operand type for abs(): '{}'", other.kind())))?;
                        n.checked_abs().map(Value::Int).ok_or_else(|| Error::limit("an integer of more than 128 bits"))
                    }
                }
            }
            "round" => {
                let digits = given.take(0, "precision").map_or(Some(0), |v| v.as_int());
                let method = given.take(1, "method");
                given.finish(name, 2)?;
                let x = value
                    .as_float()
                    .ok_or_else(|| Error::runtime(format!("round needs a number, not {}", value.kind())))?;
                let digits = digits.and_then(|d| i32::try_from(d).ok()).filter(|d| d.abs() <= 300);
                let digits = digits.ok_or_else(|| Error::runtime("round needs a number of digits"))?;
                let scale = 10f64.powi(digits);
                Ok(Value::Float(match method.as_ref().and_then(Value::as_str) {
                    None | Some("common") if digits >= 0 => format!("{x:.*}", digits as usize).parse().unwrap_or(x),
                    None | Some("common") => (x * scale).round_ties_even() / scale,
                    Some("ceil") => (x * scale).ceil() / scale,
                    Some("floor") => (x * scale).floor() / scale,
                    Some(_) => return Err(Error::runtime("method must be common, ceil or floor")),
                }))
            }
            _ => {
                let default = given.take(0, "default");
                let base = given
                    .take(1, "base")
                    .map_or(Some(10), |b| b.as_int())
                    .and_then(|b| u32::try_from(b).ok())
                    .filter(|b| (2..=36).contains(b));
                given.finish(name, 2)?;
                let text = value.as_str().map(|t| t.trim_matches(methods::is_space).replace('_', ""));
                if name == "float" {
                    let x = value.as_float().or_else(|| text.and_then(|t| t.parse().ok()));
                    return Ok(x.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)));
                }
                let text = text.map(|t| match base {
                    // As Python's `int`, which takes the prefix of its base.
                    Some(16) => t.strip_prefix("0x").or_else(|| t.strip_prefix("0X")).map(str::to_owned).unwrap_or(t),
                    Some(8) => t.strip_prefix("0o").or_else(|| t.strip_prefix("0O")).map(str::to_owned).unwrap_or(t),
                    Some(2) => t.strip_prefix("0b").or_else(|| t.strip_prefix("0B")).map(str::to_owned).unwrap_or(t),
                    _ => t,
                });
                let n = match value {
                    Value::Float(x) if x.is_finite() => Some(x.trunc() as i128),
                    other => other.as_int().or_else(|| {
                        text.and_then(|t| {
                            i128::from_str_radix(&t, base?)
                                .ok()
                                .or_else(|| Some(t.parse::<f64>().ok().filter(|x| x.is_finite())? as i128))
                        })
                    }),
                };
                Ok(n.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
            }
        }
    }

    /// `map`, `select` and their kin.
    fn each(&mut self, name: &str, value: &Value, mut given: Given) -> Result<Value> {
        let items = self.iterate(value)?;
        if name == "map" && given.named.iter().any(|(n, _)| n == "attribute") {
            let attribute = given.take(usize::MAX, "attribute").unwrap_or(Value::None);
            let default = given.take(usize::MAX, "default");
            given.finish(name, 0)?;
            let mut out = Vec::new();
            for item in items {
                let found = self.path(&item, &attribute)?;
                out.push(match (&found, &default) {
                    (Value::Undefined(_), Some(default)) => default.clone(),
                    _ => found,
                });
            }
            return self.heap.list(out);
        }
        let by_attribute = name.ends_with("attr");
        let mut positional = std::mem::take(&mut given.positional).into_iter();
        let attribute = if by_attribute {
            Some(
                positional
                    .next()
                    .ok_or_else(|| Error::runtime(format!("{name}: missing parameter for attribute name")))?,
            )
        } else {
            None
        };
        let function = positional.next();
        let rest: Vec<Value> = positional.collect();
        let mut out = Vec::new();
        for item in items {
            self.heap.work(SCALAR * (1 + rest.len() + given.named.len()))?;
            let arguments = Given { positional: rest.clone(), named: given.named.clone() };
            if name == "map" {
                let filter = function
                    .as_ref()
                    .and_then(Value::as_str)
                    .ok_or_else(|| Error::runtime("map requires a filter argument"))?;
                out.push(self.deeper(|s| s.filter(filter, item, arguments))?);
                continue;
            }
            let tested = match &attribute {
                Some(attribute) => self.path(&item, attribute)?,
                None => item.clone(),
            };
            let holds = match &function {
                Some(test) => {
                    let test =
                        test.as_str().ok_or_else(|| Error::runtime(format!("{name} needs the name of a test")))?;
                    self.test(test, &tested, arguments)?
                }
                None => tested.is_true(),
            };
            if holds != name.starts_with("reject") {
                out.push(item);
            }
        }
        self.heap.list(out)
    }

    /// `item.a.b`, for an attribute given as `"a.b"` or an index.
    fn path(&self, item: &Value, attribute: &Value) -> Result<Value> {
        let Some(path) = attribute.as_str() else { return call::item(self, item, attribute) };
        let mut value = item.clone();
        self.heap.work(path.len())?;
        for part in path.split('.') {
            let key = part.parse().map_or_else(|_| self.heap.string(part), |n| Ok(Value::Int(n)))?;
            value = call::item(self, &value, &key)?;
        }
        Ok(value)
    }

    fn mapping_filter(&mut self, name: &str, value: &Value, mut given: Given) -> Result<Value> {
        let map = match value {
            Value::Undefined(_) if name == "items" => return self.heap.list(Vec::new()),
            Value::Map(map) => map.clone(),
            other => return Err(Error::runtime(format!("{name} needs a mapping, not {}", other.kind()))),
        };
        let mut pairs = map.items.clone();
        if name == "dictsort" {
            let case = given.take(0, "case_sensitive").is_some_and(|b| b.is_true());
            let by_value = given.take(1, "by").is_some_and(|b| b.as_str() == Some("value"));
            let reverse = given.take(2, "reverse").is_some_and(|b| b.is_true());
            given.finish(name, 3)?;
            let keys = pairs
                .iter()
                .map(|(k, v)| self.sort_key(if by_value { v } else { k }, case))
                .collect::<Result<Vec<_>>>()?;
            pairs = self.sorted(pairs, keys, reverse)?;
        } else {
            given.finish(name, 0)?;
        }
        let pairs = pairs.into_iter().map(|(k, v)| self.heap.sequence(vec![k, v], true)).collect::<Result<_>>()?;
        self.heap.list(pairs)
    }

    /// Strings sort without case unless asked.
    fn sort_key(&self, value: &Value, case: bool) -> Result<Value> {
        match value {
            Value::Str(text) if !case => {
                self.heap.room(2 * text.len())?;
                self.heap.string(text.to_lowercase())
            }
            other => Ok(other.clone()),
        }
    }

    /// Stable sort of `items` by `keys`.
    fn sorted<T: Clone>(&self, items: Vec<T>, keys: Vec<Value>, reverse: bool) -> Result<Vec<T>> {
        let mut order: Vec<usize> = (0..items.len()).collect();
        let mut failed = None;
        order.sort_by(|&a, &b| {
            let (a, b) = if reverse { (b, a) } else { (a, b) };
            if failed.is_some() {
                return Ordering::Equal;
            }
            ops::compare(&self.heap, &keys[a], &keys[b]).map(|o| o.unwrap_or(Ordering::Equal)).unwrap_or_else(|e| {
                failed = Some(e);
                Ordering::Equal
            })
        });
        match failed {
            Some(e) => Err(e),
            None => Ok(order.into_iter().map(|i| items[i].clone()).collect()),
        }
    }

    fn list_filter(&mut self, name: &str, value: Value, mut given: Given) -> Result<Value> {
        match name {
            "join" => {
                let separator =
                    given.take(0, "d").map_or_else(|| Ok(String::new()), |d| print::text(&self.heap, &d))?;
                let attribute = given.take(1, "attribute").filter(|a| !matches!(a, Value::None));
                given.finish(name, 2)?;
                let mut items = self.iterate(&value)?;
                if let Some(attribute) = attribute {
                    items = items.iter().map(|item| self.path(item, &attribute)).collect::<Result<_>>()?;
                }
                let sum =
                    items.iter().fold(0usize, |sum, v| sum.saturating_add(v.weight().saturating_add(separator.len())));
                self.heap.room(sum)?;
                let mut out = String::new();
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out += &separator;
                    }
                    print::write_text(&self.heap, &mut out, item)?;
                }
                self.heap.string(out)
            }
            "list" => {
                given.finish(name, 0)?;
                let items = self.iterate(&value)?;
                self.heap.list(items)
            }
            "first" | "last" => {
                given.finish(name, 0)?;
                let missing = || Value::undefined("No first item, sequence was empty.");
                match &value {
                    Value::Str(text) => {
                        let c = if name == "first" { text.chars().next() } else { text.chars().next_back() };
                        c.map_or_else(|| Ok(missing()), |c| self.heap.marked(c.to_string(), text.safe()))
                    }
                    other => {
                        let items = self.iterate(other)?;
                        let item = if name == "first" { items.first() } else { items.last() };
                        Ok(item.cloned().unwrap_or_else(missing))
                    }
                }
            }
            "reverse" => {
                given.finish(name, 0)?;
                if let Value::Str(text) = &value {
                    self.heap.room(text.len())?;
                    return self.heap.marked(text.chars().rev().collect::<String>(), text.safe());
                }
                let mut items = self.iterate(&value)?;
                items.reverse();
                self.heap.list(items)
            }
            "sort" | "unique" | "min" | "max" => self.order_filter(name, &value, given),
            "sum" => {
                let attribute = given.take(0, "attribute").filter(|a| !matches!(a, Value::None));
                let mut sum = given.take(1, "start").unwrap_or(Value::Int(0));
                given.finish(name, 2)?;
                for item in self.iterate(&value)? {
                    let item = attribute.as_ref().map_or(Ok(item.clone()), |a| self.path(&item, a))?;
                    sum = ops::math(&self.heap, super::ast::Op::Add, &sum, &item)?;
                }
                Ok(sum)
            }
            "batch" | "slice" => self.cut(name, &value, given),
            "groupby" => self.group_by(&value, given),
            _ => Err(unknown("filter", name)),
        }
    }

    fn order_filter(&mut self, name: &str, value: &Value, mut given: Given) -> Result<Value> {
        let sort = name == "sort";
        let reverse = sort && given.take(0, "reverse").is_some_and(|b| b.is_true());
        let case = given.take(usize::from(sort), "case_sensitive").is_some_and(|b| b.is_true());
        let attribute = given.take(1 + usize::from(sort), "attribute").filter(|a| !matches!(a, Value::None));
        given.finish(name, 2 + usize::from(sort))?;
        let items = self.iterate(value)?;
        let mut keys = Vec::new();
        for item in &items {
            keys.push(match attribute.as_ref() {
                // Only `sort` knows several.
                Some(Value::Str(paths)) if sort && paths.contains(',') => {
                    let mut several = Vec::new();
                    for path in paths.split(',') {
                        let path = self.heap.string(path)?;
                        several.push(self.sort_key(&self.path(item, &path)?, case)?);
                    }
                    self.heap.list(several)?
                }
                Some(path) => self.sort_key(&self.path(item, path)?, case)?,
                None => self.sort_key(item, case)?,
            });
        }
        match name {
            "sort" => {
                let items = self.sorted(items, keys, reverse)?;
                self.heap.list(items)
            }
            "unique" => {
                let mut kept: Vec<usize> = Vec::new();
                for (i, key) in keys.iter().enumerate() {
                    self.heap.work(kept.len())?;
                    let mut seen = false;
                    for &k in &kept {
                        seen = seen || ops::equal(&self.heap, &keys[k], key)?;
                    }
                    if !seen {
                        kept.push(i);
                    }
                }
                self.heap.list(kept.into_iter().map(|i| items[i].clone()).collect())
            }
            _ => {
                let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
                let mut best: Option<usize> = None;
                for i in 0..items.len() {
                    let better =
                        best.map_or(Ok(true), |b| Ok(ops::compare(&self.heap, &keys[i], &keys[b])? == Some(wanted)))?;
                    if better {
                        best = Some(i);
                    }
                }
                Ok(best
                    .map_or_else(|| Value::undefined("No aggregated item, sequence was empty."), |i| items[i].clone()))
            }
        }
    }

    /// `batch`: rows of `n`; `slice`: `n` columns.
    fn cut(&mut self, name: &str, value: &Value, mut given: Given) -> Result<Value> {
        let n = given.take(0, "linecount").and_then(|n| usize::try_from(n.as_int()?).ok()).filter(|n| *n > 0);
        let n = n.ok_or_else(|| Error::runtime(format!("{name} needs a positive integer")))?;
        let fill = given.take(1, "fill_with").filter(|f| !matches!(f, Value::None));
        given.finish(name, 2)?;
        let items = self.iterate(value)?;
        self.heap.room(n.saturating_mul(SCALAR))?;
        let mut rows: Vec<Vec<Value>> = if name == "batch" {
            items.chunks(n).map(<[Value]>::to_vec).collect()
        } else {
            let (each, more) = (items.len() / n, items.len() % n);
            (0..n).map(|i| items[i * each + i.min(more)..(i + 1) * each + (i + 1).min(more)].to_vec()).collect()
        };
        if let Some(fill) = fill {
            let full = rows.first().map_or(0, Vec::len);
            for row in &mut rows {
                row.resize(if name == "batch" { n } else { full }, fill.clone());
            }
        }
        let rows = rows.into_iter().map(|row| self.heap.list(row)).collect::<Result<_>>()?;
        self.heap.list(rows)
    }

    /// Groups in the order of their common attribute; strings without case unless asked, named as
    /// in the first member of the group.
    fn group_by(&mut self, value: &Value, mut given: Given) -> Result<Value> {
        let attribute = given.take(0, "attribute").ok_or_else(|| Error::runtime("groupby needs an attribute"))?;
        let default = given.take(1, "default").filter(|d| !matches!(d, Value::None));
        let case = given.take(2, "case_sensitive").is_some_and(|b| b.is_true());
        given.finish("groupby", 3)?;
        let items = self.iterate(value)?;
        let (mut names, mut keys) = (Vec::new(), Vec::new());
        for item in &items {
            let found = self.path(item, &attribute)?;
            let name = match (&found, &default) {
                (Value::Undefined(_), Some(default)) => default.clone(),
                _ => found,
            };
            keys.push(self.sort_key(&name, case)?);
            names.push(name);
        }
        let rows: Vec<_> = keys.iter().cloned().zip(names).zip(items).collect();
        let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
        for ((key, name), item) in self.sorted(rows, keys, false)? {
            match groups.last_mut() {
                Some((last, _, list)) if ops::equal(&self.heap, last, &key)? => list.push(item),
                _ => groups.push((key, name, vec![item])),
            }
        }
        let groups = groups.into_iter().map(|(_, name, list)| self.heap.group(name, self.heap.list(list)?));
        let groups = groups.collect::<Result<_>>()?;
        self.heap.list(groups)
    }

    /// `value is name(given)`
    pub fn test(&mut self, name: &str, value: &Value, mut given: Given) -> Result<bool> {
        let cmp = match name {
            "eq" | "equalto" | "==" => Some(Cmp::Eq),
            "ne" | "!=" => Some(Cmp::Ne),
            "lt" | "lessthan" | "<" => Some(Cmp::Lt),
            "le" | "<=" => Some(Cmp::Le),
            "gt" | "greaterthan" | ">" => Some(Cmp::Gt),
            "ge" | ">=" => Some(Cmp::Ge),
            "in" => Some(Cmp::In),
            _ => None,
        };
        if let Some(cmp) = cmp {
            let other =
                given.take(0, "other").ok_or_else(|| Error::runtime(format!("the test '{name}' needs an argument")))?;
            given.finish(name, 1)?;
            return compare(&self.heap, cmp, value, &other);
        }
        if matches!(name, "divisibleby" | "sameas") {
            let other = given.take(0, "num").or_else(|| given.take(0, "other")).unwrap_or(Value::None);
            given.finish(name, 1)?;
            if name == "sameas" {
                return Ok(value.kind() == other.kind() && ops::equal(&self.heap, value, &other)?);
            }
            return ops::math(&self.heap, super::ast::Op::Rem, value, &other).map(|r| !r.is_true());
        }
        given.finish(name, 0)?;
        let integer = || {
            value
                .as_int()
                .ok_or_else(|| Error::runtime(format!("the test '{name}' needs an integer, not {}", value.kind())))
        };
        let text = || {
            self.heap.work(value.weight())?;
            print::text(&self.heap, value)
        };
        Ok(match name {
            "defined" => !matches!(value, Value::Undefined(_)),
            "undefined" => matches!(value, Value::Undefined(_)),
            "none" => matches!(value, Value::None),
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "boolean" => matches!(value, Value::Bool(_)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => value.as_float().is_some(),
            "string" => matches!(value, Value::Str(_)),
            "mapping" => matches!(value, Value::Map(_)),
            "iterable" => {
                matches!(value, Value::Str(_) | Value::List(_) | Value::Map(_) | Value::Undefined(_) | Value::Loop(_))
            }
            "sequence" => matches!(value, Value::Str(_) | Value::List(_) | Value::Map(_) | Value::Undefined(_)),
            "callable" => matches!(value, Value::Call(_)),
            "escaped" => value.is_safe(),
            "odd" => integer()?.rem_euclid(2) == 1,
            "even" => integer()?.rem_euclid(2) == 0,
            "lower" | "upper" => {
                let text = text()?;
                let cased = text.chars().any(|c| c.is_lowercase() || c.is_uppercase());
                cased
                    && if name == "lower" {
                        !text.chars().any(char::is_uppercase)
                    } else {
                        !text.chars().any(char::is_lowercase)
                    }
            }
            _ => return Err(unknown("test", name)),
        })
    }
}

fn unknown(kind: &str, name: &str) -> Error {
    Error::runtime(known::why_not(kind, name).unwrap_or_else(|| format!("the {kind} '{name}' is not known here")))
}

/// Jinja's `title`: words begin after white space, `-` and opening brackets.
fn title_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut starts = true;
    for c in text.chars() {
        if starts {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        starts = c == '-' || methods::is_space(c) || matches!(c, '(' | '{' | '[' | '<');
    }
    out
}
