//! Bodies of requests.

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the body of a request.
pub const BODY: Duration = Duration::from_secs(60);

/// Why a body is refused.
#[derive(Debug)]
pub enum BodyError {
    /// It is longer than it may be.
    TooLong,
    /// It does not come in time ([`BODY`]).
    Late,
    /// The connection breaks.
    Unreadable(axum::Error),
}

/// A body of up to `most` bytes.
///
/// # Errors
/// It is longer, does not come in time, or breaks off.
pub async fn read_body(body: Body, most: usize) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > most as u64 {
        return Err(BodyError::TooLong);
    }
    match timeout(BODY, to_bytes(body, most)).await {
        Err(_) => Err(BodyError::Late),
        Ok(Err(e)) if is_length(&e) => Err(BodyError::TooLong),
        Ok(Err(e)) => Err(BodyError::Unreadable(e)),
        Ok(Ok(body)) => Ok(body),
    }
}

/// Whether a body was longer than its limit.
fn is_length(e: &axum::Error) -> bool {
    let mut source = std::error::Error::source(e);
    while let Some(cause) = source {
        if cause.to_string().contains("length limit") {
            return true;
        }
        source = cause.source();
    }
    false
}
