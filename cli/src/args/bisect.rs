//! Arguments of `llmcc bisect`.

use super::types::{ActType, KvType};
use super::values::{parse_format, parse_tolerance};
use clap::Args as ClapArgs;
use llmcc_ir::quant::Format;
use std::path::PathBuf;

/// `llmcc bisect`
#[derive(Debug, ClapArgs)]
pub struct BisectArgs {
    /// Checkpoint, as for `compile`; a small one: each of its programs is evaluated in f64
    pub checkpoint: PathBuf,
    /// Text whose first tokens go through the model
    #[arg(long, value_name = "TEXT", required_unless_present = "ids")]
    pub input: Option<String>,
    /// Token ids in place of a text, for models without a tokenizer
    #[arg(long, value_name = "ID,ID...", value_delimiter = ',', conflicts_with = "input")]
    pub ids: Vec<i32>,
    /// The most tokens of the text
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tokens: u32,
    /// Weights of this format, by its name in docs/formats.md, or f32, f16, bf16 [default: the checkpoint's]
    #[arg(long, value_parser = parse_stored)]
    pub format: Option<Format>,
    /// Activations entering quantized matrix products [default: as with `compile`]
    #[arg(long, value_enum)]
    pub act: Option<ActType>,
    /// Type of cached keys and values [default: f32 for f32 models, else f16]
    #[arg(long, value_enum)]
    pub kv: Option<KvType>,
    /// Machine to compile for: a processor of `llmcc targets`
    #[arg(long, default_value = "native")]
    pub target: String,
    /// Differences to be explained: of the logits from the logits of the graph in f64, relative to the largest one of a
    /// token [default: twice the difference of the program without rewrites, fusions and approximations, and at least
    /// 1e-5: rounding in f32]
    #[arg(long, value_name = "DIFFERENCE", value_parser = parse_tolerance)]
    pub tolerance: Option<f64>,
    /// File for the function and the kernels in which the difference begins, as .lir text
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
    /// No messages about what is being tried
    #[arg(long, short)]
    pub quiet: bool,
}

/// Reads a format, quantized or not.
fn parse_stored(text: &str) -> Result<Format, String> {
    Format::parse(text).filter(|format| !format.is_quantized()).map_or_else(|| parse_format(text), Ok)
}
