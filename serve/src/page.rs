//! The page at `/`: a conversation with a model, its certificate, and the server's counts.
//!
//! It is a file without further ones, has no secrets, and asks for a key where the server wants one. It may talk with
//! this server only, and run no other script than its own.

use crate::app::App;
use crate::ask::unforeseen;
use crate::error::{ApiError, answer};
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

const PAGE: &str = include_str!("page.html");

/// Answers `GET /`.
pub(crate) async fn page(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    if !app.settings.page {
        let message = "there is no GET / here: the server was started with --no-page";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message).code("not_found"));
    }
    let nonce = format!("{:016x}{:016x}", unforeseen(), unforeseen());
    let mut response = Response::new(Body::from(PAGE.replace("NONCE", &nonce)));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = response.headers_mut();
    // (Letters and digits.)
    headers.extend(HeaderValue::from_str(&policy).ok().map(|policy| (header::CONTENT_SECURITY_POLICY, policy)));
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Answers `GET /certificate`: the summary of a model's manifest.
pub(crate) async fn certificate(
    State(app): State<Arc<App>>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(pairs) = query.map_err(|e| ApiError::invalid(format!("the query cannot be read: {e}")))?;
    let mut name = None;
    for (member, value) in pairs {
        match member.as_str() {
            "model" => name = Some(value),
            _ => return Err(ApiError::of_param(&member, format!("`{member:.40}` is unknown: leave it out"))),
        }
    }
    let served = app.models.named_or_only(name)?;
    let model = served.hub.model();
    let mut document = summary(&model.manifest());
    document["chat_template"] = json!(model.facts().chat_template);
    document["served_name"] = json!(served.name);
    Ok(answer(StatusCode::OK, &document))
}

/// The members of a manifest that say what a model is made of, and how exact it is.
fn summary(manifest: &Value) -> Value {
    const MEMBERS: &[&str] = &[
        "/model",
        "/llmcc",
        "/abi",
        "/options/target",
        "/options/weights",
        "/options/method",
        "/options/activations",
        "/options/place",
        "/info/max_context",
        "/info/vocab",
        "/info/hidden",
        "/info/attention_layers",
        "/weights/bytes",
        "/weights/parameters",
        "/weights/active_parameters",
        "/weights/by_format",
        "/memory/total",
        "/certificate/lossy",
        "/certificate/rms_error",
        "/certificate/largest_relative_rms_error",
        "/certificate/golden_difference_to_evaluator",
        "/source",
    ];
    let mut out = json!({});
    for path in MEMBERS {
        let Some(value) = manifest.pointer(path) else { continue };
        match path[1..].split_once('/') {
            None => out[&path[1..]] = value.clone(),
            Some((group, name)) => {
                if out[group].is_null() {
                    out[group] = json!({});
                }
                out[group][name] = value.clone();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_leave_tensors_out() {
        let manifest = json!({
            "model": "m", "weights": { "bytes": 5, "tensors": [1, 2] }, "certificate": { "lossy": ["w4"] },
            "kv": ["f16"],
        });
        let want = json!({ "model": "m", "weights": { "bytes": 5 }, "certificate": { "lossy": ["w4"] } });
        assert_eq!(summary(&manifest), want);
        assert_eq!(summary(&Value::Null), json!({}));
    }

    #[test]
    fn the_page_loads_nothing() {
        let elsewhere = ["http://", "https://", "//cdn", "src=", "@import", "url(", "innerHTML", "eval("];
        assert!(elsewhere.iter().all(|text| !PAGE.contains(text)));
        assert_eq!(PAGE.matches("NONCE").count(), 2, "a style and a script");
    }
}
