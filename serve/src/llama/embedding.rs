//! `POST /embedding`: rows of numbers for texts, each in a list of its own.

use crate::app::App;
use crate::embeddings::{embed, needs_columns};
use crate::error::{ApiError, answer};
use crate::json::short;
use crate::llama::given::texts;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers `POST /embedding`.
pub(crate) async fn embedding(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let facts = served.hub.model().facts();
    let columns = needs_columns(facts)?;
    let name = if fields.has("content") { "content" } else { "input" };
    let given = texts(&mut fields, name, facts.vocab)?;
    // (2 is the length of a row, and the only one that rows are divided by.)
    fields.only("embd_normalize", &["2"])?;
    fields.finish()?;
    let (flat, _) = embed(&served, given, name).await?;
    let row = |(index, row): (usize, &[f32])| {
        let row: Value = row.iter().map(|x| short(*x)).collect();
        json!({ "index": index, "embedding": [row] })
    };
    let all: Vec<Value> = flat.chunks(columns).enumerate().map(row).collect();
    Ok(answer(StatusCode::OK, &all.into()))
}
