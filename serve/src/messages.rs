//! `POST /v1/messages`: answers in conversations, in Anthropic's interface.

mod blocks;
mod given;

use crate::app::{App, Busy, blocking};
use crate::ask::{Ask, unforeseen};
use crate::count::counted;
use crate::defaults::special;
use crate::error::{ApiError, answer};
use crate::fields::Fields;
use crate::hub::{Hub, Job, Order};
use crate::json::Json;
use crate::plan::Reader;
use crate::prompts::expect;
use crate::stream::{Script, stream};
use crate::turn::planned;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use blocks::Blocks;
use llmcc_model::{End, Event, Finish};
use llmcc_turns::Event as Piece;
use serde_json::{Value, json};
use std::sync::Arc;

/// Members of OpenAI's requests that Anthropic's have not.
const FOREIGN: &[&str] = &["max_completion_tokens", "n", "stop", "stream_options", "presence_penalty"];

/// Answers `POST /v1/messages`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Response {
    answered(&app, request).await.unwrap_or_else(failed)
}

/// An error in Anthropic's shape.
fn failed(error: ApiError) -> Response {
    let status = error.status;
    let document = failure(&error);
    // Headers are the same in both interfaces.
    let (head, _) = error.into_response().into_parts();
    let mut response = answer(status, &document);
    *response.headers_mut() = head.headers;
    response
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
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    refuse_unsupported(&mut fields)?;
    let stops: Vec<String> = fields.take("stop_sequences")?.unwrap_or_default();
    if stops.iter().any(|text| text.is_empty() || text.contains('\0')) {
        let message = "a text of `stop_sequences` is empty or contains a NUL";
        return Err(ApiError::of_param("stop_sequences", message));
    }
    output_config(&mut fields)?;
    let mut ask = Ask::take(&mut fields, &headers, facts, 0)?;
    if ask.params.max_tokens == 0 {
        return Err(ApiError::missing("max_tokens"));
    }
    ask.params.stop = stops;
    let talk = given::talk(&mut fields, facts.turns.arguments_text)?;
    fields.finish()?;
    let (prompt, plan, ask) = planned(&served, talk, ask, (special(facts), true)).await?;
    let stop = if ask.params.stop.len() == 1 { ask.params.stop.first().cloned() } else { None };
    let mut order = Order { prompt, params: ask.params, terms: ask.terms };
    expect(std::slice::from_mut(&mut order), ask.expected)?;
    let input = order.prompt.len();
    let hub = served.hub.clone();
    let job = blocking(move || hub.submit(&[order])).await?;
    let (id, reader) = (format!("msg_{:016x}", unforeseen()), plan.map(|plan| plan.reader(0, "toolu")));
    let (model, hub) = (served.name.clone(), served.hub.clone());
    let message = Message { id, model, stop, input, hub, reader, blocks: Blocks::default(), _busy: busy };
    if ask.stream { Ok(stream(&served, job, message, ask.traced)) } else { message.whole(job).await }
}

/// Answers `POST /v1/messages/count_tokens`.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request) -> Response {
    counted_tokens(&app, request).await.unwrap_or_else(failed)
}

async fn counted_tokens(app: &Arc<App>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    // (Members that say how an answer is generated add no tokens.)
    let _ = fields.json("stop_sequences");
    refuse_unsupported(&mut fields)?;
    output_config(&mut fields)?;
    Ask::take(&mut fields, &headers, facts, 0)?;
    let talk = given::talk(&mut fields, facts.turns.arguments_text)?;
    fields.finish()?;
    counted(&served, talk, special(facts)).await
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    FOREIGN.iter().try_for_each(|name| fields.only(name, &[]))?;
    for (name, values) in [("mcp_servers", &["[]"][..]), ("container", &[]), ("speed", &["\"standard\""])] {
        fields.only(name, values)?;
    }
    // Where an answer is made, for whom, and which parts of the prompt are kept change nothing in it.
    for name in ["cache_control", "inference_geo", "user_profile_id", "workspace_id"] {
        drop(fields.json(name));
    }
    Ok(())
}

/// Takes `output_config`: form and effort of the answer go to where other interfaces have them.
fn output_config(fields: &mut Fields) -> Result<(), ApiError> {
    const NAME: &str = "output_config";
    let Some(given) = fields.json(NAME) else { return Ok(()) };
    let mut members = Fields::of_json(given, NAME)?;
    if let Some(effort) = members.json("effort") {
        fields.put("reasoning_effort", effort);
    }
    if let Some(format) = members.json("format") {
        let at = "output_config.format";
        let mut format = Fields::of_json(format, at)?;
        if format.take::<String>("type")?.as_deref() != Some("json_schema") {
            return Err(ApiError::of_param(at, format!("`{at}.type` is not \"json_schema\"")));
        }
        let schema = format.json("schema").ok_or_else(|| ApiError::missing(&format!("{at}.schema")))?;
        format.finish()?;
        let named = vec![("name".to_owned(), Json::String("answer".into())), ("schema".to_owned(), schema)];
        let form = [("type", Json::String("json_schema".into())), ("json_schema", Json::Object(named))];
        fields.put("response_format", Json::Object(form.map(|(name, value)| (name.to_owned(), value)).into()));
    }
    members.finish()
}

/// An answer under way.
struct Message {
    id: String,
    model: String,
    /// The text that ends the answer, where there is one only.
    stop: Option<String>,
    /// Tokens of the prompt.
    input: usize,
    hub: Arc<Hub>,
    /// `None`: the text is the answer.
    reader: Option<Reader>,
    blocks: Blocks,
    /// Held until the reply is sent.
    _busy: Busy,
}

impl Message {
    /// The document, when the answer has ended.
    async fn whole(mut self, mut job: Job) -> Result<Response, ApiError> {
        let (mut finish, mut last) = (None, None);
        while let Some(next) = job.next().await {
            let (_, event) = next?;
            checked(&event)?;
            self.told(&event);
            finish = event.finish.or(finish);
            last = event.end.or(last);
        }
        let content = std::mem::take(&mut self.blocks).whole().into();
        let (reason, stop) = self.reason(finish);
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

    /// Takes an event of the engine. Returns the events that tell it.
    fn told(&mut self, event: &Event) -> Vec<Value> {
        let pieces = match &mut self.reader {
            Some(reader) => reader.take(event, self.hub.model()),
            None if event.text.is_empty() => vec![],
            None => vec![Piece::Text(event.text.clone())],
        };
        pieces.into_iter().flat_map(|piece| self.blocks.take(piece)).collect()
    }

    /// The reason of an end, and the text that ended it, if it is known.
    fn reason(&self, finish: Option<Finish>) -> (&'static str, Option<&str>) {
        match finish {
            Some(Finish::Text) => ("stop_sequence", self.stop.as_deref()),
            Some(Finish::Length) => ("max_tokens", None),
            Some(Finish::Context) => ("model_context_window_exceeded", None),
            _ if self.reader.as_ref().is_some_and(Reader::has_calls) => ("tool_use", None),
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
        vec![named(&json!({ "type": "message_start", "message": message }))]
    }

    fn take(&mut self, _: usize, event: &Event) -> Result<Vec<Bytes>, ApiError> {
        checked(event)?;
        let mut out: Vec<Bytes> = self.told(event).iter().map(named).collect();
        if let Some(end) = &event.end {
            out.extend(self.blocks.end().iter().map(named));
            let (reason, stop) = self.reason(event.finish);
            let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
            out.push(named(&json!({ "type": "message_delta", "delta": delta, "usage": self.usage(Some(end)) })));
        }
        Ok(out)
    }

    fn end(&mut self, failed: Option<&ApiError>) -> Vec<Bytes> {
        vec![named(&failed.map_or_else(|| json!({ "type": "message_stop" }), failure))]
    }
}
