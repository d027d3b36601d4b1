//! Arguments of `llmcc chat`.

use super::engine::EngineArgs;
use super::run::SamplingArgs;
use super::talk::{DraftArgs, TalkArgs};
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// `llmcc chat`
#[derive(Debug, ClapArgs)]
pub struct ChatArgs {
    /// Artifact
    pub artifact: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub talk: TalkArgs,
    /// Go on with a conversation that `/save` has written
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// File with the lines typed before [default: llmcc/chat_history in XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "FILE", conflicts_with = "no_history")]
    pub history: Option<PathBuf>,
    /// Neither read nor write lines typed before
    #[arg(long)]
    pub no_history: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub draft: DraftArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub engine: EngineArgs,
    /// Print speed after each answer
    #[arg(long)]
    pub stats: bool,
}
