//! A default of a member of requests, as an option of the command line gives it.

use crate::ask::Ask;
use crate::defaults::{FLAGS, KWARGS, SAMPLING};
use crate::fields::Fields;
use crate::json::Json;
use crate::model::Facts;
use axum::http::HeaderMap;
use serde_json::Value;

/// Reads `NAME=VALUE`: the value is JSON, or else a string.
///
/// # Errors
/// A name that no default has, or a value that no request may have.
pub fn parse_default(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("it has no value: give NAME=VALUE")?;
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    let sound = match name {
        KWARGS if !value.is_object() => Err("give a JSON object".to_owned()),
        name if FLAGS.contains(&name) && !value.is_boolean() => Err("give true or false".to_owned()),
        name if name == KWARGS || FLAGS.contains(&name) => Ok(()),
        _ if SAMPLING.contains(&name) => {
            let fields = Fields::of(vec![(name.to_owned(), Json::from(&value))]);
            let taken = fields.and_then(|mut fields| {
                Ask::take(&mut fields, &HeaderMap::new(), &Facts::default(), 0)?;
                fields.finish()
            });
            taken.map_err(|error| error.message)
        }
        _ => Err(format!("there are {}, {KWARGS}, {}", SAMPLING.join(", "), FLAGS.join(" and "))),
    };
    sound.map(|()| (name.to_owned(), value)).map_err(|why| format!("`{name}` cannot have this default: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_members_of_requests() {
        for (text, value) in [
            ("temperature=0.5", json!(0.5)),
            ("max_tokens=7", json!(7)),
            ("verbose=true", json!(true)),
            (r#"chat_template_kwargs={"x": 1}"#, json!({ "x": 1 })),
        ] {
            let name = text.split('=').next().unwrap_or_default().to_owned();
            assert_eq!(parse_default(text), Ok((name, value)), "{text}");
        }
        for (text, says) in [
            ("temperature", "NAME=VALUE"),
            ("temperature=hot", "temperature"),
            ("temperature=-1", "from 0 to 100"),
            ("tempratur=1", "there are max_tokens"),
            ("chat_template_kwargs=1", "object"),
            ("verbose=1", "true or false"),
        ] {
            let error = parse_default(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
