//! `POST /v1/responses`: creates an answer, and gives it whole, as a stream, or lets it grow in the background.

use crate::app::{App, Busy, blocking};
use crate::conversation::{conversation, prompt};
use crate::defaults::special;
use crate::error::{ApiError, answer as document};
use crate::fields::Fields;
use crate::hub::{Job, Order};
use crate::json::Json;
use crate::logprobs::Entry;
use crate::model::Model;
use crate::prompts::expect;
use crate::responses::answer::{Answer, conversation_of};
use crate::responses::follow::{Guard, ended, follow};
use crate::responses::items::messages;
use crate::responses::request::Wanted;
use crate::responses::store::Owner;
use crate::served::Served;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Answers `POST /v1/responses`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let owner = app.owner(request.headers());
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let mut wanted = Wanted::take(&mut fields, &headers, served.hub.model().facts())?;
    fields.finish()?;
    let history = history(&app, &wanted, owner)?;
    let store = stores(&app, &wanted)?;
    wanted.echoed.extend([("model".to_owned(), json!(served.name)), ("store".to_owned(), json!(store))]);
    let talk = Talk::new(&mut wanted, &history);
    let own = served.clone();
    let prompt = blocking(move || talk.tokens(own.hub.model())).await?;
    let (stream, logprobs) = (wanted.ask.stream, wanted.ask.params.logprobs);
    let mut order = Order { prompt: prompt.into(), params: wanted.ask.params, terms: wanted.ask.terms };
    expect(std::slice::from_mut(&mut order), wanted.ask.expected)?;
    let hub = served.hub.clone();
    let job = blocking(move || hub.submit(&[order])).await?;
    let sum = if store { app.responses.sum() } else { Arc::new(AtomicUsize::new(0)) };
    let answer = Arc::new(Answer::new(wanted.echoed, wanted.input, history, sum));
    if store {
        app.responses.keep(owner, answer.clone());
    }
    let worker = tokio::spawn(run(app.clone(), answer.clone(), job, served, logprobs, busy));
    answer.set_worker(worker.abort_handle());
    // Whoever created an answer is the only one to wait for it, unless it is in the background.
    let guard = (!answer.background).then(|| Guard(answer.clone()));
    if stream {
        return Ok(follow(answer, 0, guard));
    }
    if guard.is_some() {
        ended(&answer).await;
        if let Some(error) = answer.error() {
            return Err(error);
        }
    }
    Ok(document(StatusCode::OK, &answer.document()))
}

/// Takes the events of an answer until it has ended.
async fn run(
    app: Arc<App>,
    answer: Arc<Answer>,
    mut job: Job,
    served: Arc<Served>,
    logprobs: Option<u32>,
    _busy: Busy,
) {
    while let Some(next) = job.next().await {
        let event = match next {
            Ok((_, event)) => event,
            Err(error) => {
                answer.fail(error);
                break;
            }
        };
        if let Some(error) = event.end.as_ref().and_then(|end| end.error.clone()) {
            answer.fail(error.into());
            break;
        }
        let entry = logprobs.and_then(|n| Entry::of(&event, n, served.hub.model()));
        answer.add(&event.text, entry);
        if let Some(end) = &event.end {
            answer.finish(event.finish, end);
        }
    }
    app.responses.trim();
}

/// The answers that a request goes on from, the oldest first.
fn history(app: &App, wanted: &Wanted, owner: Owner) -> Result<Vec<Arc<Answer>>, ApiError> {
    const NAME: &str = "previous_response_id";
    let Some(id) = &wanted.previous else { return Ok(vec![]) };
    let previous = app.responses.get(id, owner, NAME)?;
    if !previous.has_text() {
        let message = format!("`{NAME}`: the response `{id}` has not ended with a text, and cannot be gone on from");
        return Err(ApiError::of_param(NAME, message));
    }
    let mut all = previous.history.clone();
    all.push(previous);
    Ok(all)
}

/// Whether an answer is kept.
fn stores(app: &App, wanted: &Wanted) -> Result<bool, ApiError> {
    let can = app.responses.most > 0;
    let param = if wanted.background { "background" } else { "store" };
    if !can && (wanted.store == Some(true) || wanted.background) {
        let message = format!("`{param}`: this server keeps no responses: start it with --stored-responses");
        return Err(ApiError::of_param(param, message).code("unsupported_parameter"));
    }
    Ok(wanted.store.unwrap_or(can))
}

/// Answers `POST /v1/responses/input_tokens`: tokens of a conversation that is not answered.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let owner = app.owner(request.headers());
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let mut wanted = Wanted::take(&mut fields, &headers, served.hub.model().facts())?;
    fields.finish()?;
    let history = history(&app, &wanted, owner)?;
    let talk = Talk::new(&mut wanted, &history);
    let tokens = blocking(move || talk.tokens(served.hub.model())).await?;
    Ok(document(StatusCode::OK, &json!({ "object": "response.input_tokens", "input_tokens": tokens.len() })))
}

/// A conversation whose prompt is wanted.
struct Talk {
    instructions: Option<String>,
    items: Vec<Value>,
    variables: Vec<(String, Json)>,
    truncate: bool,
}

impl Talk {
    fn new(wanted: &mut Wanted, history: &[Arc<Answer>]) -> Talk {
        let items = conversation_of(history, &wanted.input);
        let variables = std::mem::take(&mut wanted.variables);
        Talk { instructions: wanted.instructions.clone(), items, variables, truncate: wanted.truncate }
    }

    /// Tokens of its prompt. Where it is too long and may be truncated, as few of its oldest messages as possible are
    /// left out: it begins with a message of the user's then.
    ///
    /// # Errors
    /// The template refuses it; it is too long.
    fn tokens(&self, model: &dyn Model) -> Result<Vec<Token>, ApiError> {
        let too_long = |error: &ApiError| error.code == Some("context_length_exceeded");
        let error = match self.tokens_from(0, model) {
            Err(error) if self.truncate && too_long(&error) => error,
            other => return other,
        };
        let mut places: Vec<usize> = (1..self.items.len()).filter(|i| self.items[*i]["role"] == "user").collect();
        let mut found = Err(error);
        // Prompts from later places are shorter.
        while let Some(middle) = places.get(places.len() / 2).copied() {
            match self.tokens_from(middle, model) {
                Ok(tokens) => {
                    found = Ok(tokens);
                    places.retain(|place| *place < middle);
                }
                Err(error) if too_long(&error) => places.retain(|place| *place > middle),
                Err(error) => return Err(error),
            }
        }
        found
    }

    fn tokens_from(&self, first: usize, model: &dyn Model) -> Result<Vec<Token>, ApiError> {
        let kept = |item: &&Value| item["role"] == "system" || item["role"] == "developer";
        let items = self.items[..first].iter().filter(kept).chain(&self.items[first..]);
        let mut members = vec![("messages".to_owned(), messages(self.instructions.as_deref(), items))];
        members.extend(self.variables.iter().cloned());
        let mut fields = Fields::of(members)?;
        let conversation = conversation(&mut fields, model.facts())?;
        fields.finish()?;
        prompt(model, &conversation, special(model.facts())).map(|(_, tokens)| tokens).map_err(|error| {
            match error.param.as_deref() {
                Some("messages") => error.about("input"),
                _ => error,
            }
        })
    }
}
