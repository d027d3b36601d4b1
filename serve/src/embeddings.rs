//! `POST /v1/embeddings`: rows of numbers for texts.

use crate::app::{App, blocking};
use crate::error::{ApiError, answer};
use crate::json::short;
use crate::llama::{Given, texts};
use crate::model::{Facts, Model};
use crate::served::Served;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use serde_json::{Value, json};
use std::sync::Arc;

/// Most texts of a request; OpenAI's.
const MOST_TEXTS: usize = 2048;
/// Texts, or pairs of them, that are computed together, before requests for texts have their turn again.
pub(crate) const TOGETHER: usize = 8;

/// Answers `POST /v1/embeddings`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    let columns = needs_columns(facts)?;
    let given = texts(&mut fields, "input", facts.vocab)?;
    let as_text = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("`encoding_format` is `{other}`: give \"float\" or \"base64\"");
            return Err(ApiError::of_param("encoding_format", message));
        }
    };
    if let Some(wanted) = fields.take::<u64>("dimensions")?
        && wanted != columns as u64
    {
        let message = format!("`dimensions` is {wanted}, and the model has {columns}: leave it out");
        return Err(ApiError::of_param("dimensions", message).code("unsupported_parameter"));
    }
    fields.finish()?;
    let (numbers, tokens) = embed(&served, given, "input").await?;
    let shown = |row: &[f32]| if as_text { json!(base64(row)) } else { row.iter().map(|x| short(*x)).collect() };
    let data = numbers.chunks(columns).enumerate();
    let data: Vec<Value> =
        data.map(|(i, row)| json!({ "object": "embedding", "index": i, "embedding": shown(row) })).collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(answer(StatusCode::OK, &json!({ "object": "list", "data": data, "model": served.name, "usage": usage })))
}

/// Columns of a model's embeddings.
///
/// # Errors
/// It makes none.
pub(crate) fn needs_columns(facts: &Facts) -> Result<usize, ApiError> {
    if facts.embed_columns > 0 {
        return Ok(facts.embed_columns);
    }
    let message = "the model makes no embeddings: compile it with --embed or --also-embed";
    Err(ApiError::invalid(message).code("unsupported"))
}

/// Embeddings of texts, one after the other, and how many tokens they have; `param`: the member with them.
///
/// # Errors
/// Too many texts; one that is empty or too large.
pub(crate) async fn embed(
    served: &Arc<Served>,
    given: Vec<Given>,
    param: &'static str,
) -> Result<(Vec<f32>, usize), ApiError> {
    if given.len() > MOST_TEXTS {
        let message = format!("`{param}` has {} texts: give up to {MOST_TEXTS}", given.len());
        return Err(ApiError::of_param(param, message));
    }
    // (Never closed.)
    let _turn = served.embeds.acquire().await.ok();
    let served = served.clone();
    blocking(move || {
        let model = served.hub.model();
        let rows = given.iter().map(|given| given.tokens(model, true)).collect::<Result<Vec<_>, _>>()?;
        for (i, row) in rows.iter().enumerate() {
            check_row(row.len(), model.facts().max_context, i, param)?;
        }
        let tokens = rows.iter().map(Vec::len).sum();
        let all = embedded(model, &rows)?;
        served.hub.metrics().embedded(tokens);
        Ok((all, tokens))
    })
    .await
}

fn check_row(tokens: usize, context: usize, i: usize, param: &str) -> Result<(), ApiError> {
    if tokens == 0 {
        return Err(ApiError::of_param(param, format!("text {i} of `{param}` has no tokens: give at least one")));
    }
    if context > 0 && tokens > context {
        let message = format!(
            "text {i} of `{param}` is too large: it has {tokens} tokens, the model takes up to {context}; shorten it"
        );
        return Err(ApiError::of_param(param, message).too_long(tokens, context));
    }
    Ok(())
}

/// Embeddings of rows of tokens, some at a time.
///
/// # Errors
/// As [`Model::embed`].
pub(crate) fn embedded(model: &dyn Model, rows: &[Vec<Token>]) -> Result<Vec<f32>, ApiError> {
    let mut out = vec![];
    for rows in rows.chunks(TOGETHER) {
        out.extend(model.embed(rows)?);
    }
    Ok(out)
}

/// The bytes of numbers, least significant first, in Base64 (RFC 4648).
fn base64(row: &[f32]) -> String {
    base64::encode(row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_base64() {
        // As Python's base64.b64encode(struct.pack("<3f", 1.0, -2.5, 0.1)) and so on.
        assert_eq!(base64(&[1.0, -2.5, 0.1]), "AACAPwAAIMDNzMw9");
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64(&[]), "");
    }
}
