//! The files of sentence-transformers beside a checkpoint, which several parts of it read.

use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use llmcc_ir::graph::UnaryOp;
use serde_json::Value;

/// A linear map, and the activation of its result. (Being linear, it may as well come before the
/// mean.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    /// Folder of the module, and beginning of the names of its tensors.
    pub folder: String,
    /// Columns of its input.
    pub inner: usize,
    /// Columns of its output.
    pub out: usize,
    /// Whether it has a bias.
    pub bias: bool,
    /// The activation, if there is one.
    pub act: Option<UnaryOp>,
}

/// The list of modules.
pub(crate) const LIST: &str = "modules.json";
/// Settings of the model as a whole.
pub(crate) const SETTINGS: &str = "config_sentence_transformers.json";

/// The remedy for unsupported modules.
pub(super) const HELP: &str = "only embedders of a transformer, one pooling (cls, lasttoken, mean, max, \
                               mean_sqrt_len_tokens, weightedmean), linear layers, and normalization are compiled";

/// Largest width that is believed.
pub(super) const MOST: u64 = 1 << 20;

/// Whether a file is one of sentence-transformers': of the whole, or of a module in a folder of its own.
pub(crate) fn of_modules(name: &str) -> bool {
    name == LIST || name == SETTINGS || OF_TRANSFORMER.contains(&name) || name.contains('/')
}

/// Whether a folder that the list names is one beside it: the list comes from a stranger.
pub(super) fn beside(folder: &str) -> bool {
    !folder.contains(['/', '\\']) && !folder.starts_with('.')
}

/// The error for a file that asks for an unsupported feature.
pub(super) fn bad(ckpt: &Checkpoint, file: &str, what: String) -> FrontendError {
    FrontendError::Output { path: ckpt.beside(file), what, help: HELP }
}

/// Settings of the transformer, in the order in which they are looked for.
const OF_TRANSFORMER: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// The settings of the transformer, and their file; null where there is none.
pub(super) fn transformer(ckpt: &Checkpoint) -> Result<(&'static str, Value), FrontendError> {
    for file in OF_TRANSFORMER {
        if let Some(settings) = ckpt.json(file)? {
            return Ok((file, settings));
        }
    }
    Ok((OF_TRANSFORMER[0], Value::Null))
}

/// A file about texts that is malformed.
pub(super) fn wrong(ckpt: &Checkpoint, file: &str, what: String) -> FrontendError {
    FrontendError::Output {
        path: ckpt.beside(file),
        what,
        help: "correct the file, or compile without modules.json, with --embed, and prepare texts yourself",
    }
}

/// The prompt that texts get if none is asked for.
///
/// # Errors
/// It has no text.
pub(super) fn prompt(ckpt: &Checkpoint) -> Result<String, FrontendError> {
    let Some(settings) = ckpt.json(SETTINGS)? else { return Ok(String::new()) };
    let Some(name) = settings["default_prompt_name"].as_str() else { return Ok(String::new()) };
    match settings["prompts"][name].as_str() {
        Some(prompt) => Ok(prompt.to_owned()),
        None => Err(wrong(ckpt, SETTINGS, format!("`default_prompt_name` is {name:?}, which `prompts` has not"))),
    }
}
