//! The one error type of the runtime, and the status codes the C API makes of it.

use std::fmt;

/// Status codes of the C API (`llmcc_status` in `llmcc.h`). Stable: numbers are never reused.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is wrong: null pointer, unknown sequence, token outside the vocabulary, bad
    /// UTF-8...
    Invalid = 1,
    /// The artifact cannot be used: no model inside, another ABI version, damaged, stripped,
    /// weights file missing.
    Artifact = 2,
    /// This machine (its processor or GPU) cannot run the artifact's code.
    Cpu = 3,
    /// The system refused memory, threads or a file.
    System = 4,
    /// The sequence reached the model's longest context.
    ContextFull = 5,
    /// All pages of the KV cache are in use.
    CacheFull = 6,
    /// The caller's buffer is too small; the needed size has been stored.
    Buffer = 7,
    /// The artifact lacks a part that the call needs (tokenizer, chat template), or the runtime was
    /// built without it.
    Unsupported = 8,
    /// A chat template refused its input or failed.
    Template = 9,
    /// The logits hold NaN.
    Numeric = 10,
    /// A bug in the runtime.
    Internal = 11,
    /// `llmcc_interrupt` ended the call, or the request was cancelled.
    Interrupted = 12,
    /// The engine has as many requests as it may.
    Busy = 13,
    /// The request's deadline has passed.
    Deadline = 14,
}

/// A failure, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Class of the failure.
    pub status: Status,
    /// One sentence or two: the fault, its place, the remedy.
    pub message: String,
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of class `status`.
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        Error { status, message: message.into() }
    }

    /// [`Status::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Status::Invalid, message)
    }

    /// [`Status::Artifact`].
    pub fn artifact(message: impl Into<String>) -> Error {
        Error::new(Status::Artifact, message)
    }

    /// [`Status::System`], with the system's reason.
    pub fn system(what: impl fmt::Display, cause: std::io::Error) -> Error {
        Error::new(Status::System, format!("{what}: {cause}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
