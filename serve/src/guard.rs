//! Checks before any path: the name that a browser calls the server by, the pages that may ask it, and keys.

use crate::app::App;
use crate::error::ApiError;
use crate::settings::Settings;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Most bytes of a request's path and headers.
const HEAD_BYTES: usize = 32 << 10;
/// How long a browser remembers what a page may ask for.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Refuses requests whose headers are too long. (The connection's buffer has room for somewhat more.)
pub(crate) async fn heads(request: Request, next: Next) -> Response {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    if headers + request.uri().path_and_query().map_or(0, |path| path.as_str().len()) <= HEAD_BYTES {
        return next.run(request).await;
    }
    let message = format!("path and headers are too long: send up to {HEAD_BYTES} bytes");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    ApiError::new(status, "invalid_request_error", message).into_response()
}

/// Refuses paths that the server is started without.
pub(crate) async fn left_out(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !app.settings.without.iter().any(|without| without == path) {
        return next.run(request).await;
    }
    let message = format!("this server is started without {path}: whoever runs it leaves out --without {path}");
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message).code("not_supported").into_response()
}

/// Lets requests with a right key through, and those for metrics that need none.
pub(crate) async fn keys(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_open = app.settings.open_metrics && request.uri().path() == "/metrics";
    match app.authorize(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(_) if is_open => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Refuses requests that call a server for this machine alone by another name.
///
/// A page elsewhere may have its own name lead to this machine (DNS rebinding): for the browser it is of the same
/// origin then. A server with keys needs no such check.
pub(crate) async fn hosts(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let settings = &app.settings;
    let open = settings.keys.is_empty() && settings.host.is_loopback();
    let given = request.headers().get(header::HOST).map(HeaderValue::as_bytes);
    let given = given.or_else(|| request.uri().authority().map(|authority| authority.as_str().as_bytes()));
    match given {
        Some(host) if open && !is_own(host, &settings.hosts) => {
            let host = String::from_utf8_lossy(host).into_owned();
            let message = format!(
                "the server is not known by the name `{host:.80}`: call it by its address or as localhost, start it \
                 with --allow-host, or with a key"
            );
            ApiError::new(StatusCode::FORBIDDEN, "invalid_request_error", message).code("wrong_host").into_response()
        }
        _ => next.run(request).await,
    }
}

/// Whether a name with its port is an address, this machine's, or one that is allowed.
pub fn is_own(host: &[u8], allowed: &[String]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let is = |own: &str| name.eq_ignore_ascii_case(own);
    let below = name.len() > 10 && name.as_bytes()[name.len() - 10..].eq_ignore_ascii_case(b".localhost");
    name.parse::<IpAddr>().is_ok() || is("localhost") || below || allowed.iter().any(|own| is(own))
}

/// The pages of other origins that may ask the server; `None`: no page may.
///
/// # Errors
/// An origin that is none.
pub(crate) fn origins(settings: &Settings) -> Result<Option<CorsLayer>, String> {
    if settings.origins.is_empty() {
        return Ok(None);
    }
    let (near, far): (Vec<&String>, Vec<&String>) = settings.origins.iter().partition(|text| *text == "localhost");
    let origins = if far.iter().any(|origin| *origin == "*") {
        AllowOrigin::any()
    } else {
        let known: Vec<HeaderValue> = far.into_iter().map(|text| origin(text)).collect::<Result<_, _>>()?;
        let near = !near.is_empty();
        AllowOrigin::predicate(move |given, _| known.contains(given) || (near && is_near(given)))
    };
    let exposed = [header::RETRY_AFTER, HeaderName::from_static("x-request-id")];
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
        .max_age(REMEMBERED);
    Ok(Some(layer))
}

/// Whether an origin is a page of this machine.
fn is_near(given: &HeaderValue) -> bool {
    let host = given.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, host)| host);
    let Some(authority) = host.and_then(|host| Authority::try_from(host).ok()) else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An origin as browsers write it: a scheme, a host, perhaps a port.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let wrong = || format!("`{text}` is no origin: give one such as https://example.com, localhost, or *");
    let (scheme, host) = text.split_once("://").ok_or_else(wrong)?;
    let plain = !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']);
    if scheme.is_empty() || !plain || text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(wrong());
    }
    HeaderValue::from_str(text).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for host in
            ["127.0.0.1:8080", "[::1]:80", "localhost", "LocalHost:1", "a.localhost:1", "10.0.0.1", "localhost."]
        {
            assert!(is_own(host.as_bytes(), &[]), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "notlocalhost", "127.0.0.1.example.com", "a b", "", "é"] {
            assert!(!is_own(host.as_bytes(), &[]), "{host}");
        }
        assert!(is_own(b"My.Host:80", &["my.host".into()]));
    }

    #[test]
    fn pages_of_this_machine() {
        let near = |text: &str| is_near(&HeaderValue::from_str(text).unwrap());
        for text in
            ["http://localhost", "http://localhost:8080", "https://127.0.0.1:3000", "http://[::1]", "http://[::1]:1"]
        {
            assert!(near(text), "{text}");
        }
        for text in
            ["http://evil.com", "http://notlocalhost", "http://localhost.evil.com", "localhost", "null", "http://"]
        {
            assert!(!near(text), "{text}");
        }
    }

    #[test]
    fn origins_are_as_browsers_write_them() {
        for text in ["https://example.com", "http://127.0.0.1:3000", "chrome-extension://abc"] {
            assert!(origin(text).is_ok(), "{text}");
        }
        for text in ["example.com", "https://", "https://example.com/", "https://*.example.com", "https://Example.com"]
        {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}
