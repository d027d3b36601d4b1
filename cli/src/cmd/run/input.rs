//! The input of `llmcc run`: a text, token ids, or lines of a conversation.

use crate::args::RunArgs;
use crate::{Error, texts};

/// The input of a run.
pub(super) enum Input {
    /// A text: a prompt, or a message.
    Text(String),
    /// Token ids.
    Ids(Vec<i32>),
    /// Lines of a conversation.
    Lines,
}

/// Reads the input, before the model is opened.
///
/// # Errors
/// A text that cannot be read, or none.
pub(super) fn input(args: &RunArgs) -> Result<Input, Error> {
    let no_text = args.text.prompt.is_none() && args.text.prompt_file.is_none();
    match &args.ids {
        Some(ids) => Ok(Input::Ids(ids.clone())),
        None if args.rank.is_some() || args.audio.is_some() => Ok(Input::Text(String::new())),
        None if args.chat && no_text => Ok(Input::Lines),
        None => texts::given(&args.text, "-p TEXT, --prompt-file FILE, --ids or --chat").map(Input::Text),
    }
}
