//! Passes a client's request on, and the answer back.

use crate::app::App;
use crate::call::{Call, TRACE, interface, is_of_connection};
use crate::dispatch::{Attempts, Found, dispatch, whole};
use crate::error::Refusal;
use crate::fleet::Lease;
use crate::relay::Relay;
use crate::upstream::Upstream;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header, response};
use axum::response::Response;
use hyper::body::Frame;
use llmcc_serve::front::{BODY, BodyError, Busy, read_body, unforeseen};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Bodies that are longer are read away from the thread that talks with clients.
const LONG: usize = 256 << 10;
/// Answers up to so many bytes are sent when they are whole, so that another replica can give them.
const WHOLE: usize = 64 << 20;
/// Parts of a stream that wait for the client.
const AHEAD: usize = 16;
/// The header that names a request.
const ID: HeaderName = HeaderName::from_static("x-request-id");
/// Paths that change one replica, which a router cannot mean.
const OF_ONE: [&str; 3] = ["/models/load", "/models/unload", "/lora-adapters"];
/// How the identifier of a kept answer begins, in a document.
const KEPT: &[u8] = b"\"id\":\"resp_";

/// Passes any request on that the router does not answer itself.
pub(crate) async fn forward(State(app): State<Arc<App>>, request: Request) -> Response {
    let (interface, _) = interface(request.uri().path());
    forwarded(app, request).await.unwrap_or_else(|refusal| refusal.response(interface))
}

async fn forwarded(app: Arc<App>, request: Request) -> Result<Response, Refusal> {
    let busy = app.begin()?;
    if !is_open(&request) {
        app.admit(request.headers())?;
    }
    let (mut head, body) = request.into_parts();
    if head.method == Method::POST && OF_ONE.contains(&head.uri.path()) {
        let path = head.uri.path();
        let message = format!("{path} changes one server, and this is a router of several: ask each of them");
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "not_supported", message));
    }
    let body = read(&app, body).await?;
    // All attempts have one name.
    if !head.headers.contains_key(&ID) {
        let id = HeaderValue::from_str(&format!("req_{:016x}", unforeseen()));
        head.headers.extend(id.ok().map(|id| (ID, id)));
    }
    let unforeseen = unforeseen();
    let call = match body.len() > LONG {
        false => Call::new(head, body, unforeseen),
        true => {
            let read = tokio::task::spawn_blocking(move || Call::new(head, body, unforeseen)).await;
            read.map_err(|e| {
                let message = format!("internal error: {e}");
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            })?
        }
    };
    app.metrics.requests.add(1);
    answered(app, Arc::new(call), busy).await
}

/// Whether a request needs no key at replicas, either: the page, and what browsers ask before they ask.
fn is_open(request: &Request) -> bool {
    *request.method() == Method::OPTIONS || (*request.method() == Method::GET && request.uri().path() == "/")
}

/// The body of a request.
async fn read(app: &App, body: Body) -> Result<Bytes, Refusal> {
    let most = app.settings.max_body;
    read_body(body, most).await.map_err(|e| match e {
        BodyError::TooLong => {
            let message = format!("the body is too long: send up to {most} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", message)
        }
        BodyError::Late => {
            let message = format!("the body did not come within {} seconds", BODY.as_secs());
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
        }
        BodyError::Unreadable(e) => {
            let message = format!("the body cannot be read: {e}");
            Refusal::new(StatusCode::BAD_REQUEST, "unreadable", message)
        }
    })
}

/// The answer to a request: a document when it is whole, or a stream.
async fn answered(app: Arc<App>, call: Arc<Call>, busy: Busy) -> Result<Response, Refusal> {
    let mut attempts = Attempts::new();
    loop {
        let mut found = dispatch(&app, &call, &mut attempts, None).await.map_err(|why| {
            app.metrics.lost.add(1);
            Refusal::no_replica(&why)
        })?;
        if is_stream(&found.answer.head) {
            return Ok(streamed(app, call, found, busy));
        }
        match whole(&mut found, WHOLE).await {
            Ok((bytes, true)) => {
                learn(&app, &bytes, found.lease.index);
                return Ok(response(&found.answer.head, &call, Body::from(bytes)));
            }
            Ok((bytes, false)) => {
                let Found { lease, answer } = found;
                let rest = Rest { begins: Some(bytes), body: answer.body, lease, app, _busy: busy };
                return Ok(response(&answer.head, &call, Body::new(rest)));
            }
            Err(why) => attempts.fail(&app, &found.lease, &why),
        }
    }
}

fn is_stream(head: &response::Parts) -> bool {
    let kind = head.headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// The response of a stream that has begun at a replica.
fn streamed(app: Arc<App>, call: Arc<Call>, found: Found, busy: Busy) -> Response {
    let model = found.answer.head.headers.get(TRACE).cloned();
    if model.is_none() || !call.can_resume() {
        let Found { lease, answer } = found;
        let rest = Rest { begins: None, body: answer.body, lease, app, _busy: busy };
        return response(&answer.head, &call, Body::new(rest));
    }
    let (client, parts) = mpsc::channel(AHEAD);
    let response = response(&found.answer.head, &call, Body::new(Parts(parts)));
    tokio::spawn(Relay::new((app, call), model, client, busy).run(found));
    response
}

/// The response with a replica's head.
fn response(head: &response::Parts, call: &Call, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    let is_passed = |name: &HeaderName| !is_of_connection(name) && (call.traced || *name != TRACE);
    let passed = head.headers.iter().filter(|(name, _)| is_passed(name));
    response.headers_mut().extend(passed.map(|(name, value)| (name.clone(), value.clone())));
    response
}

/// Learns which replica has the answer of a document or of an event.
fn learn(app: &App, text: &[u8], replica: usize) {
    let Some(at) = text.windows(KEPT.len()).position(|window| window == KEPT) else { return };
    let id = &text[at + b"\"id\":\"".len()..];
    let end = id.iter().position(|b| *b == b'"').unwrap_or(0);
    if let Ok(id) = std::str::from_utf8(&id[..end])
        && end > 0
    {
        app.settle(id, replica);
    }
}

/// Parts of a stream, as a body.
struct Parts(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Rest of an answer that is passed on as it is.
struct Rest {
    /// Bytes that have come.
    begins: Option<Bytes>,
    body: Upstream,
    lease: Lease,
    app: Arc<App>,
    _busy: Busy,
}

impl hyper::body::Body for Rest {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if let Some(bytes) = this.begins.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            learn(&this.app, bytes, this.lease.index);
        }
        Poll::Ready(frame)
    }
}
