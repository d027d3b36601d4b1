//! Everything that can end a command.

use crate::advice;
use llmcc_codegen::locate::LocateError;
use llmcc_hub::HubError;
use std::path::PathBuf;

/// Why a command failed. Its text names the fault, its place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The checkpoint.
    #[error(transparent)]
    Frontend(#[from] llmcc_frontends::FrontendError),
    /// A download from the hub.
    #[error(transparent)]
    Hub(HubError),
    /// A path that leads nowhere here, and on the hub neither.
    #[error("{}: there is no such file or folder, and no such model on the hub", path.display())]
    Nowhere {
        /// The path.
        path: PathBuf,
        /// The hub's answer.
        source: HubError,
    },
    /// Rewriting, scheduling or packing.
    #[error(transparent)]
    Pass(#[from] llmcc_passes::PassError),
    /// A weight that cannot be packed.
    #[error(transparent)]
    Pack(#[from] llmcc_passes::pack::PackError),
    /// Code generation.
    #[error(transparent)]
    Codegen(#[from] llmcc_codegen::CodegenError),
    /// Writing the artifact.
    #[error(transparent)]
    Link(#[from] llmcc_codegen::link::LinkError),
    /// A file of the user's.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// File.
        path: PathBuf,
        /// Reason.
        source: std::io::Error,
    },
    /// An artifact that cannot be used, or a call into it that failed.
    #[error("{}: {message}", path.display())]
    Artifact {
        /// The artifact.
        path: PathBuf,
        /// Message of the loader or the artifact.
        message: String,
    },
    /// An artifact without a version that this machine runs.
    #[error("{}: {message}", path.display())]
    Machine {
        /// The artifact.
        path: PathBuf,
        /// Message of the artifact.
        message: String,
    },
    /// A check found a difference.
    #[error("{0}")]
    Failed(String),
    /// `.lir` text with errors, which have been shown in their places.
    #[error("{0}")]
    Findings(String),
    /// Reader of our output went away.
    #[error("output closed")]
    ClosedPipe,
}

impl From<HubError> for Error {
    fn from(e: HubError) -> Error {
        match e {
            HubError::Usage(message) => Error::Usage(message),
            HubError::Io { action, path, source } => Error::Io { action, path, source },
            other => Error::Hub(other),
        }
    }
}

impl From<LocateError> for Error {
    fn from(e: LocateError) -> Error {
        let (LocateError::Io { path, .. } | LocateError::NotAnArtifact { path, .. }) = &e;
        if let Some(message) = advice::no_artifact(path) {
            return Error::Artifact { path: path.clone(), message };
        }
        match e {
            LocateError::Io { path, source } => Error::Io { action: "read", path, source },
            LocateError::NotAnArtifact { path, what } => Error::Artifact { path, message: what },
        }
    }
}

impl Error {
    /// An [`Error::Io`].
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Error {
        Error::Io { action, path: path.into(), source }
    }

    /// Rewrites an artifact's message about a field of `llmcc_options` in terms of the command
    /// line's options.
    #[must_use]
    pub fn in_options(self) -> Error {
        let ours = |message: String| message.replace("max_tokens", "--cache-tokens");
        match self {
            Error::Artifact { path, message } => Error::Artifact { path, message: ours(message) },
            other => other,
        }
    }
}
