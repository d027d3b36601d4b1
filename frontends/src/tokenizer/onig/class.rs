//! Sets of characters: `[...]`, its escapes, and `\p{...}`.

use super::names;
use super::parse::{Item, Parser};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// The last part of a class: it decides the meaning of `-`.
enum Last {
    /// Nothing, at the start or behind `&&`.
    Start,
    /// A character.
    Char(char),
    /// A set.
    Set,
    /// A range, or a class.
    Whole,
}

/// Classes within classes.
const DEEPEST: usize = 100;

impl Parser<'_> {
    /// A class, behind its `[`: the set, and whether it begins with `^`.
    pub(super) fn class(&mut self, depth: usize) -> Result<(ClassUnicode, bool), String> {
        if depth > DEEPEST {
            return Err("nests classes too deep".into());
        }
        let negated = self.eat('^');
        let (mut all, mut set): (Option<ClassUnicode>, _) = (None, ClassUnicode::empty());
        let mut last = Last::Start;
        if self.peek() == Some(']') {
            if !self.closes_later() {
                return Err("has an empty class".into());
            }
            self.next();
            last = self.element(']', last, &mut set)?;
        }
        loop {
            let c = self.next().ok_or("has a class without an end")?;
            last = match c {
                ']' => break,
                '[' if self.peek() == Some(':') && self.posix_begins() => {
                    if let Last::Char(c) = last {
                        set.union(&names::one(c));
                    }
                    set.union(&self.posix()?);
                    Last::Set
                }
                '[' => {
                    self.keep(last, &mut set);
                    set.union(&self.inner(depth)?);
                    Last::Whole
                }
                '&' if self.eat('&') => {
                    self.keep(last, &mut set);
                    let done = std::mem::replace(&mut set, ClassUnicode::empty());
                    match &mut all {
                        Some(all) => all.intersect(&done),
                        None => all = Some(done),
                    }
                    Last::Start
                }
                '-' => self.dash(last, &mut set)?,
                '\\' => self.escaped(last, &mut set)?,
                c => self.element(c, last, &mut set)?,
            };
        }
        self.keep(last, &mut set);
        if let Some(mut all) = all {
            all.intersect(&set);
            set = all;
        }
        Ok((set, negated))
    }

    /// A class within a class, behind its `[`.
    fn inner(&mut self, depth: usize) -> Result<ClassUnicode, String> {
        let (mut set, negated) = self.class(depth + 1)?;
        if negated {
            set.negate();
        }
        Ok(set)
    }

    fn keep(&self, last: Last, set: &mut ClassUnicode) {
        if let Last::Char(c) = last {
            set.union(&names::one(c));
        }
    }

    fn element(&self, c: char, last: Last, set: &mut ClassUnicode) -> Result<Last, String> {
        self.keep(last, set);
        Ok(Last::Char(c))
    }

    /// Behind a backslash.
    fn escaped(&mut self, last: Last, set: &mut ClassUnicode) -> Result<Last, String> {
        match self.class_escape()? {
            Item::Set(more) => {
                self.keep(last, set);
                set.union(&more);
                Ok(Last::Set)
            }
            Item::Chars(chars) => chars.into_iter().try_fold(last, |last, c| self.element(c, last, set)),
        }
    }

    /// Behind a `-`.
    fn dash(&mut self, last: Last, set: &mut ClassUnicode) -> Result<Last, String> {
        let rest = self.rest();
        let ends = rest.starts_with(']') || rest.starts_with("&&");
        match last {
            Last::Start => Ok(Last::Char('-')),
            _ if ends => self.element('-', last, set),
            Last::Char(from) => {
                let to = match self.next().ok_or("has a class without an end")? {
                    '\\' => match self.class_escape()? {
                        Item::Chars(chars) => match chars.as_slice() {
                            [one] => *one,
                            _ => return Err("has a range to more than one character".into()),
                        },
                        Item::Set(_) => return Err("has a range to a set".into()),
                    },
                    '[' if self.peek() == Some(':') && self.posix_begins() => {
                        return Err("has a range to a set".into());
                    }
                    '[' => {
                        // The beginning and the dash are characters.
                        set.union(&names::one(from));
                        return Err("has a range to a class".into());
                    }
                    c => c,
                };
                if from > to {
                    return Err(format!("has an empty range {from:?}-{to:?}"));
                }
                set.union(&ClassUnicode::new([ClassUnicodeRange::new(from, to)]));
                Ok(Last::Whole)
            }
            Last::Set => Err("has a range from a set".into()),
            Last::Whole => Ok(Last::Char('-')),
        }
    }

    /// Whether a `]` follows that would end the class.
    fn closes_later(&self) -> bool {
        let mut escaped = false;
        self.rest().chars().skip(1).any(|c| {
            let ends = c == ']' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })
    }

    /// Whether `[:` begins a class of POSIX: letters, then `:]`.
    fn posix_begins(&self) -> bool {
        let name = self.rest()[1..].trim_start_matches('^');
        let end = name.find(|c: char| !c.is_alphabetic()).unwrap_or(name.len());
        end > 0 && name[end..].starts_with(":]")
    }

    fn posix(&mut self) -> Result<ClassUnicode, String> {
        self.next();
        let negated = self.eat('^');
        let length = self.rest().find(":]").unwrap_or_default();
        let name = self.rest()[..length].to_string();
        self.skip(length + 2);
        let set = names::posix(&name).unwrap_or_else(|| Err(format!("has the unknown class [:{name}:]")));
        let mut set = set?;
        if negated {
            set.negate();
        }
        Ok(set)
    }

    /// Behind a backslash in a class.
    fn class_escape(&mut self) -> Result<Item, String> {
        let c = self.peek().ok_or("ends with a backslash")?;
        if let Some(set) = names::shorthand(c) {
            self.next();
            return set.map(Item::Set);
        }
        if let Some(set) = self.property_set(false)? {
            return Ok(Item::Set(set));
        }
        self.char_escape().map(Item::Chars)
    }

    /// `p{...}` or `P{...}`, if it is one.
    pub(super) fn property_set(&mut self, alone: bool) -> Result<Option<ClassUnicode>, String> {
        let Some(rest) = self.rest().strip_prefix(['p', 'P']).and_then(|r| r.strip_prefix('{')) else {
            return Ok(None);
        };
        let inner = rest.strip_prefix('^').unwrap_or(rest);
        let negated = self.rest().starts_with('P') != rest.starts_with('^');
        let end = inner.find('}').ok_or(r"has a \p{ without an end")?;
        let mut set = names::property(&inner[..end], alone)?;
        if negated {
            set.negate();
        }
        self.skip(2 + rest.len() - inner.len() + end + 1);
        Ok(Some(set))
    }
}
