//! Serving until a signal or another thread asks for the end.

use crate::net::{Limits, accept};
use crate::tls::Tls;
use crate::work::Work;
use axum::Router;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

/// How often a server that ends looks for the last request.
const OFTEN: Duration = Duration::from_millis(20);
/// Time for the last bytes of replies.
const LAST: Duration = Duration::from_secs(2);

/// Ends a server.
#[derive(Clone)]
pub struct Stopper(Arc<watch::Sender<Wish>>);

/// How a server is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Serve,
    Drain,
    End,
}

impl Default for Stopper {
    /// For a server that goes on.
    fn default() -> Stopper {
        Stopper(Arc::new(watch::channel(Wish::Serve).0))
    }
}

impl Stopper {
    /// Asks for the end: after the requests under way at first, at once when asked again.
    pub fn stop(&self) {
        self.0.send_modify(|wish| *wish = if *wish == Wish::Serve { Wish::Drain } else { Wish::End });
    }

    /// SIGTERM and SIGINT ask for the end, too.
    fn hear_signals(&self) -> io::Result<()> {
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signals, stopper) = (signal(kind)?, self.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    stopper.stop();
                }
            });
        }
        Ok(())
    }
}

/// Connections of clients, and who answers them.
pub struct Front {
    /// Where clients connect; nonblocking.
    pub listener: TcpListener,
    /// All paths.
    pub router: Router,
    /// `None`: plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Limits of connections.
    pub limits: Limits,
}

/// Serves until SIGTERM, SIGINT or `stopper` asks for the end, and all requests under way have ended or taken `drain`.
/// Then `close` is called, and the last bytes of replies are sent.
///
/// # Errors
/// The system refuses signals, or the listener.
pub async fn serve_until(
    front: Front,
    stopper: Stopper,
    work: &Work,
    drain: Duration,
    close: impl FnOnce(),
) -> io::Result<()> {
    let Front { listener, router, tls, limits } = front;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    stopper.hear_signals()?;
    let (end, ended) = watch::channel(false);
    let (open, mut closed) = mpsc::channel(1);
    tokio::spawn(accept(listener, router, tls, limits, ended, open));
    let mut wishes = stopper.0.subscribe();
    // (The sender is alive.)
    let _ = wishes.wait_for(|wish| *wish >= Wish::Drain).await;
    work.drain();
    let last = Instant::now() + drain;
    while work.under_way() > 0 && Instant::now() < last && *wishes.borrow() < Wish::End {
        sleep(OFTEN).await;
    }
    close();
    let _ = end.send(true);
    let _ = timeout(LAST, closed.recv()).await;
    Ok(())
}
