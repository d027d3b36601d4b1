//! Arguments of `llmcc frontier`.

use super::calib::CalibArgs;
use super::types::{ActType, KvType};
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// `llmcc frontier`
#[derive(Debug, ClapArgs)]
pub struct FrontierArgs {
    /// Checkpoint, as for `compile`
    pub checkpoint: PathBuf,
    /// Text (UTF-8) of the kind that the model is for: documents with lines `<|document|>` between. Every fifth
    /// document is kept aside, and measured on; several files are domains of their own [default: a built-in text in six
    /// languages]
    #[arg(long = "text", value_name = "FILE")]
    pub texts: Vec<PathBuf>,
    /// Machine to compile for: one that this processor runs
    #[arg(long, default_value = "native")]
    pub target: String,
    /// Numbers of bytes to try, between the smallest formats and 8 bits
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub points: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub calib: CalibArgs,
    /// Activations entering quantized matrix products [default: int8]
    #[arg(long, value_enum)]
    pub act: Option<ActType>,
    /// Type of cached keys and values [default: f32 for f32 models, else f16]
    #[arg(long, value_enum)]
    pub kv: Option<KvType>,
    /// Longest sequence, in tokens [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    pub max_context: Option<usize>,
    /// Measure how fast each artifact decodes, too
    #[arg(long)]
    pub bench: bool,
    /// Draw the result: a file in SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print a JSON document
    #[arg(long)]
    pub json: bool,
    /// No messages about what is being done
    #[arg(long, short)]
    pub quiet: bool,
}
