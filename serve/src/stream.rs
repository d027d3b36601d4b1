//! Streams of events: a body that is written as its request's events come, and as fast as the client reads.
//!
//! A router in front of several servers asks for a *trace* by the header `x-llmcc-trace: 1`: then each event says in a
//! comment before it, which clients pass over, whose it is. `: tokens CHOICE TOKEN` is of a choice, with the token that
//! it brings (an event of a choice may have none, and a token no event); `: end` begins the events after the last
//! choice, `: failed STATUS` those after an error. Events without a comment come before all texts. The response has the
//! same header, with the model's fingerprint. So the router knows which tokens the client has: with these as
//! `expected_token_ids` another server of the same model goes on where the first one broke off.

use crate::error::ApiError;
use crate::hub::Job;
use crate::served::Served;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;
use llmcc_model::Event;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The events that an interface has.
pub(crate) trait Script: Send + Unpin + 'static {
    /// Events before any text.
    fn open(&mut self) -> Vec<Bytes>;
    /// Events that tell what a choice's event brings.
    ///
    /// # Errors
    /// The choice failed.
    fn take(&mut self, choice: usize, event: &Event) -> Result<Vec<Bytes>, ApiError>;
    /// Events after the last choice, or after an error.
    fn end(&mut self, failed: Option<&ApiError>) -> Vec<Bytes>;
}

/// The header that asks for a trace.
const TRACE: HeaderName = HeaderName::from_static("x-llmcc-trace");

/// Whether the client wants a trace in its stream.
pub(crate) fn is_traced(headers: &HeaderMap) -> bool {
    headers.get(TRACE).is_some_and(|value| value == "1")
}

/// A response that tells the events of a request; `traced`: with a trace.
pub(crate) fn stream(served: &Served, job: Job, mut script: impl Script, traced: bool) -> Response {
    let out = script.open().into();
    let mut response = events(Body::new(Stream { job, script, traced, out, ended: false }));
    if traced {
        trace(&mut response, &served.fingerprint);
    }
    response
}

/// Says which model a traced stream is of.
pub(crate) fn trace(response: &mut Response, fingerprint: &str) {
    response.headers_mut().extend(HeaderValue::from_str(fingerprint).ok().map(|model| (TRACE, model)));
}

/// A response whose body is a stream of events.
pub(crate) fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx would collect events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Stream<S> {
    job: Job,
    script: S,
    traced: bool,
    out: VecDeque<Bytes>,
    ended: bool,
}

impl<S: Script> hyper::body::Body for Stream<S> {
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
            let next = match this.job.poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => next,
            };
            let told = match next {
                None => Ok(None),
                Some(next) => next.and_then(|(choice, event)| this.tell(choice, &event)).map(Some),
            };
            match told {
                Ok(Some(events)) => this.out.extend(events),
                Ok(None) => this.end(None),
                Err(error) => this.end(Some(&error)),
            }
        }
    }
}

impl<S: Script> Stream<S> {
    /// Events that tell an event of a choice.
    fn tell(&mut self, choice: usize, event: &Event) -> Result<Vec<Bytes>, ApiError> {
        let mut events = self.script.take(choice, event)?;
        if self.traced {
            let token = event.token.map_or_else(String::new, |token| format!(" {token}"));
            remark(&mut events, &format!(": tokens {choice}{token}\n"));
            let others = events.iter_mut().skip(1);
            others.for_each(|event| *event = joined(&format!(": tokens {choice}\n"), event));
        }
        Ok(events)
    }

    /// Tells the end.
    fn end(&mut self, failed: Option<&ApiError>) {
        let mut events = self.script.end(failed);
        if self.traced {
            let end = failed.map_or_else(|| ": end\n".into(), |e| format!(": failed {}\n", e.status.as_u16()));
            remark(&mut events, &end);
        }
        self.out.extend(events);
        self.ended = true;
    }
}

/// Puts a comment before the first of some events; it stands alone where there are none.
fn remark(events: &mut Vec<Bytes>, comment: &str) {
    match events.first_mut() {
        Some(first) => *first = joined(comment, first),
        None => events.push(joined(comment, b"\n")),
    }
}

fn joined(comment: &str, event: &[u8]) -> Bytes {
    [comment.as_bytes(), event].concat().into()
}
