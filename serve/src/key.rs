//! Keys of requests.

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// The key that a request brings.
pub fn given_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

/// The place of a request's key among `keys`, found in time that does not tell how much of it is right.
pub fn key_of(headers: &HeaderMap, keys: &[String]) -> Option<usize> {
    let given = given_key(headers).unwrap_or_default();
    let equals = |key: &String| bool::from(key.as_bytes().ct_eq(given));
    // (All keys are compared.)
    keys.iter().enumerate().fold(None, |found, (i, key)| if equals(key) { Some(i) } else { found })
}
