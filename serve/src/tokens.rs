//! `POST /tokenize` and `POST /detokenize`, as vLLM and llama.cpp have them.

use crate::app::{App, blocking};
use crate::ask::known;
use crate::conversation::{conversation, spelt};
use crate::error::{ApiError, answer};
use crate::fields::Fields;
use crate::served::Served;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use serde_json::{Value, json};
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
    if fields.has("content") {
        return pieces(&served, fields).await;
    }
    let (given, special) = match fields.take::<String>("prompt")? {
        Some(prompt) => (Given::Prompt(prompt), true),
        None => (Given::Conversation(conversation(&mut fields, served.hub.model().facts())?), false),
    };
    let special = fields.take("add_special_tokens")?.unwrap_or(special);
    let names = fields.take("return_token_strs")?.unwrap_or(false);
    fields.finish()?;
    let own = served.clone();
    let (tokens, texts) = blocking(move || {
        let model = own.hub.model();
        let tokens = match given {
            Given::Prompt(text) => model.tokenize(&text, special)?,
            Given::Conversation(conversation) => spelt(model, &conversation, special)?.1,
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

/// llama.cpp's request and document: `content`, and tokens without special ones around them.
async fn pieces(served: &Arc<Served>, mut fields: Fields) -> Result<Response, ApiError> {
    let content: String = fields.require("content")?;
    let special = fields.take("add_special")?.unwrap_or(false);
    let texts = fields.take("with_pieces")?.unwrap_or(false);
    fields.only("parse_special", &["true"])?;
    fields.finish()?;
    let own = served.clone();
    let tokens: Vec<Value> = blocking(move || {
        let model = own.hub.model();
        let token = |token: Token| match texts {
            true => Ok(json!({ "id": token, "piece": piece(model.token_bytes(token)?) })),
            false => Ok(token.into()),
        };
        model.tokenize(&content, special)?.into_iter().map(token).collect()
    })
    .await?;
    Ok(answer(StatusCode::OK, &json!({ "tokens": tokens })))
}

/// A token's text; its bytes, where these are no whole characters.
fn piece(bytes: Vec<u8>) -> Value {
    String::from_utf8(bytes).map_or_else(|e| e.as_bytes().into(), Value::from)
}

/// Answers `POST /detokenize`. The text has vLLM's name and llama.cpp's.
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
    Ok(answer(StatusCode::OK, &json!({ "prompt": text, "content": text })))
}
