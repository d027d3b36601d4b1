//! Members of a request, taken one by one: whoever is left is refused.
//!
//! A member that changes the answer and has no meaning here is an error, so that no client believes in an effect that
//! it has not. Null stands for a member that is not there.

use crate::error::ApiError;
use crate::json::Json;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Members that change nothing in an answer.
const HARMLESS: &[&str] = &[
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "service_tier",
];

/// The members of a request that nobody has taken.
pub(crate) struct Fields {
    members: Vec<(String, Json)>,
}

impl Fields {
    /// The members of a request's body.
    ///
    /// # Errors
    /// No JSON, no object, or a member that is there twice.
    #[cfg(test)]
    pub(crate) fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        Fields::of_body(Fields::json_of(body)?)
    }

    /// The members of the object that a request's body is.
    ///
    /// # Errors
    /// No object, or a member that is there twice.
    pub(crate) fn of_body(json: Json) -> Result<Fields, ApiError> {
        let Json::Object(members) = json else {
            return Err(ApiError::invalid(format!("the body is {}: send a JSON object", json.kind())));
        };
        Fields::of(members)
    }

    /// The value that a request's body is.
    ///
    /// # Errors
    /// No JSON.
    pub(crate) fn json_of(body: &[u8]) -> Result<Json, ApiError> {
        let read = serde_json::from_slice(body);
        read.map_err(|e| ApiError::invalid(format!("the body is no JSON: {e}")).code("invalid_json"))
    }

    /// The members of an object within a request.
    ///
    /// # Errors
    /// A member that is there twice.
    pub(crate) fn of(members: Vec<(String, Json)>) -> Result<Fields, ApiError> {
        let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[a, b]| a == b) {
            return Err(ApiError::of_param(name, format!("`{name}` is given twice: give it once")));
        }
        Ok(Fields { members: members.into_iter().filter(|(_, value)| *value != Json::Null).collect() })
    }

    /// The members of a value within a request, which stands at `param`.
    ///
    /// # Errors
    /// It is no object, or has a member twice.
    pub(crate) fn of_json(json: Json, param: &str) -> Result<Fields, ApiError> {
        match json {
            Json::Object(members) => Fields::of(members),
            other => Err(ApiError::of_type(param, "an object", other.kind())),
        }
    }

    /// Whether there is a member.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(known, _)| known == name)
    }

    /// Takes a member if it is 0.
    pub(crate) fn take_zero(&mut self, name: &str) -> bool {
        let zero = self.members.iter().position(|(k, v)| k == name && *v == Json::Number(0.into()));
        zero.map(|at| self.members.remove(at)).is_some()
    }

    /// Takes a member as it is.
    pub(crate) fn json(&mut self, name: &str) -> Option<Json> {
        self.members.iter().position(|(k, _)| k == name).map(|at| self.members.remove(at).1)
    }

    /// Adds a member, as if the client had given it under this name.
    pub(crate) fn put(&mut self, name: &str, value: Json) {
        self.members.push((name.to_owned(), value));
    }

    /// Adds a member where the client gave none.
    pub(crate) fn supply(&mut self, name: &str, value: &Value) {
        if !self.has(name) && !value.is_null() {
            self.put(name, Json::from(value));
        }
    }

    /// Takes a member.
    ///
    /// # Errors
    /// It is of another type.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(json) = self.json(name) else { return Ok(None) };
        json.read().map(Some).map_err(|e| {
            // Positions are in a copy, and say nothing to the client.
            let said = e.to_string();
            let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
            ApiError::of_param(name, format!("`{name}`: {said}"))
        })
    }

    /// Takes a member that must be there.
    ///
    /// # Errors
    /// It is missing, or of another type.
    pub(crate) fn require<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::missing(name))
    }

    /// Takes a number within bounds.
    ///
    /// # Errors
    /// It is none, or outside.
    pub(crate) fn within(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        match self.take::<f64>(name)? {
            Some(value) if !(least..=most).contains(&value) => {
                let message = format!("`{name}` is {value}: give a number from {least} to {most}");
                Err(ApiError::of_param(name, message))
            }
            value => Ok(value),
        }
    }

    /// Takes a count within bounds.
    ///
    /// # Errors
    /// It is none, or outside.
    pub(crate) fn count(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, ApiError> {
        match self.take::<u64>(name)? {
            Some(value) if !(least..=most).contains(&value) => {
                let message = format!("`{name}` is {value}: give a whole number from {least} to {most}");
                Err(ApiError::of_param(name, message))
            }
            value => Ok(value),
        }
    }

    /// Takes a member that may have one of these values only: each asks for nothing.
    ///
    /// # Errors
    /// It has another one.
    pub(crate) fn only(&mut self, name: &str, values: &[&str]) -> Result<(), ApiError> {
        let Some(given) = self.json(name) else { return Ok(()) };
        let given = serde_json::to_string(&given).unwrap_or_default();
        if values.contains(&given.as_str()) {
            return Ok(());
        }
        let message = match values {
            [] => format!("`{name}` is not supported: leave it out"),
            _ => format!("`{name}` is not supported: leave it out, or give {}", values.join(" or ")),
        };
        Err(ApiError::of_param(name, message).code("unsupported_parameter"))
    }

    /// Refuses all that is left, but members that change nothing.
    ///
    /// # Errors
    /// An unknown member.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.members.iter().find(|(name, _)| !HARMLESS.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                Err(ApiError::of_param(name, format!("`{name}` is unknown: leave it out")).code("unknown_parameter"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {}", e.message))
    }

    #[test]
    fn members_that_nobody_takes_are_refused() {
        let mut all = fields(r#"{"n": 2, "user": "x", "metadata": {"a": 1}, "best_of": null, "temperature": 0.5}"#);
        assert_eq!(all.count("n", 1, 8).unwrap(), Some(2));
        assert_eq!(all.within("temperature", 0.0, 2.0).unwrap(), Some(0.5));
        assert_eq!(all.take::<u64>("best_of").unwrap(), None);
        all.finish().unwrap();
        let error = fields(r#"{"tempratur": 1}"#).finish().unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tempratur"));
    }

    #[test]
    fn values_out_of_bounds_name_their_member() {
        for (text, name) in
            [(r#"{"n": 0}"#, "n"), (r#"{"n": "x"}"#, "n"), (r#"{"n": 1.5}"#, "n"), (r#"{"n": -1}"#, "n")]
        {
            assert_eq!(fields(text).count(name, 1, 8).unwrap_err().param.as_deref(), Some(name), "{text}");
        }
        assert!(fields(r#"{"store": true}"#).only("store", &["false"]).is_err());
        fields(r#"{"store": false}"#).only("store", &["false"]).unwrap();
        for bad in ["", "[]", "{", "{\"a\":1,\"a\":2}", "1", "\"\\ud800\"", "{\"a\":1e999}"] {
            assert!(Fields::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let deep = "[".repeat(100_000);
        assert!(Fields::parse(deep.as_bytes()).is_err());
    }
}
