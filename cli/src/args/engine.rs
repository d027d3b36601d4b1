//! Options of the engine, for all subcommands that open an artifact.

use crate::loaded::{EngineOptions, Model};
use crate::{Error, signature};
use clap::Args as ClapArgs;
use std::path::{Path, PathBuf};

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
    /// Check first that every byte is as it was signed (`compile --sign`) with the private key to this public one, in
    /// PEM; nothing of another file is run
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

impl EngineArgs {
    /// Opens an artifact.
    ///
    /// # Errors
    /// As [`Model::open`]; a signature that is wanted and missing or wrong.
    pub fn open(&self, artifact: &Path) -> Result<Model, Error> {
        self.open_with(artifact, self.options())
    }

    /// Opens an artifact with options that are these and more.
    ///
    /// # Errors
    /// As [`EngineArgs::open`].
    pub fn open_with(&self, artifact: &Path, options: EngineOptions) -> Result<Model, Error> {
        self.check_key(artifact)?;
        Model::open(artifact, options)
    }

    /// Checks the artifact's signature with the key, if one was given.
    ///
    /// # Errors
    /// The artifact is not signed, or by another key.
    pub fn check_key(&self, artifact: &Path) -> Result<(), Error> {
        self.key.as_ref().map_or(Ok(()), |key| signature::check(artifact, key))
    }

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
