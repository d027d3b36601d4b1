//! Settings of a router.

use llmcc_serve::TlsFiles;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How a router listens, and how it treats replicas.
#[derive(Clone)]
pub struct Settings {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// URLs of the replicas, such as `http://10.0.0.1:8080`.
    pub replicas: Vec<String>,
    /// The router's identity; `None`: it speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Keys, one of which a request must have; none: any request is passed on.
    pub keys: Vec<String>,
    /// Names that a router without keys may be called by, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Most bytes of a request's body.
    pub max_body: usize,
    /// Most connections of clients at once; further ones wait.
    pub max_connections: usize,
    /// How long a client may leave sent bytes unread before its connection is closed.
    pub patience: Duration,
    /// How long requests under way may take when the router is asked to end.
    pub drain: Duration,
    /// Time from one look at a replica's health to the next.
    pub check: Duration,
    /// Longest wait for a replica's health, and for a connection to it.
    pub connect: Duration,
    /// Most connections to each replica that wait for a request.
    pub idle: usize,
    /// Most attempts in a row that bring a request no further.
    pub attempts: usize,
    /// Longest time in which a request comes no further before it fails.
    pub retry: Duration,
    /// How long a stream may bring nothing before its replica counts as stuck; `None`: as long as it takes.
    pub stall: Option<Duration>,
}

impl Default for Settings {
    /// A router at `127.0.0.1:8000` without keys and without replicas.
    fn default() -> Settings {
        Settings {
            listen: SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 8000),
            replicas: vec![],
            tls: None,
            keys: vec![],
            hosts: vec![],
            max_body: 16 << 20,
            max_connections: 1024,
            patience: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            check: Duration::from_secs(1),
            connect: Duration::from_secs(2),
            idle: 32,
            attempts: 8,
            retry: Duration::from_secs(15),
            stall: None,
        }
    }
}

impl std::fmt::Debug for Settings {
    /// Keys are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("listen", &self.listen).field("replicas", &self.replicas).finish_non_exhaustive()
    }
}
