//! Errors: a status, and a message with the fault and the remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// Kinds of errors: `llmcc_status` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// A wrong argument.
    Invalid,
    /// No model inside, damaged, of another version, or without its side file.
    Artifact,
    /// This machine cannot run the artifact's code.
    Machine,
    /// The system refused memory, threads or a file.
    System,
    /// The model's longest context is reached.
    ContextFull,
    /// All pages of the cache are in use.
    CacheFull,
    /// A buffer is too small.
    Buffer,
    /// The artifact has no such part: no tokenizer or chat template, say.
    Unsupported,
    /// The chat template refused the conversation.
    Template,
    /// A result is not a number.
    Numeric,
    /// A bug in llmcc.
    Internal,
    /// [`crate::Model::interrupt`] ended the call, or a request was cancelled.
    Interrupted,
    /// The engine has as many requests as it may.
    Busy,
    /// The request's time has passed.
    Deadline,
    /// A status of a later version of the API.
    Other(i32),
}

impl Status {
    /// The status with this code, which is not 0.
    pub const fn of(code: i32) -> Status {
        match code {
            1 => Status::Invalid,
            2 => Status::Artifact,
            3 => Status::Machine,
            4 => Status::System,
            5 => Status::ContextFull,
            6 => Status::CacheFull,
            7 => Status::Buffer,
            8 => Status::Unsupported,
            9 => Status::Template,
            10 => Status::Numeric,
            11 => Status::Internal,
            12 => Status::Interrupted,
            13 => Status::Busy,
            14 => Status::Deadline,
            other => Status::Other(other),
        }
    }
}

/// Why a call failed. A failed call changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
    /// The file that could not be opened.
    path: Option<PathBuf>,
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind with its message, for stand-ins of models.
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        Error { status, message: message.into(), path: None }
    }

    /// The same, of opening this file.
    pub(crate) fn of_file(self, path: &Path) -> Error {
        Error { path: Some(path.to_owned()), ..self }
    }

    /// Its kind.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The fault and the remedy, without the name of a file that could not be opened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
