//! `POST /tokenize` and `POST /detokenize`, as vLLM has them.

use crate::app::{App, blocking};
use crate::ask::known;
use crate::conversation::conversation;
use crate::error::{ApiError, answer};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use serde_json::json;
use std::sync::Arc;

/// A text whose tokens are asked for.
enum Given {
    Prompt(String),
    Conversation(String),
}

/// Answers `POST /tokenize`.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let (given, special) = match fields.take::<String>("prompt")? {
        Some(prompt) => (Given::Prompt(prompt), true),
        None => (Given::Conversation(conversation(&mut fields)?), false),
    };
    let special = fields.take("add_special_tokens")?.unwrap_or(special);
    let names = fields.take("return_token_strs")?.unwrap_or(false);
    fields.finish()?;
    let own = served.clone();
    let (tokens, texts) = blocking(move || {
        let model = own.hub.model();
        let tokens = match given {
            Given::Prompt(text) => model.tokenize(&text, special)?,
            Given::Conversation(conversation) => model.tokenize(&model.chat_prompt(&conversation)?, special)?,
        };
        let text = |token: &Token| Ok(model.detokenize(&[*token], true)?);
        let texts = names.then(|| tokens.iter().map(text).collect::<Result<Vec<_>, ApiError>>()).transpose()?;
        Ok((tokens, texts))
    })
    .await?;
    let context = served.hub.model().facts().max_context;
    let document = json!({ "count": tokens.len(), "max_model_len": context, "tokens": tokens, "token_strs": texts });
    Ok(answer(StatusCode::OK, &document))
}

/// Answers `POST /detokenize`.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let tokens: Vec<Token> = fields.require("tokens")?;
    fields.finish()?;
    let vocab = served.hub.model().facts().vocab;
    tokens.iter().try_for_each(|token| known(*token, vocab, "tokens"))?;
    let own = served.clone();
    let text = blocking(move || Ok(own.hub.model().detokenize(&tokens, true)?)).await?;
    Ok(answer(StatusCode::OK, &json!({ "prompt": text })))
}
