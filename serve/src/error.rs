//! Errors of requests, in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use llmcc_model::Status;
use serde_json::{Value, json};

/// Why a request failed: the fault, its place, and the remedy.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    /// The member of the request that is wrong.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    /// Seconds after which the client may ask again.
    retry_after: Option<u32>,
    /// Tokens of a prompt that is too long, and of the model's context.
    sizes: Option<(usize, usize)>,
}

impl ApiError {
    /// An error of this status.
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, code: None, param: None, message: message.into(), retry_after: None, sizes: None }
    }

    /// A wrong request.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A request whose member `param` is wrong.
    pub(crate) fn of_param(param: &str, message: impl Into<String>) -> ApiError {
        ApiError::invalid(message).about(param)
    }

    /// A member `param` of another type than the `wanted` one; `kind`: as [`crate::json::Json::kind`] names it.
    pub(crate) fn of_type(param: &str, wanted: &str, kind: &str) -> ApiError {
        ApiError::of_param(param, format!("`{param}` is {kind}: give {wanted}"))
    }

    /// A member `param` that must be there.
    pub(crate) fn missing(param: &str) -> ApiError {
        ApiError::of_param(param, format!("`{param}` is missing"))
    }

    /// The same, of the member `param` of the request.
    pub(crate) fn about(self, param: &str) -> ApiError {
        ApiError { param: Some(param.to_owned()), ..self }
    }

    /// The same, with a code for programs.
    pub(crate) fn code(self, code: &'static str) -> ApiError {
        ApiError { code: Some(code), ..self }
    }

    /// The same, of a prompt of `tokens` tokens that a model with a context of `context` tokens cannot take.
    pub(crate) fn too_long(self, tokens: usize, context: usize) -> ApiError {
        ApiError { sizes: Some((tokens, context)), ..self.code("context_length_exceeded") }
    }

    /// The server has as many requests as it may.
    pub(crate) fn busy(message: impl Into<String>) -> ApiError {
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        ApiError { retry_after: Some(1), ..error.code("busy") }
    }

    /// The server is about to end.
    pub(crate) fn draining() -> ApiError {
        let message = "the server is shutting down and takes no further requests: ask another one, or this one later";
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message);
        ApiError { retry_after: Some(5), ..error.code("shutting_down") }
    }

    /// The end of a request that did not finish.
    pub(crate) fn unfinished(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message)
    }

    /// Its document.
    pub(crate) fn json(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code } })
    }
}

/// The document of an error as llama.cpp has it: `{"error": {"code", "message", "type"}}`, the code being the status.
pub(crate) fn llama(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::BAD_REQUEST if error.sizes.is_some() => "exceed_context_size_error",
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::INTERNAL_SERVER_ERROR => "server_error",
        StatusCode::NOT_IMPLEMENTED => "not_supported_error",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "unavailable_error",
        _ => error.kind,
    };
    let mut inner = json!({ "code": error.status.as_u16(), "message": error.message, "type": kind });
    if let Some((tokens, context)) = error.sizes {
        let message = format!("the request exceeds the available context size: {}", error.message);
        (inner["message"], inner["n_prompt_tokens"], inner["n_ctx"]) = (message.into(), tokens.into(), context.into());
    }
    json!({ "error": inner })
}

/// Gives an error the shape that llama.cpp's clients know.
pub(crate) async fn as_llama(response: Response) -> Response {
    let Some(error) = response.extensions().get::<ApiError>() else { return response };
    let document = llama(error);
    let (mut head, _) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(document.to_string()))
}

impl From<llmcc_model::Error> for ApiError {
    fn from(e: llmcc_model::Error) -> ApiError {
        let message = e.message().to_owned();
        let other = |status, kind| ApiError::new(status, kind, message.as_str());
        match e.status() {
            Status::Invalid | Status::Template => ApiError::invalid(message),
            Status::Unsupported => ApiError::invalid(message).code("unsupported"),
            Status::ContextFull | Status::CacheFull => ApiError::invalid(message).code("context_length_exceeded"),
            Status::Busy => ApiError::busy(message),
            Status::Deadline => other(StatusCode::GATEWAY_TIMEOUT, "timeout_error").code("timeout"),
            Status::System | Status::Interrupted => ApiError::unfinished(message),
            _ => other(StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = answer(self.status, &self.json());
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // OpenAI's clients repeat whatever took too long, unless they are told not to.
        if self.status == StatusCode::GATEWAY_TIMEOUT {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

/// A document as a response.
pub(crate) fn answer(status: StatusCode, document: &Value) -> Response {
    let mut response = Response::new(Body::from(document.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
