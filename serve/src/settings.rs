//! How a server is set up.

use crate::log::LogForm;
use crate::tls::TlsFiles;
use std::net::IpAddr;
use std::time::Duration;

/// How a server is set up.
#[derive(Clone)]
pub struct Settings {
    /// The address to listen at.
    pub host: IpAddr,
    /// Its port; 0: one that is free.
    pub port: u16,
    /// The identity that clients see, if they talk by TLS.
    pub tls: Option<TlsFiles>,
    /// Names that a server without keys may be called by, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Origins whose pages may ask the server; `*`: any, `localhost`: pages of this machine.
    pub origins: Vec<String>,
    /// Lines about requests.
    pub log: LogForm,
    /// Keys: each request must bring one. Without any, requests need none.
    pub keys: Vec<String>,
    /// Longest body of a request, in bytes.
    pub max_body: usize,
    /// Most connections at once; further ones wait.
    pub max_connections: usize,
    /// How long a client may leave sent bytes unread before its connection is closed.
    pub patience: Duration,
    /// How long a stream may be silent before a comment says that it goes on.
    pub quiet: Duration,
    /// How long requests under way may take when the server is asked to end.
    pub drain: Duration,
    /// Most models at once.
    pub max_models: usize,
    /// Whether there is a page at `/`.
    pub page: bool,
    /// Whether `/metrics` needs no key.
    pub open_metrics: bool,
    /// Whether a request may name any model where there is one only.
    pub any_model: bool,
    /// Paths that are refused with 501.
    pub without: Vec<String>,
    /// Most answers of `/v1/responses` that are kept; 0: none.
    pub max_stored: usize,
    /// Most bytes of kept answers.
    pub max_stored_bytes: usize,
}

impl Default for Settings {
    /// The settings of a server at `127.0.0.1:8080` without keys.
    fn default() -> Settings {
        Settings {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8080,
            tls: None,
            hosts: vec![],
            origins: vec![],
            log: LogForm::Off,
            keys: vec![],
            max_body: 16 << 20,
            max_connections: 1024,
            patience: Duration::from_secs(60),
            quiet: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            max_models: 4,
            page: true,
            open_metrics: false,
            any_model: false,
            without: vec![],
            max_stored: 1024,
            max_stored_bytes: 64 << 20,
        }
    }
}

impl std::fmt::Debug for Settings {
    /// Keys are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}
