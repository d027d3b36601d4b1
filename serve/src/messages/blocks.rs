//! Blocks of an answer: its text, its reasoning and calls, whole and in pieces.

use llmcc_turns::Event;
use serde_json::{Value, json};

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

/// The blocks of an answer so far.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Whole blocks; the input of a call is a text of JSON until it ends.
    all: Vec<Value>,
    open: Option<Kind>,
    input: String,
}

impl Blocks {
    /// Takes a piece of the turn. Returns the events that tell it.
    pub(crate) fn take(&mut self, piece: Event) -> Vec<Value> {
        match piece {
            Event::Text(text) => self.text(Kind::Text, "text", &text),
            Event::Reasoning(text) => self.text(Kind::Thinking, "thinking", &text),
            Event::Call { id, name, .. } => {
                let mut events = self.close();
                events.push(self.begin(Kind::Call, json!({ "type": "tool_use", "id": id, "name": name, "input": {} })));
                events
            }
            Event::Arguments { text, .. } => {
                self.input += &text;
                vec![self.delta(json!({ "type": "input_json_delta", "partial_json": text }))]
            }
            Event::End { .. } => self.close(),
        }
    }

    /// Ends the last block. An answer has one at least.
    pub(crate) fn end(&mut self) -> Vec<Value> {
        let mut events = if self.all.is_empty() { self.text(Kind::Text, "text", "") } else { vec![] };
        events.extend(self.close());
        events
    }

    /// All of them.
    pub(crate) fn whole(mut self) -> Vec<Value> {
        self.end();
        self.all
    }

    fn text(&mut self, kind: Kind, name: &str, text: &str) -> Vec<Value> {
        let mut events = vec![];
        if self.open != Some(kind) {
            events.extend(self.close());
            let mut block = json!({ "type": name });
            block[name] = "".into();
            if kind == Kind::Thinking {
                // (Nobody checks that reasoning is the model's.)
                block["signature"] = "".into();
            }
            events.push(self.begin(kind, block));
        }
        if !text.is_empty() {
            if let Some(Value::String(all)) = self.all.last_mut().and_then(|block| block.get_mut(name)) {
                all.push_str(text);
            }
            let mut delta = json!({ "type": format!("{name}_delta") });
            delta[name] = text.into();
            events.push(self.delta(delta));
        }
        events
    }

    fn begin(&mut self, kind: Kind, block: Value) -> Value {
        self.open = Some(kind);
        self.all.push(block.clone());
        json!({ "type": "content_block_start", "index": self.all.len() - 1, "content_block": block })
    }

    fn delta(&self, delta: Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.all.len().saturating_sub(1), "delta": delta })
    }

    fn close(&mut self) -> Vec<Value> {
        let Some(kind) = self.open.take() else { return vec![] };
        let input = std::mem::take(&mut self.input);
        if let (Kind::Call, Some(block)) = (kind, self.all.last_mut()) {
            block["input"] = serde_json::from_str(&input).unwrap_or_else(|_| json!({}));
        }
        vec![json!({ "type": "content_block_stop", "index": self.all.len().saturating_sub(1) })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_blocks() {
        let mut blocks = Blocks::default();
        let pieces = [
            Event::Reasoning("a".into()),
            Event::Reasoning("b".into()),
            Event::Text("c".into()),
            Event::Call { index: 0, id: Some("x".into()), name: "f".into() },
            Event::Arguments { index: 0, text: "{\"a\": 1}".into() },
            Event::End { index: 0 },
        ];
        let mut events: Vec<Value> = pieces.into_iter().flat_map(|piece| blocks.take(piece)).collect();
        events.extend(blocks.end());
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
        assert_eq!(kinds, [start, delta, delta, stop, start, delta, stop, start, delta, stop]);
        let want = [
            json!({ "type": "thinking", "thinking": "ab", "signature": "" }),
            json!({ "type": "text", "text": "c" }),
            json!({ "type": "tool_use", "id": "x", "name": "f", "input": { "a": 1 } }),
        ];
        assert_eq!(blocks.whole(), want);
        assert_eq!(Blocks::default().whole(), [json!({ "type": "text", "text": "" })]);
    }
}
