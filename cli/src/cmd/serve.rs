//! `llmcc serve`: an HTTP server for an artifact.

use crate::args::ServeArgs;
use crate::stamp::Stamp;
use crate::{Error, stdout};
use llmcc_codegen::locate::locate;
use llmcc_model::{EngineOptions, Model, Options, Status};
use llmcc_serve::{Artifact, ServeError, Server, Settings};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Serves until a signal asks for the end.
///
/// # Errors
/// No artifact; no key where one is needed; an address that cannot be listened at.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    let settings = settings(args)?;
    // Before the model is opened, which may take long.
    if settings.keys.is_empty() && !settings.host.is_loopback() {
        return Err(refused(&ServeError::Open(settings.host)));
    }
    let fail = |e: llmcc_model::Error| {
        let (path, message) = (args.artifact.clone(), e.message().to_owned());
        if e.status() == Status::Machine { Error::Machine { path, message } } else { Error::Artifact { path, message } }
    };
    let stamp = Stamp::of(&args.artifact);
    let model = open(args, fail).map_err(|e| stamp.explain(e))?;
    let options = EngineOptions {
        max_running: args.max_running.unwrap_or(0),
        max_queued: args.max_queued.unwrap_or(0),
        ..EngineOptions::default()
    };
    let artifact = Artifact::new(model, &options).map_err(fail)?;
    let server = Server::bind(Arc::new(artifact), settings).map_err(|e| refused(&e))?;
    match stdout::print(&format!("listening at http://{}\n", server.address())) {
        // Nobody wants to know.
        Ok(()) | Err(Error::ClosedPipe) => {}
        Err(e) => return Err(e),
    }
    server.run().map_err(|e| refused(&e))
}

fn open(args: &ServeArgs, fail: impl Fn(llmcc_model::Error) -> Error) -> Result<Model, Error> {
    args.engine.check_key(&args.artifact)?;
    locate(&args.artifact)?;
    let own = args.engine.options();
    let options = Options {
        threads: own.threads,
        max_tokens: own.max_tokens,
        pin: own.pin,
        portable: own.portable,
        ..Options::default()
    };
    // SAFETY: the file is an artifact, and whoever serves one runs it.
    unsafe { Model::open(&args.artifact, &options) }.map_err(fail)
}

fn refused(e: &ServeError) -> Error {
    match e {
        ServeError::Open(_) => Error::Usage(e.to_string()),
        _ => Error::Failed(e.to_string()),
    }
}

fn settings(args: &ServeArgs) -> Result<Settings, Error> {
    let own = || args.artifact.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = args.served_name.clone().unwrap_or_else(own);
    Ok(Settings {
        host: args.host,
        port: args.port,
        keys: args.api_key_file.as_deref().map_or(Ok(vec![]), keys)?,
        drain: Duration::from_secs(args.drain_seconds.into()),
        ..Settings::new(name)
    })
}

/// The keys of a file, one on a line.
fn keys(path: &Path) -> Result<Vec<String>, Error> {
    let text = fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let keys: Vec<String> = text.lines().map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect();
    let wrong = |what: &str| Err(Error::Usage(format!("{}: {what}", path.display())));
    match keys.iter().position(|key| !key.bytes().all(|b| b.is_ascii_graphic())) {
        Some(i) => wrong(&format!("key {} has characters that no header may have: use ASCII without spaces", i + 1)),
        None if keys.is_empty() => wrong("the file has no key: write one on a line"),
        None => Ok(keys),
    }
}
