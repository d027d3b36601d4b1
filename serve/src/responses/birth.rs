//! The identifier and the time of an answer: new ones, or those that a router chose.
//!
//! A router that goes on with a stream at another replica gives the answer there the same ones, so that the client sees
//! one answer. Identifiers of items come from that of the answer.

use crate::error::ApiError;
use crate::responses::items::new_id;
use crate::served::now;
use axum::http::{HeaderMap, HeaderName};

/// The header with an answer's identifier and the seconds from 1970 to its beginning: `resp_HEX.SECONDS`.
const CHOSEN: HeaderName = HeaderName::from_static("x-llmcc-response");

/// How an answer begins.
pub(crate) struct Birth {
    pub(crate) id: String,
    /// Seconds from 1970.
    pub(crate) created: u64,
    /// Its stream says which tokens it brings.
    pub(crate) traced: bool,
}

impl Birth {
    /// An answer that begins now.
    pub(crate) fn now(traced: bool) -> Birth {
        Birth { id: new_id("resp"), created: now(), traced }
    }

    /// The same, or as the request's header says.
    ///
    /// # Errors
    /// The header has another form.
    pub(crate) fn of(headers: &HeaderMap, traced: bool) -> Result<Birth, ApiError> {
        let Some(chosen) = headers.get(CHOSEN) else { return Ok(Birth::now(traced)) };
        let read = chosen.to_str().ok().and_then(|text| {
            let (id, seconds) = text.split_once('.')?;
            let hex = id.strip_prefix("resp_")?;
            let right = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            Some(Birth { id: id.to_owned(), created: seconds.parse().ok()?, traced }).filter(|_| right)
        });
        let wrong = || {
            let message = format!("the header {CHOSEN} is no `resp_HEX.SECONDS` with 32 digits: leave it out");
            ApiError::of_param(CHOSEN.as_str(), message)
        };
        read.ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_choose_identifiers() {
        let of = |text: &str| {
            let headers = HeaderMap::from_iter([(CHOSEN, text.parse().unwrap())]);
            Birth::of(&headers, true).map(|birth| (birth.id, birth.created)).ok()
        };
        let id = format!("resp_{}", "0a".repeat(16));
        assert_eq!(of(&format!("{id}.17")), Some((id.clone(), 17)));
        for wrong in
            ["", "x", &id, &format!("{id}."), &format!("{id}.x"), "resp_0a.1", &format!("{}.1", id.to_uppercase())]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_ne!(Birth::now(false).id, Birth::now(false).id);
    }
}
