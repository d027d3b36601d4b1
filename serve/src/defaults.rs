//! Members of requests that count where a request has none: whoever runs the server gives them.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Facts;
use serde_json::Value;

/// Members that say how texts are generated.
pub(crate) const SAMPLING: [&str; 7] =
    ["max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed"];
/// Members of conversations.
pub(crate) const KWARGS: &str = "chat_template_kwargs";
/// Members of conversations that are true or false.
pub(crate) const FLAGS: [&str; 2] = ["verbose", "add_special_tokens"];

/// Adds the members that say how texts are generated.
pub(crate) fn supply(fields: &mut Fields, facts: &Facts) {
    let limited = ["max_tokens", "max_completion_tokens"].iter().any(|name| fields.has(name));
    for name in SAMPLING {
        if let Some(value) = facts.defaults.get(name).filter(|_| name != "max_tokens" || !limited) {
            fields.supply(name, value);
        }
    }
}

/// Takes a member of a conversation that is false where nobody gives it: `verbose` (the answer shows the prompt), or
/// `add_special_tokens`.
///
/// # Errors
/// It is no boolean.
pub(crate) fn flag(fields: &mut Fields, facts: &Facts, name: &str) -> Result<bool, ApiError> {
    fields.supply(name, facts.defaults.get(name).unwrap_or(&Value::Null));
    Ok(fields.take(name)?.unwrap_or(false))
}

/// Whether prompts of conversations get special tokens where nobody says it.
pub(crate) fn special(facts: &Facts) -> bool {
    facts.defaults.get("add_special_tokens") == Some(&Value::Bool(true))
}
