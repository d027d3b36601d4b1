//! Arguments of `llmcc simulate`.

use super::engine::EngineArgs;
use super::workload::WorkloadArgs;
use crate::workload::Scenario;
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// `llmcc simulate`
#[derive(Debug, ClapArgs)]
pub struct SimulateArgs {
    /// Artifact, for any machine [default: none: the machines are listed, each beside a figure published for it]
    #[arg(required_unless_present = "list")]
    pub artifact: Option<PathBuf>,
    /// Requests to predict: offline (all at once), server:RATE (RATE a second on average, at random), closed:USERS,
    /// each with `:REQUESTS` behind it or without, or a trace: a file with a JSON object per line (arrival, prompt,
    /// output)
    #[arg(long, value_name = "SCENARIO", value_parser = Scenario::parse, required_unless_present = "list")]
    pub workload: Vec<Scenario>,
    /// Machines to predict for, beside the artifact's target: a100, h100, b200, mi300x, gaudi3, tpu-v5p, inferentia2,
    /// groq-lpu, flightllm, neupims, or a target
    #[arg(long, value_name = "MACHINE", value_delimiter = ',', conflicts_with = "list")]
    pub machines: Vec<String>,
    /// The artifact's version for this target [default: the first that this processor runs]
    #[arg(long, value_name = "TARGET", conflicts_with = "list")]
    pub target: Option<String>,
    /// Run some steps here first, and scale the predictions by their times
    #[arg(long, conflicts_with = "list")]
    pub calibrate: bool,
    /// List the machines, each beside a figure published for it, and the bound that its data sheet gives
    #[arg(long, conflicts_with_all = ["artifact", "workload"])]
    pub list: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub requests: WorkloadArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}
