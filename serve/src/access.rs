//! Names of requests, and a line about each when its response has been sent or its client has gone.

use crate::app::App;
use crate::ask::unforeseen;
use crate::log::{Log, rounded};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The header that names a request.
const ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest name of a request that a client may give.
const LONGEST_ID: usize = 128;

/// A request whose response is sent.
struct Done {
    id: String,
    method: String,
    path: String,
    began: Instant,
}

impl Done {
    /// Writes its line; `whole`: the client has all of the response.
    fn tell(&self, log: &Log, status: Option<u16>, bytes: u64, whole: bool) {
        let mut members = vec![
            ("level", json!("info")),
            ("request_id", json!(self.id)),
            ("method", json!(self.method)),
            ("path", json!(self.path)),
            ("status", json!(status)),
            ("bytes", json!(bytes)),
            ("seconds", json!(rounded(self.began.elapsed().as_secs_f64()))),
        ];
        members.extend((!whole).then_some(("aborted", json!(true))));
        log.request(members);
    }
}

/// Names each request, and writes a line when its response has been sent or its client has gone.
pub(crate) async fn requests(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(ID).filter(|id| id.len() <= LONGEST_ID).and_then(|id| id.to_str().ok());
    let id = given.map_or_else(|| format!("req_{:016x}", unforeseen()), str::to_owned);
    let done =
        Done { id, method: request.method().to_string(), path: request.uri().path().to_owned(), began: Instant::now() };
    let header = HeaderValue::from_str(&done.id);
    // (Dropped where the client goes before there is a response.)
    let mut pending = Pending { app: app.clone(), done: Some(done) };
    let mut response = next.run(request).await;
    response.headers_mut().extend(header.ok().map(|id| (ID, id)));
    let Some(done) = pending.done.take() else { return response };
    let status = response.status().as_u16();
    response.map(|body| Body::new(Counted { body, app, done, status, bytes: 0, whole: false }))
}

struct Pending {
    app: Arc<App>,
    done: Option<Done>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done.tell(&self.app.log, None, 0, false);
        }
    }
}

/// A body whose end is told.
struct Counted {
    body: Body,
    app: Arc<App>,
    done: Done,
    status: u16,
    bytes: u64,
    whole: bool,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let next = Pin::new(&mut this.body).poll_frame(context);
        match &next {
            Poll::Ready(None) => this.whole = true,
            Poll::Ready(Some(Ok(frame))) => this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => {}
        }
        this.whole |= this.body.is_end_stream();
        next
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // (Nobody asks an empty body for its frames.)
        let whole = self.whole || self.body.is_end_stream();
        self.done.tell(&self.app.log, Some(self.status), self.bytes, whole);
    }
}
