//! Paths that the router answers itself; all others it passes on.

use crate::app::App;
use crate::error::{Interface, Refusal};
use crate::proxy::forward;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use std::sync::Arc;

/// All paths.
pub(crate) fn paths(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(forward)
        .with_state(app)
}

fn said(kind: &'static str, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Answers `GET /health`: the router runs.
async fn health() -> Response {
    said("application/json", r#"{"status":"ok"}"#)
}

/// Answers `GET /ready`: whether a replica takes requests, and the router does.
async fn ready(State(app): State<Arc<App>>) -> Response {
    let refusal = match (app.work.is_draining(), app.fleet.is_ready()) {
        (true, _) => Refusal::draining(),
        (false, false) => Refusal::no_replica("none is up"),
        (false, true) => return said("application/json", r#"{"status":"ready"}"#),
    };
    refusal.response(Interface::OpenAi)
}

/// Answers `GET /metrics`.
async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    match app.admit(request.headers()) {
        Err(refusal) => refusal.response(Interface::OpenAi),
        Ok(()) => said("text/plain; version=0.0.4; charset=utf-8", app.metrics.page(&app.fleet)),
    }
}
