//! Options of the engine, for all subcommands that open an artifact.

use crate::loaded::EngineOptions;
use clap::Args as ClapArgs;

/// How an artifact is opened.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct EngineArgs {
    /// Threads; 0 = one per core
    #[arg(long, default_value_t = 0)]
    pub threads: u32,
    /// Tokens the cache of keys and values holds [default: the model's longest context, at least
    /// 16384, or what fits half of the memory]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache_tokens: Option<u64>,
    /// Keep each thread on a processor of its own (which: see taskset)
    #[arg(long)]
    pub pin: bool,
    /// The same bits on every processor, also of bf16 products, which those with AMX otherwise sum
    /// in another order and faster
    #[arg(long)]
    pub portable: bool,
}

impl EngineArgs {
    /// The options that they are.
    pub fn options(&self) -> EngineOptions {
        let max_tokens = self.cache_tokens.unwrap_or(0);
        EngineOptions {
            threads: self.threads,
            max_tokens,
            pin: self.pin,
            portable: self.portable,
            ..EngineOptions::default()
        }
    }
}
