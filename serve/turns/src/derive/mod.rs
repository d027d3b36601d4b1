//! Formats, derived by renders of a template.

mod calls;
mod core;
mod pieces;
mod reasoning;
mod tagged;

use crate::format::Format;
use crate::probe::{CONTENT, Probe, Style};
use crate::{channels, describe};

/// Derives the format of a chat template. `render` renders a conversation: an object with `messages` and other
/// variables of the template, such as `tools`, as JSON.
///
/// A part that the template does not show, or in no manner that this crate knows, is left out, and
/// [`Format::notes`] says so.
pub fn derive(render: &dyn Fn(&str) -> Result<String, String>) -> Format {
    let mut format = Format::default();
    let bare = Probe::new(render, Style::default(), false);
    let plain = match bare.answer(CONTENT, None) {
        Ok(turn) if turn.body.contains(CONTENT) => turn,
        Ok(_) => {
            format.notes.push("the template does not print an answer at the end of a conversation".into());
            return format;
        }
        Err(why) => {
            format.notes.push(format!("the template refuses a question and its answer: {why}"));
            return format;
        }
    };
    let prompt = bare.prompt().unwrap_or_default();
    if channels::is_channelled(&prompt, &plain.body) {
        return channels::format();
    }
    let seen = reasoning::seen(&bare, &plain);
    format.reasoning = seen.reasoning;
    format.content.start = seen.content;
    let after = plain.body.split_once(CONTENT).map_or("", |(_, after)| after);
    match calls::derive(render, &format, after) {
        Ok(found) => {
            let end = if found.end.is_empty() && format.content.start.is_empty() { after } else { &found.end };
            format.content.end = after.strip_suffix(end).unwrap_or_default().trim().to_owned();
            format.end = end.trim().to_owned();
            if format.reasoning.is_none() {
                format.reasoning = found.reasoning;
            }
            format.arguments_text = found.style.text;
            format.calls = Some(found.calls);
        }
        Err(why) => {
            format.notes.push(why);
            format.end = after.trim().to_owned();
        }
    }
    if format.reasoning.is_none() {
        format.notes.push("the template shows no reasoning".into());
    }
    describe::check(render, &mut format);
    format
}
