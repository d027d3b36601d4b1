//! `POST /v1/embeddings`: rows of numbers for texts.

use crate::app::{App, blocking};
use crate::error::{ApiError, answer};
use crate::json::short;
use crate::model::Model;
use crate::prompts::{Prompt, prompts};
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
    let columns = facts.embed_columns;
    if columns == 0 {
        let message = "the model makes no embeddings: compile it with --embed or --also-embed";
        return Err(ApiError::invalid(message).code("unsupported"));
    }
    let texts = prompts(&mut fields, "input", facts.vocab)?;
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
    if texts.len() > MOST_TEXTS {
        let message = format!("`input` has {} texts: give up to {MOST_TEXTS}", texts.len());
        return Err(ApiError::of_param("input", message));
    }
    // (Never closed.)
    let _turn = served.embeds.acquire().await.ok();
    let own = served.clone();
    let (numbers, tokens) = blocking(move || embed(&own, texts)).await?;
    let shown = |row: &[f32]| if as_text { json!(base64(row)) } else { row.iter().map(|x| short(*x)).collect() };
    let data = numbers.chunks(columns).enumerate();
    let data: Vec<Value> =
        data.map(|(i, row)| json!({ "object": "embedding", "index": i, "embedding": shown(row) })).collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(answer(StatusCode::OK, &json!({ "object": "list", "data": data, "model": served.name, "usage": usage })))
}

/// Embeddings of texts, one after the other, and how many tokens they have.
fn embed(served: &Served, texts: Vec<Prompt>) -> Result<(Vec<f32>, usize), ApiError> {
    let model = served.hub.model();
    let row = |text: Prompt| match text {
        Prompt::Text(text) => model.tokenize(&text, true),
        Prompt::Tokens(tokens) => Ok(tokens),
    };
    let rows = texts.into_iter().map(row).collect::<Result<Vec<Vec<Token>>, _>>()?;
    if let Some(i) = rows.iter().position(Vec::is_empty) {
        return Err(ApiError::of_param("input", format!("text {i} of `input` has no tokens: give at least one")));
    }
    Ok((embedded(model, &rows)?, rows.iter().map(Vec::len).sum()))
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
