//! `POST /v1/messages`: answers in conversations, in Anthropic's interface.

use crate::app::{App, Busy, blocking};
use crate::ask::{Ask, unforeseen};
use crate::conversation::{joined, tokens};
use crate::error::{ApiError, answer};
use crate::fields::Fields;
use crate::hub::{Job, Order};
use crate::json::Json;
use crate::stream::{Script, stream};
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use llmcc_model::{End, Event, Finish};
use serde_json::{Value, json};
use std::sync::Arc;

/// Members of OpenAI's requests that Anthropic's have not.
const FOREIGN: &[&str] = &["max_completion_tokens", "n", "stop", "stream_options", "presence_penalty"];

/// Answers `POST /v1/messages`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Response {
    answered(&app, request).await.unwrap_or_else(|error| {
        let status = error.status;
        let document = failure(&error);
        // Headers are the same in both interfaces.
        let (head, _) = error.into_response().into_parts();
        let mut response = answer(status, &document);
        *response.headers_mut() = head.headers;
        response
    })
}

fn failure(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::INTERNAL_SERVER_ERROR => "api_error",
        _ => error.kind,
    };
    json!({ "type": "error", "error": { "type": kind, "message": error.message } })
}

async fn answered(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let (app, model) = app.choose(&mut fields)?;
    refuse_unsupported(&mut fields)?;
    let stops: Vec<String> = fields.take("stop_sequences")?.unwrap_or_default();
    if stops.iter().any(|text| text.is_empty() || text.contains('\0')) {
        let message = "a text of `stop_sequences` is empty or contains a NUL";
        return Err(ApiError::of_param("stop_sequences", message));
    }
    let mut ask = Ask::take(&mut fields, &headers, app.hub.model().facts(), 0)?;
    if ask.params.max_tokens == 0 {
        return Err(ApiError::of_param("max_tokens", "`max_tokens` is missing"));
    }
    ask.params.stop = stops;
    let conversation = conversation(&mut fields)?;
    fields.finish()?;
    let own = app.clone();
    let prompt = blocking(move || tokens(own.hub.model(), &conversation, false)).await?;
    let stop = if ask.params.stop.len() == 1 { ask.params.stop.first().cloned() } else { None };
    let order = Order { prompt: prompt.into(), params: ask.params, terms: ask.terms };
    let input = order.prompt.len();
    let hub = app.hub.clone();
    let job = blocking(move || hub.submit(&[order])).await?;
    let message = Message { id: format!("msg_{:016x}", unforeseen()), model, stop, input, _busy: busy };
    if ask.stream { Ok(stream(job, message)) } else { message.whole(job).await }
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    FOREIGN.iter().try_for_each(|name| fields.only(name, &[]))?;
    for (name, values) in [
        ("tools", &["[]"][..]),
        ("tool_choice", &[r#"{"type":"none"}"#]),
        ("thinking", &[r#"{"type":"disabled"}"#]),
        ("mcp_servers", &["[]"]),
        ("container", &[]),
    ] {
        fields.only(name, values)?;
    }
    Ok(())
}

/// Takes the conversation: what the template gets, as JSON.
fn conversation(fields: &mut Fields) -> Result<String, ApiError> {
    let message = |role: &str, content: String| {
        let member = |name: &str, value: String| (name.to_owned(), Json::String(value));
        Json::Object(vec![member("role", role.to_owned()), member("content", content)])
    };
    let mut all = vec![];
    if let Some(system) = fields.json("system") {
        all.push(message("system", text(&system, "system")?));
    }
    let given = match fields.json("messages") {
        Some(Json::List(given)) if !given.is_empty() => given,
        _ => return Err(ApiError::of_param("messages", "`messages` is missing, empty or no list")),
    };
    for (i, one) in given.iter().enumerate() {
        let at = format!("messages[{i}]");
        let role = match one.get("role").and_then(Json::as_str) {
            Some(role @ ("user" | "assistant")) => role,
            _ => return Err(ApiError::of_param(&at, format!("`{at}.role` is neither `user` nor `assistant`"))),
        };
        let at = format!("{at}.content");
        let content = one.get("content").ok_or_else(|| ApiError::of_param(&at, format!("`{at}` is missing")))?;
        all.push(message(role, text(content, &at)?));
    }
    // An answer that the client has begun is continued.
    let begun = given.last().and_then(|last| last.get("role")).and_then(Json::as_str) == Some("assistant");
    let mut variables = vec![("messages".to_owned(), Json::List(all))];
    if begun {
        variables.push(("continue_final_message".to_owned(), Json::Bool(true)));
    }
    let text = serde_json::to_string(&Json::Object(variables));
    text.map_err(|e| ApiError::invalid(format!("the conversation is no JSON: {e}")))
}

/// A text, or a list of blocks of text.
fn text(content: &Json, at: &str) -> Result<String, ApiError> {
    match content {
        Json::String(text) => Ok(text.clone()),
        Json::List(blocks) => joined(blocks, "blocks", at),
        other => Err(ApiError::of_param(at, format!("`{at}` is {}: give a text", other.kind()))),
    }
}

/// An answer under way.
struct Message {
    id: String,
    model: String,
    /// The text that ends the answer, where there is one only.
    stop: Option<String>,
    /// Tokens of the prompt.
    input: usize,
    /// Held until the reply is sent.
    _busy: Busy,
}

impl Message {
    /// The document, when the answer has ended.
    async fn whole(self, mut job: Job) -> Result<Response, ApiError> {
        let (mut text, mut finish, mut last) = (String::new(), None, None);
        while let Some(next) = job.next().await {
            let (_, event) = next?;
            checked(&event)?;
            text.push_str(&event.text);
            finish = event.finish.or(finish);
            last = event.end.or(last);
        }
        let (reason, stop) = self.reason(finish);
        let content = json!([{ "type": "text", "text": text }]);
        let mut document = self.document(content, self.usage(last.as_ref()));
        (document["stop_reason"], document["stop_sequence"]) = (reason.into(), stop.into());
        Ok(answer(StatusCode::OK, &document))
    }

    fn document(&self, content: Value, usage: Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        })
    }

    /// Counts of tokens; without an end, as it begins.
    fn usage(&self, end: Option<&End>) -> Value {
        let (reused, generated) = end.map_or((0, 0), |end| (end.reused_tokens, end.generated_tokens));
        json!({
            "input_tokens": self.input as u64 - reused.min(self.input as u64), "output_tokens": generated,
            "cache_read_input_tokens": reused, "cache_creation_input_tokens": 0,
        })
    }

    /// The reason of an end, and the text that ended it, if it is known.
    fn reason(&self, finish: Option<Finish>) -> (&'static str, Option<&str>) {
        match finish {
            Some(Finish::Text) => ("stop_sequence", self.stop.as_deref()),
            Some(Finish::Length) => ("max_tokens", None),
            Some(Finish::Context) => ("model_context_window_exceeded", None),
            _ => ("end_turn", None),
        }
    }
}

/// Fails for the end of a request that failed.
fn checked(event: &Event) -> Result<(), ApiError> {
    let error = event.end.as_ref().and_then(|end| end.error.clone());
    error.map_or(Ok(()), |error| Err(error.into()))
}

fn named(document: &Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {document}\n\n", document["type"].as_str().unwrap_or_default()))
}

impl Script for Message {
    fn open(&mut self) -> Vec<Bytes> {
        let message = self.document(json!([]), self.usage(None));
        let block = json!({ "type": "text", "text": "" });
        vec![
            named(&json!({ "type": "message_start", "message": message })),
            named(&json!({ "type": "content_block_start", "index": 0, "content_block": block })),
        ]
    }

    fn take(&mut self, _: usize, event: &Event) -> Result<Vec<Bytes>, ApiError> {
        checked(event)?;
        let mut out = vec![];
        if !event.text.is_empty() {
            let delta = json!({ "type": "text_delta", "text": event.text });
            out.push(named(&json!({ "type": "content_block_delta", "index": 0, "delta": delta })));
        }
        if let Some(end) = &event.end {
            let (reason, stop) = self.reason(event.finish);
            let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
            out.push(named(&json!({ "type": "content_block_stop", "index": 0 })));
            out.push(named(&json!({ "type": "message_delta", "delta": delta, "usage": self.usage(Some(end)) })));
        }
        Ok(out)
    }

    fn end(&mut self, failed: Option<&ApiError>) -> Vec<Bytes> {
        vec![named(&failed.map_or_else(|| json!({ "type": "message_stop" }), failure))]
    }
}
