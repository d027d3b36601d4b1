//! Arguments of `llmcc serve`.

use super::engine::EngineArgs;
use clap::Args as ClapArgs;
use std::net::IpAddr;
use std::path::PathBuf;

/// `llmcc serve`
#[derive(Debug, ClapArgs)]
pub struct ServeArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// Address to listen at. One that other machines reach needs --api-key-file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen at; 0: a free one, which is printed
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// File with keys, one on a line: requests must bring one of them (`Authorization: Bearer KEY`)
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Name of the model for clients [default: the artifact's, without .so]
    #[arg(long, value_name = "NAME")]
    pub served_name: Option<String>,
    /// Most requests in a step of the model [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_running: Option<u32>,
    /// Most requests that wait beside these; further ones are refused [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_queued: Option<u64>,
    /// How long requests under way may take when the server is asked to end (SIGTERM, Ctrl-C)
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain_seconds: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}
