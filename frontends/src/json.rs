//! JSON files, read strictly: a key that occurs twice is an error, not a choice.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};
use std::fmt;

const BYTE_ORDER_MARK: &str = "the file starts with a byte order mark at line 1 column 1";
const TWICE: &str = "occurs twice";

/// Parses JSON.
///
/// # Errors
/// Line, column and what is wrong there.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    if bytes.starts_with(b"\xef\xbb\xbf") || bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(serde_json::Error::custom(BYTE_ORDER_MARK));
    }
    serde_json::from_slice(bytes).map(|Strict(value)| value)
}

/// What to do about a file that is not JSON.
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
            "write a JSON value there: JSON has no NaN, Infinity, None, True, comments or single quotes"
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

    /// Where it is wrong, and what to do.
    #[test]
    fn what_is_no_json() {
        let correct = "correct it there, or download the file again";
        let cut = "the file is empty or cut off: download it again";
        let value = "write a JSON value there: JSON has no NaN, Infinity, None, True, comments or single quotes";
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
