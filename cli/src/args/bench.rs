//! Arguments of `llmcc bench`.

use super::engine::EngineArgs;
use super::workload::WorkloadArgs;
use crate::workload::Scenario;
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// `llmcc bench`
#[derive(Debug, ClapArgs)]
pub struct BenchArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// Prompt lengths for prefill
    #[arg(long, value_delimiter = ',', default_value = "32,128,512")]
    pub prefill: Vec<usize>,
    /// Numbers of sequences decoded at once
    #[arg(long, value_delimiter = ',', default_value = "1,4,8")]
    pub batch: Vec<usize>,
    /// Decode steps per measurement
    #[arg(long, default_value_t = 32)]
    pub steps: usize,
    /// Numbers of tokens after which one sequence is decoded, besides (recurrent states are as fast
    /// after any number, caches are read whole)
    #[arg(long, value_delimiter = ',')]
    pub depth: Vec<usize>,
    /// Numbers of users that an engine serves at once, besides: each asks for the next text when its last one has ended
    #[arg(long, value_delimiter = ',')]
    pub serve: Vec<usize>,
    /// Requests of each of these users
    #[arg(long, default_value_t = 4, requires = "serve")]
    pub requests: usize,
    /// Requests that an engine serves, besides: offline (all at once), server:RATE (RATE a second on average, at
    /// random), closed:USERS, each with `:REQUESTS` behind it or without, or a trace: a file with a JSON object per
    /// line (arrival, prompt, output)
    #[arg(long, value_name = "SCENARIO", value_parser = Scenario::parse)]
    pub scenario: Vec<Scenario>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub workload: WorkloadArgs,
    /// Let requests of workloads guess tokens by what follows the same ones earlier in the text
    #[arg(long)]
    pub lookup: bool,
    /// Repetitions; the median is printed
    #[arg(long, default_value_t = 3)]
    pub repeat: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Time per kernel as well, measured against predicted
    #[arg(long)]
    pub kernels: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}
