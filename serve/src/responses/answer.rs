//! An answer, from its beginning to its end: a log of its events, and the document that it is at any time.
//!
//! Event `i` of a log is always the same, so that any number of clients can follow an answer, from any event on.

use crate::error::ApiError;
use crate::logprobs::{self, Entry};
use crate::responses::items::new_id;
use crate::served::now;
use llmcc_model::{End, Finish};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Bytes of a step beside its text.
const STEP: usize = 96;

/// An answer.
pub(crate) struct Answer {
    pub(crate) id: String,
    pub(crate) background: bool,
    /// Items that its request added to the conversation.
    pub(crate) input: Vec<Value>,
    /// The answers that it goes on from, the oldest first.
    pub(crate) history: Vec<Arc<Answer>>,
    /// Seconds from 1970 to its beginning.
    created: u64,
    /// Members of its document that say what was asked for.
    echoed: Map<String, Value>,
    /// Identifier of its message.
    item: String,
    progress: Mutex<Progress>,
    changed: watch::Sender<()>,
    worker: OnceLock<AbortHandle>,
    /// Bytes that it takes, and the sum that includes them.
    bytes: AtomicUsize,
    sum: Arc<AtomicUsize>,
}

/// How far an answer is.
#[derive(Default)]
struct Progress {
    steps: Vec<Step>,
    usage: Option<Value>,
    end: Option<Ending>,
}

/// An event between the beginning and the end of an answer. Calls of functions would have more of them.
enum Step {
    ItemAdded,
    PartAdded,
    Delta { text: Box<str>, entry: Option<Entry> },
    TextDone,
    PartDone,
    ItemDone,
}

/// How an answer ended.
#[derive(Clone)]
enum Ending {
    Completed,
    /// For this reason it has fewer tokens than the model would have given.
    Incomplete(&'static str),
    Failed(ApiError),
    Cancelled,
}

impl Progress {
    /// The text so far.
    fn text(&self) -> String {
        let text = |step: &Step| if let Step::Delta { text, .. } = step { text.clone() } else { Box::default() };
        self.steps.iter().map(text).collect()
    }

    /// The tokens so far, with their log-probabilities.
    fn logprobs(&self) -> Value {
        listed(
            self.steps
                .iter()
                .filter_map(|step| if let Step::Delta { entry, .. } = step { entry.as_ref() } else { None }),
        )
    }

    /// The part of a message that they are.
    fn part(&self) -> Value {
        part(&self.text(), self.logprobs())
    }
}

impl Answer {
    /// An answer that begins. `sum`: the bytes of all answers, to which it adds its own.
    pub(crate) fn new(
        echoed: Map<String, Value>,
        input: Vec<Value>,
        history: Vec<Arc<Answer>>,
        sum: Arc<AtomicUsize>,
    ) -> Answer {
        let text = |value: &Value| value.to_string().len();
        let bytes = input.iter().map(text).sum::<usize>()
            + echoed.values().map(text).sum::<usize>()
            + size_of::<Answer>()
            + history.len() * size_of::<Arc<Answer>>();
        sum.fetch_add(bytes, Ordering::Relaxed);
        Answer {
            id: new_id("resp"),
            background: echoed.get("background") == Some(&Value::Bool(true)),
            input,
            history,
            created: now(),
            echoed,
            item: new_id("msg"),
            progress: Mutex::default(),
            changed: watch::channel(()).0,
            worker: OnceLock::new(),
            bytes: AtomicUsize::new(bytes),
            sum,
        }
    }

    /// Sets the task that takes its events.
    pub(crate) fn set_worker(&self, worker: AbortHandle) {
        // (Once.)
        let _ = self.worker.set(worker);
    }

    /// Adds the text that an event brings, and its token.
    pub(crate) fn add(&self, text: &str, entry: Option<Entry>) {
        let mut progress = self.lock();
        if progress.end.is_some() {
            return;
        }
        if progress.steps.is_empty() {
            progress.steps.extend([Step::ItemAdded, Step::PartAdded]);
        }
        if !text.is_empty() || entry.is_some() {
            self.count(text.len() + STEP + entry.as_ref().map_or(0, Entry::bytes));
            progress.steps.push(Step::Delta { text: text.into(), entry });
        }
        drop(progress);
        self.changed.send_replace(());
    }

    /// Ends it after its last token.
    pub(crate) fn finish(&self, finish: Option<Finish>, end: &End) {
        let ending = match finish {
            Some(Finish::Length | Finish::Context) => Ending::Incomplete("max_output_tokens"),
            _ => Ending::Completed,
        };
        let usage = json!({
            "input_tokens": end.prompt_tokens, "input_tokens_details": {
                "cached_tokens": end.reused_tokens, "cache_write_tokens": 0,
            },
            "output_tokens": end.generated_tokens, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": end.prompt_tokens + end.generated_tokens,
        });
        self.lock().usage = Some(usage);
        self.end(ending);
    }

    /// Ends it for an error.
    pub(crate) fn fail(&self, error: ApiError) {
        self.end(Ending::Failed(error));
    }

    /// Ends it at once, if it has not ended.
    pub(crate) fn cancel(&self) {
        self.end(Ending::Cancelled);
        if let Some(worker) = self.worker.get() {
            worker.abort();
        }
    }

    fn end(&self, ending: Ending) {
        let mut progress = self.lock();
        if progress.end.is_some() {
            return;
        }
        if matches!(ending, Ending::Completed | Ending::Incomplete(_)) {
            if progress.steps.is_empty() {
                progress.steps.extend([Step::ItemAdded, Step::PartAdded]);
            }
            progress.steps.extend([Step::TextDone, Step::PartDone, Step::ItemDone]);
        }
        progress.end = Some(ending);
        drop(progress);
        self.changed.send_replace(());
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Whether it can be gone on from.
    pub(crate) fn has_text(&self) -> bool {
        matches!(self.lock().end, Some(Ending::Completed | Ending::Incomplete(_)))
    }

    /// The error that it ended with.
    pub(crate) fn error(&self) -> Option<ApiError> {
        match &self.lock().end {
            Some(Ending::Failed(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Hears of its changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Its document at this moment.
    pub(crate) fn document(&self) -> Value {
        self.document_of(&self.lock())
    }

    /// Its items: messages that it gave.
    pub(crate) fn output(&self) -> Vec<Value> {
        self.output_of(&self.lock())
    }

    /// Event `i`, if it has come.
    pub(crate) fn event(&self, i: usize) -> Option<Value> {
        let progress = self.lock();
        let (kind, mut event) = match i {
            0 => ("response.created", json!({ "response": self.document_of(&Progress::default()) })),
            1 => ("response.in_progress", json!({ "response": self.document_of(&Progress::default()) })),
            _ => match progress.steps.get(i - 2) {
                Some(step) => self.step(step, &progress),
                None => {
                    let kind = match progress.end.as_ref().filter(|_| i - 2 == progress.steps.len())? {
                        Ending::Completed => "response.completed",
                        Ending::Incomplete(_) | Ending::Cancelled => "response.incomplete",
                        Ending::Failed(_) => "response.failed",
                    };
                    (kind, json!({ "response": self.document_of(&progress) }))
                }
            },
        };
        (event["type"], event["sequence_number"]) = (kind.into(), i.into());
        Some(event)
    }

    fn step(&self, step: &Step, progress: &Progress) -> (&'static str, Value) {
        let place = |more: Value| {
            let mut event = json!({ "item_id": self.item, "output_index": 0, "content_index": 0 });
            more.as_object().into_iter().flatten().for_each(|(name, value)| event[name] = value.clone());
            event
        };
        let added = json!({
            "id": self.item, "type": "message", "role": "assistant", "status": "in_progress", "content": [],
        });
        match step {
            Step::ItemAdded => ("response.output_item.added", json!({ "output_index": 0, "item": added })),
            Step::PartAdded => ("response.content_part.added", place(json!({ "part": part("", json!([])) }))),
            Step::Delta { text, entry } => {
                let logprobs = listed(entry.iter());
                ("response.output_text.delta", place(json!({ "delta": text, "logprobs": logprobs })))
            }
            Step::TextDone => (
                "response.output_text.done",
                place(json!({ "text": progress.text(), "logprobs": progress.logprobs() })),
            ),
            Step::PartDone => ("response.content_part.done", place(json!({ "part": progress.part() }))),
            Step::ItemDone => {
                let item = self.output_of(progress).pop();
                ("response.output_item.done", json!({ "output_index": 0, "item": item }))
            }
        }
    }

    fn output_of(&self, progress: &Progress) -> Vec<Value> {
        if progress.steps.is_empty() {
            return vec![];
        }
        let status = match &progress.end {
            None => "in_progress",
            Some(Ending::Completed) => "completed",
            Some(_) => "incomplete",
        };
        let content = [progress.part()];
        vec![json!({ "id": self.item, "type": "message", "role": "assistant", "status": status, "content": content })]
    }

    fn document_of(&self, progress: &Progress) -> Value {
        let (status, reason, error) = match &progress.end {
            None if self.background && progress.steps.is_empty() => ("queued", None, None),
            None => ("in_progress", None, None),
            Some(Ending::Completed) => ("completed", None, None),
            Some(Ending::Incomplete(reason)) => ("incomplete", Some(reason), None),
            Some(Ending::Cancelled) => ("cancelled", None, None),
            Some(Ending::Failed(error)) => ("failed", None, Some(error)),
        };
        let error = error.map(|e| json!({ "code": e.code.unwrap_or("server_error"), "message": e.message }));
        let mut document = Value::Object(self.echoed.clone());
        for (name, value) in [
            ("id", json!(self.id)),
            ("object", json!("response")),
            ("created_at", json!(self.created)),
            ("status", json!(status)),
            ("incomplete_details", json!(reason.map(|reason| json!({ "reason": reason })))),
            ("error", json!(error)),
            ("output", json!(self.output_of(progress))),
            ("usage", json!(progress.usage)),
        ] {
            document[name] = value;
        }
        document
    }

    /// Counts bytes that it takes from now on.
    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.sum.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.sum.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// Items of a conversation: of earlier answers with what they were answers to, and `input` after them.
pub(crate) fn conversation_of(history: &[Arc<Answer>], input: &[Value]) -> Vec<Value> {
    let of_answer = |answer: &Arc<Answer>| [answer.input.clone(), answer.output()].concat();
    history.iter().flat_map(of_answer).chain(input.iter().cloned()).collect()
}

fn part(text: &str, logprobs: Value) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
}

/// Tokens with their log-probabilities.
fn listed<'a>(entries: impl Iterator<Item = &'a Entry>) -> Value {
    let mut of = logprobs::of_chat(entries);
    of["content"].take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back() {
        let sum = Arc::new(AtomicUsize::new(0));
        let answer = Answer::new(Map::new(), vec![json!({ "a": "b" })], vec![], sum.clone());
        let before = sum.load(Ordering::Relaxed);
        answer.add("hello", None);
        assert!(sum.load(Ordering::Relaxed) >= before + 10);
        drop(answer);
        assert_eq!(sum.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_comes_after_an_end() {
        let answer = Answer::new(Map::new(), vec![], vec![], Arc::default());
        answer.add("a", None);
        answer.cancel();
        answer.add("b", None);
        answer.fail(ApiError::invalid("x"));
        assert_eq!(answer.document()["status"], "cancelled");
        assert_eq!(answer.output()[0]["content"][0]["text"], "a");
        let kinds: Vec<Value> = (0..).map_while(|i| answer.event(i)).map(|e| e["type"].clone()).collect();
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        assert_eq!(kinds[5], "response.incomplete");
    }
}
