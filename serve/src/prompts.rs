//! Prompts on their way to the engine.

use crate::app::{App, Busy};
use crate::ask::Ask;
use crate::error::ApiError;
use crate::hub::Order;
use crate::model::Facts;
use crate::reply::Reply;
use crate::shape::Shape;
use axum::response::Response;
use std::sync::Arc;

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
        return Err(ApiError::of_param(param, message).code("context_length_exceeded"));
    }
    Ok(())
}

/// Hands the choices of a request to the engine, and replies.
///
/// # Errors
/// The engine refuses one; a choice failed before a document was sent.
pub(crate) async fn send(
    app: &Arc<App>,
    orders: &[Order],
    ask: &Ask,
    shape: Shape,
    busy: Busy,
) -> Result<Response, ApiError> {
    let reply = Reply {
        hub: app.hub.clone(),
        job: app.hub.submit(orders)?,
        shape,
        per_prompt: ask.choices,
        choices: orders.len(),
        include_usage: ask.include_usage,
        _busy: busy,
    };
    if ask.stream { Ok(reply.stream()) } else { reply.whole().await }
}
