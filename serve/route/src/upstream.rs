//! Requests to replicas: each has a connection to itself, which is closed when nobody needs its answer any more, and
//! kept for another request when the answer is whole.

use crate::fleet::Replica;
use crate::pool::Connection;
use axum::body::{Body, Bytes};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header, response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A request as a replica gets it.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Most connections to the replica that wait for a request; 0: this one has a new connection, which is closed.
    pub(crate) idle: usize,
}

/// A replica's answer.
pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    pub(crate) body: Upstream,
}

/// The body of an answer. Dropping it closes the connection, so that the replica cancels what is left.
pub(crate) struct Upstream {
    body: Incoming,
    /// `None`: the answer is whole.
    connection: Option<Connection>,
    replica: Arc<Replica>,
    idle: usize,
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
                None => {
                    self.keep();
                    return Ok(None);
                }
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

    /// Keeps the connection after the last byte.
    fn keep(&mut self) {
        self.connection.take().into_iter().for_each(|connection| self.replica.pool.put(connection, self.idle));
    }
}

impl hyper::body::Body for Upstream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            self.keep();
        }
        frame
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
pub(crate) async fn ask(replica: &Arc<Replica>, outgoing: Outgoing<'_>, patience: Duration) -> Result<Answer, String> {
    let host = HeaderValue::from_str(replica.authority.as_str()).map_err(|e| e.to_string())?;
    let request = || {
        let mut request = Request::new(Body::from(outgoing.body.clone()));
        *request.method_mut() = outgoing.method.clone();
        *request.uri_mut() = Uri::from(outgoing.path.clone());
        request.headers_mut().clone_from(&outgoing.headers);
        request.headers_mut().insert(header::HOST, host.clone());
        request
    };
    // A replica may close a connection that waits at any time: a new one tells whether the replica is there.
    while outgoing.idle > 0
        && let Some(mut connection) = replica.pool.take()
    {
        if let Ok(answer) = connection.send(request()).await {
            return Ok(answered(answer, connection, replica, outgoing.idle));
        }
    }
    let stream = match timeout(patience, TcpStream::connect(replica.address())).await {
        Err(_) => return Err(format!("no connection within {} ms", patience.as_millis())),
        Ok(Err(e)) => return Err(format!("no connection: {e}")),
        Ok(Ok(stream)) => stream,
    };
    // (Requests are written at once; without it they go a little later.)
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(stream).await.map_err(|e| said("no connection", &e))?;
    let answer = connection.send(request()).await.map_err(|e| said("the request got no answer", &e))?;
    Ok(answered(answer, connection, replica, outgoing.idle))
}

fn answered(answer: Response<Incoming>, connection: Connection, replica: &Arc<Replica>, idle: usize) -> Answer {
    let (head, body) = answer.into_parts();
    let mut body = Upstream { body, connection: Some(connection), replica: replica.clone(), idle };
    if body.body.is_end_stream() {
        body.keep();
    }
    Answer { head, body }
}

/// An error, and the one below it that says why.
fn said(what: &str, e: &hyper::Error) -> String {
    let why = std::error::Error::source(e).map(|why| format!(": {why}")).unwrap_or_default();
    format!("{what}: {e}{why}")
}
