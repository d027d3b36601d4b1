//! Everything that can end a download.

use std::path::PathBuf;
use std::time::Duration;

/// Why files were not fetched. Its text names the fault, its place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A name or a variable of the environment makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Nothing may be fetched, and the cache lacks the model.
    #[error("{id}: {why}")]
    Offline {
        /// The model.
        id: String,
        /// The missing part.
        why: String,
    },
    /// The server knows no such model, or hides it.
    #[error("{id}: {endpoint} has no model of this name, or it is private{}", remedy(token, endpoint))]
    NoModel {
        /// The model.
        id: String,
        /// Address of the hub.
        endpoint: String,
        /// Where the token comes from that was sent, if one was.
        token: Option<String>,
    },
    /// The model's owner decides who may download it.
    #[error("{id} is gated: {}{}", .page, gated(token, endpoint))]
    Gated {
        /// The model.
        id: String,
        /// The request that a user makes first.
        page: String,
        /// Address of the hub.
        endpoint: String,
        /// Where the token comes from that was sent, if one was.
        token: Option<String>,
    },
    /// The token is no longer valid, or never was.
    #[error("{endpoint} refuses the token from {from}: make a new one at {endpoint}/settings/tokens, or take it away")]
    BadToken {
        /// Address of the hub.
        endpoint: String,
        /// Where the token comes from.
        from: String,
    },
    /// There is no such branch, tag or commit.
    #[error("{id} has no revision `{revision}`: {endpoint}/{id}/refs lists branches and tags")]
    NoRevision {
        /// The model.
        id: String,
        /// The revision.
        revision: String,
        /// Address of the hub.
        endpoint: String,
    },
    /// There is no such file.
    #[error("{id} has no file `{file}`")]
    NoFile {
        /// The model.
        id: String,
        /// The file.
        file: String,
    },
    /// None of the files can be compiled, or several could.
    #[error("{id}: {why}")]
    Choice {
        /// The model.
        id: String,
        /// The fault and the remedy.
        why: String,
    },
    /// The server answers with an error, also when asked again.
    #[error("{url}: the server answers {status}{said}{after}")]
    Status {
        /// Address.
        url: String,
        /// Status of HTTP.
        status: u16,
        /// The server's words.
        said: String,
        /// How often it was asked, and when to try again.
        after: String,
    },
    /// The server asks for a long pause.
    #[error("{url}: too many requests: wait for {} seconds, as the server asks, or give a token", wait.as_secs())]
    Busy {
        /// Address.
        url: String,
        /// The pause.
        wait: Duration,
    },
    /// The server cannot be reached, or hangs up.
    #[error("{url}: {why}")]
    Network {
        /// Address.
        url: String,
        /// Reason.
        why: String,
    },
    /// The server's answer makes no sense, contradicts itself, or has other bytes than it should.
    #[error("{place}: {why}")]
    Untrusted {
        /// Model and file, or address.
        place: String,
        /// The fault.
        why: String,
    },
    /// A file of the cache.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// File.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// The disk has too little room.
    #[error(
        "{}: the download has {needed} bytes, the disk {free}: make room, or set HF_HOME to another folder",
        folder.display()
    )]
    Full {
        /// Folder of the cache.
        folder: PathBuf,
        /// Bytes to come.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Another file's error has ended the download.
    #[error("stopped")]
    Stopped,
}

impl HubError {
    /// An [`HubError::Io`].
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> HubError {
        let path = path.into();
        move |source| HubError::Io { action, path, source }
    }

    /// Whether the server could not be asked, so that files in the cache are better than none.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, HubError::Network { .. } | HubError::Busy { .. })
            || matches!(self, HubError::Status { status: 500.., .. })
    }
}

/// How to read a private model.
fn remedy(token: &Option<String>, endpoint: &str) -> String {
    match token {
        None => format!(
            ": check the name; for a private model give a token of {endpoint}/settings/tokens in HF_TOKEN, or log in \
             with `hf auth login`"
        ),
        Some(from) => format!(", and the token from {from} does not open it: check the name and the token's rights"),
    }
}

/// How to read a gated model.
fn gated(token: &Option<String>, endpoint: &str) -> String {
    match token {
        None => format!(
            "; then give a token of that account ({endpoint}/settings/tokens) in HF_TOKEN, or log in with `hf auth \
             login`"
        ),
        Some(from) => {
            format!("; the token from {from} must be of an account that was let in, with the right to read it")
        }
    }
}
