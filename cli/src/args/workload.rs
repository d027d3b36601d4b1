//! Arguments of workloads, for all subcommands that serve or predict some.

use super::values::parse_milliseconds;
use crate::workload::figures::Targets;
use crate::workload::generated::{Lengths, parse_lengths};
use clap::Args as ClapArgs;
use std::ops::RangeInclusive;

/// Lengths of generated requests, and targets of all.
#[derive(Clone, Debug, ClapArgs)]
pub struct WorkloadArgs {
    /// Tokens of each generated prompt, or a range of them: 32-512 [default: 128]
    #[arg(long, value_name = "TOKENS", value_parser = parse_lengths)]
    pub serve_prompt: Option<RangeInclusive<usize>>,
    /// Tokens of these that all prompts begin with [default: 0]
    #[arg(long, value_name = "TOKENS")]
    pub serve_shared: Option<usize>,
    /// Tokens of each generated text, or a range of them [default: 64]
    #[arg(long, value_name = "TOKENS", value_parser = parse_lengths)]
    pub serve_tokens: Option<RangeInclusive<usize>>,
    /// Seed of lengths and arrivals [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Milliseconds to the first token within which a request is good
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    pub ttft: Option<f64>,
    /// Milliseconds between two tokens, on average over a request, within which it is good
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    pub itl: Option<f64>,
    /// Most requests in a step [default: 64, or as many as there are users]
    #[arg(long, value_name = "REQUESTS", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub running: Option<usize>,
}

impl WorkloadArgs {
    /// The lengths.
    pub fn lengths(&self) -> Lengths {
        Lengths {
            prompt: self.serve_prompt.clone().unwrap_or(128..=128),
            output: self.serve_tokens.clone().unwrap_or(64..=64),
            shared: self.serve_shared.unwrap_or(0),
            seed: self.seed.unwrap_or(0),
        }
    }

    /// The first option that was given, if any was.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--serve-prompt", self.serve_prompt.is_some()),
            ("--serve-shared", self.serve_shared.is_some()),
            ("--serve-tokens", self.serve_tokens.is_some()),
            ("--seed", self.seed.is_some()),
            ("--ttft", self.ttft.is_some()),
            ("--itl", self.itl.is_some()),
            ("--running", self.running.is_some()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The targets.
    pub fn targets(&self) -> Targets {
        Targets { first: self.ttft.map(|ms| ms / 1e3), between: self.itl.map(|ms| ms / 1e3) }
    }
}
