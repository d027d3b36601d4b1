//! `llmcc run --chat`: a single message, or a conversation, line by line, that goes on whatever happens to a single
//! answer. Every line is a message: scripts need no escapes (`llmcc chat` has commands).

use crate::args::RunArgs;
use crate::loaded::GenOptions;
use crate::report::message;
use crate::talk::{Conversation, Interrupt, Line, Lines, Manner, Speaker, answer};
use crate::{Error, json};

/// Bytes of a token that no line exceeds on average.
const LONG_TOKEN: usize = 256;

/// Talks until there are no more lines.
///
/// # Errors
/// No chat template; standard input or output fails. Errors of a single line or answer are printed,
/// and the conversation goes on.
pub(super) fn chat(source: &mut Speaker, args: &RunArgs, options: &GenOptions) -> Result<(), Error> {
    let model = source.model;
    let mut talk = Conversation::new(model, &args.talk, options)?;
    let manner = manner(args);
    if let Some(seq) = source.seq {
        model.seq_set_adapter(seq, options.adapter)?;
    }
    let mut lines = Lines::new()?;
    let interrupt = Interrupt::new(lines.edited())?;
    loop {
        interrupt.wait();
        match lines.next(talk.room().saturating_mul(LONG_TOKEN))? {
            Line::End => {
                eprintln!();
                return Ok(());
            }
            Line::Cleared => {}
            Line::Text(line) if line.is_empty() => {}
            Line::Text(line) => {
                interrupt.arm();
                match answer(source, &mut talk, &line, manner, (options, &interrupt)) {
                    Ok(_) => {}
                    Err(e @ (Error::ClosedPipe | Error::Io { .. })) => return Err(e),
                    Err(e) if args.json => json::print(&json::error(&e))?,
                    Err(e) => eprintln!("error: {}", message(&e.to_string())),
                }
            }
            Line::Refused(why) if args.json => json::print(&json::error(&Error::Failed(why)))?,
            Line::Refused(why) => eprintln!("error: {why}"),
        }
    }
}

/// How answers are shown.
pub(super) fn manner(args: &RunArgs) -> Manner {
    Manner { json: args.json, stats: args.stats }
}
