//! `llmcc route`: a reverse proxy in front of several servers of one artifact.

use super::serve::keys;
use crate::Error;
use crate::args::RouteArgs;
use crate::listening::announce;
use llmcc_route::{RouteError, Router, Settings};
use llmcc_serve::TlsFiles;
use std::time::Duration;

/// Passes requests on until a signal asks for the end.
///
/// # Errors
/// No replica, or one that is none; no key where one is needed; an address that cannot be listened at.
pub fn run(args: &RouteArgs) -> Result<(), Error> {
    let router = Router::bind(settings(args)?).map_err(|e| refused(&e))?;
    announce(&router.url())?;
    router.run().map_err(|e| refused(&e))
}

fn refused(e: &RouteError) -> Error {
    match e {
        RouteError::Open(_) | RouteError::Replicas(_) => Error::Usage(e.to_string()),
        _ => Error::Failed(e.to_string()),
    }
}

fn settings(args: &RouteArgs) -> Result<Settings, Error> {
    let seconds = |n: u32| Duration::from_secs(n.into());
    let milliseconds = |n: u32| Duration::from_millis(n.into());
    Ok(Settings {
        listen: args.listen,
        replicas: args.replicas.clone(),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key }),
        keys: args.api_key_file.as_deref().map_or(Ok(vec![]), keys)?,
        hosts: args.allow_host.clone(),
        max_connections: args.max_connections as usize,
        drain: seconds(args.drain_seconds),
        check: milliseconds(args.check_ms),
        connect: milliseconds(args.connect_ms),
        attempts: args.attempts as usize,
        retry: seconds(args.retry_seconds),
        stall: args.stall_seconds.map(seconds),
        ..Settings::default()
    })
}
