//! `POST /rerank`, `/v1/rerank` and `/v2/rerank`, as Jina, Cohere, vLLM and TEI have them; `POST /score` and
//! `/v1/score`, as vLLM has them.

use crate::app::App;
use crate::ask::unforeseen;
use crate::error::{ApiError, answer};
use crate::fields::Fields;
use crate::json::{Json, short};
use crate::pairs::{MOST_PAIRS, Pairs, scored};
use crate::served::now;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers `POST /rerank`.
pub(crate) async fn rerank(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let query = fields.require::<String>("query")?;
    // (TEI's name; its answer is a list.)
    let listed = fields.has("texts");
    let member = if listed { "texts" } else { "documents" };
    let documents = texts(&mut fields, member)?;
    let most = fields.count("top_n", 0, MOST_PAIRS as u64)?.filter(|n| *n > 0).unwrap_or(MOST_PAIRS as u64);
    let shown = fields.take(if listed { "return_text" } else { "return_documents" })?.unwrap_or(!listed);
    let pairs = Pairs::take(&mut fields, served.hub.model().facts(), vec![query], documents, member)?;
    fields.finish()?;
    let pairs = Arc::new(pairs);
    let (scores, tokens) = scored(&served, pairs.clone()).await?;
    let mut order: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    // (Equal ones stay in their order.)
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let result = |(index, score): &(usize, f32)| {
        if listed {
            let text = if shown { json!(pairs.second[*index]) } else { Value::Null };
            return json!({ "index": index, "score": short(*score), "text": text });
        }
        let mut result = json!({ "index": index, "relevance_score": short(*score) });
        if shown {
            result["document"] = json!({ "text": pairs.second[*index] });
        }
        result
    };
    let results: Vec<Value> = order.iter().take(most as usize).map(result).collect();
    if listed {
        return Ok(answer(StatusCode::OK, &results.into()));
    }
    let id = format!("rerank-{:016x}", unforeseen());
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(answer(StatusCode::OK, &json!({ "id": id, "model": served.name, "usage": usage, "results": results })))
}

/// Answers `POST /score`.
pub(crate) async fn score(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    // (vLLM has several names for them.)
    let names = [("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2")];
    let (first, second) = names.into_iter().find(|(first, _)| fields.has(first)).unwrap_or(names[0]);
    let texts = (texts(&mut fields, first)?, texts(&mut fields, second)?);
    let pairs = Pairs::take(&mut fields, served.hub.model().facts(), texts.0, texts.1, second)?;
    fields.finish()?;
    let (scores, tokens) = scored(&served, Arc::new(pairs)).await?;
    let data = scores.iter().enumerate();
    let data: Vec<Value> =
        data.map(|(i, score)| json!({ "index": i, "object": "score", "score": short(*score) })).collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0 });
    let id = format!("score-{:016x}", unforeseen());
    let document =
        json!({ "id": id, "object": "list", "created": now(), "model": served.name, "data": data, "usage": usage });
    Ok(answer(StatusCode::OK, &document))
}

/// Takes a text or a list of texts. Each may be an object with a member `text`.
fn texts(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let one = |(i, json): (usize, Json)| match json {
        Json::String(text) => Ok(text),
        Json::Object(members) => {
            let mut fields = Fields::of(members)?;
            let text = fields.require("text")?;
            fields.finish().map(|()| text)
        }
        other => {
            let message = format!("`{name}[{i}]` is {}: give a text, or an object with `text`", other.kind());
            Err(ApiError::of_param(&format!("{name}[{i}]"), message))
        }
    };
    match fields.json(name) {
        Some(Json::List(all)) if all.is_empty() => {
            Err(ApiError::of_param(name, format!("`{name}` is an empty list: give at least one text")))
        }
        Some(Json::List(all)) => all.into_iter().enumerate().map(one).collect(),
        Some(single) => Ok(vec![one((0, single))?]),
        None => Err(ApiError::missing(name)),
    }
}
