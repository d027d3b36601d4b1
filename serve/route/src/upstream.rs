//! Requests to replicas: a connection each, which is closed when nobody needs its answer any more.

use crate::fleet::Replica;
use axum::body::{Body, Bytes};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header, response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// A request as a replica gets it.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A replica's answer.
pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    pub(crate) body: Upstream,
}

/// The body of an answer. Dropping it closes the connection, so that the replica cancels what is left.
pub(crate) struct Upstream {
    body: Incoming,
    connection: AbortHandle,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Upstream {
    /// The next bytes; `None` after the last ones.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let frame = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            match frame {
                None => return Ok(None),
                Some(Err(e)) => return Err(said("the answer broke off", &e)),
                // (Trailers say nothing here.)
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

impl hyper::body::Body for Upstream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Sends a request to a replica, and waits for the head of its answer.
///
/// # Errors
/// No connection within `patience`; the replica closes it.
pub(crate) async fn ask(replica: &Replica, outgoing: Outgoing<'_>, patience: Duration) -> Result<Answer, String> {
    let stream = match timeout(patience, TcpStream::connect(replica.address())).await {
        Err(_) => return Err(format!("no connection within {} ms", patience.as_millis())),
        Ok(Err(e)) => return Err(format!("no connection: {e}")),
        Ok(Ok(stream)) => stream,
    };
    // (Requests are written at once; without it they go a little later.)
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(stream);
    let (mut sender, connection) = http1::handshake::<_, Body>(io).await.map_err(|e| said("no connection", &e))?;
    let connection = tokio::spawn(async move {
        // Its errors are the request's.
        let _ = connection.await;
    });
    let guard = Guard(Some(connection.abort_handle()));
    let mut request = Request::new(Body::from(outgoing.body));
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = Uri::from(outgoing.path.clone());
    *request.headers_mut() = outgoing.headers;
    let host = HeaderValue::from_str(replica.authority.as_str()).map_err(|e| e.to_string())?;
    request.headers_mut().insert(header::HOST, host);
    let answer = sender.send_request(request).await.map_err(|e| said("the request got no answer", &e))?;
    let (head, body) = Response::into_parts(answer);
    Ok(Answer { head, body: Upstream { body, connection: guard.keep() } })
}

/// Closes a connection whose request is given up.
struct Guard(Option<AbortHandle>);

impl Guard {
    fn keep(mut self) -> AbortHandle {
        // (It is there until it is kept or dropped.)
        self.0.take().unwrap_or_else(|| tokio::spawn(async {}).abort_handle())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.abort();
        }
    }
}

/// An error, and the one below it that says why.
fn said(what: &str, e: &hyper::Error) -> String {
    let why = std::error::Error::source(e).map(|why| format!(": {why}")).unwrap_or_default();
    format!("{what}: {e}{why}")
}
