//! Items: messages, reasoning, calls and their results, as clients of the Responses interface give and get them.

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
    // An item that the server made may be given back as it is. Each has a new identifier here.
    let _: (Option<String>, Option<String>) = (fields.take("id")?, fields.take("status")?);
    let kind = fields.take::<String>("type")?;
    let item = match kind.as_deref() {
        None | Some("message") => spoken(&mut fields, at)?,
        Some("function_call") => call(&mut fields, at)?,
        Some("function_call_output") => result(&mut fields, at)?,
        Some("reasoning") => reasoning(&mut fields, at)?,
        Some(kind) => {
            let message = format!(
                "`{at}` is of type `{kind:.40}`: give items of type `message`, `function_call`, \
                 `function_call_output` or `reasoning`"
            );
            return Err(ApiError::of_param(at, message).code("unsupported"));
        }
    };
    fields.finish()?;
    Ok(item)
}

/// A member that must be there.
fn needed(fields: &mut Fields, at: &str, name: &str) -> Result<String, ApiError> {
    fields.take::<String>(name)?.ok_or_else(|| ApiError::missing(&format!("{at}.{name}")))
}

/// A call of a function.
fn call(fields: &mut Fields, at: &str) -> Result<Value, ApiError> {
    let (call, name) = (needed(fields, at, "call_id")?, needed(fields, at, "name")?);
    let arguments = needed(fields, at, "arguments")?;
    Ok(json!({
        "id": new_id("fc"), "type": "function_call", "call_id": call, "name": name, "arguments": arguments,
        "status": "completed",
    }))
}

/// The result of a call.
fn result(fields: &mut Fields, at: &str) -> Result<Value, ApiError> {
    let call = needed(fields, at, "call_id")?;
    let output = texts(fields, &format!("{at}.output"), "output")?.join("\n");
    Ok(json!({
        "id": new_id("fco"), "type": "function_call_output", "call_id": call, "output": output, "status": "completed",
    }))
}

/// Reasoning: its text, or else its summary.
fn reasoning(fields: &mut Fields, at: &str) -> Result<Value, ApiError> {
    fields.only("encrypted_content", &[])?;
    let mut parts = |name: &str, kind: &str| -> Result<Vec<Value>, ApiError> {
        let at = format!("{at}.{name}");
        let given: Vec<Value> = fields.take(name)?.unwrap_or_default();
        match given.iter().position(|part| part["type"] != kind || !part["text"].is_string()) {
            None => Ok(given),
            Some(i) => {
                let param = format!("{at}[{i}]");
                Err(ApiError::of_param(&param, format!("`{param}` is no part of type `{kind}` with a `text`")))
            }
        }
    };
    let (content, summary) = (parts("content", "reasoning_text")?, parts("summary", "summary_text")?);
    Ok(json!({
        "id": new_id("rs"), "type": "reasoning", "content": content, "summary": summary, "status": "completed",
    }))
}

/// A message.
fn spoken(fields: &mut Fields, at: &str) -> Result<Value, ApiError> {
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
    let texts = texts(fields, &format!("{at}.content"), "content")?;
    // (A phase of the turn says nothing to templates.)
    let _: Option<String> = fields.take("phase")?;
    Ok(message(role, if role == "assistant" { "output_text" } else { "input_text" }, &texts))
}

/// Takes a text, or a list of parts that are texts.
fn texts(fields: &mut Fields, at: &str, name: &str) -> Result<Vec<String>, ApiError> {
    match fields.json(name) {
        Some(Json::String(text)) => Ok(vec![text]),
        Some(Json::List(parts)) => {
            parts.into_iter().enumerate().map(|(i, one)| part(one, &format!("{at}[{i}]"))).collect()
        }
        Some(other) => Err(ApiError::of_type(at, "a text or a list of parts", other.kind())),
        None => Err(ApiError::missing(at)),
    }
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
            (r#"[{"type": "function_call_output", "output": "x"}]"#, "input[0].call_id"),
            (r#"[{"type": "function_call_output", "call_id": "1", "output": 1}]"#, "input[0].output"),
            (r#"[{"type": "function_call", "call_id": "1", "name": "f"}]"#, "input[0].arguments"),
            (r#"[{"type": "reasoning", "content": [{"type": "x"}]}]"#, "input[0].content[0]"),
            (r#"[{"type": "reasoning", "encrypted_content": "x"}]"#, "encrypted_content"),
            (r#"[{"type": "custom_tool_call"}]"#, "input[0]"),
            (r#"[{"type": "item_reference", "id": "1"}]"#, "input[0]"),
        ] {
            assert_eq!(of(text).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }
}
