//! `POST /v1/completions`: texts that go on from prompts.

use crate::app::{App, blocking};
use crate::ask::{Ask, MOST_CHOICES, MOST_TOP, token_ids};
use crate::error::{ApiError, answer};
use crate::fill::gap;
use crate::hub::Order;
use crate::logprobs::{Entry, by_ids, of_prompt};
use crate::model::Model;
use crate::prompts::{Prompt, check_length, prompts, send};
use crate::served::Served;
use crate::shape::{Kind, Part, Shape};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tokens of a text that neither the client nor the model limits; OpenAI's.
const USUAL_TOKENS: u64 = 16;

/// Answers `POST /v1/completions`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    let echo = fields.take("echo")?.unwrap_or(false);
    // Without any new token there is the prompt, as lm-evaluation-harness asks for it.
    let prompt_only = echo && fields.take_zero("max_tokens");
    let token_ids = token_ids(&mut fields)?;
    let mut ask = Ask::take(&mut fields, &headers, facts, USUAL_TOKENS)?;
    let logprobs = fields.count("logprobs", 0, MOST_TOP)?.and_then(|n| u32::try_from(n).ok());
    ask.params.logprobs = logprobs;
    let prompt_logprobs = fields.count("prompt_logprobs", 0, MOST_TOP)?.and_then(|n| u32::try_from(n).ok());
    let how = How {
        echo,
        special: fields.take("add_special_tokens")?.unwrap_or(true),
        suffix: fields.take::<String>("suffix")?.filter(|suffix| !suffix.is_empty()),
    };
    let prompts = prompts(&mut fields, "prompt", facts.vocab)?;
    fields.finish()?;
    if prompts.len() * ask.choices > MOST_CHOICES {
        let message =
            format!("{} prompts with {} choices each: ask for up to {MOST_CHOICES}", prompts.len(), ask.choices);
        return Err(ApiError::of_param("n", message));
    }
    if prompt_only && ask.stream {
        return Err(ApiError::of_param("max_tokens", "`max_tokens` of 0 leaves nothing to stream: give at least 1"));
    }
    if prompt_logprobs.is_some() && ask.stream {
        return Err(ApiError::of_param("prompt_logprobs", "`prompt_logprobs` are not streamed: set `stream` to false"));
    }
    let own = served.clone();
    let (rows, echoes) = blocking(move || how.read(own.hub.model(), prompts)).await?;
    let mut shape = Shape::new(Kind::Completion, &served, logprobs, of_choices(echoes, ask.choices));
    shape.token_ids = token_ids;
    let echoed = logprobs.filter(|_| echo);
    if echoed.is_some() || prompt_logprobs.is_some() {
        let (entries, prompts) = judged(&served, rows.clone(), echoed, prompt_logprobs).await?;
        (shape.echoed, shape.prompts) = (of_choices(entries, ask.choices), of_choices(prompts, ask.choices));
    }
    if prompt_only {
        return Ok(without_text(&shape, &rows, ask.choices));
    }
    let each = |row: &Arc<[Token]>| -> Vec<Order> {
        let order = |i| Order { prompt: row.clone(), params: ask.of_choice(i), terms: ask.terms };
        (0..ask.choices).map(order).collect()
    };
    let orders: Vec<Order> = rows.iter().flat_map(each).collect();
    send(&served, orders, ask, shape, busy).await
}

/// A value for each choice, of values for prompts.
fn of_choices<T: Clone>(of_prompts: Vec<T>, choices: usize) -> Vec<T> {
    of_prompts.into_iter().flat_map(|one| std::iter::repeat_n(one, choices)).collect()
}

/// Tokens of prompts with their log-probabilities, one request at a time: for completions that begin with them, and as
/// vLLM has them, each where it is wanted with so many alternatives.
#[allow(clippy::type_complexity)]
async fn judged(
    served: &Arc<Served>,
    rows: Vec<Arc<[Token]>>,
    echoed: Option<u32>,
    apart: Option<u32>,
) -> Result<(Vec<Arc<[Entry]>>, Vec<Value>), ApiError> {
    let own = served.clone();
    // (Never closed.)
    let _turn = served.embeds.acquire().await.ok();
    blocking(move || {
        let model = own.hub.model();
        let (mut entries, mut documents) = (vec![], vec![]);
        for row in rows {
            let rest = model.judge(&row, echoed.max(apart).unwrap_or(0) as usize)?;
            entries.extend(echoed.map(|n| Arc::from(of_prompt(model, &row, &rest, n))));
            documents.extend(apart.map(|n| by_ids(model, &rest, n)));
        }
        Ok((entries, documents))
    })
    .await
}

/// The document of prompts alone.
fn without_text(shape: &Shape, rows: &[Arc<[Token]>], choices: usize) -> Response {
    let part = |choice| shape.choice(&Part { choice, finish: Some("length"), ..Part::default() });
    let mut document = shape.document((0..rows.len() * choices).map(part).collect(), false, None);
    let tokens: usize = rows.iter().map(|row| row.len()).sum();
    document["usage"] = json!({ "prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens });
    answer(StatusCode::OK, &document)
}

/// How prompts are read.
struct How {
    echo: bool,
    special: bool,
    /// Text after the gap that is to be filled.
    suffix: Option<String>,
}

impl How {
    /// Tokens of prompts, and their texts where these are wanted.
    #[allow(clippy::type_complexity)]
    fn read(&self, model: &dyn Model, prompts: Vec<Prompt>) -> Result<(Vec<Arc<[Token]>>, Vec<String>), ApiError> {
        let (mut rows, mut echoes) = (vec![], vec![]);
        for prompt in prompts {
            let (row, text) = match (prompt, &self.suffix) {
                (Prompt::Text(text), None) => (model.tokenize(&text, self.special)?, text),
                (Prompt::Text(text), Some(suffix)) => (gap(model, &text, suffix, self.special)?, text),
                (Prompt::Tokens(_), Some(_)) => {
                    return Err(ApiError::of_param("suffix", "`suffix` needs prompts that are texts"));
                }
                (Prompt::Tokens(row), None) => {
                    let text = if self.echo { model.detokenize(&row, false)? } else { String::new() };
                    (row, text)
                }
            };
            check_length(model.facts(), row.len(), "prompt")?;
            rows.push(Arc::from(row));
            if self.echo {
                echoes.push(text);
            }
        }
        Ok((rows, echoes))
    }
}
