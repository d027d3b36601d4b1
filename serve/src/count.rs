//! `POST /v1/chat/completions/input_tokens`: tokens of a conversation that is not answered.

use crate::app::{App, blocking};
use crate::ask::Ask;
use crate::conversation::{Talk, spelt, talk};
use crate::defaults::flag;
use crate::error::{ApiError, answer};
use crate::served::Served;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;

/// Answers `POST /v1/chat/completions/input_tokens`.
pub(crate) async fn conversation(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, headers) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    // (Members that say how an answer is generated add no tokens.)
    Ask::take(&mut fields, &headers, facts, 0)?;
    let talk = talk(&mut fields, facts)?;
    let special = flag(&mut fields, facts, "add_special_tokens")?;
    ["logprobs", "top_logprobs", "include_reasoning", "verbose"].iter().for_each(|name| drop(fields.json(name)));
    fields.finish()?;
    counted(&served, talk, special).await
}

/// The document with the count of a conversation's tokens.
///
/// # Errors
/// The template refuses the conversation.
pub(crate) async fn counted(served: &Arc<Served>, talk: Talk, special: bool) -> Result<Response, ApiError> {
    let served = served.clone();
    let count = blocking(move || {
        let model = served.hub.model();
        spelt(model, &talk.json, special).map(|(_, tokens)| tokens.len())
    })
    .await?;
    Ok(answer(StatusCode::OK, &json!({ "input_tokens": count })))
}
