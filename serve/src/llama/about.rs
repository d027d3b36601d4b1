//! Facts about the server and its model: `GET /props`, `/slots` and `/lora-adapters`; `POST /apply-template`.

use crate::app::{App, blocking};
use crate::conversation::conversation;
use crate::error::{ApiError, answer};
use crate::json::Json;
use crate::served::Served;
use crate::silence::rendered;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::Token;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A query with the name of a model.
type Named = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The model that a query names.
fn chosen(app: &App, query: Named) -> Result<Arc<Served>, ApiError> {
    let Query(pairs) = query.map_err(|e| ApiError::invalid(format!("the query cannot be read: {e}")))?;
    // (Other members would ask a router to load a model, or the like.)
    let name = pairs.into_iter().find(|(member, _)| member == "model").map(|(_, name)| name);
    app.models.named_or_only(name)
}

/// Answers `GET /props`.
pub(crate) async fn props(State(app): State<Arc<App>>, query: Named) -> Result<Response, ApiError> {
    let served = chosen(&app, query)?;
    let (model, facts) = (served.hub.model(), served.hub.model().facts());
    let manifest = model.manifest();
    let mark = |token: Option<Token>| {
        let bytes = token.and_then(|token| model.token_bytes(token).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let params: Map<String, Value> =
        facts.generation.iter().chain(&facts.defaults).map(|(name, value)| (name.clone(), value.clone())).collect();
    let document = json!({
        "default_generation_settings": { "n_ctx": facts.max_context, "params": params },
        "total_slots": facts.places, "model_alias": served.name, "model_path": manifest["source"][0]["file"],
        "bos_token": mark(facts.bos), "eos_token": mark(facts.ends.first().copied()),
        "modalities": { "vision": false, "audio": false }, "build_info": served.fingerprint, "is_sleeping": false,
    });
    Ok(answer(StatusCode::OK, &document))
}

/// Answers `GET /slots`: the places of the engine's steps. Requests go to no place in particular.
pub(crate) async fn places(State(app): State<Arc<App>>, query: Named) -> Result<Response, ApiError> {
    let served = chosen(&app, query)?;
    let own = served.clone();
    let counts = blocking(move || Ok(own.hub.model().counts()?)).await?;
    let (busy, facts) = (counts["running"].as_u64().unwrap_or(0), served.hub.model().facts());
    let place = |id: usize| json!({ "id": id, "n_ctx": facts.max_context, "is_processing": (id as u64) < busy });
    Ok(answer(StatusCode::OK, &(0..facts.places).map(place).collect()))
}

/// Answers `GET /lora-adapters`: adapters are merged when a model is compiled.
pub(crate) async fn adapters() -> Response {
    answer(StatusCode::OK, &json!([]))
}

/// Answers `POST /lora-adapters`.
pub(crate) async fn set_adapters(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    match app.read_json(request).await?.0 {
        Json::List(all) if all.is_empty() => Ok(answer(StatusCode::OK, &json!({ "success": true }))),
        Json::List(_) => {
            let message = "the model has no adapters of its own: merge one when it is compiled (--lora)";
            Err(ApiError::invalid(message).code("unsupported"))
        }
        other => Err(ApiError::invalid(format!("the body is {}: send a list of adapters", other.kind()))),
    }
}

/// Answers `POST /apply-template`: the prompt of a conversation, which is not answered.
pub(crate) async fn template(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let _busy = app.begin()?;
    let (mut fields, _) = app.read(request).await?;
    let served = app.choose(&mut fields)?;
    let conversation = conversation(&mut fields, served.hub.model().facts())?;
    fields.finish()?;
    let prompt = blocking(move || rendered(served.hub.model(), &conversation)).await?;
    Ok(answer(StatusCode::OK, &json!({ "prompt": prompt })))
}
