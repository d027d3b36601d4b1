//! Pages about the server itself: health, models, version, metrics.

use crate::app::{App, blocking};
use crate::error::{ApiError, answer};
use crate::metrics::page::{View, page};
use crate::served::Served;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers `GET /health`: the server runs, and so do its engines.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    match app.models.all().iter().find(|served| served.hub.has_failed()) {
        None => Ok(answer(StatusCode::OK, &json!({ "status": "ok" }))),
        Some(failed) => {
            let message = format!("the engine of `{}` has ended: start the server again", failed.name);
            Err(ApiError::unfinished(message))
        }
    }
}

/// Answers `GET /ready`: whether it takes requests.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    health(State(app.clone())).await?;
    if app.work.is_draining() {
        Err(ApiError::draining())
    } else {
        Ok(answer(StatusCode::OK, &json!({ "status": "ready" })))
    }
}

/// Answers `GET /openapi.yaml`: the paths, as programs read them.
pub(crate) async fn description() -> Response {
    let mut response = Response::new(Body::from(include_str!("../openapi.yaml")));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    response
}

/// Answers `GET /version`.
pub(crate) async fn version(State(app): State<Arc<App>>) -> Response {
    let abi = app.models.all().first().map(|served| served.hub.model().facts().abi.clone());
    answer(StatusCode::OK, &json!({ "version": env!("CARGO_PKG_VERSION"), "abi": abi }))
}

fn described(served: &Served) -> Value {
    let facts = served.hub.model().facts();
    json!({
        "id": served.name, "object": "model", "created": served.created, "owned_by": "llmcc",
        "max_model_len": facts.max_context,
    })
}

/// Answers `GET /v1/models`.
pub(crate) async fn models(State(app): State<Arc<App>>) -> Response {
    let data: Vec<Value> = app.models.all().iter().map(|served| described(served)).collect();
    answer(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// Answers `GET /v1/models/NAME`.
pub(crate) async fn model(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    // (A name that is not UTF-8 is nobody's.)
    let name = name.map_or_else(|_| "\u{FFFD}".to_owned(), |Path(name)| name);
    app.models.named(&name).map(|served| answer(StatusCode::OK, &described(&served)))
}

/// Answers `GET /metrics`.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let began = app.began;
    // Models are asked for their memory, and may be in a step.
    let page = blocking(move || {
        let all = app.models.all();
        Ok(page(&all.iter().map(|served| view(served)).collect::<Vec<_>>()))
    })
    .await?;
    let mut response = Response::new(Body::from(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // (llama.cpp's, for clients that turn counts into rates.)
    response.headers_mut().insert("process-start-time-unix", HeaderValue::from(began));
    Ok(response)
}

fn view(served: &Served) -> View<'_> {
    View { name: &served.name, model: served.hub.model(), metrics: served.hub.metrics() }
}
