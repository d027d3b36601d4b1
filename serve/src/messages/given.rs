//! Conversations in Anthropic's interface, as templates get them: blocks become texts, calls and results.

use crate::conversation::{Talk, joined, written};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use crate::toolbox::{Choice, Toolbox};

/// Members of a tool that the client defines.
const TOOL: &[&str] = &["name", "description", "input_schema", "type", "cache_control"];

/// Takes the conversation and the tools. `as_text`: the template wants the arguments of calls as texts.
///
/// # Errors
/// A member that is wrong or not supported.
pub(crate) fn talk(fields: &mut Fields, as_text: bool) -> Result<Talk, ApiError> {
    let mut all = vec![];
    if let Some(system) = fields.json("system") {
        all.push(message("system", vec![("content", text(&system, "system")?)]));
    }
    let given = match fields.json("messages") {
        Some(Json::List(given)) if !given.is_empty() => given,
        _ => return Err(ApiError::of_param("messages", "`messages` is missing, empty or no list")),
    };
    let mut names = vec![];
    for (i, one) in given.iter().enumerate() {
        let at = format!("messages[{i}]");
        let role = match one.get("role").and_then(Json::as_str) {
            Some(role @ ("user" | "assistant")) => role,
            _ => return Err(ApiError::of_param(&at, format!("`{at}.role` is neither `user` nor `assistant`"))),
        };
        let at = format!("{at}.content");
        let content = one.get("content").ok_or_else(|| ApiError::missing(&at))?;
        match (content, role) {
            (Json::List(blocks), "assistant") => all.push(answer(blocks, &at, as_text, &mut names)?),
            (Json::List(blocks), _) => all.extend(question(blocks, &at, &names)?),
            (content, role) => all.push(message(role, vec![("content", text(content, &at)?)])),
        }
    }
    // An answer that the client has begun is continued.
    let begun = given.last().and_then(|last| last.get("role")).and_then(Json::as_str) == Some("assistant");
    let toolbox = toolbox(fields)?;
    let mut variables = vec![("messages".to_owned(), Json::List(all))];
    if let Some(tools) = &toolbox.given {
        variables.push(("tools".to_owned(), tools.clone()));
    }
    if begun {
        variables.push(("continue_final_message".to_owned(), Json::Bool(true)));
    }
    variables.extend(fields.json("reasoning_effort").map(|effort| ("reasoning_effort".to_owned(), effort)));
    // (Templates call it by these names.)
    if let Some(thinks) = thinking(fields)? {
        variables.extend(["enable_thinking", "thinking"].map(|name| (name.to_owned(), Json::Bool(thinks))));
    }
    Ok(Talk { json: written(variables)?, toolbox })
}

fn message(role: &str, members: Vec<(&str, Json)>) -> Json {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    Json::Object([("role".to_owned(), string(role))].into_iter().chain(members).collect())
}

fn string(text: &str) -> Json {
    Json::String(text.to_owned())
}

/// A text, or a list of blocks of text.
fn text(content: &Json, at: &str) -> Result<Json, ApiError> {
    match content {
        Json::String(text) => Ok(string(text)),
        Json::List(blocks) => joined(blocks, "blocks", at).map(Json::String),
        other => Err(ApiError::of_type(at, "a text", other.kind())),
    }
}

/// A member of a block, which must be there.
fn member<'a>(block: &'a Json, name: &str, at: &str) -> Result<&'a Json, ApiError> {
    block.get(name).ok_or_else(|| ApiError::of_param(at, format!("`{at}.{name}` is missing")))
}

fn named(block: &Json, name: &str, at: &str) -> Result<String, ApiError> {
    let value = member(block, name, at)?;
    let wrong = || ApiError::of_param(at, format!("`{at}.{name}` is {}: give a text", value.kind()));
    value.as_str().map(str::to_owned).ok_or_else(wrong)
}

fn kind(block: &Json) -> &str {
    block.get("type").and_then(Json::as_str).unwrap_or("?")
}

/// A message of the assistant. `names`: of tools, by the identifiers of their calls.
fn answer(blocks: &[Json], at: &str, as_text: bool, names: &mut Vec<(String, String)>) -> Result<Json, ApiError> {
    let (mut texts, mut thoughts, mut calls) = (vec![], vec![], vec![]);
    for (i, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{i}]");
        match kind(block) {
            "thinking" => thoughts.push(named(block, "thinking", &at)?),
            "tool_use" => {
                let (id, name) = (named(block, "id", &at)?, named(block, "name", &at)?);
                let input = member(block, "input", &at)?;
                let Json::Object(_) = input else {
                    return Err(ApiError::of_param(&at, format!("`{at}.input` is {}: give an object", input.kind())));
                };
                let arguments = match as_text {
                    true => Json::String(serde_json::to_string(input).unwrap_or_default()),
                    false => input.clone(),
                };
                let function = vec![("name".to_owned(), string(&name)), ("arguments".to_owned(), arguments)];
                calls.push(Json::Object(vec![
                    ("id".to_owned(), string(&id)),
                    ("type".to_owned(), string("function")),
                    ("function".to_owned(), Json::Object(function)),
                ]));
                names.push((id, name));
            }
            _ => texts.push(block.clone()),
        }
    }
    let content = match texts.is_empty() && !calls.is_empty() {
        true => string(""),
        false => Json::String(joined(&texts, "blocks", at)?),
    };
    let mut members = vec![("content", content)];
    if !thoughts.is_empty() {
        members.push(("reasoning_content", Json::String(thoughts.join("\n"))));
    }
    if !calls.is_empty() {
        members.push(("tool_calls", Json::List(calls)));
    }
    Ok(message("assistant", members))
}

/// Messages of the user: results of calls, and a text.
fn question(blocks: &[Json], at: &str, names: &[(String, String)]) -> Result<Vec<Json>, ApiError> {
    let (mut all, mut texts) = (vec![], vec![]);
    for (i, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{i}]");
        if kind(block) != "tool_result" {
            texts.push(block.clone());
            continue;
        }
        let id = named(block, "tool_use_id", &at)?;
        let Some((_, name)) = names.iter().rev().find(|(known, _)| *known == id) else {
            let message = format!("`{at}.tool_use_id` is `{id}`, and no earlier block is a call with this `id`");
            return Err(ApiError::of_param(&at, message));
        };
        let content = block.get("content").map_or(Ok(string("")), |content| text(content, &format!("{at}.content")))?;
        let mut members = vec![("tool_call_id", string(&id)), ("name", string(name)), ("content", content)];
        if let Some(failed) = block.get("is_error") {
            members.push(("is_error", failed.clone()));
        }
        all.push(message("tool", members));
    }
    if !texts.is_empty() || all.is_empty() {
        all.push(message("user", vec![("content", Json::String(joined(&texts, "blocks", at)?))]));
    }
    Ok(all)
}

/// Takes `tools` and `tool_choice`.
fn toolbox(fields: &mut Fields) -> Result<Toolbox, ApiError> {
    let given = match fields.json("tools") {
        None => None,
        Some(Json::List(all)) if all.is_empty() => None,
        Some(Json::List(all)) => {
            let tools = all.iter().enumerate().map(|(i, one)| tool(one, &format!("tools[{i}]")));
            Some(Json::List(tools.collect::<Result<_, _>>()?))
        }
        Some(other) => return Err(ApiError::of_type("tools", "a list", other.kind())),
    };
    let (mut choice, mut parallel) = (Choice::Auto, true);
    if let Some(wanted) = fields.json("tool_choice") {
        choice = match (kind(&wanted), wanted.get("name").and_then(Json::as_str)) {
            ("auto", _) => Choice::Auto,
            ("none", _) => Choice::Never,
            ("any", _) => Choice::Must,
            ("tool", Some(name)) => Choice::Only(name.to_owned()),
            _ => {
                let message = "`tool_choice.type` is none of `auto`, `any`, `none`, and `tool` with a `name`";
                return Err(ApiError::of_param("tool_choice", message));
            }
        };
        parallel = match wanted.get("disable_parallel_tool_use") {
            None | Some(Json::Null) => true,
            Some(Json::Bool(alone)) => !alone,
            Some(other) => {
                return Err(ApiError::of_type("tool_choice.disable_parallel_tool_use", "a boolean", other.kind()));
            }
        };
    }
    Toolbox { given, choice, parallel }.checked()
}

/// A tool as OpenAI's interface has it.
fn tool(given: &Json, at: &str) -> Result<Json, ApiError> {
    let Json::Object(members) = given else {
        return Err(ApiError::of_type(at, "an object", given.kind()));
    };
    if !matches!(given.get("type").and_then(Json::as_str), None | Some("custom")) {
        let message = format!("`{at}` is of type `{}`: only tools of the client are supported", kind(given));
        return Err(ApiError::of_param(at, message).code("unsupported_parameter"));
    }
    if let Some((name, _)) = members.iter().find(|(name, value)| !TOOL.contains(&name.as_str()) && *value != Json::Null)
    {
        return Err(ApiError::of_param(at, format!("`{at}.{name}` is unknown: leave it out")).code("unknown_parameter"));
    }
    let mut function = vec![("name".to_owned(), Json::String(named(given, "name", at)?))];
    if let Some(about) = given.get("description") {
        function.push(("description".to_owned(), about.clone()));
    }
    function.push(("parameters".to_owned(), member(given, "input_schema", at)?.clone()));
    let members = [("type".to_owned(), string("function")), ("function".to_owned(), Json::Object(function))];
    Ok(Json::Object(members.into()))
}

/// Whether the model reasons, if the request says it.
fn thinking(fields: &mut Fields) -> Result<Option<bool>, ApiError> {
    let Some(given) = fields.json("thinking") else { return Ok(None) };
    match kind(&given) {
        "enabled" | "adaptive" => Ok(Some(true)),
        "disabled" => Ok(Some(false)),
        _ => Err(ApiError::of_param("thinking", "`thinking.type` is none of `enabled`, `adaptive` and `disabled`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Talk, ApiError> {
        let mut fields = Fields::parse(text.as_bytes())?;
        let found = talk(&mut fields, false)?;
        fields.finish().map(|()| found)
    }

    #[test]
    fn blocks_become_messages() {
        let found = of(r#"{
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "so", "signature": ""},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": 2}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "3"}]},
                    {"type": "text", "text": "b"}]}],
            "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "thinking": {"type": "enabled", "budget_tokens": 1024}}"#)
        .unwrap();
        let want = concat!(
            r#"{"messages":[{"role":"user","content":"hi"},"#,
            r#"{"role":"assistant","content":"a","reasoning_content":"so","#,
            r#""tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}}]},"#,
            r#"{"role":"tool","tool_call_id":"t1","name":"f","content":"3"},{"role":"user","content":"b"}],"#,
            r#""tools":[{"type":"function","function":"#,
            r#"{"name":"f","description":"d","parameters":{"type":"object"}}}],"#,
            r#""enable_thinking":true,"thinking":true}"#
        );
        assert_eq!(found.json, want);
        assert_eq!((found.toolbox.choice, found.toolbox.parallel), (Choice::Must, false));
    }

    #[test]
    fn faults_are_named() {
        let of_block = |block: &str| format!(r#"{{"messages": [{{"role": "assistant", "content": [{block}]}}]}}"#);
        let of_member = |member: &str| format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], {member}}}"#);
        for (text, param) in [
            (of_block(r#"{"type": "image"}"#), "messages[0].content[0]"),
            (of_block(r#"{"type": "tool_use", "id": "a", "name": "b"}"#), "messages[0].content[0]"),
            (of_block(r#"{"type": "tool_use", "id": "a", "name": "b", "input": 1}"#), "messages[0].content[0]"),
            (of_member(r#""tools": [{"name": "f"}]"#), "tools[0]"),
            (of_member(r#""tools": [{"name": "f", "input_schema": {}, "x": 1}]"#), "tools[0]"),
            (of_member(r#""tools": [{"type": "web_search_20250305", "name": "web_search"}]"#), "tools[0]"),
            (of_member(r#""tool_choice": {"type": "any"}"#), "tool_choice"),
            (of_member(r#""tool_choice": {"type": "x"}"#), "tool_choice"),
            (of_member(r#""thinking": {"type": "x"}"#), "thinking"),
            (
                r#"{"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}"#
                    .to_owned(),
                "messages[0].content[0]",
            ),
        ] {
            assert_eq!(of(&text).err().and_then(|e| e.param).as_deref(), Some(param), "{text}");
        }
    }
}
