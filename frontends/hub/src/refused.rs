//! Errors of the hub, in words that say what to do.

use crate::error::HubError;
use crate::http::{Failure, Refusal};
use crate::names;

/// The thing that was asked for.
pub(crate) struct Subject<'a> {
    pub endpoint: &'a str,
    pub id: &'a str,
    pub revision: &'a str,
    pub file: Option<&'a str>,
    /// Where the token comes from that was sent.
    pub token: Option<String>,
}

/// Header with the kind of an error.
const CODE: &str = "x-error-code";
/// Header with the server's words.
const MESSAGE: &str = "x-error-message";

/// Says why there is no answer.
pub(crate) fn explain(failure: Failure, about: &Subject<'_>) -> HubError {
    match failure {
        Failure::Other(e) => e,
        Failure::Refused(refusal) => refused(&refusal, about),
    }
}

fn refused(refusal: &Refusal, about: &Subject<'_>) -> HubError {
    let (id, endpoint, token) = (about.id.to_owned(), about.endpoint.to_owned(), about.token.clone());
    let of_hub = refusal.url.starts_with(about.endpoint);
    let said = names::shown(refusal.header(MESSAGE));
    let bad = said.starts_with("Invalid credentials") || said.starts_with("Invalid username or password");
    match (refusal.header(CODE), refusal.status) {
        ("GatedRepo", _) => {
            let page = format!("ask for access, or agree to its terms, at {endpoint}/{id}");
            HubError::Gated { id, page, endpoint, token }
        }
        ("RevisionNotFound", _) => HubError::NoRevision { id, revision: about.revision.to_owned(), endpoint },
        ("EntryNotFound", _) => HubError::NoFile { id, file: about.file.unwrap_or("?").to_owned() },
        (_, 401) if of_hub && (bad || said.is_empty() && refusal.header(CODE).is_empty()) && token.is_some() => {
            HubError::BadToken { endpoint, from: token.unwrap_or_default() }
        }
        ("RepoNotFound", _) | (_, 401) if of_hub => HubError::NoModel { id, endpoint, token },
        (_, 404) if of_hub => match about.file {
            Some(file) => HubError::NoFile { id, file: file.to_owned() },
            None => HubError::NoModel { id, endpoint, token },
        },
        (_, status) => HubError::Status {
            url: refusal.url.clone(),
            status,
            said: if said.is_empty() { String::new() } else { format!(": {said}") },
            after: after(refusal, about),
        },
    }
}

/// The remedy for an error without a kind.
fn after(refusal: &Refusal, about: &Subject<'_>) -> String {
    match refusal.status {
        403 => match &about.token {
            None => "; it may let in a user with a token (HF_TOKEN)".into(),
            Some(from) => format!("; the token from {from} lacks the right to read it"),
        },
        429 => format!(", also when asked {} times; wait some minutes, or give a token (HF_TOKEN)", refusal.tries),
        500.. if refusal.tries > 1 => format!(", also when asked {} times; try again later", refusal.tries),
        _ => String::new(),
    }
}
