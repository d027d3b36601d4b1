//! State that all requests share, and what they have in common: keys, names of models, bodies.

use crate::body::{BODY, BodyError, read_body};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::json::Json;
use crate::key::key_of;
use crate::log::Log;
use crate::models::Models;
use crate::responses::Store;
use crate::served::{Served, now};
use crate::settings::Settings;
pub(crate) use crate::work::Busy;
use crate::work::Work;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use std::sync::Arc;

/// State of a server.
pub(crate) struct App {
    pub(crate) models: Models,
    pub(crate) settings: Settings,
    pub(crate) responses: Store,
    pub(crate) log: Arc<Log>,
    /// Seconds from 1970 until it began.
    pub(crate) began: u64,
    pub(crate) work: Work,
}

impl App {
    /// The state of a server that begins now.
    pub(crate) fn new(models: Models, log: Arc<Log>, settings: Settings) -> App {
        let responses = Store::new(settings.max_stored, settings.max_stored_bytes);
        App { models, settings, responses, log, began: now(), work: Work::default() }
    }

    /// Begins a request.
    ///
    /// # Errors
    /// The server is about to end.
    pub(crate) fn begin(&self) -> Result<Busy, ApiError> {
        self.work.begin().ok_or_else(ApiError::draining)
    }

    /// Checks the key of a request, in time that does not tell how much of it is right.
    ///
    /// # Errors
    /// It has none, or a wrong one.
    pub(crate) fn authorize(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.settings.keys.is_empty() || self.owner(headers).is_some() {
            return Ok(());
        }
        let message = "the key is missing or wrong: send the server's key in the header `Authorization: Bearer KEY`";
        Err(ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message).code("invalid_api_key"))
    }

    /// The place of a request's key among the server's keys, found in the same time as [`App::authorize`].
    pub(crate) fn owner(&self, headers: &HeaderMap) -> Option<usize> {
        key_of(headers, &self.settings.keys)
    }

    /// The model that a request asks for; without a name, the only model.
    ///
    /// # Errors
    /// It is not served, or there are several to choose from.
    pub(crate) fn choose(&self, fields: &mut Fields) -> Result<Arc<Served>, ApiError> {
        self.models.named_or_only(fields.take("model")?)
    }

    /// The members of a request's body, and its headers.
    ///
    /// # Errors
    /// No JSON; a body that is too long, or does not come.
    pub(crate) async fn read(&self, request: Request) -> Result<(Fields, HeaderMap), ApiError> {
        let (json, headers) = self.read_json(request).await?;
        Ok((Fields::of_body(json)?, headers))
    }

    /// The value that a request's body is, and its headers.
    ///
    /// # Errors
    /// As [`App::read`].
    pub(crate) async fn read_json(&self, request: Request) -> Result<(Json, HeaderMap), ApiError> {
        let (head, body) = request.into_parts();
        if !is_json(&head.headers) {
            let message = "the body's type is not JSON: send the header `Content-Type: application/json`";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ApiError::new(status, "invalid_request_error", message));
        }
        let most = self.settings.max_body;
        let body = read_body(body, most).await.map_err(|e| match e {
            BodyError::TooLong => too_long(most),
            BodyError::Late => {
                let message = format!("the body did not come within {} seconds", BODY.as_secs());
                ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
            }
            BodyError::Unreadable(e) => ApiError::invalid(format!("the body cannot be read: {e}")),
        })?;
        let json = blocking(move || Fields::json_of(&body)).await?;
        Ok((json, head.headers))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn too_long(most: usize) -> ApiError {
    let message = format!("the body is too long: send up to {most} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
}

/// Work that takes long, away from the thread that talks with clients.
///
/// # Errors
/// Errors of the work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|e| {
        let message = format!("internal error: {e}");
        Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message))
    })
}
