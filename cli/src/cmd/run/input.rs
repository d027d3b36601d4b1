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
    let (text, file) = (args.text.prompt.as_deref(), args.text.prompt_file.as_deref());
    match &args.ids {
        Some(ids) => Ok(Input::Ids(ids.clone())),
        None if args.rank.is_some() => Ok(Input::Text(String::new())),
        None if args.chat && text.is_none() && file.is_none() => Ok(Input::Lines),
        None => texts::given(text, file, "-p TEXT, --prompt-file FILE, --ids or --chat").map(Input::Text),
    }
}
