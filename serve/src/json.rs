//! JSON values whose members keep their order: chat templates print tools as the client wrote them.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Number, Value};
use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A text, if it is one.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// A member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(k, _)| k == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Its kind, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::String(_) => "a string",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }

    /// A value of the type `T`.
    ///
    /// # Errors
    /// It is of another type.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&serde_json::to_string(self)?)
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(value) => Json::Number(value.clone()),
            Value::String(value) => Json::String(value.clone()),
            Value::Array(values) => Json::List(values.iter().map(Json::from).collect()),
            Value::Object(members) => {
                Json::Object(members.iter().map(|(name, value)| (name.clone(), Json::from(value))).collect())
            }
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => s.serialize_unit(),
            Json::Bool(value) => s.serialize_bool(*value),
            Json::Number(value) => value.serialize(s),
            Json::String(value) => s.serialize_str(value),
            Json::List(values) => values.serialize(s),
            Json::Object(members) => {
                let mut map = s.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Json, D::Error> {
        d.deserialize_any(Reader)
    }
}

/// A number with the fewest digits that stand for it.
pub(crate) fn short(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        // (JSON has no other numbers.)
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Json, A::Error> {
        let mut values = vec![];
        while let Some(value) = all.next_element()? {
            values.push(value);
        }
        Ok(Json::List(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = vec![];
        while let Some(member) = all.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_digits_are_enough() {
        let shown = Value::from([0.1f32, -2.5, 1e-9, f32::MAX].map(short).to_vec());
        assert_eq!(shown.to_string(), "[0.1,-2.5,1e-9,3.4028235e+38]");
        assert_eq!(short(f32::NAN), Value::Null);
    }

    #[test]
    fn members_keep_their_order() {
        let text = r#"{"z":1,"a":[null,true,-2,1.5,"x"],"m":{"b":{},"a":[]}}"#;
        let value: Json = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
        assert_eq!(value.get("z").unwrap().read::<u32>().unwrap(), 1);
        assert!(value.get("a").unwrap().read::<String>().is_err());
    }
}
