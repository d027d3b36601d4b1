//! An answer, from its beginning to its end: a log of its events, and the document that it is at any time.
//!
//! Event `i` of a log is always the same, so that any number of clients can follow an answer, from any event on.

use crate::error::ApiError;
use crate::logprobs::Entry;
use crate::responses::birth::Birth;
use crate::responses::progress::Progress;
use llmcc_model::{End, Finish, Token};
use llmcc_turns::Event as Piece;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

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
    /// Its stream says which tokens it brings.
    traced: bool,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    worker: OnceLock<AbortHandle>,
    /// Bytes that it takes, and the sum that includes them.
    bytes: AtomicUsize,
    sum: Arc<AtomicUsize>,
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

/// How far an answer is, and how it ended.
#[derive(Default)]
struct State {
    progress: Progress,
    usage: Option<Value>,
    end: Option<Ending>,
}

impl Answer {
    /// An answer that begins, by `birth`. `sum`: the bytes of all answers, to which it adds its own.
    pub(crate) fn new(
        birth: Birth,
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
        let Birth { id, created, traced } = birth;
        Answer {
            id,
            background: echoed.get("background") == Some(&Value::Bool(true)),
            input,
            history,
            created,
            echoed,
            traced,
            state: Mutex::default(),
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

    /// Adds the pieces that an event brings, its token, and this one's log-probability where it is wanted.
    pub(crate) fn add(&self, pieces: Vec<Piece>, token: Option<Token>, entry: Option<Entry>) {
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        token.into_iter().for_each(|token| state.progress.token(token, self.traced));
        let bytes = state.progress.take(&self.id, pieces, entry);
        self.count(bytes);
        drop(state);
        self.changed.send_replace(());
    }

    /// Ends it after its last token.
    pub(crate) fn finish(&self, finish: Option<Finish>, end: &End) {
        let ending = match finish {
            Some(Finish::Length | Finish::Context) => Ending::Incomplete("max_output_tokens"),
            _ => Ending::Completed,
        };
        let mut state = self.lock();
        let reasoning = state.progress.reasoning;
        state.usage = Some(json!({
            "input_tokens": end.prompt_tokens, "input_tokens_details": {
                "cached_tokens": end.reused_tokens, "cache_write_tokens": 0,
            },
            "output_tokens": end.generated_tokens, "output_tokens_details": { "reasoning_tokens": reasoning },
            "total_tokens": end.prompt_tokens + end.generated_tokens,
        }));
        drop(state);
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
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        match ending {
            Ending::Completed | Ending::Incomplete(_) => {
                state.progress.end(&self.id, matches!(ending, Ending::Completed));
            }
            Ending::Failed(_) | Ending::Cancelled => state.progress.break_off(),
        }
        state.end = Some(ending);
        drop(state);
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

    /// Its items: messages, reasoning and calls.
    pub(crate) fn output(&self) -> Vec<Value> {
        self.lock().progress.output()
    }

    /// Event `i`, if it has come.
    pub(crate) fn event(&self, i: usize) -> Option<Value> {
        let state = self.lock();
        let (kind, mut event) = match i {
            0 => ("response.created", json!({ "response": self.document_of(&State::default()) })),
            1 => ("response.in_progress", json!({ "response": self.document_of(&State::default()) })),
            _ => match state.progress.event(i - 2) {
                Some(told) => told,
                None => {
                    let kind = match state.end.as_ref().filter(|_| i - 2 == state.progress.len())? {
                        Ending::Completed => "response.completed",
                        Ending::Incomplete(_) | Ending::Cancelled => "response.incomplete",
                        Ending::Failed(_) => "response.failed",
                    };
                    (kind, json!({ "response": self.document_of(&state) }))
                }
            },
        };
        (event["type"], event["sequence_number"]) = (kind.into(), i.into());
        Some(event)
    }

    /// Comments before event `i`, by which routers know which tokens an event brings, as in other streams.
    pub(crate) fn trace(&self, i: usize) -> String {
        let Some(step) = i.checked_sub(2).filter(|_| self.traced) else { return String::new() };
        let state = self.lock();
        let mut trace: String =
            state.progress.tokens_before(step).map(|token| format!(": tokens 0 {token}\n\n")).collect();
        trace += &match &state.end {
            _ if step < state.progress.len() => ": tokens 0\n".to_owned(),
            Some(Ending::Failed(error)) => format!(": failed {}\n", error.status.as_u16()),
            _ => ": end\n".to_owned(),
        };
        trace
    }

    fn document_of(&self, state: &State) -> Value {
        let (status, reason, error) = match &state.end {
            None if self.background && !state.progress.has_begun() => ("queued", None, None),
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
            ("output", json!(state.progress.output())),
            ("usage", json!(state.usage)),
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back() {
        let sum = Arc::new(AtomicUsize::new(0));
        let answer = Answer::new(Birth::now(false), Map::new(), vec![json!({ "a": "b" })], vec![], sum.clone());
        let before = sum.load(Ordering::Relaxed);
        answer.add(vec![Piece::Text("hello".into())], None, None);
        assert!(sum.load(Ordering::Relaxed) >= before + 10);
        drop(answer);
        assert_eq!(sum.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_comes_after_an_end() {
        let answer = Answer::new(Birth::now(false), Map::new(), vec![], vec![], Arc::default());
        answer.add(vec![Piece::Text("a".into())], None, None);
        answer.cancel();
        answer.add(vec![Piece::Text("b".into())], None, None);
        answer.fail(ApiError::invalid("x"));
        assert_eq!(answer.document()["status"], "cancelled");
        assert_eq!(answer.output()[0]["content"][0]["text"], "a");
        let kinds: Vec<Value> = (0..).map_while(|i| answer.event(i)).map(|e| e["type"].clone()).collect();
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        assert_eq!(kinds[5], "response.incomplete");
    }
}
