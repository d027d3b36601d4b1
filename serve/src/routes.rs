//! Paths of the server.

use crate::app::App;
use crate::error::ApiError;
use crate::{access, admin, chat, completions, embeddings, guard, messages, page, rerank, responses, state, tokens};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::sync::Arc;
use tower_http::cors::CorsLayer;

/// All paths; `origins`: the pages that may ask for them.
pub(crate) fn router(app: Arc<App>, origins: Option<CorsLayer>) -> Router {
    let guarded = Router::new()
        .route("/v1/models", get(state::models))
        .route("/v1/models/{*name}", get(state::model))
        .route("/models", get(admin::list))
        .route("/models/load", post(admin::load))
        .route("/models/unload", post(admin::unload))
        .route("/certificate", get(page::certificate))
        .route("/openapi.yaml", get(state::description))
        .route("/version", get(state::version))
        .route("/metrics", get(state::metrics))
        .route("/v1/completions", post(completions::post))
        .route("/v1/chat/completions", post(chat::post))
        .route("/v1/embeddings", post(embeddings::post))
        .route("/rerank", post(rerank::rerank))
        .route("/v1/rerank", post(rerank::rerank))
        .route("/v2/rerank", post(rerank::rerank))
        .route("/score", post(rerank::score))
        .route("/v1/score", post(rerank::score))
        .route("/v1/messages", post(messages::post))
        .route("/v1/responses", post(responses::post))
        .route("/v1/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), guard::keys));
    let open = Router::new()
        .route("/health", get(state::health))
        .route("/ready", get(state::ready))
        .route("/", get(page::page));
    let all = open.merge(guarded).layer(from_fn_with_state(app.clone(), guard::hosts)).layer(from_fn(guard::heads));
    let all = if let Some(origins) = origins { all.layer(origins) } else { all };
    all.layer(from_fn_with_state(app.clone(), access::requests)).with_state(app)
}

async fn unknown(request: Request) -> ApiError {
    let message =
        format!("there is no {} {} here: docs/serving.md lists the paths", request.method(), request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message).code("not_found")
}

async fn wrong_method(request: Request) -> ApiError {
    let message = format!("{} takes another method than {}", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
