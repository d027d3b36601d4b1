//! Answers: made, shown as they come, and stopped.

use super::conversation::Conversation;
use super::interrupt::Interrupt;
use super::made::Made;
use super::speaker::{Speaker, stats};
use crate::loaded::GenOptions;
use crate::units::count;
use crate::{Error, stdout};
use llmcc_model::sys::llmcc_gen_stats_t;

/// `LLMCC_FINISH_LENGTH` and `LLMCC_FINISH_CONTEXT` of the header.
const LENGTH: i32 = 3;
const CONTEXT: i32 = 4;

/// How answers are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// As documents.
    pub json: bool,
    /// With their speed.
    pub stats: bool,
}

/// The end of an answer.
pub struct Answer {
    /// Counts and times; `None`: it was stopped before it began, and its message is forgotten.
    pub stats: Option<llmcc_gen_stats_t>,
}

/// Answers a message without a conversation around it.
///
/// # Errors
/// The template refuses the message; the message is too long.
pub fn once(
    source: &mut Speaker,
    talk: &mut Conversation,
    text: &str,
    manner: Manner,
    options: &GenOptions,
) -> Result<(), Error> {
    let message = source.message(text)?;
    let ids = talk.fit(source.model, &message.text)?;
    let mut generation = source.generate(&ids, options)?;
    let mut made = Made::after(&message);
    made.follow(&mut generation, manner.json, &|| false)?;
    if manner.json {
        stdout::print(&made.line(&generation)?)?;
    } else {
        stdout::print("\n")?;
        said_end(generation.stats()?.finish, made.tokens(), talk.limit());
    }
    message.said(manner.stats);
    stats(&generation, manner.stats)
}

/// Says where an answer was cut.
fn said_end(finish: i32, tokens: &[i32], limit: usize) {
    match finish {
        LENGTH => eprintln!("[cut after {}, the limit: -n N sets another]", count(tokens.len(), "token")),
        CONTEXT => eprintln!("[the context of {} is full: the answer ends here]", count(limit, "token")),
        _ => {}
    }
}

/// Answers a message, and makes both part of the conversation.
///
/// # Errors
/// As [`once`]; standard output fails.
pub fn answer(
    source: &mut Speaker,
    talk: &mut Conversation,
    line: &str,
    manner: Manner,
    (options, interrupt): (&GenOptions, &Interrupt),
) -> Result<Answer, Error> {
    let message = source.message(line)?;
    let line = &message.text[..];
    let ids = talk.fit(source.model, line)?;
    if !source.prefill(&ids, options, &|| !interrupt.is_set())? {
        eprintln!("[stopped before the answer began: the message is forgotten]");
        return Ok(Answer { stats: None });
    }
    let mut generation = source.generate(&ids, options)?;
    let mut made = Made::after(&message);
    let done = made.follow(&mut generation, manner.json, &|| interrupt.is_set());
    if !manner.json {
        stdout::print("\n")?;
    }
    let end = generation.stats()?;
    done?;
    if manner.json {
        stdout::print(&made.line(&generation)?)?;
    } else if interrupt.is_set() {
        eprintln!("[stopped]");
    } else {
        said_end(end.finish, made.tokens(), talk.limit());
    }
    message.said(manner.stats);
    stats(&generation, manner.stats)?;
    drop(generation);
    let (text, tokens) = made.into_parts();
    source.seen = [ids, tokens].concat();
    talk.add(line, text);
    Ok(Answer { stats: Some(end) })
}
