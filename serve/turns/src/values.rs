//! Values as templates print them, as JSON.

use serde_json::Value;

/// Deepest value that is read.
const DEPTH: usize = 64;

/// A value between marks as JSON: a text as it is, or JSON, or a literal of Python. `text`: whether it is a text.
pub(crate) fn plain(raw: &str, text: Option<bool>) -> String {
    let quoted = || Value::from(raw).to_string();
    if text == Some(true) {
        return quoted();
    }
    let trimmed = raw.trim();
    match serde_json::from_str::<Value>(trimmed) {
        Ok(_) => trimmed.to_owned(),
        Err(_) => whole(trimmed, &Literals { quotes: &["\"", "'"], escapes: true, pairs: ":" }).unwrap_or_else(quoted),
    }
}

/// The keywords of a call of a Python function, between its brackets, as a JSON object.
pub(crate) fn keywords(inner: &str) -> Option<String> {
    let literals = Literals { quotes: &["\"", "'"], escapes: true, pairs: ":" };
    let mut reader = Reader { rest: inner, literals: &literals };
    let mut members = vec![];
    reader.blanks();
    while !reader.rest.is_empty() {
        let name = reader.word()?;
        reader.take("=")?;
        members.push(format!("{}: {}", Value::from(name), reader.value(DEPTH)?));
        reader.blanks();
        if reader.rest.is_empty() {
            break;
        }
        reader.take(",")?;
        reader.blanks();
    }
    Some(format!("{{{}}}", members.join(", ")))
}

/// An object whose names have no quotes and whose texts stand in `quote`, as JSON.
pub(crate) fn notation(text: &str, quote: &str) -> Option<String> {
    let quotes = [if quote.is_empty() { "\"" } else { quote }];
    whole(text, &Literals { quotes: &quotes, escapes: false, pairs: ":" })
}

/// How a notation writes literals.
struct Literals<'a> {
    quotes: &'a [&'a str],
    escapes: bool,
    pairs: &'a str,
}

struct Reader<'a> {
    rest: &'a str,
    literals: &'a Literals<'a>,
}

fn whole(text: &str, literals: &Literals) -> Option<String> {
    let mut reader = Reader { rest: text, literals };
    let value = reader.value(DEPTH)?;
    reader.blanks();
    reader.rest.is_empty().then_some(value)
}

impl<'a> Reader<'a> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, mark: &str) -> Option<()> {
        self.blanks();
        self.rest = self.rest.strip_prefix(mark)?;
        Some(())
    }

    /// A name without quotes.
    fn word(&mut self) -> Option<&'a str> {
        self.blanks();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || "_-.$".contains(c))).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn value(&mut self, depth: usize) -> Option<String> {
        self.blanks();
        let deeper = depth.checked_sub(1)?;
        match self.rest.chars().next()? {
            '{' => self.members(deeper),
            '[' => self.items("[", "]", deeper),
            '(' => self.items("(", ")", deeper),
            _ => match self.text() {
                Some(text) => Some(Value::from(text).to_string()),
                None => self.word_value(),
            },
        }
    }

    fn members(&mut self, depth: usize) -> Option<String> {
        self.take("{")?;
        let mut all = vec![];
        while self.take("}").is_none() {
            if !all.is_empty() {
                self.take(",")?;
                if self.take("}").is_some() {
                    break;
                }
            }
            self.blanks();
            let name = match self.text() {
                Some(name) => name,
                None => self.word()?.to_owned(),
            };
            self.take(self.literals.pairs)?;
            all.push(format!("{}: {}", Value::from(name), self.value(depth)?));
        }
        Some(format!("{{{}}}", all.join(", ")))
    }

    fn items(&mut self, open: &str, close: &str, depth: usize) -> Option<String> {
        self.take(open)?;
        let mut all = vec![];
        while self.take(close).is_none() {
            if !all.is_empty() {
                self.take(",")?;
                if self.take(close).is_some() {
                    break;
                }
            }
            all.push(self.value(depth)?);
        }
        Some(format!("[{}]", all.join(", ")))
    }

    /// A text in quotes.
    fn text(&mut self) -> Option<String> {
        let quote = self.literals.quotes.iter().find(|quote| self.rest.starts_with(**quote))?;
        let mut rest = self.rest.strip_prefix(*quote)?;
        let mut text = String::new();
        loop {
            if let Some(after) = rest.strip_prefix(*quote) {
                self.rest = after;
                return Some(text);
            }
            let mut chars = rest.chars();
            let c = chars.next()?;
            rest = chars.as_str();
            if c != '\\' || !self.literals.escapes {
                text.push(c);
                continue;
            }
            let escaped = chars.next()?;
            rest = chars.as_str();
            match escaped {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'u' => {
                    let (code, after) = rest.split_at_checked(4)?;
                    text.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
                    rest = after;
                }
                'x' => {
                    let (code, after) = rest.split_at_checked(2)?;
                    text.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
                    rest = after;
                }
                '\\' | '\'' | '"' | '/' => text.push(escaped),
                other => text.extend(['\\', other]),
            }
        }
    }

    /// A name of a value, or a count.
    fn word_value(&mut self) -> Option<String> {
        let end = self.rest.find([',', '}', ']', ')']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        let value = match word.trim() {
            "True" | "true" => "true".to_owned(),
            "False" | "false" => "false".to_owned(),
            "None" | "null" => "null".to_owned(),
            word => serde_json::from_str::<serde_json::Number>(word).ok()?.to_string(),
        };
        self.rest = rest;
        Some(value)
    }
}

/// Elements within elements as JSON: members by their names, items of lists as `item`. `open` stands before each mark.
pub(crate) fn elements(raw: &str, open: &str, item: &str, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    if !raw.trim_start().starts_with(&format!("{open}<")) {
        return None;
    }
    let (mut rest, mut all) = (raw.trim(), vec![]);
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix(open)?.strip_prefix('<')?.split_once('>')?;
        let close = format!("{open}</{name}>");
        let end = closing(after, &format!("{open}<{name}>"), &close)?;
        let inner = after.get(..end)?;
        let value = elements(inner, open, item, depth).unwrap_or_else(|| plain(inner, None));
        all.push((name, value));
        rest = after.get(end + close.len()..)?.trim_start();
    }
    let list = all.iter().all(|(name, _)| *name == item);
    let shown = |(name, value): &(&str, String)| match list {
        true => value.clone(),
        false => format!("{}: {value}", Value::from(*name)),
    };
    let joined = all.iter().map(shown).collect::<Vec<_>>().join(", ");
    Some(if list { format!("[{joined}]") } else { format!("{{{joined}}}") })
}

/// Where the mark that closes an element stands.
fn closing(text: &str, open: &str, close: &str) -> Option<usize> {
    let (mut at, mut depth, mut next) = (0, 0, None);
    loop {
        // (No mark is looked for twice: the time is linear.)
        let end = match next {
            Some(end) => end,
            None => at + text.get(at..)?.find(close)?,
        };
        match text.get(at..end)?.find(open) {
            Some(inner) => {
                depth += 1;
                (at, next) = (at + inner + open.len(), Some(end));
            }
            None if depth == 0 => return Some(end),
            None => {
                depth -= 1;
                (at, next) = (end + close.len(), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_python_become_json() {
        let got = keywords("a='x, \\'y', b=1.5, c={\"d\": [True, None]}, e=-3").unwrap();
        assert_eq!(got, r#"{"a": "x, 'y", "b": 1.5, "c": {"d": [true, null]}, "e": -3}"#);
        assert_eq!(keywords("").unwrap(), "{}");
        assert_eq!(keywords("a"), None);
        assert_eq!(keywords("a=x"), None);
    }

    #[test]
    fn values_are_texts_where_nothing_else_fits() {
        assert_eq!(plain("12", None), "12");
        assert_eq!(plain("12", Some(true)), "\"12\"");
        assert_eq!(plain("True", Some(false)), "true");
        assert_eq!(plain("{'a': [1, None]}", None), r#"{"a": [1, null]}"#);
        assert_eq!(plain("two words", None), "\"two words\"");
        assert_eq!(plain("two words", Some(false)), "\"two words\"");
    }

    #[test]
    fn notations_have_their_own_quotes() {
        let got = notation("{a:<q>x}\"<q>,b:{c:[1,true,None,<q><q>]}}", "<q>").unwrap();
        assert_eq!(got, r#"{"a": "x}\"", "b": {"c": [1, true, null, ""]}}"#);
        assert_eq!(notation("{a}", "<q>"), None);
    }

    #[test]
    fn elements_nest() {
        let got = elements("<a><item>1</item><item>x</item></a><b>2</b>", "", "item", 9).unwrap();
        assert_eq!(got, r#"{"a": [1, "x"], "b": 2}"#);
        assert_eq!(elements("plain", "", "item", 9), None);
        let got = elements("<a><a><b>1</b></a><a>2</a></a>", "", "item", 9).unwrap();
        assert_eq!(got, r#"{"a": {"a": {"b": 1}, "a": 2}}"#);
    }
}
