//! `POST /v1/chat/completions`: answers in conversations, by the model's chat template.

use crate::app::{App, blocking};
use crate::ask::{Ask, MOST_TOP, token_ids};
use crate::conversation::talk;
use crate::defaults::flag;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::hub::Order;
use crate::prompts::send;
use crate::shape::{Kind, Shape};
use crate::turn::planned;
use axum::extract::{Request, State};
use axum::response::Response;
use std::sync::Arc;

/// Answers `POST /v1/chat/completions`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    // Answers are as long as they are.
    let token_ids = token_ids(&mut fields)?;
    let mut ask = Ask::take(&mut fields, &headers, facts, 0)?;
    let logprobs = alternatives(&mut fields)?;
    ask.params.logprobs = logprobs;
    refuse_unsupported(&mut fields)?;
    let reasoning = fields.take("include_reasoning")?.unwrap_or(true);
    let verbose = flag(&mut fields, facts, "verbose")?;
    let talk = talk(&mut fields, facts)?;
    let special = flag(&mut fields, facts, "add_special_tokens")?;
    fields.finish()?;
    let (prompt, plan, ask) = planned(&served, talk, ask, (special, reasoning)).await?;
    let order = |i| Order { prompt: prompt.clone(), params: ask.of_choice(i), terms: ask.terms };
    let orders: Vec<Order> = (0..ask.choices).map(order).collect();
    let mut shape = Shape::new(Kind::Chat, &served, logprobs, vec![]).with(plan);
    shape.token_ids = token_ids;
    if verbose {
        let (own, prompt) = (served.clone(), prompt.clone());
        shape.verbose = Some(blocking(move || Ok(own.hub.model().detokenize(&prompt, true)?)).await?);
    }
    send(&served, orders, ask, shape, busy).await
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
