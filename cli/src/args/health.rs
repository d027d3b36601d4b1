//! Arguments of `llmcc health`.

use clap::Args as ClapArgs;

/// `llmcc health`
#[derive(Clone, Debug, ClapArgs)]
pub struct HealthArgs {
    /// URL of a server or a router that speaks plain HTTP
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Ask whether it runs at all (`/health`), not whether it takes requests (`/ready`)
    #[arg(long)]
    pub live: bool,
    /// Longest wait for the connection, and for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub timeout_seconds: u32,
}
