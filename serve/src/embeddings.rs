//! `POST /v1/embeddings`: rows of numbers for texts.

use crate::app::{App, blocking};
use crate::error::{ApiError, answer};
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
/// Texts that are computed together, before requests for texts have their turn again.
const TOGETHER: usize = 8;

/// Answers `POST /v1/embeddings`.
pub(crate) async fn post(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let (app, name) = app.choose(&mut fields)?;
    let facts = app.hub.model().facts();
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
    let _turn = app.embeds.acquire().await.ok();
    let own = app.clone();
    let (numbers, tokens) = blocking(move || embed(&own, texts)).await?;
    let shown = |row: &[f32]| if as_text { json!(base64(row)) } else { row.iter().map(|x| short(*x)).collect() };
    let data = numbers.chunks(columns).enumerate();
    let data: Vec<Value> =
        data.map(|(i, row)| json!({ "object": "embedding", "index": i, "embedding": shown(row) })).collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(answer(StatusCode::OK, &json!({ "object": "list", "data": data, "model": name, "usage": usage })))
}

/// Embeddings of texts, one after the other, and how many tokens they have.
fn embed(app: &Served, texts: Vec<Prompt>) -> Result<(Vec<f32>, usize), ApiError> {
    let model = app.hub.model();
    let row = |text: Prompt| match text {
        Prompt::Text(text) => model.tokenize(&text, true),
        Prompt::Tokens(tokens) => Ok(tokens),
    };
    let rows = texts.into_iter().map(row).collect::<Result<Vec<Vec<Token>>, _>>()?;
    if let Some(i) = rows.iter().position(Vec::is_empty) {
        return Err(ApiError::of_param("input", format!("text {i} of `input` has no tokens: give at least one")));
    }
    let mut out = vec![];
    for rows in rows.chunks(TOGETHER) {
        out.extend(model.embed(rows)?);
    }
    Ok((out, rows.iter().map(Vec::len).sum()))
}

/// A number with the fewest digits that stand for it.
fn short(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// The bytes of numbers, least significant first, in Base64 (RFC 4648).
fn base64(row: &[f32]) -> String {
    base64::encode(row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_digits_are_enough() {
        assert_eq!(json!([0.1f32, -2.5, 1e-9, f32::MAX].map(short)).to_string(), "[0.1,-2.5,1e-9,3.4028235e+38]");
        assert_eq!(short(f32::NAN), Value::Null);
    }

    #[test]
    fn rows_are_base64() {
        // As Python's base64.b64encode(struct.pack("<3f", 1.0, -2.5, 0.1)) and so on.
        assert_eq!(base64(&[1.0, -2.5, 0.1]), "AACAPwAAIMDNzMw9");
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64(&[]), "");
    }
}
