//! Connections to a replica that wait for the next request.

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Longest time for which a connection waits: replicas close theirs later.
const LONGEST: Duration = Duration::from_secs(20);

/// A connection, for one request at a time. Dropping it closes it.
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// A connection over a stream of bytes.
    ///
    /// # Errors
    /// The stream ends.
    pub(crate) async fn new(stream: TcpStream) -> hyper::Result<Connection> {
        let (sender, connection) = http1::handshake::<_, Body>(TokioIo::new(stream)).await?;
        let task = tokio::spawn(async move {
            // Its errors are the request's.
            let _ = connection.await;
        });
        Ok(Connection { sender, task: task.abort_handle() })
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// The connection is closed.
    pub(crate) async fn send(&mut self, request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}

/// Connections that wait, the newest last.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<(Instant, Connection)>>);

impl Pool {
    /// The connection that was used last, if one waits.
    pub(crate) fn take(&self) -> Option<Connection> {
        self.waiting().pop().map(|(_, connection)| connection)
    }

    /// Keeps a connection whose last answer is whole; at most `most` of them wait.
    pub(crate) fn put(&self, connection: Connection, most: usize) {
        let mut all = self.waiting();
        if all.len() < most {
            all.push((Instant::now(), connection));
        }
    }

    /// Those that are open, and have not waited for too long; the others are closed.
    fn waiting(&self) -> MutexGuard<'_, Vec<(Instant, Connection)>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(since, connection)| since.elapsed() < LONGEST && !connection.sender.is_closed());
        all
    }
}
