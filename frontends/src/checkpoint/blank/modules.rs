//! Names of modules in settings of methods: patterns, and the prefixes of models of several parts.

use super::super::quantized::{UNQUANTIZED, Wrong};
use llmcc_text::expression::Expression;

/// Prefixes that the text model's modules may have in names of published files; an architecture's
/// own names may lack them.
const PREFIXES: [&str; 5] =
    ["model.language_model.model.", "model.language_model.", "language_model.model.", "language_model.", "model."];

/// A module's name without such a prefix.
pub(super) fn bare(module: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| module.strip_prefix(prefix)).unwrap_or(module)
}

/// Modules that settings name.
#[derive(Debug)]
pub(super) enum Pattern {
    /// This module, those in it, and those whose name ends so.
    Name(String),
    /// Those whose name, or the name of a module they are in, has this form: `*` stands for any text.
    Form(String),
    /// Those whose name begins like this.
    Expression(Expression),
}

impl Pattern {
    /// The modules of a text: a name, one with `*`, or `re:` and an expression.
    pub(super) fn of(text: &str) -> Result<Pattern, Wrong> {
        if let Some(expression) = text.strip_prefix("re:") {
            let wrong = |why| (format!("`{text}` is not a regular expression: {why}"), UNQUANTIZED);
            return Expression::beginning(expression).map(Pattern::Expression).map_err(wrong);
        }
        let name = bare(text).to_string();
        Ok(if name.contains('*') { Pattern::Form(name) } else { Pattern::Name(name) })
    }

    /// Whether a module, by its name without prefix, is one of them.
    pub(super) fn covers(&self, module: &str) -> bool {
        match self {
            Pattern::Name(name) => {
                let ends = |of: &str| of.strip_suffix(name.as_str()).is_some_and(|s| s.is_empty() || s.ends_with('.'));
                around(module).any(ends)
            }
            Pattern::Form(form) => around(module).any(|of| matches(form, of)),
            Pattern::Expression(e) => e.is(module) || PREFIXES.iter().any(|prefix| e.is(&format!("{prefix}{module}"))),
        }
    }
}

/// A module and those that it is in, from the inside out.
pub(super) fn around(module: &str) -> impl Iterator<Item = &str> {
    let ends = module.rmatch_indices('.').map(|(at, _)| at);
    std::iter::once(module.len()).chain(ends).filter_map(|end| module.get(..end))
}

/// Whether a text has a form in which `*` stands for any text.
fn matches(form: &str, text: &str) -> bool {
    let Some((first, rest)) = form.split_once('*') else { return form == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, behind)) = text.split_once(part) else { return false };
        text = behind;
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_modules() {
        let covers = |pattern: &str, module: &str| Pattern::of(pattern).unwrap().covers(bare(module));
        let of_layer = "model.layers.3.mlp.experts.7.up_proj";
        for pattern in [
            "model.layers.3.mlp",
            "model.language_model.layers.3.mlp.experts.7.up_proj",
            "model.layers.3*",
            "model.layers.*.mlp",
            "language_model.model.layers.3.mlp.experts*",
            "*.experts.*",
            "up_proj",
            "re:.*experts.*",
            r"re:model\.layers\.\d+\.mlp",
        ] {
            assert!(covers(pattern, of_layer), "{pattern}");
        }
        for pattern in
            ["model.layers.3.self_attn", "model.layers.30*", "layers.*.attn", "proj", "gate", "lm_head", "re:mlp"]
        {
            assert!(!covers(pattern, of_layer), "{pattern}");
        }
        assert!(covers("gate", "model.layers.0.block_sparse_moe.gate"));
        assert!(!covers("gate", "model.layers.0.mlp.gate_proj"));
        assert!(covers("lm_head", "language_model.lm_head") && covers("language_model.lm_head", "lm_head"));
    }
}
