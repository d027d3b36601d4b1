//! The form of a text: OpenAI's `response_format`, and vLLM's and llama.cpp's members for forms.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::gbnf;
use crate::json::Json;
use llmcc_model::Grammar;

/// vLLM's older names of the members of `structured_outputs`.
const OLDER: [(&str, &str); 4] =
    [("guided_json", "json"), ("guided_regex", "regex"), ("guided_grammar", "grammar"), ("guided_choice", "choice")];

/// Takes the members that give a text a form.
///
/// # Errors
/// A member that is wrong, or several of them.
pub(crate) fn take(fields: &mut Fields) -> Result<Option<Grammar>, ApiError> {
    let mut found = vec![];
    if let Some(form) = fields.json("response_format") {
        found.extend(response_format(form)?.map(|form| ("response_format", form)));
    }
    if let Some(form) = fields.json("structured_outputs") {
        found.push(("structured_outputs", structured(form)?));
    }
    for (name, kind) in OLDER {
        if let Some(form) = fields.json(name) {
            found.push((name, of_kind(kind, form, name)?));
        }
    }
    // llama.cpp's members.
    if let Some(schema) = fields.json("json_schema") {
        found.push(("json_schema", of_kind("json", schema, "json_schema")?));
    }
    if let Some(source) = fields.take::<String>("grammar")?.filter(|source| !source.is_empty()) {
        let lark = gbnf::lark(&source).map_err(|e| ApiError::of_param("grammar", format!("`grammar`: {e}")))?;
        found.push(("grammar", Grammar::Lark(lark)));
    }
    match &found[..] {
        [_, (name, _), ..] => {
            Err(ApiError::of_param(name, format!("`{name}`: a text has one form, and there is another")))
        }
        _ => Ok(found.pop().map(|(_, form)| form)),
    }
}

/// `{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema", "json_schema": {"schema": {...}}}`.
fn response_format(form: Json) -> Result<Option<Grammar>, ApiError> {
    const NAME: &str = "response_format";
    let mut members = Fields::of_json(form, NAME)?;
    let kind: String = members.take("type")?.unwrap_or_default();
    let found = match kind.as_str() {
        "text" => None,
        // (llama.cpp has a schema here, too.)
        "json_object" => Some(match members.json("schema") {
            Some(schema) => of_kind("json", schema, NAME)?,
            None => Grammar::JsonSchema(r#"{"type":"object"}"#.into()),
        }),
        "json_schema" => {
            let schema = members.json("json_schema");
            let mut named = Fields::of_json(schema.unwrap_or(Json::Null), "response_format.json_schema")?;
            let schema = named.json("schema");
            let schema =
                schema.ok_or_else(|| ApiError::of_param(NAME, "`response_format.json_schema.schema` is missing"))?;
            // (Texts keep to the schema, strict or not.)
            let _: (Option<String>, Option<String>) = (named.take("name")?, named.take("description")?);
            let _: Option<bool> = named.take("strict")?;
            named.finish()?;
            Some(of_kind("json", schema, NAME)?)
        }
        other => {
            let message = format!("`response_format.type` is \"{other}\": give text, json_object or json_schema");
            return Err(ApiError::of_param(NAME, message));
        }
    };
    members.finish()?;
    Ok(found)
}

/// vLLM's object with one member.
fn structured(form: Json) -> Result<Grammar, ApiError> {
    const NAME: &str = "structured_outputs";
    let mut members = Fields::of_json(form, NAME)?;
    let kinds = ["json", "regex", "grammar", "choice"];
    let found = kinds.into_iter().find_map(|kind| members.json(kind).map(|form| (kind, form)));
    if members.take::<bool>("json_object")? == Some(true) && found.is_none() {
        members.finish()?;
        return Ok(Grammar::JsonSchema(r#"{"type":"object"}"#.into()));
    }
    members.finish()?;
    match found {
        Some((kind, form)) => of_kind(kind, form, NAME),
        None => Err(ApiError::of_param(NAME, "`structured_outputs` has none of json, regex, grammar, choice")),
    }
}

/// A form of a kind.
fn of_kind(kind: &str, form: Json, name: &str) -> Result<Grammar, ApiError> {
    let source = match form {
        Json::String(text) if kind != "choice" => text,
        other if kind == "json" || kind == "choice" => serde_json::to_string(&other).unwrap_or_default(),
        other => return Err(ApiError::of_type(name, "a string", other.kind())),
    };
    Ok(match kind {
        "json" => Grammar::JsonSchema(source),
        "regex" => Grammar::Regex(source),
        "grammar" => Grammar::Lark(source),
        _ => Grammar::Choices(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Result<Option<Grammar>, ApiError> {
        let mut fields = Fields::parse(text.as_bytes())?;
        let found = take(&mut fields)?;
        fields.finish().map(|()| found)
    }

    #[test]
    fn forms_of_both_interfaces() {
        let schema = Grammar::JsonSchema(r#"{"type":"null"}"#.into());
        for (text, expected) in [
            ("{}", None),
            (r#"{"response_format": {"type": "text"}}"#, None),
            (
                r#"{"response_format": {"type": "json_object"}}"#,
                Some(Grammar::JsonSchema(r#"{"type":"object"}"#.into())),
            ),
            (
                r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true,
                    "schema": {"type": "null"}}}}"#,
                Some(schema.clone()),
            ),
            (r#"{"structured_outputs": {"json": {"type": "null"}}}"#, Some(schema.clone())),
            (r#"{"guided_json": "{\"type\":\"null\"}"}"#, Some(schema)),
            (r#"{"structured_outputs": {"choice": ["a", "b"]}}"#, Some(Grammar::Choices(r#"["a","b"]"#.into()))),
            (r#"{"guided_regex": "a+"}"#, Some(Grammar::Regex("a+".into()))),
            (r#"{"structured_outputs": {"grammar": "start: \"a\""}}"#, Some(Grammar::Lark("start: \"a\"".into()))),
        ] {
            assert_eq!(form(text).unwrap_or_else(|e| panic!("{text}: {}", e.message)), expected, "{text}");
        }
    }

    #[test]
    fn wrong_forms_are_named() {
        for (text, param) in [
            (r#"{"response_format": "json"}"#, "response_format"),
            (r#"{"response_format": {"type": "xml"}}"#, "response_format"),
            (r#"{"response_format": {"type": "json_schema"}}"#, "response_format.json_schema"),
            (r#"{"response_format": {"type": "json_schema", "json_schema": {}}}"#, "response_format"),
            (r#"{"response_format": {"type": "text", "x": 1}}"#, "x"),
            (r#"{"structured_outputs": {}}"#, "structured_outputs"),
            (r#"{"structured_outputs": {"regex": 1}}"#, "structured_outputs"),
            (r#"{"guided_regex": "a", "guided_json": {}}"#, "guided_regex"),
        ] {
            assert_eq!(form(text).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }
}
