//! Items: messages of conversations as clients of the Responses interface give and get them.

use crate::ask::unforeseen;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use serde_json::{Value, json};

/// A new identifier with this prefix.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}_{:016x}{:016x}", unforeseen(), unforeseen())
}

/// The items of a request's `input`: a text is a message of the user's.
///
/// # Errors
/// An item that is wrong or not supported.
pub(crate) fn items(input: Json) -> Result<Vec<Value>, ApiError> {
    match input {
        Json::String(text) => Ok(vec![message("user", "input_text", &[text])]),
        Json::List(all) if all.is_empty() => {
            Err(ApiError::of_param("input", "`input` is empty: give at least one item"))
        }
        Json::List(all) => {
            let each = all.into_iter().enumerate().map(|(i, one)| item(one, &format!("input[{i}]")));
            each.collect()
        }
        other => Err(ApiError::of_type("input", "a text or a list of items", other.kind())),
    }
}

fn message(role: &str, kind: &str, texts: &[String]) -> Value {
    let part = |text: &String| match kind {
        "output_text" => json!({ "type": kind, "text": text, "annotations": [] }),
        _ => json!({ "type": kind, "text": text }),
    };
    let content: Vec<Value> = texts.iter().map(part).collect();
    json!({ "id": new_id("msg"), "type": "message", "role": role, "status": "completed", "content": content })
}

fn item(json: Json, at: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of_json(json, at)?;
    let kind = fields.take::<String>("type")?;
    match kind.as_deref() {
        None | Some("message") => {}
        Some(kind @ ("function_call" | "function_call_output" | "custom_tool_call" | "custom_tool_call_output")) => {
            let message = format!("`{at}` is of type `{kind}`: calls of functions are not supported on this path");
            return Err(ApiError::of_param(at, message).code("unsupported"));
        }
        Some(kind) => {
            let message = format!("`{at}` is of type `{kind}`: give items of type `message`");
            return Err(ApiError::of_param(at, message).code("unsupported"));
        }
    }
    let role = match fields.take::<String>("role")?.as_deref() {
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("system") => "system",
        Some("developer") => "developer",
        _ => {
            let message = format!("`{at}.role` is none of user, assistant, system, developer");
            return Err(ApiError::of_param(&format!("{at}.role"), message));
        }
    };
    let at = format!("{at}.content");
    let texts = match fields.json("content") {
        Some(Json::String(text)) => vec![text],
        Some(Json::List(parts)) => {
            let each = parts.into_iter().enumerate().map(|(i, one)| part(one, &format!("{at}[{i}]")));
            each.collect::<Result<_, _>>()?
        }
        Some(other) => return Err(ApiError::of_type(&at, "a text or a list of parts", other.kind())),
        None => return Err(ApiError::missing(&at)),
    };
    // An item that the server made may be given back as it is. Each has a new identifier here.
    let _: (Option<String>, Option<String>) = (fields.take("id")?, fields.take("status")?);
    fields.finish()?;
    Ok(message(role, if role == "assistant" { "output_text" } else { "input_text" }, &texts))
}

/// The text of a part of a message.
fn part(json: Json, at: &str) -> Result<String, ApiError> {
    let mut fields = Fields::of_json(json, at)?;
    let kind = fields.take::<String>("type")?.unwrap_or_default();
    let member = match kind.as_str() {
        "input_text" | "output_text" | "text" => "text",
        "refusal" => "refusal",
        other => {
            let message = format!("`{at}` is of type `{other}`: give parts of type `input_text` or `output_text`");
            return Err(ApiError::of_param(at, message).code("unsupported"));
        }
    };
    let text = fields.take::<String>(member)?;
    fields.only("annotations", &["[]"])?;
    // (Those that the server gave.)
    let _ = fields.json("logprobs");
    fields.finish()?;
    text.ok_or_else(|| ApiError::of_param(at, format!("`{at}.{member}` is missing")))
}

/// The messages of a conversation, as chat templates take them.
pub(crate) fn messages<'a>(instructions: Option<&str>, items: impl Iterator<Item = &'a Value>) -> Json {
    let message = |role: &str, text: String| {
        let member = |name: &str, value: String| (name.to_owned(), Json::String(value));
        Json::Object(vec![member("role", role.to_owned()), member("content", text)])
    };
    let mut all: Vec<Json> = instructions.map(|text| message("system", text.to_owned())).into_iter().collect();
    all.extend(items.map(|item| {
        // Templates know the older name of developers' messages.
        let role = item["role"].as_str().map_or("user", |role| if role == "developer" { "system" } else { role });
        let parts = item["content"].as_array().into_iter().flatten();
        let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
        message(role, texts.join("\n"))
    }));
    Json::List(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Value>, ApiError> {
        items(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn items_become_messages() {
        let all = of(r#"[
            {"role": "developer", "content": "be brief"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "phase": null,
             "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}]}]"#)
        .unwrap_or_else(|e| panic!("{}", e.message));
        assert_eq!(
            all[1]["content"],
            json!([{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }])
        );
        assert_eq!(all[2]["content"], json!([{ "type": "output_text", "text": "c", "annotations": [] }]));
        let shown = serde_json::to_string(&messages(Some("x"), all.iter())).unwrap();
        let want = concat!(
            r#"[{"role":"system","content":"x"},{"role":"system","content":"be brief"},"#,
            r#"{"role":"user","content":"a\nb"},{"role":"assistant","content":"c"}]"#
        );
        assert_eq!(shown, want);
        assert_eq!(of(r#""hi""#).unwrap()[0]["role"], "user");
    }

    #[test]
    fn wrong_items_are_named() {
        for (text, param) in [
            ("1", "input"),
            ("[]", "input"),
            ("[1]", "input[0]"),
            (r#"[{"role": "tool", "content": "x"}]"#, "input[0].role"),
            (r#"[{"role": "user"}]"#, "input[0].content"),
            (r#"[{"role": "user", "content": 1}]"#, "input[0].content"),
            (r#"[{"role": "user", "content": [{"type": "input_image"}]}]"#, "input[0].content[0]"),
            (r#"[{"role": "user", "content": [{"type": "input_text"}]}]"#, "input[0].content[0]"),
            (r#"[{"role": "user", "content": "x", "y": 1}]"#, "y"),
            (r#"[{"type": "function_call_output", "call_id": "1", "output": "x"}]"#, "input[0]"),
            (r#"[{"type": "item_reference", "id": "1"}]"#, "input[0]"),
        ] {
            assert_eq!(of(text).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }
}
