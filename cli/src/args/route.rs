//! Arguments of `llmcc route`.

use clap::Args as ClapArgs;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `llmcc route`
#[derive(Clone, Debug, ClapArgs)]
pub struct RouteArgs {
    /// URL of a server of the artifact, such as http://10.0.0.1:8080 (once for each; all serve the same artifact)
    #[arg(long = "replica", value_name = "URL", required = true)]
    pub replicas: Vec<String>,
    /// Address and port to listen at; port 0: a free one, which is printed. An address that other machines reach needs
    /// --api-key-file
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// File with keys, one on a line: requests must bring one of them (`Authorization: Bearer KEY`), which replicas get
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Certificate of the router, with those that vouch for it, in PEM: it speaks TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Name that a router without keys may be called by, beside addresses and localhost
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Most connections at once; further ones wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Milliseconds between two looks at a replica's health
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    pub check_ms: u32,
    /// Milliseconds to wait for a connection to a replica, and for its health; three late answers in a row take it out
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    pub connect_ms: u32,
    /// Most attempts in a row that bring a request no further
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub attempts: u32,
    /// Longest time in which a request comes no further before it fails
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub retry_seconds: u32,
    /// How long a stream may bring nothing before another replica goes on with it [default: as long as it takes]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub stall_seconds: Option<u32>,
    /// How long requests under way may take when the router is asked to end (SIGTERM, Ctrl-C)
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain_seconds: u32,
}
