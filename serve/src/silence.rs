//! Prompts for answers without reasoning, where the template has no word for that.

use crate::error::ApiError;
use crate::json::Json;
use crate::model::Model;

/// Variables by which templates turn reasoning off.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// The prompt of a conversation. If `enable_thinking` is false and the template does not read it, the reasoning that
/// the model would begin with is there already, and empty.
///
/// # Errors
/// The template refuses the conversation.
pub(crate) fn rendered(model: &dyn Model, conversation: &str) -> Result<String, ApiError> {
    let text = model.chat_prompt(conversation)?;
    let format = &model.facts().turns;
    let Some(span) = format.reasoning.as_ref().filter(|_| !format.channels) else { return Ok(text) };
    let Some(thinking) = with_thinking(conversation) else { return Ok(text) };
    if model.chat_prompt(&thinking)? != text {
        return Ok(text);
    }
    let (start, end) = (span.start.trim(), span.end.trim());
    let begun = !start.is_empty() && text.trim_end().ends_with(start);
    Ok(if begun { text + end } else { text + start + end })
}

/// The same conversation with reasoning; `None`: it has reasoning, or asks for no answer.
fn with_thinking(conversation: &str) -> Option<String> {
    let Ok(Json::Object(mut members)) = serde_json::from_str(conversation) else { return None };
    let is = |name: &str, value: bool| members.iter().any(|(known, v)| known == name && *v == Json::Bool(value));
    if !is(SWITCHES[0], false) || is("continue_final_message", true) || is("add_generation_prompt", false) {
        return None;
    }
    for (_, value) in members.iter_mut().filter(|(name, _)| SWITCHES.contains(&name.as_str())) {
        *value = Json::Bool(true);
    }
    serde_json::to_string(&Json::Object(members)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_without_reasoning() {
        let other = with_thinking(r#"{"messages":[],"enable_thinking":false,"thinking":false}"#);
        assert_eq!(other.as_deref(), Some(r#"{"messages":[],"enable_thinking":true,"thinking":true}"#));
        for text in [
            r#"{"messages":[]}"#,
            r#"{"enable_thinking":true}"#,
            r#"{"enable_thinking":false,"add_generation_prompt":false}"#,
            r#"{"enable_thinking":false,"continue_final_message":true}"#,
        ] {
            assert_eq!(with_thinking(text), None, "{text}");
        }
    }
}
