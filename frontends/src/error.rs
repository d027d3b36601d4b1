//! Errors between a path and a module.

use crate::checkpoint::gguf::GgufError;
use crate::checkpoint::pytorch::PytorchError;
use crate::checkpoint::safetensors::HeaderError;
use crate::config::ConfigError;
use crate::json;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

/// A problem with the user's checkpoint. The text names the fault, its place and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontendError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file of another kind than a regular one.
    #[error("{}: it is {what}; a regular file is needed here", path.display())]
    NotAFile {
        /// Where.
        path: PathBuf,
        /// Its kind.
        what: String,
    },
    /// A file that is read as a whole is larger than any sensible one.
    #[error("{}: the file is longer than 1 GiB, so it cannot be what it is called; give the model's own", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A text that is none.
    #[error("{}: byte {at} is not UTF-8; give a text file in UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first wrong byte.
        at: usize,
    },
    /// The path holds something other than a supported checkpoint.
    #[error("{}: {what}; {help}", path.display())]
    NotACheckpoint {
        /// File or directory.
        path: PathBuf,
        /// The value found.
        what: String,
        /// The remedy.
        help: Cow<'static, str>,
    },
    /// A safetensors file is malformed.
    #[error("{}: {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: HeaderError,
    },
    /// A GGUF file is malformed.
    #[error("{}: {source}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: GgufError,
    },
    /// A file of PyTorch is malformed, or asks for more than tensors.
    #[error("{}: {source}", path.display())]
    Pytorch {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: PytorchError,
    },
    /// `model.safetensors.index.json` is malformed or disagrees with the shards.
    #[error("{}: {what}; download the checkpoint again, all files of one revision", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// A JSON file does not parse.
    #[error("{}: not valid JSON: {source}; {}", path.display(), json::help(source))]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// `config.json` describes something impossible or unsupported.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: ConfigError,
    },
    /// A function of the graph does not type: a mistake of the architecture's file, or a
    /// configuration that its readers should have refused.
    #[error(
        "{}: {class}, function {function}: {what}; if this is the model's own config.json, the mistake is in the architecture's file",
        file.display()
    )]
    Structure {
        /// The configuration.
        file: PathBuf,
        /// The architecture.
        class: &'static str,
        /// Name of the function, and its layer if it has one.
        function: String,
        /// The operation, where it was added, and the rule that it breaks.
        what: String,
    },
    /// A tensor that the architecture needs is absent.
    #[error("tensor `{name}` is missing ({arch} needs it with shape {expected:?}){hint}")]
    MissingTensor {
        /// Name in the checkpoint.
        name: String,
        /// Architecture.
        arch: &'static str,
        /// Shape by config.json.
        expected: Vec<usize>,
        /// A possible reason, starting with "; ", or empty.
        hint: String,
    },
    /// Tensors that no part of the model reads.
    #[error("{0}; if you know that the model does not need them, give --ignore-unused")]
    UnusedTensors(Unused),
    /// A tensor has another shape than config.json says.
    #[error(
        "{file}: tensor `{name}` has shape {found:?}, but config.json makes it {expected:?}; the files belong to different models, or config.json was edited"
    )]
    TensorShape {
        /// Shard.
        file: String,
        /// Name in the checkpoint.
        name: String,
        /// Shape by config.json.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A weight has an element type that is not compiled.
    #[error("{file}: tensor `{name}` is stored as {dtype}; weights must be F32, F16 or BF16: {help}")]
    TensorDType {
        /// Shard.
        file: String,
        /// Name in the checkpoint.
        name: String,
        /// Element type by its safetensors name.
        dtype: &'static str,
        /// The remedy.
        help: &'static str,
    },
    /// The context asked for does not fit the model.
    #[error(
        "a context of {asked} tokens was asked for, but the model has positions for {most}; ask for 1 to {most} (or set rope_scaling in config.json)"
    )]
    Context {
        /// Asked for.
        asked: usize,
        /// Allowed.
        most: usize,
    },
    /// The checkpoint cannot yield the requested output.
    #[error("{}: {what}; {help}", path.display())]
    Output {
        /// The file that says so, or the folder.
        path: PathBuf,
        /// The fault.
        what: String,
        /// The remedy.
        help: &'static str,
    },
    /// Tokenizer files are unusable or belong to another model.
    #[error("{}: {what}; {help}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
        /// The remedy.
        help: &'static str,
    },
}

/// Tensors named in a message.
const NAMED: usize = 12;

/// Tensors that the model does not use, at least one, and why they may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Names, sorted.
    pub tensors: Vec<String>,
    /// Likely reasons, as sentences without a point.
    pub reasons: Vec<String>,
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let n = self.tensors.len();
        let named: Vec<String> = self.tensors.iter().take(NAMED).map(|t| format!("`{t}`")).collect();
        let (noun, verb) = if n == 1 { ("tensor", "is") } else { ("tensors", "are") };
        write!(f, "{n} {noun} of the checkpoint {verb} not used by the model: {}", named.join(", "))?;
        if n > NAMED {
            write!(f, " and {} more", n - NAMED)?;
        }
        write!(f, "; {}", self.reasons.join("; "))
    }
}
