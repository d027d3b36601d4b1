//! Byte-pair encoding over bytes (GPT-2, "Language Models are Unsupervised Multitask Learners", 2019)
//! as a JSON for the `tokenizers` crate, from the parts that files have.

use super::cuts::Cut;
use serde_json::{Map, Value, json};

/// The parts.
pub(super) struct ByteLevel<'a> {
    /// Ids by text, in which bytes are characters: [`llmcc_text::alphabet`].
    pub vocab: Map<String, Value>,
    /// Pairs that are merged, the first first.
    pub merges: Vec<Value>,
    /// Tokens that are cut out of texts, as the `tokenizers` crate writes them.
    pub added: Vec<Value>,
    /// How texts are cut before.
    pub cut: &'a Cut,
    /// A text begins with a space whether it has one or not; with GPT-2's pattern only.
    pub prefix_space: bool,
    /// The tokens around a text: ids by token.
    pub around: Option<[(String, u64); 2]>,
}

impl ByteLevel<'_> {
    /// The `tokenizer.json`.
    pub fn json(self) -> Value {
        let bytes = |prefix: bool, words: bool| json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": false, "use_regex": words });
        let split = |pattern: &&str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
        let mut steps: Vec<Value> = self.cut.patterns.iter().map(split).collect();
        steps.push(bytes(false, false));
        let pre_tokenizer = match self.prefix_space {
            // It has GPT-2's pattern itself.
            true => bytes(true, true),
            false => json!({ "type": "Sequence", "pretokenizers": steps }),
        };
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added,
            "normalizer": if self.cut.composed { json!({ "type": "NFC" }) } else { Value::Null },
            "pre_tokenizer": pre_tokenizer,
            "post_processor": self.around.map(|tokens| around(tokens, true, 0)),
            "decoder": bytes(true, true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": self.cut.whole_words, "vocab": self.vocab, "merges": self.merges,
            },
        })
    }
}

/// A post-processor that puts a token before and one after a text. The second of two texts ends so
/// too; it is of another type (BERT), or begins with the last token of the first once more
/// (RoBERTa, `twice`), or both (MPNet).
pub(super) fn around(tokens: [(String, u64); 2], twice: bool, second: u32) -> Value {
    let special = |name: &str, of: u32| json!({ "SpecialToken": { "id": name, "type_id": of } });
    let text = |id: &str, of: u32| json!({ "Sequence": { "id": id, "type_id": of } });
    let [first, last] = &tokens;
    let known: Map<String, Value> =
        tokens.iter().map(|(t, id)| (t.clone(), json!({ "id": t, "ids": [id], "tokens": [t] }))).collect();
    let single = vec![special(&first.0, 0), text("A", 0), special(&last.0, 0)];
    let mut pair = single.clone();
    pair.extend(twice.then(|| special(&last.0, 0)));
    pair.extend([text("B", second), special(&last.0, second)]);
    json!({
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": known,
    })
}

/// A token that is cut out of texts.
pub(super) fn added_token(id: u64, content: &str, special: bool) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": special,
    })
}
