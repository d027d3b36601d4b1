//! Conversations as clients write them, for chat templates.
//!
//! Templates take texts and objects as Hugging Face's tokenizers do: a message's parts of text become one text, and the
//! arguments of a call, which are a text of JSON in OpenAI's interface, become an object.

use crate::defaults::KWARGS;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use crate::model::{Facts, Model};
use crate::prompts::check_length;
use crate::silence::rendered;
use crate::toolbox::Toolbox;
use llmcc_model::Token;
use serde_json::Value;

/// Variables of templates that have members of their own in a request, or that a client may not set.
const RESERVED: &[&str] =
    &["messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"];

/// A conversation, and the tools that may be called in it.
pub(crate) struct Talk {
    /// As the template gets it, as JSON.
    pub(crate) json: String,
    pub(crate) toolbox: Toolbox,
}

/// Takes the conversation of a request: what the template gets, as JSON.
///
/// # Errors
/// A member that is wrong or not supported.
pub(crate) fn conversation(fields: &mut Fields, facts: &Facts) -> Result<String, ApiError> {
    let talk = talk(fields, facts)?;
    if talk.toolbox.is_forced() {
        let message = "`tool_choice` cannot force a call here: give \"auto\" or \"none\"";
        return Err(ApiError::of_param("tool_choice", message).code("unsupported_parameter"));
    }
    Ok(talk.json)
}

/// Takes the conversation of a request.
///
/// # Errors
/// A member that is wrong or not supported.
pub(crate) fn talk(fields: &mut Fields, facts: &Facts) -> Result<Talk, ApiError> {
    let mut variables = vec![("messages".to_owned(), messages(fields, facts.turns.arguments_text)?)];
    let toolbox = Toolbox::take(fields)?;
    if let Some(tools) = &toolbox.given {
        variables.push(("tools".to_owned(), tools.clone()));
    }
    match fields.json("documents") {
        None => {}
        Some(list @ Json::List(_)) => variables.push(("documents".to_owned(), list)),
        Some(other) => return Err(ApiError::of_type("documents", "a list", other.kind())),
    }
    let [prompted, continued] = ["add_generation_prompt", "continue_final_message"];
    let given = (fields.take::<bool>(prompted)?, fields.take::<bool>(continued)?);
    if given == (Some(true), Some(true)) {
        let message = format!("`{continued}` goes on with the last message, and `{prompted}` begins another: give one");
        return Err(ApiError::of_param(continued, message));
    }
    for (name, value) in [(prompted, given.0), (continued, given.1)] {
        variables.extend(value.map(|value| (name.to_owned(), Json::Bool(value))));
    }
    // A template reads it under this name, if at all.
    if let Some(effort) = fields.json("reasoning_effort") {
        variables.push(("reasoning_effort".to_owned(), effort));
    }
    kwargs(fields, facts, &mut variables)?;
    Ok(Talk { json: written(variables)?, toolbox })
}

/// Takes `chat_template_kwargs`: the client's variables of the template, and those that whoever runs the server gave.
fn kwargs(fields: &mut Fields, facts: &Facts, variables: &mut Vec<(String, Json)>) -> Result<(), ApiError> {
    match fields.json(KWARGS) {
        None => {}
        Some(Json::Object(members)) => {
            for (name, value) in members {
                let param = format!("chat_template_kwargs.{name}");
                if RESERVED.contains(&name.as_str()) || variables.iter().any(|(known, _)| *known == name) {
                    let message = format!("`{param}` cannot be set: use the request's own members");
                    return Err(ApiError::of_param(&param, message));
                }
                variables.push((name, value));
            }
        }
        Some(other) => return Err(ApiError::of_type(KWARGS, "an object", other.kind())),
    }
    if let Some(Value::Object(own)) = facts.defaults.get(KWARGS) {
        for (name, value) in own.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str())) {
            if !variables.iter().any(|(known, _)| known == name) {
                variables.push((name.clone(), Json::from(value)));
            }
        }
    }
    Ok(())
}

/// Variables of a template as JSON.
///
/// # Errors
/// They cannot be written.
pub(crate) fn written(variables: Vec<(String, Json)>) -> Result<String, ApiError> {
    let text = serde_json::to_string(&Json::Object(variables));
    text.map_err(|e| ApiError::invalid(format!("the conversation is no JSON: {e}")))
}

/// The prompt of a conversation as text and as tokens, whatever its length.
///
/// # Errors
/// The template refuses it.
pub(crate) fn spelt(model: &dyn Model, conversation: &str, special: bool) -> Result<(String, Vec<Token>), ApiError> {
    let text = rendered(model, conversation)?;
    let tokens = model.tokenize(&text, special)?;
    Ok((text, tokens))
}

/// The prompt of a conversation, and its tokens.
///
/// # Errors
/// The template refuses it; it is too long.
pub(crate) fn prompt(model: &dyn Model, conversation: &str, special: bool) -> Result<(String, Vec<Token>), ApiError> {
    let (text, tokens) = spelt(model, conversation, special)?;
    check_length(model.facts(), tokens.len(), "messages")?;
    Ok((text, tokens))
}

fn messages(fields: &mut Fields, as_text: bool) -> Result<Json, ApiError> {
    match fields.json("messages") {
        None => Err(ApiError::missing("messages")),
        Some(Json::List(all)) if all.is_empty() => {
            Err(ApiError::of_param("messages", "`messages` is empty: give at least one"))
        }
        Some(Json::List(all)) => {
            let each = all.into_iter().enumerate().map(|(i, json)| message(json, &format!("messages[{i}]"), as_text));
            each.collect::<Result<_, _>>().map(Json::List)
        }
        Some(other) => Err(ApiError::of_type("messages", "a list", other.kind())),
    }
}

fn message(json: Json, at: &str, as_text: bool) -> Result<Json, ApiError> {
    let Json::Object(members) = json else { return Err(ApiError::of_type(at, "an object", json.kind())) };
    let mut out = vec![];
    for (name, value) in members {
        let param = format!("{at}.{name}");
        let value = match (name.as_str(), value) {
            ("role", Json::String(role)) => Json::String(role),
            ("role", other) => return Err(ApiError::of_type(&param, "a text", other.kind())),
            ("content", value) => content(value, &param)?,
            ("tool_calls", value) => calls(value, &param, as_text)?,
            ("audio" | "function_call" | "refusal", Json::Null) => continue,
            ("audio" | "function_call" | "refusal", _) => {
                return Err(ApiError::of_param(&param, format!("`{param}` is not supported: leave it out")));
            }
            (_, value) => value,
        };
        out.push((name, value));
    }
    let has = |name: &str| out.iter().any(|(k, v)| k == name && *v != Json::Null);
    if !has("role") {
        return Err(ApiError::of_param(at, format!("`{at}.role` is missing")));
    }
    if !has("content") && !has("tool_calls") {
        return Err(ApiError::of_param(at, format!("`{at}.content` is missing")));
    }
    Ok(Json::Object(out))
}

fn content(value: Json, at: &str) -> Result<Json, ApiError> {
    match value {
        Json::String(_) | Json::Null => Ok(value),
        Json::List(parts) => joined(&parts, "parts", at).map(Json::String),
        other => Err(ApiError::of_type(at, "a text or a list of parts", other.kind())),
    }
}

/// The text of the parts of a message, a line each, as vLLM has them. `name`: how the interface calls them.
///
/// # Errors
/// A part that is no text.
pub(crate) fn joined(parts: &[Json], name: &str, at: &str) -> Result<String, ApiError> {
    let text = |(i, part): (usize, &Json)| {
        let kind = part.get("type").and_then(Json::as_str).unwrap_or("?");
        match part.get("text").and_then(Json::as_str) {
            Some(text) if kind == "text" => Ok(text.to_owned()),
            _ => {
                let param = format!("{at}[{i}]");
                Err(ApiError::of_param(&param, format!("`{param}` is of type `{kind}`: give {name} of type `text`")))
            }
        }
    };
    let texts: Vec<String> = parts.iter().enumerate().map(text).collect::<Result<_, _>>()?;
    Ok(texts.join("\n"))
}

/// Calls of tools, whose arguments become objects, unless the template wants texts.
fn calls(value: Json, at: &str, as_text: bool) -> Result<Json, ApiError> {
    let Json::List(calls) = value else {
        return if value == Json::Null { Ok(value) } else { Err(ApiError::of_type(at, "a list", value.kind())) };
    };
    let call = |(i, mut call): (usize, Json)| {
        let param = format!("{at}[{i}].function.arguments");
        let Json::Object(members) = &mut call else {
            return Err(ApiError::of_type(&format!("{at}[{i}]"), "an object", call.kind()));
        };
        let function = members.iter_mut().find(|(name, _)| name == "function").map(|(_, function)| function);
        if let Some(Json::Object(function)) = function
            && let Some((_, arguments)) = function.iter_mut().find(|(name, _)| name == "arguments")
            && let Json::String(text) = arguments
        {
            let read: Result<Json, _> =
                if text.trim().is_empty() { Ok(Json::Object(vec![])) } else { serde_json::from_str(text) };
            let read = read.map_err(|e| ApiError::of_param(&param, format!("`{param}` is no JSON: {e}")))?;
            if !as_text {
                *arguments = read;
            }
        }
        Ok(call)
    };
    calls.into_iter().enumerate().map(call).collect::<Result<_, _>>().map(Json::List)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, ApiError> {
        let mut fields = Fields::parse(text.as_bytes())?;
        let made = conversation(&mut fields, &Facts::default())?;
        fields.finish().map(|()| made)
    }

    #[test]
    fn templates_get_what_they_know() {
        let made = of(r#"{
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "3"}],
            "tools": [{"type": "function", "function": {"name": "f", "description": "x"}}],
            "chat_template_kwargs": {"enable_thinking": false}}"#)
        .unwrap();
        let want = concat!(
            r#"{"messages":[{"role":"user","content":"a\nb"},{"role":"assistant","content":null,"tool_calls":"#,
            r#"[{"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}}]},"#,
            r#"{"role":"tool","tool_call_id":"1","content":"3"}],"#,
            r#""tools":[{"type":"function","function":{"name":"f","description":"x"}}],"enable_thinking":false}"#
        );
        assert_eq!(made, want);
        let none = r#"{"messages": [{"role": "user", "content": "a"}], "tool_choice": "none",
            "tools": [{"type": "function", "function": {"name": "f"}}]}"#;
        assert!(!of(none).unwrap().contains("tools"));
    }

    #[test]
    fn faults_are_named() {
        for (text, param) in [
            (r#"{}"#, "messages"),
            (r#"{"messages": []}"#, "messages"),
            (r#"{"messages": "hi"}"#, "messages"),
            (r#"{"messages": ["hi"]}"#, "messages[0]"),
            (r#"{"messages": [{"content": "hi"}]}"#, "messages[0]"),
            (r#"{"messages": [{"role": "user"}]}"#, "messages[0]"),
            (r#"{"messages": [{"role": 1, "content": "hi"}]}"#, "messages[0].role"),
            (r#"{"messages": [{"role": "user", "content": 3}]}"#, "messages[0].content"),
            (
                r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}"#,
                "messages[0].content[0]",
            ),
            (r#"{"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}"#, "tool_choice"),
            (r#"{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}"#, "tools[0]"),
            (
                r#"{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"chat_template": "x"}}"#,
                "chat_template_kwargs.chat_template",
            ),
            (r#"{"messages": [{"role": "user", "content": "a"}], "chat_template": "x"}"#, "chat_template"),
        ] {
            assert_eq!(of(text).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }
}
