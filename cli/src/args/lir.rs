//! Arguments of `llmcc check` and `llmcc opt`.

use super::values::parse_any_format;
use clap::{Args as ClapArgs, ValueEnum};
use llmcc_ir::quant::Format;
use std::path::PathBuf;

/// `llmcc check`
#[derive(Debug, ClapArgs)]
pub struct CheckArgs {
    /// Files of .lir text; `-` is standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Print the findings as a JSON document
    #[arg(long)]
    pub json: bool,
}

/// `llmcc opt`
#[derive(Debug, ClapArgs)]
pub struct OptArgs {
    /// File of .lir text, modules and functions to be rewritten; `-` is standard input
    #[arg(required_unless_present = "list_passes")]
    pub file: Option<PathBuf>,
    /// Passes in order: names of rewrites or of their themes, `rewrite` for all of them, `dedup`; --list-passes
    /// lists them [default: none, the text is read, verified and printed]
    #[arg(long = "pass", value_name = "NAME,NAME...", value_delimiter = ',')]
    pub passes: Vec<String>,
    /// List the passes
    #[arg(long, exclusive = true)]
    pub list_passes: bool,
    /// Compile the modules, after the passes, and print this stage
    #[arg(long, value_enum)]
    pub emit: Option<OptStage>,
    /// Machine to compile for, with --emit: a name from `llmcc targets`
    #[arg(long, default_value = "x86-64-v3", requires = "emit")]
    pub target: String,
    /// Format of the weights, with --emit: f32, bf16, w4g32, or any other name of docs/formats.md
    #[arg(long, default_value = "f32", value_parser = parse_any_format, requires = "emit")]
    pub format: Format,
    /// Print a graph in DOT, the language of Graphviz, instead of text
    #[arg(long)]
    pub dot: bool,
    /// Output [default: the terminal]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}

/// Stages that `llmcc opt` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptStage {
    /// E-graphs: every member of every class, the rule that added it, its cost, and the choice
    Egraph,
    /// Kernels
    Kernels,
    /// Launch order, buffers, weights
    Plan,
}
