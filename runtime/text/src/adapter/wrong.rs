//! Errors of adapters, and how modules are named.

/// The fault, and the remedy.
pub type Wrong = (String, &'static str);

/// The remedy for a file that contradicts itself.
pub const AGAIN: &str = "download the adapter again, all files of one revision";

pub(super) const OTHER: &str = "merge it in Python (`merge_and_unload` of PEFT) and compile the result";

/// Whether a module's name is this, or ends in it.
pub(super) fn ends(module: &str, end: &str) -> bool {
    module.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

pub(super) fn no_pattern(key: &str, text: &str, why: String) -> Wrong {
    (format!("`{key}` has the pattern `{text}`, which is not a regular expression: {why}"), OTHER)
}
