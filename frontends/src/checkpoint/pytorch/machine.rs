//! The machine that a pickle is a program of (Python's `pickle`, protocols 0 to 5), as far as
//! `torch.save` uses it. It makes values and calls nothing: "calls" are looked up in a table.

use super::calls;
use super::error::{AGAIN, PytorchError, SAVE, error};
use super::globals;
use super::heap::{Object, Objects, Pickle};
use std::collections::HashMap;

/// Most instructions of a pickle. A tensor takes about sixty.
const MOST_STEPS: usize = 1 << 24;

/// The state of the machine.
#[derive(Debug)]
pub(super) struct Unpickler<'a> {
    file: &'a [u8],
    /// Next byte.
    pub at: usize,
    end: usize,
    stack: Vec<Pickle<'a>>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, Pickle<'a>>,
    pub heap: Objects<'a>,
    steps: usize,
    /// Entries that may still be copied to dictionaries: each is in the pickle once, and so no more than its bytes.
    copies: usize,
}

type Result<T> = std::result::Result<T, PytorchError>;

impl<'a> Unpickler<'a> {
    /// At byte `at`; nothing from `end` on is read.
    pub fn new(file: &'a [u8], at: usize, end: usize) -> Unpickler<'a> {
        let end = end.min(file.len());
        Unpickler {
            file,
            at,
            end,
            stack: vec![],
            marks: vec![],
            memo: HashMap::new(),
            heap: Objects::default(),
            steps: 0,
            copies: end.saturating_sub(at),
        }
    }

    /// Runs a pickle from here on, and stands behind it then.
    pub fn load(&mut self) -> Result<Pickle<'a>> {
        self.stack.clear();
        self.marks.clear();
        self.memo.clear();
        loop {
            let at = self.at;
            let op = self.byte()?;
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(error(at, format!("the pickle has more than {MOST_STEPS} instructions"), SAVE));
            }
            if op == b'.' {
                return self.pop();
            }
            let known = self.number(op)? || self.text(op)? || self.container(op)? || self.memory(op)?;
            if !known && !self.act(op, at)? {
                return Err(error(
                    at,
                    format!("the pickle has the instruction {op:#04x}, which is not supported"),
                    SAVE,
                ));
            }
        }
    }

    /// `None`, truth values, numbers.
    fn number(&mut self, op: u8) -> Result<bool> {
        let value = match op {
            b'N' => Pickle::None,
            0x88 => Pickle::Bool(true),
            0x89 => Pickle::Bool(false),
            b'J' => Pickle::Int(i32::from_le_bytes(self.array()?).into()),
            b'K' => Pickle::Int(self.byte()?.into()),
            b'M' => Pickle::Int(u16::from_le_bytes(self.array()?).into()),
            b'G' => {
                self.take(8)?;
                Pickle::Float
            }
            b'F' => {
                self.line()?;
                Pickle::Float
            }
            b'I' | b'L' => self.decimal()?,
            0x8a => {
                let n = self.byte()?;
                long(self.take(n.into())?)
            }
            0x8b => {
                let n = self.length(4)?;
                long(self.take(n)?)
            }
            _ => return Ok(false),
        };
        self.stack.push(value);
        Ok(true)
    }

    /// An integer of protocol 0.
    fn decimal(&mut self) -> Result<Pickle<'a>> {
        let at = self.at;
        let line = self.line()?;
        match line {
            "00" => Ok(Pickle::Bool(false)),
            "01" => Ok(Pickle::Bool(true)),
            _ => line
                .trim_end_matches('L')
                .parse()
                .map(Pickle::Int)
                .map_err(|_| error(at, "the pickle has a line that should be an integer of 64 bits".into(), SAVE)),
        }
    }

    /// Texts and bytes.
    fn text(&mut self, op: u8) -> Result<bool> {
        let at = self.at;
        let (length, text) = match op {
            b'X' => (4, true),
            0x8c => (1, true),
            0x8d => (8, true),
            // Texts of Python 2.
            b'U' => (1, true),
            b'T' => (4, true),
            b'C' => (1, false),
            b'B' => (4, false),
            0x8e | 0x96 => (8, false),
            b'V' => {
                let line = self.line()?;
                self.stack.push(Pickle::Text(plain(line).ok_or_else(|| escaped(at))?));
                return Ok(true);
            }
            b'S' => {
                let line = self.line()?;
                let quoted = |quote: char| line.strip_prefix(quote)?.strip_suffix(quote);
                let inner = quoted('\'').or_else(|| quoted('"')).and_then(plain).ok_or_else(|| escaped(at))?;
                self.stack.push(Pickle::Text(inner));
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let n = self.length(length)?;
        let bytes = self.take(n)?;
        // From Python 2 it may be no text; then it is no name either.
        let value = std::str::from_utf8(bytes).ok().filter(|_| text).map_or(Pickle::Bytes, Pickle::Text);
        self.stack.push(value);
        Ok(true)
    }

    /// Tuples, lists, dictionaries and sets.
    fn container(&mut self, op: u8) -> Result<bool> {
        match op {
            b'(' => self.marks.push(self.stack.len()),
            b')' | b']' => self.make(Object::List(vec![])),
            b'}' => self.make(Object::Dict(vec![])),
            0x8f => self.make(Object::Opaque),
            b't' | b'l' => {
                let items = self.marked()?;
                self.make(Object::List(items));
            }
            0x85..=0x87 => {
                let count = usize::from(op - 0x84);
                let from = self.stack.len().checked_sub(count).ok_or_else(|| self.empty())?;
                let items = self.stack.split_off(from);
                self.make(Object::List(items));
            }
            b'd' => {
                let items = self.marked()?;
                self.make(Object::Dict(pairs(&items)));
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'e' | 0x90 => {
                let items = self.marked()?;
                self.extend(items)?;
            }
            0x91 => {
                self.marked()?;
                self.make(Object::Opaque);
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(&[key, value])?;
            }
            b'u' => {
                let items = self.marked()?;
                self.insert(&items)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Operations that keep values and take them again.
    fn memory(&mut self, op: u8) -> Result<bool> {
        match op {
            b'0' => drop(self.pop()?),
            b'1' => drop(self.marked()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'q' | b'r' | b'p' | 0x94 => {
                let key = match op {
                    b'q' => self.byte()?.into(),
                    b'r' => u32::from_le_bytes(self.array()?).into(),
                    b'p' => self.index()?,
                    _ => self.memo.len() as u64,
                };
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            b'h' | b'j' | b'g' => {
                let at = self.at;
                let key = match op {
                    b'h' => self.byte()?.into(),
                    b'j' => u32::from_le_bytes(self.array()?).into(),
                    _ => self.index()?,
                };
                let value = self.memo.get(&key).copied();
                let missing = || error(at, format!("the pickle takes number {key}, which it never kept"), AGAIN);
                self.stack.push(value.ok_or_else(missing)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Names, "calls", and operations without an effect.
    fn act(&mut self, op: u8, at: usize) -> Result<bool> {
        match op {
            // Protocol, frame: numbers that are not needed.
            0x80 => drop(self.byte()?),
            0x95 => drop(self.take(8)?),
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(at, module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Pickle::Text(name), Pickle::Text(module)) = (name, module) else {
                    return Err(error(at, "the pickle asks for something whose name is no text".into(), AGAIN));
                };
                self.global(at, module, name)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = calls::storage(&self.heap, at, id)?;
                self.make(Object::Storage(Box::new(storage)));
            }
            b'R' | 0x81 => {
                let (args, callee) = (self.pop()?, self.pop()?);
                let made = calls::call(&mut self.heap, (at, &mut self.copies), callee, args)?;
                self.stack.push(made);
            }
            // An object's state beside its contents: attributes of dictionaries and of scalars.
            b'b' => drop(self.pop()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn global(&mut self, at: usize, module: &str, name: &str) -> Result<()> {
        let meaning = globals::find(module, name).ok_or_else(|| {
            let full = format!("{}.{}", module.escape_debug(), name.escape_debug());
            error(at, format!("the pickle asks for `{full:.200}`, which no tensor needs; nothing was run"), SAVE)
        })?;
        self.stack.push(Pickle::Global(meaning));
        Ok(())
    }

    /// Puts an object on the stack.
    fn make(&mut self, object: Object<'a>) {
        let value = self.heap.keep(object);
        self.stack.push(value);
    }

    fn pop(&mut self) -> Result<Pickle<'a>> {
        let least = self.marks.last().copied().unwrap_or(0);
        let value = if self.stack.len() > least { self.stack.pop() } else { None };
        value.ok_or_else(|| self.empty())
    }

    fn top(&self) -> Result<Pickle<'a>> {
        self.stack.last().copied().ok_or_else(|| self.empty())
    }

    /// Values above the last mark.
    fn marked(&mut self) -> Result<Vec<Pickle<'a>>> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        let mark = mark.ok_or_else(|| error(self.at, "the pickle has no mark where it needs one".into(), AGAIN))?;
        Ok(self.stack.split_off(mark))
    }

    fn extend(&mut self, items: Vec<Pickle<'a>>) -> Result<()> {
        match self.under()? {
            Object::List(list) => list.extend(items),
            Object::Opaque => {}
            Object::Dict(_) | Object::Storage(_) | Object::Tensor(_) => return Err(self.no_such("list")),
        }
        Ok(())
    }

    fn insert(&mut self, items: &[Pickle<'a>]) -> Result<()> {
        match self.under()? {
            Object::Dict(dict) => dict.extend(pairs(items)),
            Object::Opaque => {}
            Object::List(_) | Object::Storage(_) | Object::Tensor(_) => return Err(self.no_such("dictionary")),
        }
        Ok(())
    }

    /// The object on top of the stack.
    fn under(&mut self) -> Result<&mut Object<'a>> {
        let at = self.at;
        let top = self.top()?;
        let object = if let Pickle::Object(i) = top { self.heap.objects.get_mut(i) } else { None };
        object.ok_or_else(|| error(at, "the pickle puts something into what holds nothing".into(), AGAIN))
    }

    fn no_such(&self, what: &str) -> PytorchError {
        error(self.at, format!("the pickle puts something into what is no {what}"), AGAIN)
    }

    fn empty(&self) -> PytorchError {
        error(self.at, "the pickle takes from an empty stack".into(), AGAIN)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let to = self.at.checked_add(n).filter(|to| *to <= self.end);
        let bytes = to.and_then(|to| self.file.get(self.at..to));
        let Some(bytes) = bytes else {
            let what = format!("the pickle ends at byte {}, within an instruction", self.end);
            return Err(error(self.at, what, AGAIN));
        };
        self.at += n;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A length of `n` bytes.
    fn length(&mut self, n: usize) -> Result<usize> {
        let at = self.at;
        let number = self.take(n)?.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let left = (self.end - self.at) as u64;
        if number > left {
            return Err(error(at, format!("the pickle claims {number} bytes, but only {left} follow"), AGAIN));
        }
        Ok(number as usize)
    }

    /// An index of a kept value, as text.
    fn index(&mut self) -> Result<u64> {
        let at = self.at;
        let line = self.line()?;
        line.parse().map_err(|_| error(at, "the pickle has no number in a line that is one".into(), AGAIN))
    }

    fn line(&mut self) -> Result<&'a str> {
        let at = self.at;
        let rest = self.file.get(at..self.end).unwrap_or_default();
        let bytes = rest.iter().take(LONGEST_LINE).position(|b| *b == b'\n').map(|n| &rest[..n]);
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| error(at, "the pickle has no line of text here".into(), AGAIN))?;
        self.at += text.len() + 1;
        Ok(text.trim_end_matches('\r'))
    }
}

#[cfg(test)]
impl Unpickler<'_> {
    /// Bytes that its values take, of the room that is there for them.
    pub fn bytes(&self) -> usize {
        let value = size_of::<Pickle<'_>>();
        let of = |object: &Object<'_>| match object {
            Object::List(items) => items.capacity() * value,
            Object::Dict(items) => items.capacity() * 2 * value,
            Object::Storage(_) => size_of::<super::heap::Storage<'_>>(),
            Object::Tensor(t) => size_of_val(&**t) + 8 * (t.sizes.capacity() + t.strides.capacity()),
            Object::Opaque => 0,
        };
        let heap = self.heap.objects.capacity() * size_of::<Object<'_>>();
        let inner: usize = self.heap.objects.iter().map(of).sum();
        heap + inner + self.stack.capacity() * value + self.marks.capacity() * 8 + self.memo.capacity() * (value + 16)
    }
}

/// Bytes of a line, which is a name or a number.
const LONGEST_LINE: usize = 4096;

/// A number, least byte first, in two's complement.
fn long(bytes: &[u8]) -> Pickle<'_> {
    if bytes.len() > 8 {
        return Pickle::Long(bytes);
    }
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut all = if negative { [0xff; 8] } else { [0; 8] };
    all[..bytes.len()].copy_from_slice(bytes);
    Pickle::Int(i64::from_le_bytes(all))
}

fn pairs<'a>(items: &[Pickle<'a>]) -> Vec<(Pickle<'a>, Pickle<'a>)> {
    items.as_chunks::<2>().0.iter().map(|[key, value]| (*key, *value)).collect()
}

/// A text without escapes.
fn plain(text: &str) -> Option<&str> {
    (!text.contains('\\')).then_some(text)
}

fn escaped(at: usize) -> PytorchError {
    error(at, "the pickle has a text with escapes, as protocol 0 writes them".into(), SAVE)
}
