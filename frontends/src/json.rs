//! JSON files, read strictly: a key that occurs twice is an error, not a choice.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};
use std::fmt;

const BYTE_ORDER_MARK: &str = "the file starts with a byte order mark at line 1 column 1";
const TWICE: &str = "occurs twice";

/// Parses JSON. Infinity, which older versions of Transformers write as Python does, is read as they
/// write it today: as an object that says so.
///
/// # Errors
/// Line, column and fault.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    if bytes.starts_with(b"\xef\xbb\xbf") || bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(serde_json::Error::custom(BYTE_ORDER_MARK));
    }
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).map(|Strict(value)| value);
    read(bytes).or_else(|error| with_infinity(bytes).map_or(Err(error), |spelled| read(&spelled)))
}

/// The same with the word `Infinity` written as JSON, if it is there.
fn with_infinity(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORD: &[u8] = b"Infinity";
    let (mut out, mut rest, mut inside, mut found) = (Vec::with_capacity(bytes.len()), bytes, false, false);
    while let Some((first, after)) = rest.split_first() {
        let minus = if rest.starts_with(b"-") { "-" } else { "" };
        let word = rest.get(minus.len()..).filter(|_| !inside).and_then(|r| r.strip_prefix(WORD));
        if let Some(after) = word {
            out.extend(format!("{{\"__float__\": \"{minus}Infinity\"}}").bytes());
            (rest, found) = (after, true);
            continue;
        }
        // A quotation mark or a backslash after a backslash ends nothing.
        let length = if inside && *first == b'\\' { 2.min(rest.len()) } else { 1 };
        inside ^= *first == b'"';
        out.extend(rest.get(..length).unwrap_or(&[*first]));
        rest = rest.get(length..).unwrap_or(after);
    }
    found.then_some(out)
}

/// The remedy for a file that is not JSON.
pub(crate) fn help(error: &serde_json::Error) -> &'static str {
    let text = error.to_string();
    let says = |what: &str| text.contains(what);
    match error.classify() {
        _ if says(BYTE_ORDER_MARK) => "save it as UTF-8 without a byte order mark",
        _ if says(TWICE) => "remove one of the two",
        Category::Eof => "the file is empty or cut off: download it again",
        _ if says("trailing comma") => "remove the comma before the closing bracket",
        _ if says("trailing characters") => "remove what follows the end of the object",
        _ if says("expected value") => {
            "write a JSON value there: JSON has no NaN, None, True, comments or single quotes"
        }
        _ => "correct it there, or download the file again",
    }
}

/// A value without keys that occur twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Strict, D::Error> {
        d.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = vec![];
        while let Some(Strict(v)) = seq.next_element()? {
            list.push(v);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("key `{key}` {TWICE}")));
            }
            let Strict(v) = members.next_value()?;
            map.insert(key, v);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_those_of_serde_json() {
        let text = r#"{"a": [1, -2, 3.5, 1e3, 18446744073709551615, true, null, "x\u00e9"], "b": {"a": {}}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(parse(b" 1 ").unwrap(), json!(1));
    }

    #[test]
    fn infinity_is_a_word_of_python() {
        let text = r#"{"a": [0.0, Infinity], "Infinity \" Infinity": -Infinity, "b": "\\", "c": Infinity}"#;
        let [plus, minus] = ["Infinity", "-Infinity"].map(|word| json!({ "__float__": word }));
        let expected = json!({ "a": [0.0, plus], "Infinity \" Infinity": minus, "b": "\\", "c": plus });
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        assert!(parse(b"[Infinity, Infinit]").is_err());
    }

    /// The place of the fault, and the remedy.
    #[test]
    fn what_is_no_json() {
        let correct = "correct it there, or download the file again";
        let cut = "the file is empty or cut off: download it again";
        let value = "write a JSON value there: JSON has no NaN, None, True, comments or single quotes";
        for (text, expected) in [
            ("", format!("EOF while parsing a value at line 1 column 0; {cut}")),
            ("{\n \"a\": ", format!("EOF while parsing a value at line 2 column 6; {cut}")),
            (
                "{\n \"a\": 1,\n}",
                "trailing comma at line 3 column 1; remove the comma before the closing bracket".into(),
            ),
            ("[1,]", "trailing comma at line 1 column 4; remove the comma before the closing bracket".into()),
            ("{} {}", "trailing characters at line 1 column 4; remove what follows the end of the object".into()),
            ("{\"a\": NaN}", format!("expected value at line 1 column 7; {value}")),
            ("{'a': 1}", format!("key must be a string at line 1 column 2; {correct}")),
            ("{\"a\": 1e999}", format!("number out of range at line 1 column 11; {correct}")),
            ("\u{feff}{}", format!("{BYTE_ORDER_MARK}; save it as UTF-8 without a byte order mark")),
            (
                "{\"a\": {\"b\": 1,\n \"b\": 2}}",
                "key `b` occurs twice at line 2 column 4; remove one of the two".into(),
            ),
        ] {
            let e = parse(text.as_bytes()).unwrap_err();
            assert_eq!(format!("{e}; {}", help(&e)), expected, "{text}");
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
