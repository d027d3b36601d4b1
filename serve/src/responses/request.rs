//! A request for an answer in the Responses interface: its members, most with other names elsewhere.

use crate::ask::{Ask, MOST_TOP};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::{Json, short};
use crate::model::Facts;
use crate::responses::items::items;
use crate::toolbox::Toolbox;
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

/// Members of other interfaces that stand for members of this one.
const FOREIGN: &[&str] = &["max_tokens", "max_completion_tokens", "n", "response_format", "messages", "logprobs"];
/// Limits on `metadata`; OpenAI's.
const MOST_PAIRS: usize = 16;
const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 512;

/// A request for an answer.
pub(crate) struct Wanted {
    pub(crate) ask: Ask,
    pub(crate) instructions: Option<String>,
    /// Items that this request adds to the conversation.
    pub(crate) input: Vec<Value>,
    /// The answer that it goes on from.
    pub(crate) previous: Option<String>,
    /// Whether the answer is kept; `None`: as the server does.
    pub(crate) store: Option<bool>,
    pub(crate) background: bool,
    /// Whether the oldest messages may be left out where the conversation is too long.
    pub(crate) truncate: bool,
    /// Variables of the chat template, beside messages; tools are among them.
    pub(crate) variables: Vec<(String, Json)>,
    pub(crate) toolbox: Toolbox,
    /// Members of the answer's document that say what was asked for.
    pub(crate) echoed: Map<String, Value>,
}

impl Wanted {
    /// Takes the members of a request.
    ///
    /// # Errors
    /// A member that is wrong, or is not supported.
    pub(crate) fn take(fields: &mut Fields, headers: &HeaderMap, facts: &Facts) -> Result<Wanted, ApiError> {
        FOREIGN.iter().try_for_each(|name| fields.only(name, &[]))?;
        refuse_unsupported(fields)?;
        let mut echoed = Map::new();
        let mut echo = |name: &str, value: Value| drop(echoed.insert(name.to_owned(), value));
        let instructions = fields.take::<String>("instructions")?;
        echo("instructions", json!(instructions));
        let previous = fields.take::<String>("previous_response_id")?;
        echo("previous_response_id", json!(previous));
        let input = fields.json("input").ok_or_else(|| ApiError::missing("input"))?;
        let store = fields.take::<bool>("store")?;
        let background = fields.take("background")?.unwrap_or(false);
        echo("background", json!(background));
        if background && store == Some(false) {
            let message = "`background` needs `store`: an answer that is not stored cannot be asked for";
            return Err(ApiError::of_param("background", message));
        }
        let truncate = match fields.take::<String>("truncation")?.as_deref() {
            None | Some("disabled") => false,
            Some("auto") => true,
            Some(_) => {
                return Err(ApiError::of_param("truncation", "`truncation` is neither \"auto\" nor \"disabled\""));
            }
        };
        echo("truncation", json!(if truncate { "auto" } else { "disabled" }));
        let most = fields.count("max_output_tokens", 1, u64::from(u32::MAX))?;
        echo("max_output_tokens", json!(most));
        most.into_iter().for_each(|most| fields.put("max_completion_tokens", Json::Number(most.into())));
        echo("metadata", metadata(fields)?);
        echo("text", text(fields)?);
        let mut variables = vec![];
        echo("reasoning", reasoning(fields, &mut variables)?);
        for name in ["chat_template_kwargs", "add_generation_prompt", "continue_final_message"] {
            variables.extend(fields.json(name).map(|value| (name.to_owned(), value)));
        }
        for name in ["user", "safety_identifier", "prompt_cache_key"] {
            echo(name, json!(fields.take::<String>(name)?));
        }
        let logprobs = logprobs(fields)?;
        echo("top_logprobs", json!(logprobs.unwrap_or(0)));
        stream_options(fields)?;
        let mut ask = Ask::take(fields, headers, facts, 0).map_err(renamed)?;
        ask.params.logprobs = logprobs;
        echo("temperature", short(ask.params.sampling.temperature));
        echo("top_p", short(ask.params.sampling.top_p));
        let toolbox = tools(fields, &mut echo)?;
        variables.extend(toolbox.given.clone().map(|tools| ("tools".to_owned(), tools)));
        let input = items(input)?;
        Ok(Wanted { ask, instructions, input, previous, store, background, truncate, variables, toolbox, echoed })
    }
}

/// An error with the names that its members have here.
fn renamed(mut error: ApiError) -> ApiError {
    error.message = here(&error.message);
    error.param = error.param.as_deref().map(here);
    error
}

/// A text with the names that members have here.
fn here(text: &str) -> String {
    text.replace("response_format.json_schema", "text.format").replace("response_format", "text.format")
}

/// Members that have values which ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    ["max_tool_calls", "conversation", "prompt", "context_management"]
        .into_iter()
        .try_for_each(|name| fields.only(name, &[]))
}

/// Takes the functions that may be called, whose members stand in an object of their own elsewhere. `echo` gets the
/// members of the document.
fn tools(fields: &mut Fields, mut echo: impl FnMut(&str, Value)) -> Result<Toolbox, ApiError> {
    let wrapped = |json: Json| match json {
        Json::Object(all) if all.iter().any(|(name, v)| name == "type" && v.as_str() == Some("function")) => {
            let (kind, function): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == "type");
            Json::Object(kind.into_iter().chain([("function".to_owned(), Json::Object(function))]).collect())
        }
        other => other,
    };
    let shown = |json: &Option<Json>| json.as_ref().and_then(|json| json.read::<Value>().ok());
    let (given, choice) = (fields.json("tools"), fields.json("tool_choice"));
    echo("tools", shown(&given).unwrap_or_else(|| json!([])));
    echo("tool_choice", shown(&choice).unwrap_or_else(|| json!("auto")));
    match given {
        Some(Json::List(all)) => {
            let is_function = |tool: &Json| tool.get("type").and_then(Json::as_str) == Some("function");
            if let Some(i) = all.iter().position(|tool| !is_function(tool)) {
                let param = format!("tools[{i}]");
                let message = format!("`{param}` is no tool of type `function`: this server has no tools of its own");
                return Err(ApiError::of_param(&param, message).code("unsupported"));
            }
            fields.put("tools", Json::List(all.into_iter().map(wrapped).collect()));
        }
        other => other.into_iter().for_each(|other| fields.put("tools", other)),
    }
    choice.into_iter().for_each(|choice| fields.put("tool_choice", wrapped(choice)));
    let toolbox = Toolbox::take(fields)?;
    echo("parallel_tool_calls", json!(toolbox.parallel));
    Ok(toolbox)
}

fn metadata(fields: &mut Fields) -> Result<Value, ApiError> {
    const NAME: &str = "metadata";
    let wrong = |message: String| Err(ApiError::of_param(NAME, message));
    let pairs: Map<String, Value> = fields.take(NAME)?.unwrap_or_default();
    if pairs.len() > MOST_PAIRS {
        return wrong(format!("`metadata` has {} members: give up to {MOST_PAIRS}", pairs.len()));
    }
    for (name, value) in &pairs {
        match value {
            Value::String(text) if text.chars().count() <= LONGEST_VALUE && name.chars().count() <= LONGEST_NAME => {}
            _ => {
                let message = "names of up to 64 characters and texts of up to 512";
                return wrong(format!("`metadata.{name:.64}` is too long, or no text: give {message}"));
            }
        }
    }
    Ok(pairs.into())
}

/// Takes `text`: its form goes to where other interfaces have it. Returns the member of the document.
fn text(fields: &mut Fields) -> Result<Value, ApiError> {
    let mut members = match fields.json("text") {
        None => return Ok(json!({ "format": { "type": "text" } })),
        Some(given) => Fields::of_json(given, "text")?,
    };
    members.only("verbosity", &["\"medium\""])?;
    let format = members.json("format");
    members.finish()?;
    let shown = format.as_ref().and_then(|format| format.read::<Value>().ok());
    match format {
        None => {}
        // Its members are an object of their own elsewhere.
        Some(Json::Object(all)) if all.iter().any(|(name, v)| name == "type" && v.as_str() == Some("json_schema")) => {
            let (kind, schema): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == "type");
            let form = kind.into_iter().chain([("json_schema".to_owned(), Json::Object(schema))]);
            fields.put("response_format", Json::Object(form.collect()));
        }
        Some(other) => fields.put("response_format", other),
    }
    Ok(json!({ "format": shown.unwrap_or_else(|| json!({ "type": "text" })) }))
}

/// Takes `reasoning`: its effort is a variable of the template. Returns the member of the document.
fn reasoning(fields: &mut Fields, variables: &mut Vec<(String, Json)>) -> Result<Value, ApiError> {
    let mut effort = None;
    if let Some(given) = fields.json("reasoning") {
        let mut members = Fields::of_json(given, "reasoning")?;
        effort = members.take::<String>("effort")?;
        members.only("summary", &["\"auto\""])?;
        members.only("generate_summary", &["\"auto\""])?;
        members.finish()?;
    }
    variables.extend(effort.clone().map(|effort| ("reasoning_effort".to_owned(), Json::String(effort))));
    Ok(json!({ "effort": effort, "summary": null }))
}

/// Alternatives of each token, if log-probabilities are wanted.
fn logprobs(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    const NAME: &str = "message.output_text.logprobs";
    let include: Vec<String> = fields.take("include")?.unwrap_or_default();
    // (Answers have no items of reasoning whose content could be wanted.)
    let known = |name: &&String| name.as_str() != NAME && name.as_str() != "reasoning.encrypted_content";
    if let Some(other) = include.iter().find(known) {
        return Err(ApiError::of_param(
            "include",
            format!("`include`: `{other:.64}` is not supported: give \"{NAME}\""),
        ));
    }
    let top = fields.count("top_logprobs", 0, MOST_TOP)?.and_then(|n| u32::try_from(n).ok());
    match (include.iter().any(|name| name == NAME), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::of_param("top_logprobs", format!("`top_logprobs` needs `include`: give [\"{NAME}\"]")))
        }
    }
}

/// Takes options of streams: padding of events changes no text.
fn stream_options(fields: &mut Fields) -> Result<(), ApiError> {
    let Some(given) = fields.json("stream_options") else { return Ok(()) };
    let mut members = Fields::of_json(given, "stream_options")?;
    let _: Option<bool> = members.take("include_obfuscation")?;
    members.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_model::Grammar;

    fn wanted(text: &str) -> Result<Wanted, ApiError> {
        let mut fields = Fields::parse(text.as_bytes())?;
        let wanted = Wanted::take(&mut fields, &HeaderMap::new(), &Facts { vocab: 9, ..Facts::default() })?;
        fields.finish().map(|()| wanted)
    }

    #[test]
    fn members_have_other_names_elsewhere() {
        let all = wanted(
            r#"{"input": "hi", "max_output_tokens": 7, "temperature": 0.5, "metadata": {"a": "b"}, "truncation": "auto",
                "text": {"format": {"type": "json_schema", "name": "x", "strict": true, "schema": {"type": "null"}}},
                "reasoning": {"effort": "low"}, "include": ["message.output_text.logprobs"], "top_logprobs": 2}"#,
        )
        .unwrap_or_else(|e| panic!("{}", e.message));
        let params = &all.ask.params;
        assert_eq!((params.max_tokens, params.logprobs, params.sampling.temperature), (7, Some(2), 0.5));
        assert_eq!(params.grammar, Some(Grammar::JsonSchema(r#"{"type":"null"}"#.into())));
        assert_eq!(all.variables, [("reasoning_effort".to_owned(), Json::String("low".into()))]);
        assert!(all.truncate && !all.background && all.store.is_none());
        assert_eq!(all.echoed["text"]["format"]["name"], "x");
        assert_eq!((&all.echoed["metadata"], &all.echoed["temperature"]), (&json!({ "a": "b" }), &json!(0.5)));
    }

    #[test]
    fn functions_are_tools() {
        let tool = r#"{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}"#;
        let all = wanted(&format!(
            r#"{{"input": "hi", "tools": [{tool}], "tool_choice": {{"type": "function", "name": "f"}}}}"#
        ))
        .unwrap_or_else(|e| panic!("{}", e.message));
        assert!(all.toolbox.tools().has("f") && all.toolbox.is_forced());
        assert_eq!(all.echoed["tools"], json!([serde_json::from_str::<Value>(tool).unwrap()]));
        assert_eq!(all.echoed["tool_choice"], json!({ "type": "function", "name": "f" }));
        let (name, Json::List(given)) = &all.variables[0] else { panic!("no list") };
        assert_eq!(
            (name.as_str(), given[0].get("function").and_then(|f| f.get("name"))),
            ("tools", Some(&Json::String("f".into())))
        );
    }

    #[test]
    fn wrong_members_are_named() {
        for (more, param) in [
            (r#""max_tokens": 1"#, "max_tokens"),
            (r#""max_output_tokens": 0"#, "max_output_tokens"),
            (r#""n": 2"#, "n"),
            (r#""tools": [{"type": "web_search"}]"#, "tools[0]"),
            (r#""tools": [{"type": "function"}]"#, "tools[0]"),
            (r#""tools": {}"#, "tools"),
            (r#""tool_choice": {"type": "function", "name": "f"}"#, "tool_choice"),
            (r#""tool_choice": "required""#, "tool_choice"),
            (r#""conversation": "x""#, "conversation"),
            (r#""background": true, "store": false"#, "background"),
            (r#""truncation": "some""#, "truncation"),
            (r#""text": {"format": {"type": "xml"}}"#, "text.format"),
            (r#""text": {"format": {"type": "json_schema", "name": "x"}}"#, "text.format"),
            (r#""text": {"x": 1}"#, "x"),
            (r#""text": 1"#, "text"),
            (r#""metadata": {"a": 1}"#, "metadata"),
            (r#""reasoning": {"summary": "detailed"}"#, "summary"),
            (r#""top_logprobs": 1"#, "top_logprobs"),
            (r#""include": ["file_search_call.results"]"#, "include"),
            (r#""stream_options": {"include_usage": true}"#, "include_usage"),
        ] {
            let text = format!(r#"{{"input": "hi", {more}}}"#);
            assert_eq!(wanted(&text).err().and_then(|e| e.param).as_deref(), Some(param), "{text}");
        }
        assert_eq!(wanted("{}").err().and_then(|e| e.param).as_deref(), Some("input"));
    }
}
