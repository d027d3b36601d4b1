//! Comments in streams over which nothing comes: proxies on the way close connections that are silent, as that of a
//! request is which waits for its turn or has a long prompt.

use crate::app::App;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A comment, which clients leave out.
const COMMENT: &[u8] = b": waiting\n\n";

/// Keeps streams of events from silence.
pub(crate) async fn streams(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let quiet = app.settings.quiet;
    response.map(|body| Body::new(Awake { body, quiet, last: Instant::now(), timer: Box::pin(sleep(quiet)) }))
}

/// A stream whose frames are whole events.
struct Awake {
    body: Body,
    /// Longest silence.
    quiet: Duration,
    /// When its last frame came.
    last: Instant,
    timer: Pin<Box<Sleep>>,
}

impl hyper::body::Body for Awake {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.last = Instant::now();
            return Poll::Ready(frame);
        }
        // (The timer is set again when it rings, and not with each frame.)
        while this.timer.as_mut().poll(context).is_ready() {
            let (now, until) = (Instant::now(), this.last + this.quiet);
            if until <= now {
                this.last = now;
                this.timer.as_mut().reset(now + this.quiet);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
            }
            this.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}
