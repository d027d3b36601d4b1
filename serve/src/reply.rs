//! Replies in OpenAI's interface: a document when all choices have ended, or a stream of events.

use crate::app::Busy;
use crate::error::{ApiError, answer};
use crate::hub::{Hub, Job};
use crate::logprobs::Entry;
use crate::plan::Reader;
use crate::served::Served;
use crate::shape::{Part, Shape, Usage, reason};
use crate::stream::{Script, stream};
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use llmcc_model::{Event, Token};
use serde_json::Value;
use std::sync::Arc;

/// A request whose choices are under way.
pub(crate) struct Reply {
    pub(crate) hub: Arc<Hub>,
    pub(crate) shape: Shape,
    /// Choices of each prompt.
    pub(crate) per_prompt: usize,
    /// Choices of all prompts.
    pub(crate) choices: usize,
    /// Whether a stream ends with counts of tokens.
    pub(crate) include_usage: bool,
    /// Held until the reply is sent.
    pub(crate) _busy: Busy,
}

impl Reply {
    /// The document, when all choices have ended. Whoever drops it before cancels them.
    pub(crate) async fn whole(self, mut job: Job) -> Result<Response, ApiError> {
        let mut parts: Vec<Part> = (0..self.choices).map(|choice| Part { choice, ..Part::default() }).collect();
        let (mut usage, mut readers) = (Usage::default(), self.readers());
        while let Some(next) = job.next().await {
            let (choice, event) = next?;
            let new = self.part(choice, &event, &mut usage, &mut readers)?;
            let Some(all) = parts.get_mut(choice) else { continue };
            all.join(new);
        }
        for part in &mut parts {
            part.offset = self.begins_at(part.choice);
        }
        let choices = parts.iter().map(|part| self.shape.choice(part)).collect();
        Ok(answer(StatusCode::OK, &self.shape.document(choices, false, Some(usage))))
    }

    /// A stream of events, as the texts grow.
    pub(crate) fn stream(self, served: &Served, job: Job, traced: bool) -> Response {
        let offsets = (0..self.choices).map(|choice| self.begins_at(choice)).collect();
        let tokens = vec![vec![]; self.choices];
        let (usage, readers) = (Usage::default(), self.readers());
        stream(served, job, Chunks { offsets, usage, readers, tokens, reply: self }, traced)
    }

    /// A reader of each choice, where texts are not answers.
    fn readers(&self) -> Vec<Reader> {
        let plan = self.shape.plan.as_ref();
        plan.map_or_else(Vec::new, |plan| (0..self.choices).map(|i| plan.reader(i, "call")).collect())
    }

    /// Characters of a choice before its generated text.
    fn begins_at(&self, choice: usize) -> usize {
        self.shape.echo.get(choice).map_or(0, |echo| echo.chars().count())
    }

    /// The new text that an event brings; at its end counts of tokens join `usage`.
    ///
    /// # Errors
    /// The request failed.
    fn part(&self, choice: usize, event: &Event, usage: &mut Usage, readers: &mut [Reader]) -> Result<Part, ApiError> {
        if let Some(end) = &event.end {
            if let Some(error) = &end.error {
                return Err(error.clone().into());
            }
            usage.add(end, choice.is_multiple_of(self.per_prompt));
        }
        let entries = self.shape.logprobs.and_then(|n| Entry::of(event, n, self.hub.model())).into_iter().collect();
        let tokens = if self.shape.token_ids { event.token.into_iter().collect() } else { vec![] };
        let mut part = Part { choice, entries, tokens, finish: event.finish.map(reason), ..Part::default() };
        match readers.get_mut(choice) {
            None => part.text.clone_from(&event.text),
            Some(reader) => {
                reader.take(event, self.hub.model()).into_iter().for_each(|piece| part.take(piece));
                if reader.has_calls() && part.finish == Some("stop") {
                    part.finish = Some("tool_calls");
                }
            }
        }
        Ok(part)
    }
}

/// The events of a stream.
struct Chunks {
    reply: Reply,
    /// Characters of each choice so far.
    offsets: Vec<usize>,
    usage: Usage,
    readers: Vec<Reader>,
    /// Tokens of each choice that no event has told, where they are wanted.
    tokens: Vec<Vec<Token>>,
}

impl Chunks {
    /// An event with a choice's piece.
    fn piece(&self, choice: Value) -> Bytes {
        let mut document = self.reply.shape.document(vec![choice], true, None);
        if self.reply.include_usage {
            document["usage"] = Value::Null;
        }
        data(&document)
    }
}

fn data(document: &Value) -> Bytes {
    Bytes::from(format!("data: {document}\n\n"))
}

impl Script for Chunks {
    fn open(&mut self) -> Vec<Bytes> {
        let openings = (0..self.reply.choices).filter_map(|choice| self.reply.shape.opening(choice));
        openings.map(|opening| self.piece(opening)).collect()
    }

    fn take(&mut self, choice: usize, event: &Event) -> Result<Vec<Bytes>, ApiError> {
        let mut new = self.reply.part(choice, event, &mut self.usage, &mut self.readers)?;
        if let Some(offset) = self.offsets.get_mut(choice) {
            new.offset = *offset;
            *offset += new.text.chars().count();
        }
        let mut out = vec![];
        // Tokens whose text is still to come are told with it.
        if let Some(waiting) = self.tokens.get_mut(choice) {
            waiting.append(&mut new.tokens);
            if new.tells() {
                std::mem::swap(waiting, &mut new.tokens);
            }
        }
        let finish = new.finish.take();
        if finish.is_some() && new.tells() {
            // OpenAI's clients take texts and calls to be complete at an end that comes after them.
            let offset = new.offset + new.text.chars().count();
            out.push(self.piece(self.reply.shape.piece(&new)));
            new = Part { choice, offset, ..Part::default() };
        }
        new.finish = finish;
        if new.tells() {
            out.push(self.piece(self.reply.shape.piece(&new)));
        }
        Ok(out)
    }

    fn end(&mut self, failed: Option<&ApiError>) -> Vec<Bytes> {
        let last = match failed {
            Some(error) => Some(error.json()),
            None => self.reply.include_usage.then(|| self.reply.shape.document(vec![], true, Some(self.usage))),
        };
        last.iter().map(data).chain([Bytes::from_static(b"data: [DONE]\n\n")]).collect()
    }
}
