//! Items of an answer as it grows: a message, reasoning or a call each, with the events that tell them.
//!
//! Step `i` is told by the same event whenever it is asked for: a step that ends an item is there once the item is.

use crate::logprobs::{self, Entry};
use llmcc_model::Token;
use llmcc_turns::Event as Piece;
use serde_json::{Value, json};

/// Bytes of a step beside its text.
const STEP: usize = 96;

/// The kind of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    /// A call of a function, by the identifier that its result names.
    Call {
        id: String,
        name: String,
    },
}

/// An item.
struct Item {
    id: String,
    kind: Kind,
    /// `in_progress` until it ends.
    status: &'static str,
}

/// A part of the log, by the place of its item.
enum Step {
    ItemAdded(usize),
    PartAdded(usize),
    Delta { item: usize, text: Box<str>, entries: Vec<Entry> },
    TextDone(usize),
    PartDone(usize),
    ItemDone(usize),
}

/// How far an answer is.
#[derive(Default)]
pub(super) struct Progress {
    items: Vec<Item>,
    steps: Vec<Step>,
    /// Tokens of the text without a part of the log of their own so far: their log-probabilities go with the next text.
    waiting: Vec<Entry>,
    /// Tokens since the last piece.
    untold: u64,
    /// Tokens of reasoning.
    pub(super) reasoning: u64,
    /// Tokens of the text, each with the number of steps before it.
    tokens: Vec<(usize, Token)>,
}

impl Progress {
    /// How many steps there are.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has begun.
    pub(super) fn has_begun(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Notes a token before the pieces that it brings; `traced`: streams say which one it is.
    pub(super) fn token(&mut self, token: Token, traced: bool) {
        self.untold += 1;
        if traced {
            self.tokens.push((self.steps.len(), token));
        }
    }

    /// The tokens between step `i` and the one before it.
    pub(super) fn tokens_before(&self, i: usize) -> impl Iterator<Item = Token> {
        let from = self.tokens.partition_point(|(at, _)| *at < i);
        self.tokens[from..].iter().take_while(move |(at, _)| *at == i).map(|(_, token)| *token)
    }

    /// Takes the pieces of an event, and its token where log-probabilities are wanted. `answer`: the identifier of the
    /// answer, from which those of its items come. Returns the bytes that they take.
    pub(super) fn take(&mut self, answer: &str, pieces: Vec<Piece>, entry: Option<Entry>) -> usize {
        self.waiting.extend(entry);
        let before = self.steps.len();
        for piece in pieces {
            let is_reasoning = matches!(piece, Piece::Reasoning(_));
            self.reasoning += if is_reasoning { self.untold } else { 0 };
            self.untold = 0;
            match piece {
                Piece::Text(text) => {
                    self.open(answer, Kind::Message);
                    self.delta(&text);
                }
                Piece::Reasoning(text) => {
                    self.open(answer, Kind::Reasoning);
                    self.delta(&text);
                }
                Piece::Call { id, name, .. } => {
                    self.close("completed");
                    self.open(answer, Kind::Call { id: id.unwrap_or_default(), name });
                }
                Piece::Arguments { text, .. } => self.delta(&text),
                Piece::End { .. } => self.close("completed"),
            }
        }
        let bytes = |step: &Step| match step {
            Step::Delta { text, entries, .. } => STEP + text.len() + entries.iter().map(Entry::bytes).sum::<usize>(),
            _ => STEP,
        };
        self.steps[before..].iter().map(bytes).sum()
    }

    /// Ends its last item, whose text is there or not; an answer has one item at least.
    pub(super) fn end(&mut self, answer: &str, is_whole: bool) {
        if self.items.is_empty() {
            self.open(answer, Kind::Message);
        }
        if self.last().is_some_and(|item| item.kind == Kind::Message) {
            self.delta("");
        }
        self.close(if is_whole { "completed" } else { "incomplete" });
    }

    /// Breaks off: its last item stays as it is.
    pub(super) fn break_off(&mut self) {
        if let Some(item) = self.items.last_mut().filter(|item| item.status == "in_progress") {
            item.status = "incomplete";
        }
    }

    /// The item under way.
    fn last(&self) -> Option<&Item> {
        self.items.last().filter(|item| item.status == "in_progress")
    }

    /// Makes an item of this kind the one under way.
    fn open(&mut self, answer: &str, kind: Kind) {
        if self.last().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.close("completed");
        let (prefix, at) = (kind.prefix(), self.items.len());
        let id = format!("{prefix}_{}{at:02x}", answer.trim_start_matches("resp_"));
        let has_parts = !matches!(kind, Kind::Call { .. });
        self.items.push(Item { id, kind, status: "in_progress" });
        self.steps.push(Step::ItemAdded(at));
        if has_parts {
            self.steps.push(Step::PartAdded(at));
        }
    }

    /// Adds to the text of the item under way.
    fn delta(&mut self, text: &str) {
        let Some(is_message) = self.last().map(|item| item.kind == Kind::Message) else { return };
        let mut entries = std::mem::take(&mut self.waiting);
        // (Log-probabilities are of messages alone.)
        entries.retain(|_| is_message);
        if !text.is_empty() || !entries.is_empty() {
            let item = self.items.len() - 1;
            self.steps.push(Step::Delta { item, text: text.into(), entries });
        }
    }

    /// Ends the item under way.
    fn close(&mut self, status: &'static str) {
        let Some(item) = self.items.last_mut().filter(|item| item.status == "in_progress") else { return };
        item.status = status;
        let has_parts = !matches!(item.kind, Kind::Call { .. });
        let at = self.items.len() - 1;
        self.steps.push(Step::TextDone(at));
        if has_parts {
            self.steps.push(Step::PartDone(at));
        }
        self.steps.push(Step::ItemDone(at));
    }

    /// The text of an item so far.
    fn text(&self, at: usize) -> String {
        let text = |step: &Step| match step {
            Step::Delta { item, text, .. } if *item == at => Some(text.clone()),
            _ => None,
        };
        self.steps.iter().filter_map(text).collect()
    }

    /// The tokens of an item so far, with their log-probabilities.
    fn logprobs(&self, at: usize) -> Value {
        let entries = self.steps.iter().filter_map(|step| match step {
            Step::Delta { item, entries, .. } if *item == at => Some(entries),
            _ => None,
        });
        listed(entries.flatten())
    }

    /// The items so far.
    pub(super) fn output(&self) -> Vec<Value> {
        (0..self.items.len()).map(|at| self.shown(at, true)).collect()
    }

    /// An item as it is, or as it began.
    fn shown(&self, at: usize, now: bool) -> Value {
        let Some(item) = self.items.get(at) else { return Value::Null };
        let status = if now { item.status } else { "in_progress" };
        let parts = if now { vec![self.part(at)] } else { vec![] };
        match &item.kind {
            Kind::Message => json!({
                "id": item.id, "type": "message", "role": "assistant", "status": status, "content": parts,
            }),
            Kind::Reasoning => json!({
                "id": item.id, "type": "reasoning", "status": status, "summary": [], "content": parts,
            }),
            Kind::Call { id, name } => json!({
                "id": item.id, "type": "function_call", "status": status, "call_id": id, "name": name,
                "arguments": if now { self.text(at) } else { String::new() },
            }),
        }
    }

    /// The part of an item that has its text.
    fn part(&self, at: usize) -> Value {
        self.items.get(at).map_or(Value::Null, |item| item.kind.part(&self.text(at), self.logprobs(at)))
    }

    /// The event that tells step `i`: its type, and its members.
    pub(super) fn event(&self, i: usize) -> Option<(&'static str, Value)> {
        let step = self.steps.get(i)?;
        let at = match step {
            Step::ItemAdded(at) | Step::PartAdded(at) | Step::TextDone(at) | Step::PartDone(at) => *at,
            Step::ItemDone(at) | Step::Delta { item: at, .. } => *at,
        };
        let item = self.items.get(at)?;
        let place = |more: Value| {
            let mut event = json!({ "item_id": item.id, "output_index": at });
            if !matches!(item.kind, Kind::Call { .. }) {
                event["content_index"] = 0.into();
            }
            more.as_object().into_iter().flatten().for_each(|(name, value)| event[name] = value.clone());
            event
        };
        let (delta, done) = item.kind.events();
        Some(match step {
            Step::ItemAdded(_) => {
                ("response.output_item.added", json!({ "output_index": at, "item": self.shown(at, false) }))
            }
            Step::PartAdded(_) => {
                ("response.content_part.added", place(json!({ "part": item.kind.part("", json!([])) })))
            }
            Step::Delta { text, entries, .. } => match item.kind {
                Kind::Message => (delta, place(json!({ "delta": text, "logprobs": listed(entries.iter()) }))),
                _ => (delta, place(json!({ "delta": text }))),
            },
            Step::TextDone(_) => match &item.kind {
                Kind::Message => (done, place(json!({ "text": self.text(at), "logprobs": self.logprobs(at) }))),
                Kind::Reasoning => (done, place(json!({ "text": self.text(at) }))),
                Kind::Call { name, .. } => (done, place(json!({ "name": name, "arguments": self.text(at) }))),
            },
            Step::PartDone(_) => ("response.content_part.done", place(json!({ "part": self.part(at) }))),
            Step::ItemDone(_) => {
                ("response.output_item.done", json!({ "output_index": at, "item": self.shown(at, true) }))
            }
        })
    }
}

impl Kind {
    /// The beginning of its identifiers.
    fn prefix(&self) -> &'static str {
        match self {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
            Kind::Call { .. } => "fc",
        }
    }

    /// The types of the events that bring its text, and that end it.
    fn events(&self) -> (&'static str, &'static str) {
        match self {
            Kind::Message => ("response.output_text.delta", "response.output_text.done"),
            Kind::Reasoning => ("response.reasoning_text.delta", "response.reasoning_text.done"),
            Kind::Call { .. } => ("response.function_call_arguments.delta", "response.function_call_arguments.done"),
        }
    }

    /// Its part with this text.
    fn part(&self, text: &str, logprobs: Value) -> Value {
        match self {
            Kind::Message => json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs }),
            _ => json!({ "type": "reasoning_text", "text": text }),
        }
    }
}

/// Tokens with their log-probabilities.
fn listed<'a>(entries: impl Iterator<Item = &'a Entry>) -> Value {
    let mut of = logprobs::of_chat(entries);
    of["content"].take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(index: usize) -> [Piece; 3] {
        let (id, name) = (Some(format!("call_{index}")), "f".to_owned());
        [Piece::Call { index, id, name }, Piece::Arguments { index, text: "{}".into() }, Piece::End { index }]
    }

    #[test]
    fn pieces_become_items() {
        let mut progress = Progress::default();
        progress.token(5, true);
        progress.take("resp_ab", vec![Piece::Reasoning("hm".into())], None);
        progress.token(6, true);
        progress.token(7, true);
        progress.take("resp_ab", vec![Piece::Text("so".into())], None);
        progress.take("resp_ab", call(0).into_iter().chain(call(1)).collect(), None);
        progress.end("resp_ab", true);
        let output = progress.output();
        let kinds: Vec<&str> = output.iter().filter_map(|item| item["type"].as_str()).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
        assert!(output.iter().all(|item| item["status"] == "completed"));
        assert_eq!(output[0]["content"], json!([{ "type": "reasoning_text", "text": "hm" }]));
        assert_eq!((&output[3]["call_id"], &output[3]["arguments"]), (&json!("call_1"), &json!("{}")));
        assert_eq!((&output[0]["id"], &output[3]["id"]), (&json!("rs_ab00"), &json!("fc_ab03")));
        let events: Vec<&str> = (0..).map_while(|i| progress.event(i)).map(|(kind, _)| kind).collect();
        assert_eq!(events.len(), progress.len());
        assert_eq!(events.iter().filter(|kind| kind.ends_with("output_item.done")).count(), 4);
        assert!(events.contains(&"response.function_call_arguments.done"), "{events:?}");
        assert_eq!(progress.reasoning, 1);
        let tokens: Vec<Vec<Token>> = (0..progress.len()).map(|i| progress.tokens_before(i).collect()).collect();
        assert_eq!((&tokens[0][..], &tokens[3][..]), (&[5][..], &[6, 7][..]), "{tokens:?}");
        assert_eq!(tokens.concat(), [5, 6, 7]);
    }

    #[test]
    fn answers_without_text_have_a_message() {
        let mut progress = Progress::default();
        progress.end("resp_x", false);
        assert_eq!((&progress.output()[0]["status"], progress.len()), (&json!("incomplete"), 5));
    }
}
