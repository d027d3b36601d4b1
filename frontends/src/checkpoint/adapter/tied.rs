//! Bases whose head is the embedding table, where an adapter changes only one of the two.

use super::{Merging, Sorted};
use serde_json::Value;

/// Endings of the names of embedding tables, and the head that may be tied to one.
const TABLES: &[(&str, &str)] = &[
    ("biogpt.embed_tokens", "output_projection"),
    ("embed_tokens", "lm_head"),
    ("wte", "lm_head"),
    ("embed_in", "embed_out"),
    ("tokens_embed", "lm_head"),
    ("transformer.w", "lm_head"),
    ("embeddings.tok_embeddings", "decoder"),
    ("tok_embeddings", "output"),
    // Encoders have no head.
    ("embeddings.word_embeddings", ""),
    ("word_embeddings", "lm_head"),
    ("backbone.embedding", "lm_head"),
    ("embeddings", "lm_head"),
];
/// Says in a configuration whether the head is the table.
const TIED: &str = "tie_word_embeddings";

fn ends(module: &str, end: &str) -> bool {
    module.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The head that a table may be.
fn head_of(module: &str) -> Option<&'static str> {
    TABLES.iter().find(|(end, _)| ends(module, end)).map(|(_, head)| *head).filter(|head| !head.is_empty())
}

/// Whether a module is a head.
pub(super) fn is_head(module: &str) -> bool {
    TABLES.iter().any(|(_, head)| !head.is_empty() && ends(module, head) && !module.contains(".layers."))
}

/// Whether any part of a configuration says so.
fn said(config: &Value) -> bool {
    let parts = || config.as_object().into_iter().flatten().any(|(_, part)| part.is_object() && said(part));
    config[TIED] == true || parts()
}

/// Sets `tie_word_embeddings` to false here and in nested configs with a vocabulary.
fn separate(config: &mut Value, whole: bool) {
    let Some(fields) = config.as_object_mut() else { return };
    if whole || fields.contains_key("vocab_size") {
        fields.insert(TIED.into(), false.into());
    }
    fields.values_mut().filter(|part| part.is_object()).for_each(|part| separate(part, false));
}

impl Merging<'_> {
    /// Gives the head a matrix of its own where it is the embedding table and only one of the two is
    /// changed, as when the adapter was trained.
    pub(super) fn untie(&mut self, parts: &Sorted) {
        let whole = parts.whole.keys().filter_map(|name| name.strip_suffix(".weight"));
        let rows = parts.rows.keys().map(String::as_str).filter(|m| is_head(m));
        let of_factors = parts.factors.keys().map(|m| m.trim_end_matches(".base_layer"));
        let modules: Vec<&str> = whole.chain(of_factors).chain(rows).collect();
        if self.settings.tied && !modules.iter().any(|m| is_head(m)) {
            return;
        }
        let changed = modules.iter().copied().find(|m| head_of(m).is_some() && !is_head(m));
        let there = |name: &str| self.found(&format!("{name}.weight"));
        let any = || {
            let tables = self
                .ckpt
                .index
                .keys()
                .filter(|name| name.strip_suffix(".weight").is_some_and(|m| head_of(m).is_some()));
            tables.min_by_key(|name| name.len()).cloned()
        };
        // A head that is changed is found by its name, the table by any that it may have.
        let table = match changed {
            Some(module) => there(module),
            None if modules.iter().any(|m| is_head(m)) => any(),
            None => None,
        };
        let Some((name, entry)) = table.and_then(|name| Some((name.clone(), self.ckpt.index.get(&name)?.clone())))
        else {
            return;
        };
        let Some(head) = head_of(name.strip_suffix(".weight").unwrap_or(&name)) else { return };
        let head = format!("{head}.weight");
        let has = self.found(&head);
        if has.is_some() && !said(&self.ckpt.config) {
            return;
        }
        // One that lies in the file beside the table that it is said to be is not read.
        self.ckpt.index.insert(has.unwrap_or(head), entry);
        separate(&mut self.ckpt.config, true);
        self.ckpt.notes.push("the adapter changes the embedding table or the head, so they are no longer tied".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_and_heads_by_their_names() {
        for (module, head) in [
            ("model.language_model.embed_tokens", Some("lm_head")),
            ("transformer.wte", Some("lm_head")),
            ("transformer.word_embeddings", Some("lm_head")),
            ("backbone.embeddings", Some("lm_head")),
            ("gpt_neox.embed_in", Some("embed_out")),
            ("bert.embeddings.word_embeddings", None),
            ("transformer.wpe", None),
            ("transformer.h.0.attn.c_attn", None),
        ] {
            assert_eq!(head_of(module), head, "{module}");
        }
        let heads = ["lm_head", "language_model.lm_head", "embed_out", "model.layers.0.attention.output"];
        assert_eq!(heads.map(is_head), [true, true, true, false]);
        let mut config = json!({ "a": 1, "text_config": { "vocab_size": 3, TIED: true }, "vision_config": { "b": 2 } });
        assert!(said(&config));
        separate(&mut config, true);
        assert_eq!(
            config,
            json!({ "a": 1, TIED: false, "text_config": { "vocab_size": 3, TIED: false }, "vision_config": { "b": 2 } })
        );
    }
}
