//! Arguments of `llmcc pull`.

use clap::Args as ClapArgs;
use llmcc_hub::{Pattern, Reference};

/// `llmcc pull`
#[derive(Debug, ClapArgs)]
pub struct PullArgs {
    /// Model of the hub: OWNER/NAME, with @REVISION (a branch, tag or commit), and for GGUF :FORMAT (such as
    /// :Q4_K_M) or /FILE behind it; or the address of its page
    #[arg(value_name = "MODEL", value_parser = Reference::parse)]
    pub model: Reference,
    /// Fetch the files with names like this, in place of those that compiling needs (may be repeated); `*` stands
    /// for any characters
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    pub include: Vec<Pattern>,
    /// Leave out files with names like this (may be repeated)
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    pub exclude: Vec<Pattern>,
    /// List the files that would be fetched and left out, and fetch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print only the path, and no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Print a JSON document in place of the path
    #[arg(long)]
    pub json: bool,
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|e| e.to_string())
}
