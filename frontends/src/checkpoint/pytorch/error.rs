//! A fault of a PyTorch file, its place, and the remedy.

/// Why a file is not read. Offsets count from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the file: {what}; {help}")]
pub struct PytorchError {
    /// Offset in the file.
    pub at: u64,
    /// The fault.
    pub what: String,
    /// The remedy.
    pub help: &'static str,
}

pub(super) const AGAIN: &str = "the file is truncated or corrupt: download it again";
pub(crate) const SAVE: &str = "convert it to safetensors where you trust it (`save_pretrained` of Transformers, or \
                    `safetensors.torch.save_file` of what `torch.load` gives)";

pub(super) fn error(at: usize, what: String, help: &'static str) -> PytorchError {
    PytorchError { at: at as u64, what, help }
}
