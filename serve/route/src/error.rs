//! Errors of the router itself, in the shapes of the interfaces.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

/// The shape of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    OpenAi,
    Anthropic,
    Llama,
}

/// Why the router does not pass a request on, or cannot go on with it.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
    /// Seconds after which the client may ask again.
    retry_after: Option<u32>,
}

impl Refusal {
    /// A wrong request.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        let kind = "invalid_request_error";
        Refusal { status, kind, code: Some(code), message: message.into(), retry_after: None }
    }

    /// No key, or a wrong one.
    pub(crate) fn no_key() -> Refusal {
        let message = "the key is missing or wrong: send the router's key in the header `Authorization: Bearer KEY`";
        let kind = "authentication_error";
        Refusal { kind, ..Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message) }
    }

    /// The router is about to end.
    pub(crate) fn draining() -> Refusal {
        let message = "the router is shutting down and takes no further requests: ask another one, or this one later";
        Refusal::unavailable("shutting_down", message.into())
    }

    /// No replica answers; `why`: which ones were asked, and why each failed.
    pub(crate) fn no_replica(why: &str) -> Refusal {
        Refusal::unavailable("no_replica", format!("no replica could serve the request: {why}: ask again later"))
    }

    fn unavailable(code: &'static str, message: String) -> Refusal {
        let kind = "server_error";
        Refusal { kind, retry_after: Some(5), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, message) }
    }

    fn json(&self, interface: Interface) -> Value {
        let Refusal { kind, code, message, .. } = self;
        match interface {
            Interface::OpenAi => json!({ "error": { "message": message, "type": kind, "param": null, "code": code } }),
            Interface::Anthropic => {
                let kind = if self.status == StatusCode::SERVICE_UNAVAILABLE { "overloaded_error" } else { kind };
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
            Interface::Llama => {
                let kind = if self.status == StatusCode::SERVICE_UNAVAILABLE { "unavailable_error" } else { kind };
                json!({ "error": { "code": self.status.as_u16(), "message": message, "type": kind } })
            }
        }
    }

    /// As a response.
    pub(crate) fn response(&self, interface: Interface) -> Response {
        let mut response = Response::new(Body::from(self.json(interface).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// As the last events of a stream that has begun.
    pub(crate) fn events(&self, interface: Interface) -> Vec<u8> {
        let document = self.json(interface);
        let text = match interface {
            Interface::OpenAi => format!("data: {document}\n\ndata: [DONE]\n\n"),
            Interface::Anthropic => format!("event: error\ndata: {document}\n\n"),
            Interface::Llama => format!("data: {document}\n\n"),
        };
        text.into_bytes()
    }
}
