//! `llmcc tap`: moments of the inputs of products.

use super::{CalibTexts, EngineArgs};
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// `llmcc tap`
#[derive(Debug, ClapArgs)]
pub struct TapArgs {
    /// Artifact, compiled with --tap
    pub artifact: PathBuf,
    /// Text file (UTF-8); `-` is standard input
    #[arg(required_unless_present_any = ["prompt", "sources"])]
    pub file: Option<PathBuf>,
    /// Text, instead of a file
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub calib: CalibTexts,
    /// File of safetensors to write: for each weight WEIGHT.count, .squares (sums, by column), .min and .max
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write WEIGHT.products, too: sums of products of two columns
    #[arg(long)]
    pub full: bool,
    /// Write what weights have in common once: the note `shared` names the others
    #[arg(long)]
    pub once: bool,
    /// Memory for these; where they need more, the text goes through the model several times
    #[arg(long, value_name = "GIB", default_value_t = 2.0, requires = "full")]
    pub full_memory: f64,
    /// Split the text into documents at this string
    #[arg(long)]
    pub separator: Option<String>,
    /// Cut documents into sequences of at most this many tokens [default: 2048, or the longest context]
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<usize>,
    /// Tokens to use at most
    #[arg(long, value_name = "TOKENS")]
    pub tokens: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
}
