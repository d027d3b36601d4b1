//! The last message of a conversation left open, for the model to go on with it, as Transformers
//! does for `continue_final_message`.

use crate::json::Json;
use crate::{Error, Kind, Result};

/// Stands behind the text that is gone on with while the template renders.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// Names of a message's reasoning; a conversation has it under several.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, message)
}

/// The member of messages that is gone on with; `None`: the conversation ends as usual.
///
/// # Errors
/// `wanted` is neither a boolean nor a name.
pub(crate) fn field(wanted: Option<&Json>) -> Result<Option<String>> {
    match wanted {
        None | Some(Json::Null | Json::Bool(false)) => Ok(None),
        Some(Json::Bool(true)) => Ok(Some("content".into())),
        Some(Json::String(name)) if name.is_empty() => Ok(None),
        Some(Json::String(name)) => Ok(Some(name.clone())),
        Some(_) => Err(invalid("continue_final_message is neither true, false nor the name of a message's member")),
    }
}

/// Marks the end of the last message's text, which is returned.
///
/// # Errors
/// There is none that the template writes.
pub(crate) fn mark(messages: &mut [Json], field: &str, template: &str) -> Result<String> {
    let Some(Json::Map(last)) = messages.last_mut() else {
        return Err(invalid("continue_final_message is set, but the conversation is empty"));
    };
    let text = last.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone());
    let text = text.filter(|value| *value != Json::Null).ok_or_else(|| {
        invalid(format!("continue_final_message is set, but the final message has no {field:?} to continue"))
    })?;
    let same = |name: &str| last.iter().any(|(n, value)| n == name && *value == text);
    let fields: Vec<&str> = match REASONING.contains(&field) {
        true => REASONING.into_iter().filter(|name| same(name)).collect(),
        false => vec![field],
    };
    if !fields.iter().any(|name| template.contains(name)) {
        return Err(invalid(format!(
            "continue_final_message is set to {field:?}, but the chat template does not use this member of messages"
        )));
    }
    let no_text = || invalid(format!("continue_final_message is set, but {field:?} of the final message has no text"));
    match text {
        Json::String(text) => {
            for (_, value) in last.iter_mut().filter(|(name, _)| fields.contains(&name.as_str())) {
                *value = Json::String(format!("{text}{MARK}"));
            }
            Ok(text)
        }
        Json::List(_) => {
            let content = last.iter_mut().find(|(name, _)| name == field).map(|(_, value)| value);
            let Some(Json::List(blocks)) = content else { return Err(no_text()) };
            let texts = blocks.iter_mut().rev().filter_map(|block| match block {
                Json::Map(items) => items.iter_mut().find(|(name, _)| name == "text").map(|(_, value)| value),
                _ => None,
            });
            match texts.into_iter().next() {
                Some(Json::String(text)) => {
                    let before = text.clone();
                    text.push_str(MARK);
                    Ok(before)
                }
                _ => Err(no_text()),
            }
        }
        _ => Err(no_text()),
    }
}

/// The rendered text up to the mark behind `text`.
///
/// # Errors
/// The template has changed or left out the text.
pub(crate) fn cut(mut rendered: String, text: &str) -> Result<String> {
    let space = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
    let at = rendered.rfind(MARK.trim_end()).filter(|_| rendered.contains(text.trim_matches(space)));
    let at = at.ok_or_else(|| {
        invalid("continue_final_message is set, but the chat template changes or leaves out the final message")
    })?;
    // Without the mark's own space the template has stripped the text.
    let kept = rendered[at..].starts_with(MARK);
    rendered.truncate(at);
    if !kept {
        rendered.truncate(rendered.trim_end_matches(space).len());
    }
    Ok(rendered)
}
