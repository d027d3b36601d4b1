//! Names of modules in settings of methods: patterns, and the prefixes of models of several parts.

use super::super::quantized::{UNQUANTIZED, Wrong};
use crate::wildcard;
use llmcc_text::expression::Expression;
use std::collections::HashSet;

/// Prefixes that the text model's modules may have in names of published files; an architecture's
/// own names may lack them.
const PREFIXES: [&str; 5] =
    ["model.language_model.model.", "model.language_model.", "language_model.model.", "language_model.", "model."];

/// A module's name without such a prefix.
pub(super) fn bare(module: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| module.strip_prefix(prefix)).unwrap_or(module)
}

/// Modules that settings name, by texts: a name, one with `*`, or `re:` and an expression. There may be
/// thousands of both.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    /// Modules called so, those in them, and those whose name ends so.
    names: HashSet<String>,
    /// Modules whose name begins so (`NAME*`).
    beginnings: HashSet<String>,
    /// Those whose name, or the name of a module they are in, has this form: `*` stands for any text.
    forms: Vec<String>,
    /// Those whose name begins like this; whether that may be the prefix.
    expressions: Vec<(Expression, bool)>,
}

impl Patterns {
    /// Adds the modules of a text.
    pub(super) fn add(&mut self, text: &str) -> Result<(), Wrong> {
        if let Some(expression) = text.strip_prefix("re:") {
            let wrong = |why| (format!("`{text}` is not a regular expression: {why}"), UNQUANTIZED);
            let prefixed = !expression.starts_with(".*");
            self.expressions.push((Expression::beginning(expression).map_err(wrong)?, prefixed));
            return Ok(());
        }
        let name = bare(text);
        match name.split_once('*') {
            None => drop(self.names.insert(name.into())),
            Some((beginning, "")) => drop(self.beginnings.insert(beginning.into())),
            Some(_) => self.forms.push(name.into()),
        }
        Ok(())
    }

    /// Whether a module, by its name without prefix, is one of them.
    pub(super) fn cover(&self, module: &str) -> bool {
        let begins = |end: usize| module.get(..end).is_some_and(|start| self.beginnings.contains(start));
        let starts = || std::iter::once(0).chain(module.match_indices('.').map(|(at, _)| at + 1));
        let named = |of: &str| starts().any(|start| of.get(start..).is_some_and(|end| self.names.contains(end)));
        let expressed = |(e, prefixed): &(Expression, bool)| {
            e.is(module) || *prefixed && PREFIXES.iter().any(|prefix| e.is(&format!("{prefix}{module}")))
        };
        around(module).any(named)
            || (0..=module.len()).any(begins)
            || around(module).any(|of| self.forms.iter().any(|form| wildcard::fits(form, of)))
            || self.expressions.iter().any(expressed)
    }
}

/// A module and those that it is in, from the inside out.
pub(super) fn around(module: &str) -> impl Iterator<Item = &str> {
    let ends = module.rmatch_indices('.').map(|(at, _)| at);
    std::iter::once(module.len()).chain(ends).filter_map(|end| module.get(..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_modules() {
        let covers = |pattern: &str, module: &str| {
            let mut patterns = Patterns::default();
            patterns.add(pattern).unwrap();
            patterns.cover(bare(module))
        };
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
