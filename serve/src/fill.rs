//! Texts that fill a gap: the prompt before it, the suffix after it, and the marks that models of code have for this.

use crate::error::ApiError;
use crate::model::Model;
use llmcc_model::Token;

/// Marks of a family of models.
struct Marks {
    /// Before the prompt, between prompt and suffix, and after the suffix.
    around: [&'static str; 3],
    /// Whether the suffix comes first.
    suffix_first: bool,
}

const FAMILIES: &[Marks] = &[
    // Qwen2.5-Coder and later, CodeGemma, Seed-Coder.
    Marks { around: ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], suffix_first: false },
    // StarCoder, SantaCoder, StableCode, Granite.
    Marks { around: ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"], suffix_first: false },
    Marks { around: ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"], suffix_first: false },
    // DeepSeek-Coder.
    Marks { around: ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"], suffix_first: false },
    // Codestral.
    Marks { around: ["[SUFFIX]", "[PREFIX]", ""], suffix_first: true },
];

/// Whether the model has a mark as a token of its own.
pub(crate) fn is_token(model: &dyn Model, mark: &str) -> bool {
    model.tokenize(mark, false).is_ok_and(|tokens| tokens.len() == 1)
}

/// Tokens of a prompt for the text between `prompt` and `suffix`.
///
/// # Errors
/// The model has no marks for gaps.
pub(crate) fn gap(model: &dyn Model, prompt: &str, suffix: &str, special: bool) -> Result<Vec<Token>, ApiError> {
    let is_known = |mark: &&str| mark.is_empty() || is_token(model, mark);
    let marks = FAMILIES.iter().find(|marks| marks.around.iter().all(&is_known));
    let Some(Marks { around: [first, second, third], suffix_first }) = marks else {
        let message = "`suffix` is not supported: the model has no tokens for filling in the middle";
        return Err(ApiError::of_param("suffix", message).code("unsupported_parameter"));
    };
    let (before, after) = if *suffix_first { (suffix, prompt) } else { (prompt, suffix) };
    Ok(model.tokenize(&format!("{first}{before}{second}{after}{third}"), special)?)
}
