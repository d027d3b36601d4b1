//! `llmcc serve`: an HTTP server for artifacts.

mod source;

use crate::Error;
use crate::args::{LogAs, ServeArgs};
use crate::listening::announce;
use llmcc_frontends::input;
use llmcc_serve::{LogForm, ServeError, Server, Settings, TlsFiles};
use source::Artifacts;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Serves until a signal asks for the end.
///
/// # Errors
/// No artifact; no key where one is needed; an address that cannot be listened at.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    let settings = settings(args)?;
    // Before models are opened, which may take long.
    if settings.keys.is_empty() && !settings.host.is_loopback() {
        return Err(refused(&ServeError::Open(settings.host)));
    }
    let artifacts = Arc::new(Artifacts::new(args)?);
    let models = artifacts.open_all()?;
    let server = Server::bind(models, Some(artifacts), settings).map_err(|e| refused(&e))?;
    announce(&server.url())?;
    server.run().map_err(|e| refused(&e))
}

fn refused(e: &ServeError) -> Error {
    match e {
        ServeError::Open(_) | ServeError::Origin(_) => Error::Usage(e.to_string()),
        _ => Error::Failed(e.to_string()),
    }
}

fn settings(args: &ServeArgs) -> Result<Settings, Error> {
    Ok(Settings {
        host: args.host,
        port: args.port,
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key }),
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
        log: match args.log {
            LogAs::Off => LogForm::Off,
            LogAs::Text => LogForm::Text,
            LogAs::Json => LogForm::Json,
        },
        max_connections: args.max_connections as usize,
        keys: args.api_key_file.as_deref().map_or(Ok(vec![]), keys)?,
        drain: Duration::from_secs(args.drain_seconds.into()),
        page: !args.no_page,
        open_metrics: args.open_metrics,
        any_model: args.any_model,
        without: args.without.clone(),
        max_models: args.max_models as usize,
        max_stored: args.stored_responses as usize,
        ..Settings::default()
    })
}

/// The keys of a file, one on a line.
///
/// # Errors
/// A file that cannot be read, has no key, or has one that no header may have.
pub(super) fn keys(path: &Path) -> Result<Vec<String>, Error> {
    let text = input::read_text(path)?;
    let keys: Vec<String> = text.lines().map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect();
    let wrong = |what: &str| Err(Error::Usage(format!("{}: {what}", path.display())));
    match keys.iter().position(|key| !key.bytes().all(|b| b.is_ascii_graphic())) {
        Some(i) => wrong(&format!("key {} has characters that no header may have: use ASCII without spaces", i + 1)),
        None if keys.is_empty() => wrong("the file has no key: write one on a line"),
        None => Ok(keys),
    }
}
