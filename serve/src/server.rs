//! The server: begins to listen, serves, and ends when it is asked to.

use crate::app::App;
use crate::ending::{Front, Stopper, serve_until};
use crate::guard::origins;
use crate::log::Log;
use crate::models::{Models, Named, Source};
use crate::net::Limits;
use crate::routes::router;
use crate::settings::Settings;
use crate::tls::Tls;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tower_http::cors::CorsLayer;

/// Threads for work that takes long: tokens of prompts, templates.
const WORKERS: usize = 4;

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It would be open to the network without a key.
    #[error(
        "{0} can be reached from other machines, and the server has no key: give one (--api-key-file), or listen at \
         127.0.0.1"
    )]
    Open(std::net::IpAddr),
    /// Its address.
    #[error("cannot listen at {0}: {1}")]
    Address(SocketAddr, io::Error),
    /// Files of its identity.
    #[error("TLS: {0}")]
    Tls(String),
    /// An origin that is none.
    #[error("{0}")]
    Origin(String),
    /// The system refuses threads, signals or the like.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    tls: Option<Arc<Tls>>,
    origins: Option<CorsLayer>,
    stopper: Stopper,
}

impl Server {
    /// Begins to listen. `models`: with their names for clients; `source`: where they are opened again when the
    /// process gets SIGHUP, and further ones when clients ask for it.
    ///
    /// # Errors
    /// An address that others can reach, without a key; one that is in use, or not this machine's.
    pub fn bind(models: Vec<Named>, source: Option<Arc<dyn Source>>, settings: Settings) -> Result<Server, ServeError> {
        if settings.keys.is_empty() && !settings.host.is_loopback() {
            return Err(ServeError::Open(settings.host));
        }
        let tls = settings.tls.clone().map(|files| Tls::new(files).map(Arc::new));
        let tls = tls.transpose().map_err(ServeError::Tls)?;
        let origins = origins(&settings).map_err(ServeError::Origin)?;
        let wanted = SocketAddr::new(settings.host, settings.port);
        let listener = TcpListener::bind(wanted).map_err(|e| ServeError::Address(wanted, e))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let log = Arc::new(Log::start(settings.log)?);
        let models = Models::new(models, source, log.clone(), (settings.max_models, settings.any_model))?;
        let app = Arc::new(App::new(models, log, settings));
        Ok(Server { listener, address, app, tls, origins, stopper: Stopper::default() })
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

    /// Serves until SIGTERM, SIGINT or a [`Stopper`] asks for the end, and all requests under way have ended or taken
    /// too long.
    ///
    /// # Errors
    /// The system refuses threads or signals.
    pub fn run(self) -> Result<(), ServeError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
        let app = self.app.clone();
        let served = runtime.block_on(serve(self));
        app.models.close();
        // Work that takes long ends by itself; nobody waits for it.
        runtime.shutdown_background();
        app.models.join();
        served
    }
}

async fn serve(server: Server) -> Result<(), ServeError> {
    let Server { listener, app, tls, origins, stopper, .. } = server;
    reload_on_hangup(&app, tls.clone())?;
    let limits = Limits { connections: app.settings.max_connections, patience: app.settings.patience };
    let front = Front { listener, router: router(app.clone(), origins), tls, limits };
    // The streams that are left hear of the end.
    serve_until(front, stopper, &app.work, app.settings.drain, || app.models.close()).await?;
    Ok(())
}

/// Opens the models anew, and reads the certificate again, whenever the process gets SIGHUP.
fn reload_on_hangup(app: &Arc<App>, tls: Option<Arc<Tls>>) -> io::Result<()> {
    let (mut signals, app) = (signal(SignalKind::hangup())?, app.clone());
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            for (name, result) in app.models.reload().await {
                match result {
                    Ok(()) => app.log.say(&format!("reloaded {name}")),
                    Err(error) => app.log.say(&format!("{name} stays as it is: {}", error.message)),
                }
            }
            match tls.as_ref().map(|tls| tls.reload()) {
                None => {}
                Some(Ok(())) => app.log.say("reloaded the certificate"),
                Some(Err(e)) => app.log.say(&format!("the certificate stays as it is: {e}")),
            }
        }
    });
    Ok(())
}
