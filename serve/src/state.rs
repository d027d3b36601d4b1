//! Pages about the server itself: health, models, version, metrics.

use crate::app::{App, blocking};
use crate::error::{ApiError, answer};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers `GET /health`: the server runs, and so does its engine.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    if app.hub.has_failed() {
        return Err(ApiError::unfinished("the model's engine has ended: start the server again"));
    }
    Ok(answer(StatusCode::OK, &json!({ "status": "ok" })))
}

/// Answers `GET /ready`: whether it takes requests.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    health(State(app.clone())).await?;
    if app.is_draining() {
        Err(ApiError::draining())
    } else {
        Ok(answer(StatusCode::OK, &json!({ "status": "ready" })))
    }
}

/// Answers `GET /version`.
pub(crate) async fn version(State(app): State<Arc<App>>) -> Response {
    let abi = &app.hub.model().facts().abi;
    answer(StatusCode::OK, &json!({ "version": env!("CARGO_PKG_VERSION"), "abi": abi }))
}

fn described(app: &App) -> Value {
    let facts = app.hub.model().facts();
    json!({
        "id": app.settings.name, "object": "model", "created": app.started, "owned_by": "llmcc",
        "max_model_len": facts.max_context,
    })
}

/// Answers `GET /v1/models`.
pub(crate) async fn models(State(app): State<Arc<App>>) -> Response {
    answer(StatusCode::OK, &json!({ "object": "list", "data": [described(&app)] }))
}

/// Answers `GET /v1/models/NAME`.
pub(crate) async fn model(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    // (A name that is not UTF-8 is nobody's.)
    let name = name.map_or_else(|_| "\u{FFFD}".to_owned(), |Path(name)| name);
    app.check_name(&name).map(|()| answer(StatusCode::OK, &described(&app)))
}

/// Answers `GET /metrics`.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    // The model is asked for its memory, and may be in a step.
    let page = blocking(move || Ok(app.hub.metrics().page(app.hub.model(), &app.settings.name))).await?;
    let mut response = Response::new(Body::from(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
