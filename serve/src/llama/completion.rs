//! `POST /completion`: texts that go on from prompts.

use crate::app::{App, Busy, blocking};
use crate::ask::MOST_CHOICES;
use crate::error::{ApiError, answer, llama};
use crate::hub::{Hub, Job, Order};
use crate::llama::given::{Given, texts};
use crate::llama::native::Native;
use crate::llama::probs::entry;
use crate::llama::shown::{Told, whole};
use crate::prompts::{check_length, expect};
use crate::served::Served;
use crate::stream::{Script, stream};
use crate::timings::Timings;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::{Event, Token};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Answers `POST /completion`.
pub(crate) async fn completion(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let own = served.clone();
    let (native, prompts) = blocking(move || {
        let model = own.hub.model();
        let given = texts(&mut fields, "prompt", model.facts().vocab)?;
        let native = Native::take(&mut fields, &headers, model)?;
        fields.finish()?;
        let prompts = given.iter().map(|given| Prompt::new(given, &own)).collect::<Result<Vec<_>, _>>()?;
        Ok((native, prompts))
    })
    .await?;
    send(&served, native, prompts, busy).await
}

/// A prompt with its text.
pub(crate) struct Prompt {
    pub(crate) tokens: Arc<[Token]>,
    /// With special tokens by their names.
    pub(crate) text: String,
}

impl Prompt {
    fn new(given: &Given, served: &Served) -> Result<Prompt, ApiError> {
        let model = served.hub.model();
        Prompt::of(given.tokens(model, true)?, served)
    }

    /// A prompt of tokens.
    ///
    /// # Errors
    /// It is empty, or too long.
    pub(crate) fn of(tokens: Vec<Token>, served: &Served) -> Result<Prompt, ApiError> {
        let model = served.hub.model();
        check_length(model.facts(), tokens.len(), "prompt")?;
        let text = model.detokenize(&tokens, true)?;
        Ok(Prompt { tokens: tokens.into(), text })
    }
}

/// Hands prompts to the engine, and replies.
///
/// # Errors
/// Too many texts; the engine refuses one, or one failed before a document was sent.
pub(crate) async fn send(
    served: &Arc<Served>,
    mut native: Native,
    prompts: Vec<Prompt>,
    busy: Busy,
) -> Result<Response, ApiError> {
    let each = native.ask.choices;
    if prompts.len() * each > MOST_CHOICES {
        let message = format!("{} prompts with {each} texts each: ask for up to {MOST_CHOICES}", prompts.len());
        return Err(ApiError::of_param("n_cmpl", message));
    }
    if native.prompt_only {
        // The engine computes a prompt for a token after it.
        native.ask.params.max_tokens = 1;
    }
    let order = |prompt: &Prompt, i| Order {
        prompt: prompt.tokens.clone(),
        params: native.ask.of_choice(i),
        terms: native.ask.terms,
    };
    let mut orders: Vec<Order> = prompts.iter().flat_map(|p| (0..each).map(move |i| order(p, i))).collect();
    expect(&mut orders, std::mem::take(&mut native.ask.expected))?;
    let (hub, count) = (served.hub.clone(), orders.len());
    let job = blocking(move || hub.submit(&orders)).await?;
    let texts = (0..count).map(|index| Text { told: Told { index, ..Told::default() }, ..Text::default() }).collect();
    let name = served.name.clone();
    let reply = Reply { hub: served.hub.clone(), native, prompts, texts, name, _busy: busy };
    let traced = reply.native.ask.traced;
    if reply.native.ask.stream { Ok(stream(served, job, reply, traced)) } else { reply.whole(job).await }
}

/// A text under way.
#[derive(Default)]
struct Text {
    told: Told,
    /// When its first token came.
    first: Option<Instant>,
}

/// Texts under way.
struct Reply {
    hub: Arc<Hub>,
    native: Native,
    prompts: Vec<Prompt>,
    texts: Vec<Text>,
    /// The model's.
    name: String,
    /// Held until the reply is sent.
    _busy: Busy,
}

impl Reply {
    /// The document, when all texts have ended; a list where there are several.
    async fn whole(mut self, mut job: Job) -> Result<Response, ApiError> {
        while let Some(next) = job.next().await {
            let (index, event) = next?;
            self.note(index, &event)?;
        }
        let mut all: Vec<Value> = (0..self.texts.len()).map(|index| self.document(index)).collect();
        let single = if all.len() > 1 { None } else { all.pop() };
        Ok(answer(StatusCode::OK, &single.unwrap_or_else(|| all.into())))
    }

    /// Joins an event to its text. Returns its token with its probability, if these are wanted.
    ///
    /// # Errors
    /// The text failed.
    fn note(&mut self, index: usize, event: &Event) -> Result<Option<Value>, ApiError> {
        if let Some(error) = event.end.as_ref().and_then(|end| end.error.clone()) {
            return Err(error.into());
        }
        let found = entry(event, &self.native, self.hub.model());
        let Some(text) = self.texts.get_mut(index) else { return Ok(None) };
        let told = &mut text.told;
        if !self.native.prompt_only {
            told.text += &event.text;
            told.tokens.extend(event.token);
            told.entries.extend(found.clone());
            if event.token.is_some() {
                text.first.get_or_insert_with(Instant::now);
            }
        }
        told.finish = event.finish.or(told.finish);
        told.end = event.end.clone().or(told.end.take());
        if let (true, Some(end)) = (self.native.prompt_only, &mut told.end) {
            (end.generated_tokens, end.total) = (0, end.first_token);
        }
        Ok(found)
    }

    fn prompt(&self, index: usize) -> Option<&Prompt> {
        self.prompts.get(index / self.native.ask.choices.max(1))
    }

    fn document(&self, index: usize) -> Value {
        let Some(text) = self.texts.get(index) else { return Value::Null };
        let prompt = self.prompt(index).map_or("", |prompt| prompt.text.as_str());
        whole(&text.told, &self.native, self.hub.model().facts(), (&self.name, prompt))
    }

    /// A piece of a stream.
    fn piece(&self, index: usize, event: &Event, found: Option<Value>) -> Value {
        let Some(text) = self.texts.get(index) else { return Value::Null };
        let (made, evaluated) = (text.told.tokens.len(), self.prompt(index).map_or(0, |prompt| prompt.tokens.len()));
        let mut piece = json!({
            "index": index, "content": event.text, "tokens": event.token.into_iter().collect::<Vec<Token>>(),
            "stop": false, "tokens_predicted": made, "tokens_evaluated": evaluated,
        });
        if let Some(found) = found {
            piece["completion_probabilities"] = json!([found]);
        }
        if self.native.ask.timings {
            // (The engine says at the end what the prompt took.)
            let decode = text.first.map(|first| first.elapsed()).unwrap_or_default();
            let times = Timings { computed: evaluated as u64, generated: made as u64, decode, ..Timings::default() };
            piece["timings"] = times.json();
        }
        piece
    }
}

fn data(document: &Value) -> Bytes {
    Bytes::from(format!("data: {document}\n\n"))
}

impl Script for Reply {
    fn open(&mut self) -> Vec<Bytes> {
        vec![]
    }

    fn take(&mut self, index: usize, event: &Event) -> Result<Vec<Bytes>, ApiError> {
        let found = self.note(index, event)?;
        let mut out = vec![];
        if event.token.is_some() && !self.native.prompt_only {
            out.push(data(&self.piece(index, event, found)));
        }
        if event.end.is_some() {
            if let Some(text) = self.texts.get_mut(index) {
                // Its pieces have been sent.
                text.told.entries.clear();
            }
            let mut last = self.document(index);
            if let Some(content) = last.get_mut("content") {
                *content = "".into();
            }
            out.push(data(&last));
        }
        Ok(out)
    }

    fn end(&mut self, failed: Option<&ApiError>) -> Vec<Bytes> {
        failed.map(|error| data(&llama(error))).into_iter().collect()
    }
}
