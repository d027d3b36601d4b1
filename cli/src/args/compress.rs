//! Arguments of compressed prompts.

use super::engine::EngineArgs;
use super::values::parse_kept;
use crate::Error;
use crate::compressed::Compressor;
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// How a prompt is made shorter.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct CompressArgs {
    /// Keep this share of the prompt's tokens, those that the model of --with foresees least (LLMLingua); with --chat
    /// of the user's messages, and of nothing else
    #[arg(long, value_name = "SHARE", value_parser = parse_kept, requires = "with")]
    #[arg(conflicts_with_all = ["ids", "embed", "classify", "rank", "audio", "image"])]
    pub compress_prompt: Option<f64>,
    /// The artifact of a small model, with any tokenizer, that --compress-prompt scores tokens by
    #[arg(long, value_name = "ARTIFACT", requires = "compress_prompt")]
    pub with: Option<PathBuf>,
    /// Keep all tokens of this text in compressed prompts, such as a line break or a name (may be repeated)
    #[arg(long, value_name = "TEXT", requires = "compress_prompt")]
    pub compress_keep: Vec<String>,
    /// Keep all tokens with a digit in compressed prompts
    #[arg(long, requires = "compress_prompt")]
    pub compress_digits: bool,
}

impl CompressArgs {
    /// The compressor that they ask for, if they do.
    ///
    /// # Errors
    /// The small model cannot be opened.
    pub fn compressor(&self, engine: &EngineArgs) -> Result<Option<Compressor>, Error> {
        let (Some(share), Some(with)) = (self.compress_prompt, &self.with) else { return Ok(None) };
        let (keep, digits) = (self.compress_keep.clone(), self.compress_digits);
        Ok(Some(Compressor { model: engine.open(with)?, share, keep, digits }))
    }
}
