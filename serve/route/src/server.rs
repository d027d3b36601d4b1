//! The router's server: begins to listen, passes requests on, and ends when it is asked to.

use crate::app::App;
use crate::fleet::Fleet;
use crate::health::watch as watch_replicas;
use crate::paths::paths;
use crate::settings::Settings;
use llmcc_serve::Stopper;
use llmcc_serve::front::{Front, Limits, Tls, serve_until};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Threads for names of hosts and long bodies.
const WORKERS: usize = 4;

/// Why a router cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// It would be open to the network without a key.
    #[error(
        "{0} can be reached from other machines, and the router has no key: give one (--api-key-file), or listen at \
         127.0.0.1"
    )]
    Open(std::net::IpAddr),
    /// Its replicas.
    #[error("{0}")]
    Replicas(String),
    /// Its address.
    #[error("cannot listen at {0}: {1}")]
    Address(SocketAddr, io::Error),
    /// Files of its identity.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system refuses threads, signals or the like.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A router that listens.
pub struct Router {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    tls: Option<Arc<Tls>>,
    stopper: Stopper,
}

impl Router {
    /// Begins to listen.
    ///
    /// # Errors
    /// No replica, or one that is none; an address that others can reach, without a key; one that is in use, or not
    /// this machine's.
    pub fn bind(settings: Settings) -> Result<Router, RouteError> {
        let listen = settings.listen;
        if settings.keys.is_empty() && !listen.ip().is_loopback() {
            return Err(RouteError::Open(listen.ip()));
        }
        let fleet = Fleet::new(&settings.replicas).map_err(RouteError::Replicas)?;
        let tls = settings.tls.clone().map(|files| Tls::new(files).map(Arc::new));
        let tls = tls.transpose().map_err(RouteError::Tls)?;
        let listener = TcpListener::bind(listen).map_err(|e| RouteError::Address(listen, e))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let app = Arc::new(App::new(fleet, settings));
        Ok(Router { listener, address, app, tls, stopper: Stopper::default() })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its address.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Ends it from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Passes requests on until SIGTERM, SIGINT or a [`Stopper`] asks for the end, and all requests under way have
    /// ended or taken too long.
    ///
    /// # Errors
    /// The system refuses threads or signals.
    pub fn run(self) -> Result<(), RouteError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
        let routed = runtime.block_on(route(self));
        // Names of hosts that nobody answers for end by themselves.
        runtime.shutdown_background();
        routed
    }
}

async fn route(router: Router) -> Result<(), RouteError> {
    let Router { listener, app, tls, stopper, .. } = router;
    watch_replicas(&app);
    let limits = Limits { connections: app.settings.max_connections, patience: app.settings.patience };
    let front = Front { listener, router: paths(app.clone()), tls, limits };
    serve_until(front, stopper, &app.work, app.settings.drain, || ()).await?;
    Ok(())
}
