//! Streams of an answer's events, to the client that asked for it and to any that asks later.

use crate::responses::answer::Answer;
use crate::stream::events;
use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Events that wait for the client: further ones stay in the answer's log.
const AHEAD: usize = 16;

/// Cancels an answer that nobody else could read when it is dropped.
pub(crate) struct Guard(pub(crate) Arc<Answer>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A response that tells the events of an answer from event `first` on. `guard`: the client is the only one.
pub(crate) fn follow(answer: Arc<Answer>, first: usize, guard: Option<Guard>) -> Response {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(feed(answer, first, sender));
    events(Body::new(Followed { receiver, _guard: guard }))
}

/// Waits until an answer has ended.
pub(crate) async fn ended(answer: &Answer) {
    let mut changes = answer.changes();
    while !answer.has_ended() && changes.changed().await.is_ok() {}
}

async fn feed(answer: Arc<Answer>, first: usize, client: mpsc::Sender<Bytes>) {
    let mut changes = answer.changes();
    let mut next = first;
    loop {
        let over = answer.has_ended();
        while let Some(event) = answer.event(next) {
            let (trace, name) = (answer.trace(next), event["type"].as_str().unwrap_or_default());
            next += 1;
            if client.send(Bytes::from(format!("{trace}event: {name}\ndata: {event}\n\n"))).await.is_err() {
                return;
            }
        }
        if over || changes.changed().await.is_err() {
            return;
        }
    }
}

struct Followed {
    receiver: mpsc::Receiver<Bytes>,
    _guard: Option<Guard>,
}

impl hyper::body::Body for Followed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
