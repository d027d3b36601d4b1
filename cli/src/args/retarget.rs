//! Arguments of `llmcc retarget`.

use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

/// `llmcc retarget`
#[derive(Debug, ClapArgs)]
pub struct RetargetArgs {
    /// Artifact; its weights file, if it has one, lies beside it. Nothing of it is run
    pub artifact: PathBuf,
    /// Machine to compile for, as with `compile`: `native`, or a name from `llmcc targets`; several, most wanted first
    #[arg(long)]
    pub target: String,
    /// Keep the weights in the artifact, or beside it in OUTPUT.weights [default: as ARTIFACT has them]
    #[arg(long, value_enum)]
    pub weights: Option<Kept>,
    /// On GPUs, give a sequence the same bits in any batch and any pieces, as CPUs do: slower [default: as ARTIFACT
    /// was compiled]
    #[arg(long)]
    pub invariant: bool,
    /// Fail when a kernel takes a generic slow path
    #[arg(long)]
    pub deny_fallback: bool,
    /// Do not run the finished artifact: no golden vectors for `llmcc verify`
    #[arg(long)]
    pub no_golden: bool,
    /// Sign the artifact with a private key of Ed25519 in PEM, as with `compile`
    #[arg(long, value_name = "FILE")]
    pub sign: Option<PathBuf>,
    /// No progress bar and no report
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the report as a JSON document on standard output
    #[arg(long)]
    pub json: bool,
    /// Output
    #[arg(short, long)]
    pub output: PathBuf,
}

/// Places for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// In the artifact
    Embed,
    /// In OUTPUT.weights
    External,
}
