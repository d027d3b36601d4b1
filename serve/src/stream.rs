//! Streams of events: a body that is written as its request's events come, and as fast as the client reads.

use crate::error::ApiError;
use crate::hub::Job;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
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

/// A response that tells the events of a request.
pub(crate) fn stream(job: Job, mut script: impl Script) -> Response {
    let out = script.open().into();
    events(Body::new(Stream { job, script, out, ended: false }))
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
                Some(next) => next.and_then(|(choice, event)| this.script.take(choice, &event)).map(Some),
            };
            match told {
                Ok(Some(events)) => this.out.extend(events),
                Ok(None) => {
                    this.out.extend(this.script.end(None));
                    this.ended = true;
                }
                Err(error) => {
                    this.out.extend(this.script.end(Some(&error)));
                    this.ended = true;
                }
            }
        }
    }
}
