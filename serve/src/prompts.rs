//! Prompts on their way to the engine.

use crate::app::{Busy, blocking};
use crate::ask::{Ask, EXPECTED, known};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::hub::Order;
use crate::json::Json;
use crate::model::Facts;
use crate::reply::Reply;
use crate::served::Served;
use crate::shape::Shape;
use axum::response::Response;
use llmcc_model::Token;

/// A prompt as the client gives it.
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<Token>),
}

/// Takes the prompts of a request: a text, tokens, or a list of either.
///
/// # Errors
/// There are none; a value of another type; a token outside the vocabulary.
pub(crate) fn prompts(fields: &mut Fields, name: &str, vocab: usize) -> Result<Vec<Prompt>, ApiError> {
    let wrong =
        || ApiError::of_param(name, format!("`{name}` is neither a text, nor a list of tokens, nor a list of either"));
    let tokens = |json: &Json| -> Result<Prompt, ApiError> {
        let tokens: Vec<Token> = json.read().map_err(|_| wrong())?;
        tokens.iter().try_for_each(|token| known(*token, vocab, name))?;
        Ok(Prompt::Tokens(tokens))
    };
    let given = fields.json(name).ok_or_else(|| ApiError::missing(name))?;
    match given {
        Json::String(text) => Ok(vec![Prompt::Text(text)]),
        Json::List(all) if matches!(all.first(), Some(Json::Number(_))) => Ok(vec![tokens(&Json::List(all))?]),
        Json::List(all) if !all.is_empty() => {
            let one = |json: Json| match json {
                Json::String(text) => Ok(Prompt::Text(text)),
                Json::List(_) => tokens(&json),
                _ => Err(wrong()),
            };
            all.into_iter().map(one).collect()
        }
        Json::List(_) => Err(ApiError::of_param(name, format!("`{name}` is an empty list"))),
        _ => Err(wrong()),
    }
}

/// Refuses a prompt of `tokens` tokens after which there is no room.
///
/// # Errors
/// It is empty, or as long as the model's context.
pub(crate) fn check_length(facts: &Facts, tokens: usize, param: &str) -> Result<(), ApiError> {
    if tokens == 0 {
        return Err(ApiError::of_param(param, format!("`{param}` has no tokens: give at least one")));
    }
    if facts.max_context > 0 && tokens >= facts.max_context {
        let message = format!(
            "`{param}` has {tokens} tokens, and the model's context {}: shorten it to leave room for an answer",
            facts.max_context
        );
        return Err(ApiError::of_param(param, message).too_long(tokens, facts.max_context));
    }
    Ok(())
}

/// Gives choices the tokens that they are expected to begin with.
///
/// # Errors
/// There are more lists than choices.
pub(crate) fn expect(orders: &mut [Order], expected: Vec<Vec<Token>>) -> Result<(), ApiError> {
    let (lists, choices) = (expected.len(), orders.len());
    if lists > choices {
        let message =
            format!("`{EXPECTED}` has {lists} lists for {choices} choices: give one for each, in their order");
        return Err(ApiError::of_param(EXPECTED, message));
    }
    orders.iter_mut().zip(expected).for_each(|(order, tokens)| order.params.expected = tokens);
    Ok(())
}

/// Hands the choices of a request to the engine, and replies.
///
/// # Errors
/// The engine refuses one; a choice failed before a document was sent.
pub(crate) async fn send(
    served: &Served,
    mut orders: Vec<Order>,
    mut ask: Ask,
    mut shape: Shape,
    busy: Busy,
) -> Result<Response, ApiError> {
    shape.timings = ask.timings;
    expect(&mut orders, std::mem::take(&mut ask.expected))?;
    let (hub, choices) = (served.hub.clone(), orders.len());
    let job = blocking(move || hub.submit(&orders)).await?;
    let reply = Reply {
        hub: served.hub.clone(),
        shape,
        per_prompt: ask.choices,
        choices,
        include_usage: ask.include_usage,
        _busy: busy,
    };
    if ask.stream { Ok(reply.stream(served, job, ask.traced)) } else { reply.whole(job).await }
}
