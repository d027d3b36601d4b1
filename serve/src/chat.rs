//! `POST /v1/chat/completions`: answers in conversations, by the model's chat template.

use crate::app::{App, blocking};
use crate::ask::{Ask, MOST_TOP};
use crate::conversation::{prompt, talk};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::hub::Order;
use crate::plan::Plan;
use crate::prompts::send;
use crate::shape::{Kind, Shape};
use axum::extract::{Request, State};
use axum::response::Response;
use llmcc_model::Token;
use std::sync::Arc;

/// Answers `POST /v1/chat/completions`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let (app, name) = app.choose(&mut fields)?;
    // Answers are as long as they are.
    let mut ask = Ask::take(&mut fields, &headers, app.hub.model().facts(), 0)?;
    let logprobs = alternatives(&mut fields)?;
    ask.params.logprobs = logprobs;
    refuse_unsupported(&mut fields)?;
    let reasoning = fields.take("include_reasoning")?.unwrap_or(true);
    let talk = talk(&mut fields, app.hub.model().facts().turns.arguments_text)?;
    let special = fields.take("add_special_tokens")?.unwrap_or(false);
    fields.finish()?;
    let own = app.clone();
    let (prompt, plan, ask) = blocking(move || {
        let (text, tokens) = prompt(own.hub.model(), &talk.json, special)?;
        let plan = Plan::new(own.hub.model(), &talk.toolbox, &text, &mut ask.params, reasoning)?;
        Ok((tokens, plan, ask))
    })
    .await?;
    let prompt: Arc<[Token]> = prompt.into();
    let order = |i| Order { prompt: prompt.clone(), params: ask.of_choice(i), terms: ask.terms };
    let orders: Vec<Order> = (0..ask.choices).map(order).collect();
    let shape = Shape::new(Kind::Chat, name, logprobs, vec![]).with(plan);
    send(&app, orders, &ask, shape, busy).await
}

/// Alternatives of each token, if log-probabilities are wanted.
fn alternatives(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let wanted = fields.take("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", 0, MOST_TOP)?.and_then(|n| u32::try_from(n).ok());
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::of_param("top_logprobs", "`top_logprobs` needs `logprobs`: set it to true")),
    }
}

/// Members that have values which ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, values) in [
        ("modalities", &[r#"["text"]"#][..]),
        ("echo", &["false"]),
        ("functions", &[]),
        ("function_call", &["\"none\""]),
        ("audio", &[]),
        ("prediction", &[]),
        ("web_search_options", &[]),
        ("verbosity", &["\"medium\""]),
    ] {
        fields.only(name, values)?;
    }
    Ok(())
}
