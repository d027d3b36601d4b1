//! `llmcc eval`: quality.

pub mod kl;
mod long;
mod ppl;
mod windows;

pub use ppl::{Perplexity, perplexity};

use crate::Error;
use crate::args::EvalCommand;

/// `llmcc eval`
///
/// # Errors
/// An artifact without a tokenizer; files that cannot be read.
pub fn run(command: &EvalCommand) -> Result<(), Error> {
    match command {
        EvalCommand::Ppl(args) => ppl::ppl(args),
        EvalCommand::Kl(args) => kl::run(args),
        EvalCommand::Long(args) => long::run(args),
    }
}
