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
use crate::plan::{Plan, Reader};
use crate::prompts::expect;
use crate::responses::answer::{Answer, conversation_of};
use crate::responses::birth::Birth;
use crate::responses::follow::{Guard, ended, follow};
use crate::responses::messages::messages;
use crate::responses::request::Wanted;
use crate::responses::store::Owner;
use crate::served::Served;
use crate::stream::trace;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use llmcc_turns::Event as Piece;
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
    let birth = Birth::of(&headers, wanted.ask.traced && wanted.ask.stream)?;
    let (traced, stream, logprobs) = (birth.traced, wanted.ask.stream, wanted.ask.params.logprobs);
    let talk = Talk::new(&mut wanted, &history);
    let (own, toolbox, mut params) = (served.clone(), wanted.toolbox, wanted.ask.params);
    let (order, reader) = blocking(move || {
        let model = own.hub.model();
        let (text, tokens) = talk.prompt(model)?;
        let plan = Plan::new(model, &toolbox, &text, &mut params, true)?;
        let mut order = Order { prompt: tokens.into(), params, terms: wanted.ask.terms };
        expect(std::slice::from_mut(&mut order), wanted.ask.expected)?;
        Ok((order, plan.map(|plan| plan.reader(0, "call"))))
    })
    .await?;
    let hub = served.hub.clone();
    let job = blocking(move || hub.submit(&[order])).await?;
    let sum = if store { app.responses.sum() } else { Arc::new(AtomicUsize::new(0)) };
    let answer = Arc::new(Answer::new(birth, wanted.echoed, wanted.input, history, sum));
    if store {
        app.responses.keep(owner, &answer)?;
    }
    let fingerprint = served.fingerprint.clone();
    let turn = Turn { served, reader, logprobs };
    let worker = tokio::spawn(run(app.clone(), answer.clone(), job, turn, busy));
    answer.set_worker(worker.abort_handle());
    // Whoever created an answer is the only one to wait for it, unless it is in the background.
    let guard = (!answer.background).then(|| Guard(answer.clone()));
    if stream {
        let mut response = follow(answer, 0, guard);
        if traced {
            trace(&mut response, &fingerprint);
        }
        return Ok(response);
    }
    if guard.is_some() {
        ended(&answer).await;
        if let Some(error) = answer.error() {
            return Err(error);
        }
    }
    Ok(document(StatusCode::OK, &answer.document()))
}

/// How the events of an answer become items.
struct Turn {
    served: Arc<Served>,
    /// `None`: the text is the answer.
    reader: Option<Reader>,
    /// Alternatives of each token, if log-probabilities are wanted.
    logprobs: Option<u32>,
}

/// Takes the events of an answer until it has ended.
async fn run(app: Arc<App>, answer: Arc<Answer>, mut job: Job, mut turn: Turn, _busy: Busy) {
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
        let model = turn.served.hub.model();
        let entry = turn.logprobs.and_then(|n| Entry::of(&event, n, model));
        let pieces = match &mut turn.reader {
            Some(reader) => reader.take(&event, model),
            None => vec![Piece::Text(event.text.clone())],
        };
        answer.add(pieces, event.token, entry);
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
    let (_, tokens) = blocking(move || talk.prompt(served.hub.model())).await?;
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

    /// Its prompt, and the tokens of that. Where it is too long and may be truncated, as few of its oldest messages as
    /// possible are left out: it begins with a message of the user's then.
    ///
    /// # Errors
    /// The template refuses it; it is too long.
    fn prompt(&self, model: &dyn Model) -> Result<(String, Vec<Token>), ApiError> {
        let too_long = |error: &ApiError| error.code == Some("context_length_exceeded");
        let error = match self.prompt_from(0, model) {
            Err(error) if self.truncate && too_long(&error) => error,
            other => return other,
        };
        let mut places: Vec<usize> = (1..self.items.len()).filter(|i| self.items[*i]["role"] == "user").collect();
        let mut found = Err(error);
        // Prompts from later places are shorter.
        while let Some(middle) = places.get(places.len() / 2).copied() {
            match self.prompt_from(middle, model) {
                Ok(prompt) => {
                    found = Ok(prompt);
                    places.retain(|place| *place < middle);
                }
                Err(error) if too_long(&error) => places.retain(|place| *place > middle),
                Err(error) => return Err(error),
            }
        }
        found
    }

    fn prompt_from(&self, first: usize, model: &dyn Model) -> Result<(String, Vec<Token>), ApiError> {
        let kept = |item: &&Value| item["role"] == "system" || item["role"] == "developer";
        let items = self.items[..first].iter().filter(kept).chain(&self.items[first..]);
        let mut members = vec![("messages".to_owned(), messages(self.instructions.as_deref(), items))];
        members.extend(self.variables.iter().cloned());
        let mut fields = Fields::of(members)?;
        let conversation = conversation(&mut fields, model.facts())?;
        fields.finish()?;
        prompt(model, &conversation, special(model.facts())).map_err(|error| match error.param.as_deref() {
            Some("messages") => error.about("input"),
            _ => error,
        })
    }
}
