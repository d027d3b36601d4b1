//! Arguments of `llmcc eval`.

use super::engine::EngineArgs;
use clap::builder::TypedValueParser;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// `llmcc eval`
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Perplexity of a text
    Ppl(PplArgs),
    /// Difference between the predictions of two models: Kullback-Leibler divergence, agreement of the most probable
    /// tokens, both perplexities
    Kl(KlArgs),
    /// Questions about texts of several lengths: a needle, one of several keys, variables over assignments, a fact
    /// among documents, a function of another file
    Long(LongArgs),
}

/// `llmcc eval ppl`: an artifact, measured on a text.
#[derive(Debug, ClapArgs)]
pub struct PplArgs {
    /// Artifact
    pub artifact: PathBuf,
    /// Text file (UTF-8); `-` is standard input
    pub file: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cut: CutArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}

/// `llmcc eval kl`
#[derive(Debug, ClapArgs)]
pub struct KlArgs {
    /// The reference: an artifact, or a checkpoint, which is compiled in its own types for this machine, with f32
    /// activations and cache
    pub reference: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub measured: PplArgs,
    /// The file has sequences of token ids: lists in a list (JSON)
    #[arg(long, hide = true, conflicts_with_all = ["separator", "documents", "window", "stride", "first_window"])]
    pub ids: bool,
}

/// `llmcc eval long`
#[derive(Debug, ClapArgs)]
pub struct LongArgs {
    /// Artifacts, such as one model with several caches
    #[arg(required = true)]
    pub artifacts: Vec<PathBuf>,
    /// Lengths of the texts in tokens, with the answer [default: powers of two from 256 on, up to the longest context
    /// and 8192]
    #[arg(long, value_name = "TOKENS,TOKENS...", value_delimiter = ',')]
    pub lengths: Vec<usize>,
    /// Probes: needle, keys, trace, documents, code, summary [default: all]
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',')]
    pub probes: Vec<String>,
    /// Texts of each probe and length; their facts stand at as many depths
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000).map(|n| n as usize))]
    pub samples: usize,
    /// Other texts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}

/// How a text is cut into the parts that a model sees at once.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct CutArgs {
    /// Split the text into documents at this string; each is evaluated on its own
    #[arg(long)]
    pub separator: Option<String>,
    /// Documents to use at most
    #[arg(long)]
    pub documents: Option<usize>,
    /// Cut documents into windows of this many tokens, each with the beginning-of-text token; with
    /// --stride they overlap instead [default: windows of the longest context that overlap]
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<usize>,
    /// Tokens from the beginning of a window to that of the next; those that both have are predicted
    /// in the first, and are context in the second [default: half a window]
    #[arg(long, value_name = "TOKENS")]
    pub stride: Option<usize>,
    /// Use the first window of each document only
    #[arg(long, conflicts_with = "stride")]
    pub first_window: bool,
}
