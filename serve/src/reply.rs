//! Replies: a document when all choices have ended, or a stream of events.

use crate::app::Busy;
use crate::error::{ApiError, answer};
use crate::hub::{Hub, Job};
use crate::logprobs::Entry;
use crate::shape::{Part, Shape, Usage, reason};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::Frame;
use llmcc_model::Event;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A request whose choices are under way.
pub(crate) struct Reply {
    pub(crate) hub: Arc<Hub>,
    pub(crate) job: Job,
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

/// The new text that an event brings, and counts of tokens at its end.
///
/// # Errors
/// The request failed.
fn part(hub: &Hub, shape: &Shape, choice: usize, event: &Event) -> Result<Part, ApiError> {
    if let Some(error) = event.end.as_ref().and_then(|end| end.error.clone()) {
        return Err(error.into());
    }
    let entries = shape.logprobs.and_then(|n| Entry::of(event, n, hub.model())).into_iter().collect();
    Ok(Part { choice, text: event.text.clone(), entries, finish: event.finish.map(reason), offset: 0 })
}

impl Reply {
    /// The document, when all choices have ended. Whoever drops it before cancels them.
    pub(crate) async fn whole(mut self) -> Result<Response, ApiError> {
        let mut parts: Vec<Part> = (0..self.choices).map(|choice| Part { choice, ..Part::default() }).collect();
        let mut usage = Usage::default();
        while let Some(next) = self.job.next().await {
            let (choice, event) = next?;
            let new = part(&self.hub, &self.shape, choice, &event)?;
            if let Some(end) = &event.end {
                usage.add(end, choice % self.per_prompt == 0);
            }
            let Some(all) = parts.get_mut(choice) else { continue };
            all.text.push_str(&new.text);
            all.entries.extend(new.entries);
            all.finish = new.finish.or(all.finish);
        }
        for part in &mut parts {
            part.offset = self.shape.echo.get(part.choice).map_or(0, |echo| echo.chars().count());
        }
        let choices = parts.iter().map(|part| self.shape.choice(part)).collect();
        Ok(answer(StatusCode::OK, &self.shape.document(choices, false, Some(usage))))
    }

    /// A stream of events, as the texts grow.
    pub(crate) fn stream(self) -> Response {
        let offsets = (0..self.choices).map(|i| self.shape.echo.get(i).map_or(0, |echo| echo.chars().count()));
        let mut stream = Stream {
            offsets: offsets.collect(),
            usage: Usage::default(),
            out: VecDeque::new(),
            ended: false,
            reply: self,
        };
        stream.open();
        let mut response = Response::new(Body::new(stream));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        // Proxies such as nginx would collect events.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}

/// The body of a stream. It is asked for as fast as the client reads.
struct Stream {
    reply: Reply,
    /// Characters of each choice so far.
    offsets: Vec<usize>,
    usage: Usage,
    out: VecDeque<Bytes>,
    ended: bool,
}

impl Stream {
    fn open(&mut self) {
        for choice in 0..self.reply.choices {
            if let Some(opening) = self.reply.shape.opening(choice) {
                self.send(opening);
            }
        }
    }

    /// Sends a choice's piece.
    fn send(&mut self, choice: Value) {
        let mut document = self.reply.shape.document(vec![choice], true, None);
        if self.reply.include_usage {
            document["usage"] = Value::Null;
        }
        self.write(&document);
    }

    fn write(&mut self, document: &Value) {
        self.out.push_back(Bytes::from(format!("data: {document}\n\n")));
    }

    fn take(&mut self, choice: usize, event: &Event) -> Result<(), ApiError> {
        let mut new = part(&self.reply.hub, &self.reply.shape, choice, event)?;
        if let Some(end) = &event.end {
            self.usage.add(end, choice % self.reply.per_prompt == 0);
        }
        if let Some(offset) = self.offsets.get_mut(choice) {
            new.offset = *offset;
            *offset += new.text.chars().count();
        }
        if !new.text.is_empty() || !new.entries.is_empty() || new.finish.is_some() {
            self.send(self.reply.shape.piece(&new));
        }
        Ok(())
    }

    fn end(&mut self, failed: Option<&ApiError>) {
        match failed {
            Some(error) => self.write(&error.json()),
            None if self.reply.include_usage => {
                self.write(&self.reply.shape.document(vec![], true, Some(self.usage)));
            }
            None => {}
        }
        self.out.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.ended = true;
    }
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match this.reply.job.poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => this.end(None),
                Poll::Ready(Some(next)) => {
                    if let Err(error) = next.and_then(|(choice, event)| this.take(choice, &event)) {
                        this.end(Some(&error));
                    }
                }
            }
        }
    }
}
