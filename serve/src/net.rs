//! Connections: a bounded number of them, each with limits on the time that its client takes.

use crate::tls::Tls;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};

/// Longest wait for the head of a request, also of the next one on a connection.
const HEAD: Duration = Duration::from_secs(75);
/// Longest wait for the beginning of TLS.
const HELLO: Duration = Duration::from_secs(10);
/// Most headers of a request.
const HEADERS: usize = 100;
/// Bytes that are kept of a request's head and of what follows.
const HEAD_BYTES: usize = 64 << 10;
/// Pause after an error of the system's: too many open files, say.
const PAUSE: Duration = Duration::from_millis(100);

/// Limits of connections.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Connections at once; further ones wait.
    pub connections: usize,
    /// How long a client may leave sent bytes unread.
    pub patience: Duration,
}

/// Takes connections until `end` is true, and lets those that are open end what they do. Each holds a sender of
/// `open`, so that its receiver hears of the last one.
pub async fn accept(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    mut end: watch::Receiver<bool>,
    open: tokio::sync::mpsc::Sender<()>,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    loop {
        let next = async {
            // (Never closed.)
            let permit = room.clone().acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = match first(next, end.wait_for(|end| *end)).await {
            Ok(next) => next,
            Err(_) => return,
        };
        let Ok((stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let (router, tls, end, open) = (router.clone(), tls.clone(), end.clone(), open.clone());
        tokio::spawn(async move {
            let _held = (permit, open);
            // Pieces of text are sent as they come.
            let _ = stream.set_nodelay(true);
            let stream = Patient::new(stream, limits.patience);
            match tls {
                None => serve(stream, router, end).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(HELLO, tls.acceptor().accept(stream)).await {
                        serve(stream, router, end).await;
                    }
                }
            }
        });
    }
}

/// The first of two to be ready.
async fn first<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> std::result::Result<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|context| match b.as_mut().poll(context) {
        Poll::Ready(b) => Poll::Ready(Err(b)),
        Poll::Pending => a.as_mut().poll(context).map(Ok),
    })
    .await
}

/// Serves a connection until its client goes, is too slow, or the server ends.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    mut end: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        // (Some programs know names of headers with capital letters only.)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // Errors are the client's: it has gone, or speaks no HTTP.
    if first(connection.as_mut(), end.wait_for(|end| *end)).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// A stream that fails where the other side takes no bytes for too long.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Set while a write waits.
    late: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration) -> Patient {
        Patient { stream, patience, late: None }
    }

    /// The result of a write, unless it has waited for too long.
    fn timed<T>(&mut self, written: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let patience = self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(written, context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(written, context)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(flushed, context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
