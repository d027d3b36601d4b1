//! Marks of OpenAI's harmony.

pub(crate) const START: &str = "<|start|>";
pub(crate) const CHANNEL: &str = "<|channel|>";
pub(crate) const MESSAGE: &str = "<|message|>";
pub(crate) const CONSTRAIN: &str = "<|constrain|>";
pub(crate) const CALL: &str = "<|call|>";
/// Marks that end a message.
pub(crate) const ENDS: [&str; 4] = ["<|end|>", CALL, "<|return|>", START];
/// All marks.
pub(crate) const MARKS: [&str; 7] = [START, CHANNEL, MESSAGE, CONSTRAIN, CALL, "<|end|>", "<|return|>"];
/// Texts before and after reasoning, before an answer, and before the arguments of a call.
pub(crate) const REASONING_START: &str = "<|channel|>analysis<|message|>";
pub(crate) const REASONING_END: &str = "<|end|><|start|>assistant";
pub(crate) const FINAL_START: &str = "<|channel|>final<|message|>";
pub(crate) const CALL_START: &str = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>";
