//! Where the server's models are: artifacts by their names, and a folder of further ones.

use crate::Error;
use crate::args::ServeArgs;
use crate::stamp::Stamp;
use llmcc_codegen::locate::locate;
use llmcc_model::{EngineOptions, Model, Options, Status};
use llmcc_serve::{Artifact, Named, Source};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Artifacts, by the names that clients have for them.
pub struct Artifacts {
    args: ServeArgs,
    named: Vec<(String, PathBuf)>,
}

impl Artifacts {
    /// The artifacts of a command line.
    ///
    /// # Errors
    /// Names that are missing, empty, or not different; a folder that cannot be read.
    pub fn new(args: &ServeArgs) -> Result<Artifacts, Error> {
        let usage = |message: String| Err(Error::Usage(message));
        let (given, artifacts) = (args.served_name.len(), args.artifacts.len());
        if given > 0 && given != artifacts {
            return usage(format!(
                "--served-name is given {given} times for {artifacts} artifacts: name each, or none"
            ));
        }
        let own = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = |(i, path): (usize, &PathBuf)| {
            (args.served_name.get(i).cloned().unwrap_or_else(|| own(path)), path.clone())
        };
        let named: Vec<(String, PathBuf)> = args.artifacts.iter().enumerate().map(name).collect();
        for (i, (name, path)) in named.iter().enumerate() {
            if name.is_empty() {
                return usage(format!("{}: the model's name is empty: give --served-name", path.display()));
            }
            if named[..i].iter().any(|(other, _)| other == name) {
                return usage(format!("two models have the name `{name}`: give each its own by --served-name"));
            }
        }
        if named.len() > args.max_models as usize {
            return usage(format!("{} artifacts are more than --max-models {} allows", named.len(), args.max_models));
        }
        let all = Artifacts { args: args.clone(), named };
        all.folder().map_err(|e| Error::io("read", args.model_dir.as_deref().unwrap_or(Path::new(".")), e))?;
        Ok(all)
    }

    /// Opens the artifacts of the command line.
    ///
    /// # Errors
    /// One that is no artifact, damaged, not signed as it is to be, or not for this machine.
    pub fn open_all(&self) -> Result<Vec<Named>, Error> {
        let open = |(name, path): &(String, PathBuf)| {
            let stamp = Stamp::of(path);
            let model = self.open_file(path).map_err(|e| stamp.explain(e))?;
            let model: Arc<dyn llmcc_serve::Model> = Arc::new(model);
            Ok((name.clone(), model))
        };
        self.named.iter().map(open).collect()
    }

    fn open_file(&self, path: &Path) -> Result<Artifact, Error> {
        let fail = |e: llmcc_model::Error| {
            let (path, message) = (path.to_owned(), e.message().to_owned());
            match e.status() {
                Status::Machine => Error::Machine { path, message },
                _ => Error::Artifact { path, message },
            }
        };
        self.args.engine.check_key(path)?;
        locate(path)?;
        let own = self.args.engine.options();
        let options = Options {
            threads: own.threads,
            max_tokens: own.max_tokens,
            pin: own.pin,
            portable: own.portable,
            ..Options::default()
        };
        // SAFETY: the file is an artifact, and whoever serves one runs it.
        let model = unsafe { Model::open(path, &options) }.map_err(fail)?;
        let options = EngineOptions {
            max_running: self.args.max_running.unwrap_or(0),
            max_queued: self.args.max_queued.unwrap_or(0),
            cache_dir: self.args.cache_dir.clone(),
            cache_dir_bytes: self.args.cache_dir_mib.map_or(0, |mib| mib.saturating_mul(1 << 20)),
            ..EngineOptions::default()
        };
        let defaults = self.args.defaults.iter().cloned().collect();
        Artifact::new(model, &options).map(|artifact| artifact.with_defaults(defaults)).map_err(fail)
    }

    /// Artifacts of the folder, by their names: those that begin with a dot are not for clients.
    fn folder(&self) -> std::io::Result<Vec<(String, PathBuf)>> {
        let Some(folder) = &self.args.model_dir else { return Ok(vec![]) };
        let mut found = vec![];
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
            let is_artifact = path.extension().is_some_and(|end| end == "so") && path.is_file();
            found.extend(name.filter(|name| is_artifact && !name.starts_with('.')).map(|name| (name, path)));
        }
        found.sort();
        Ok(found)
    }
}

impl Source for Artifacts {
    fn loadable(&self) -> Option<Vec<String>> {
        self.args.model_dir.as_ref()?;
        let mut names: Vec<String> = self.named.iter().map(|(name, _)| name.clone()).collect();
        names.extend(self.folder().unwrap_or_default().into_iter().map(|(name, _)| name));
        names.sort();
        names.dedup();
        Some(names)
    }

    fn open(&self, name: &str) -> llmcc_model::Result<Arc<dyn llmcc_serve::Model>> {
        let error = |message: String| llmcc_model::Error::new(Status::Artifact, message);
        // A name that clients give is compared with names of files, and never part of a path.
        let folder = self.folder().map_err(|e| error(format!("the folder of models cannot be read: {e}")))?;
        let all = self.named.iter().chain(&folder);
        let path = all.into_iter().find(|(known, _)| known == name).map(|(_, path)| path);
        let path = path.ok_or_else(|| error(format!("there is no artifact of the name `{name}`")))?;
        let model: Arc<dyn llmcc_serve::Model> = Arc::new(self.open_file(path).map_err(|e| error(e.to_string()))?);
        Ok(model)
    }
}
