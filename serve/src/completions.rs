//! `POST /v1/completions`: texts that go on from prompts.

use crate::app::{App, blocking};
use crate::ask::{Ask, MOST_CHOICES, MOST_TOP};
use crate::error::ApiError;
use crate::hub::Order;
use crate::model::Model;
use crate::prompts::{Prompt, check_length, prompts, send};
use crate::shape::{Kind, Shape};
use axum::extract::{Request, State};
use axum::response::Response;
use llmcc_model::Token;
use std::sync::Arc;

/// Tokens of a text that neither the client nor the model limits; OpenAI's.
const USUAL_TOKENS: u64 = 16;

/// Answers `POST /v1/completions`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let (app, name) = app.choose(&mut fields)?;
    let facts = app.hub.model().facts();
    let mut ask = Ask::take(&mut fields, &headers, facts, USUAL_TOKENS)?;
    let logprobs = fields.count("logprobs", 0, MOST_TOP)?.and_then(|n| u32::try_from(n).ok());
    ask.params.logprobs = logprobs;
    let echo = fields.take("echo")?.unwrap_or(false);
    if echo && logprobs.is_some() {
        let message = "`echo` with `logprobs` is not supported: tokens of the prompt have no log-probabilities here";
        return Err(ApiError::of_param("echo", message).code("unsupported_parameter"));
    }
    fields.only("suffix", &["\"\""])?;
    let special = fields.take("add_special_tokens")?.unwrap_or(true);
    let prompts = prompts(&mut fields, "prompt", facts.vocab)?;
    fields.finish()?;
    if prompts.len() * ask.choices > MOST_CHOICES {
        let message =
            format!("{} prompts with {} choices each: ask for up to {MOST_CHOICES}", prompts.len(), ask.choices);
        return Err(ApiError::of_param("n", message));
    }
    let own = app.clone();
    let (rows, echoes) = blocking(move || read(own.hub.model(), prompts, special, echo)).await?;
    let each = |row: &Arc<[Token]>| -> Vec<Order> {
        let order = |i| Order { prompt: row.clone(), params: ask.of_choice(i), terms: ask.terms };
        (0..ask.choices).map(order).collect()
    };
    let orders: Vec<Order> = rows.iter().flat_map(each).collect();
    let echo = echoes.iter().flat_map(|text| std::iter::repeat_n(text.clone(), ask.choices)).collect();
    send(&app, orders, &ask, Shape::new(Kind::Completion, name, logprobs, echo), busy).await
}

/// Tokens of prompts, and their texts where these are wanted.
#[allow(clippy::type_complexity)]
fn read(
    model: &dyn Model,
    prompts: Vec<Prompt>,
    special: bool,
    echo: bool,
) -> Result<(Vec<Arc<[Token]>>, Vec<String>), ApiError> {
    let (mut rows, mut echoes) = (vec![], vec![]);
    for prompt in prompts {
        let (row, text) = match prompt {
            Prompt::Text(text) => (model.tokenize(&text, special)?, text),
            Prompt::Tokens(row) => {
                let text = if echo { model.detokenize(&row, false)? } else { String::new() };
                (row, text)
            }
        };
        check_length(model.facts(), row.len(), "prompt")?;
        rows.push(Arc::from(row));
        if echo {
            echoes.push(text);
        }
    }
    Ok((rows, echoes))
}
