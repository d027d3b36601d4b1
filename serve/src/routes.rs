//! Paths of the server.

use crate::app::App;
use crate::error::{ApiError, as_llama};
use crate::{access, admin, chat, completions, count, embeddings, guard, llama, messages, page, rerank, responses};
use crate::{quiet, state, tokens};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
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
        .route("/v1/chat/completions/input_tokens", post(count::conversation))
        .route("/v1/embeddings", post(embeddings::post))
        .route("/rerank", post(rerank::rerank))
        .route("/v1/rerank", post(rerank::rerank))
        .route("/v2/rerank", post(rerank::rerank))
        .route("/reranking", post(rerank::rerank))
        .route("/v1/reranking", post(rerank::rerank))
        .route("/score", post(rerank::score))
        .route("/v1/score", post(rerank::score))
        .route("/v1/messages", post(messages::post))
        .route("/v1/messages/count_tokens", post(messages::count))
        .route("/v1/responses", post(responses::post))
        .route("/v1/responses/input_tokens", post(responses::count))
        .route("/v1/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .merge(native())
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), guard::keys));
    let open = Router::new()
        .route("/health", get(state::health))
        .route("/v1/health", get(state::health))
        .route("/ready", get(state::ready))
        .route("/", get(page::page));
    let all = open.merge(guarded).layer(from_fn_with_state(app.clone(), guard::left_out));
    let all = all.layer(from_fn_with_state(app.clone(), quiet::streams));
    let all = all.layer(from_fn_with_state(app.clone(), guard::hosts)).layer(from_fn(guard::heads));
    let all = if let Some(origins) = origins { all.layer(origins) } else { all };
    all.layer(from_fn_with_state(app.clone(), access::requests)).with_state(app)
}

/// Paths of llama.cpp's server, whose errors have its shape.
fn native() -> Router<Arc<App>> {
    Router::new()
        .route("/completion", post(llama::completion))
        .route("/completions", post(llama::completion))
        .route("/infill", post(llama::infill))
        .route("/chat/completions", post(chat::post))
        .route("/chat/completions/input_tokens", post(count::conversation))
        .route("/responses", post(responses::post))
        .route("/embedding", post(llama::embedding))
        .route("/embeddings", post(llama::embedding))
        .route("/apply-template", post(llama::template))
        .route("/props", get(llama::props))
        .route("/slots", get(llama::places))
        .route("/lora-adapters", get(llama::adapters).post(llama::set_adapters))
        .layer(map_response(as_llama))
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
