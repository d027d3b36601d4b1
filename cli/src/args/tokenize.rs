//! Arguments of `llmcc tokenize`.

use super::run::TextArgs;
use clap::{ArgGroup, Args as ClapArgs};
use std::path::PathBuf;

/// `llmcc tokenize`
#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("input").args(["prompt", "prompt_file", "decode"])))]
pub struct TokenizeArgs {
    /// Artifact, or a checkpoint. Nothing of an artifact is run: its tokenizer is read
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArgs,
    /// Show the text of these token ids, comma separated
    #[arg(long, value_name = "IDS", value_delimiter = ',', allow_hyphen_values = true)]
    pub decode: Option<Vec<i32>>,
    /// Leave out the special tokens that the model expects around a text; of --decode those among the ids
    #[arg(long)]
    pub no_special: bool,
    /// Print how many tokens there are, and nothing else
    #[arg(long, conflicts_with_all = ["decode", "json"])]
    pub count: bool,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
}
