//! Arguments of `llmcc serve`.

use super::engine::EngineArgs;
use clap::{Args as ClapArgs, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// The form of lines about requests.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogAs {
    /// None
    Off,
    /// `name=value ...`
    Text,
    /// A JSON object on each line
    Json,
}

/// `llmcc serve`
#[derive(Clone, Debug, ClapArgs)]
pub struct ServeArgs {
    /// Artifacts: requests name the model that they want
    #[arg(value_name = "ARTIFACT", required_unless_present = "model_dir")]
    pub artifacts: Vec<PathBuf>,
    /// Address to listen at. One that other machines reach needs --api-key-file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen at; 0: a free one, which is printed
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Certificate of the server, with those that vouch for it, in PEM: it speaks TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Name that a server without keys may be called by, beside addresses and localhost
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Origin whose pages may ask the server (`https://example.com`); *: any; localhost: pages of this machine
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
    /// Lines about requests on the standard error stream
    #[arg(long, value_name = "FORM", default_value = "off")]
    pub log: LogAs,
    /// Most connections at once; further ones wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// File with keys, one on a line: requests must bring one of them (`Authorization: Bearer KEY`)
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Name of the model for clients, once for each artifact [default: the artifact's, without .so]
    #[arg(long, value_name = "NAME")]
    pub served_name: Vec<String>,
    /// Folder with artifacts that clients may load and unload by name (`POST /models/load`)
    #[arg(long, value_name = "FOLDER")]
    pub model_dir: Option<PathBuf>,
    /// Give `/metrics` without a key, as to routers that know none
    #[arg(long)]
    pub open_metrics: bool,
    /// No page at `/`
    #[arg(long)]
    pub no_page: bool,
    /// Requests may name any model: the only one answers
    #[arg(long)]
    pub any_model: bool,
    /// Path that is refused with 501 (`/slots`; may be repeated)
    #[arg(long, value_name = "PATH")]
    pub without: Vec<String>,
    /// Member that counts where a request has none, e.g. temperature=0.8: max_tokens, temperature, top_p, top_k, min_p,
    /// repetition_penalty, seed, chat_template_kwargs, add_special_tokens or verbose. The value is JSON (repeatable)
    #[arg(long = "default", value_name = "NAME=VALUE", value_parser = llmcc_serve::parse_default)]
    pub defaults: Vec<(String, serde_json::Value)>,
    /// Most models at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_models: u32,
    /// Most responses that are kept in memory for `/v1/responses`; 0: none
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub stored_responses: u32,
    /// Most requests in a step of the model [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_running: Option<u32>,
    /// Most requests that wait beside these; further ones are refused [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_queued: Option<u64>,
    /// Folder in which computed beginnings of requests survive the server
    #[arg(long, value_name = "FOLDER")]
    pub cache_dir: Option<PathBuf>,
    /// Most MiB of the files there, for each model [default: 8192]
    #[arg(long, value_name = "MIB", requires = "cache_dir", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache_dir_mib: Option<u64>,
    /// How long requests under way may take when the server is asked to end (SIGTERM, Ctrl-C)
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain_seconds: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}
