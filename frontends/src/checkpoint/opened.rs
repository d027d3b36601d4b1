//! A checkpoint that is open: its configuration, its tensors and its files.

use super::draft_files::{DRAFT, DraftFiles};
use super::gguf::Metadata;
use super::quantized::COMPUTED;
use super::safetensors::TensorInfo;
use super::shard::Shard;
use super::stored::{Entry, InputRounding, Rows, read_f32};
use crate::config::ConfigError;
use crate::error::FrontendError;
use crate::input;
use llmcc_ir::quant::StoredRows;
use llmcc_ir::ty::DType;
use memmap2::UncheckedAdvice;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes compared at once.
const BLOCK: usize = 1 << 24;

/// A checkpoint in Hugging Face layout, opened for reading; other files appear as if they were in
/// that layout.
///
/// Tensor data are mapped, not read: opening costs the headers only, and a checkpoint may exceed
/// the memory of the machine. The files must not be changed while open (a truncated mapping ends
/// the process, as with every mmap).
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) dir: PathBuf,
    pub(super) config_path: PathBuf,
    pub(super) config: Value,
    /// JSON files that were read or belong to the model, then shards.
    pub(super) sources: Vec<PathBuf>,
    pub(super) shards: Vec<Shard>,
    /// By name.
    pub(super) index: BTreeMap<String, Entry>,
    /// Metadata of a GGUF file, which has no other files beside it.
    pub(super) metadata: Option<Metadata>,
    /// Folder of an adapter whose modules replace the base's for the last layer's rows.
    pub(super) modules: Option<PathBuf>,
    /// A draft that guesses for the model.
    pub(super) draft: Option<DraftFiles>,
    pub(super) notes: Vec<String>,
}

/// A tensor of a [`Checkpoint`].
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Little-endian elements, row-major. Not aligned: the format does not promise it.
    pub data: &'a [u8],
}

impl TensorView<'_> {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Converts elements `start..start + out.len()` to f32.
    ///
    /// # Panics
    /// When the range leaves the tensor or the type is not F32, F16 or BF16 (`lift` admits no other
    /// weights).
    pub fn read_f32(&self, start: usize, out: &mut [f32]) {
        let size = self.dtype.bytes().unwrap_or(0);
        let bytes = &self.data[start * size..(start + out.len()) * size];
        assert!(read_f32(self.dtype, bytes, out), "weights are never {}", self.dtype);
    }

    /// The whole tensor as f32; conditions as [`TensorView::read_f32`].
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.elements()];
        self.read_f32(0, &mut out);
        out
    }
}

/// An adapter, and how much of it is added.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Its folder.
    pub path: PathBuf,
    /// Factor of its product; 1 as trained.
    pub scale: f32,
}

/// A file the artifact depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// File name without folder, so that manifests do not depend on where the checkpoint lies.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Size.
    pub bytes: u64,
}

impl SourceFile {
    /// SHA-256 of the contents. Reads the file (not the mapping, so resident memory stays flat).
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn sha256(&self) -> Result<[u8; 32], FrontendError> {
        let io = |source| FrontendError::Io { path: self.path.clone(), action: "read", source };
        let mut file = input::open(&self.path)?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0u8; 1 << 20]);
        loop {
            match file.read(&mut buffer).map_err(io)? {
                0 => return Ok(hash.finalize().into()),
                n => hash.update(&buffer[..n]),
            }
        }
    }
}

impl Checkpoint {
    /// Folder of the checkpoint.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Contents of `config.json`.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// Path of `config.json`.
    pub fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// The error for an unsupported configuration; for a GGUF file without tensors, its kind.
    pub(crate) fn wrong_config(&self, source: ConfigError) -> FrontendError {
        let path = self.config_path.clone();
        if self.metadata.is_some() && self.index.is_empty() {
            let what = "holds a vocabulary or settings only, and no tensors".into();
            return FrontendError::NotACheckpoint { path, what, help: "name the file with the model's weights".into() };
        }
        FrontendError::Config { path, source }
    }

    /// A JSON file of the checkpoint folder; `None` when absent.
    ///
    /// # Errors
    /// When it cannot be read or parsed.
    pub fn json(&self, name: &str) -> Result<Option<Value>, FrontendError> {
        if self.metadata.is_some() {
            return Ok(None);
        }
        input::read_json(&self.beside(name))
    }

    /// A file of the checkpoint folder; `None` when absent.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, FrontendError> {
        if self.metadata.is_some() {
            return Ok(None);
        }
        input::read_optional(&self.dir.join(name))
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Place, type and shape of a tensor.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|e| &e.info)
    }

    /// Notes for the user about how it is read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Metadata of a GGUF file.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// File name of the shard that holds a tensor (empty when there is no such tensor).
    pub fn shard_name(&self, name: &str) -> String {
        self.index.get(name).map_or_else(String::new, |e| file_name(&self.shards[e.shard].path))
    }

    /// A tensor by name; `None` when absent, of an element type that the IR lacks (FP8 and the
    /// like), or one of [`Checkpoint::rows`]. `lift` has checked all weights of its module.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let Entry { shard, info, layout: None, order: None, input: _ } = self.index.get(name)? else { return None };
        let data = &self.shards[*shard].map[info.bytes.clone()];
        Some(TensorView { dtype: info.dtype.dtype?, shape: info.shape.clone(), data })
    }

    /// The rows of a tensor that is not simply its elements: codes, or elements in another order.
    pub fn rows(&self, name: &str) -> Option<Box<dyn StoredRows + '_>> {
        let entry = self.index.get(name)?;
        let (layout, dtype) = (entry.layout.as_deref()?, entry.info.dtype.dtype?);
        let columns = if entry.info.shape.len() > 1 { *entry.info.shape.last()? } else { 1 };
        Some(Box::new(Rows { layout, shards: &self.shards, dtype, columns }))
    }

    /// The column of the matrix that each element of a row is that [`Checkpoint::rows`] yields, where
    /// it is another one: columns that share scales are brought together (act-order of GPTQ).
    pub fn order(&self, name: &str) -> Option<&[u32]> {
        self.index.get(name)?.order.as_deref().map(Vec::as_slice)
    }

    /// Whether a tensor is a matrix that a method has quantized: `[out, in]`, whatever it was made of.
    pub fn is_quantized(&self, name: &str) -> bool {
        let dtype = self.info(name).map(|info| info.dtype);
        dtype.is_some_and(|t| std::ptr::eq(t, &COMPUTED) || t.dtype.is_some_and(|t| t.coded().is_some()))
    }

    /// How the input of products with a matrix is rounded, where the checkpoint says so.
    pub fn input_rounding(&self, name: &str) -> Option<InputRounding> {
        self.index.get(name)?.input
    }

    /// Whether inputs of products are rounded by numbers that were fixed when the checkpoint was quantized.
    pub fn rounds_inputs(&self) -> bool {
        self.index.values().any(|e| e.input.is_some())
    }

    /// All values of a tensor of floats or codes, in its own order.
    pub fn to_f32(&self, name: &str) -> Option<Vec<f32>> {
        if let Some(view) = self.tensor(name) {
            return Some(view.to_f32());
        }
        let mut out = vec![0f32; self.info(name)?.shape.iter().product()];
        self.rows(name)?.values(0, &mut out);
        if let Some(order) = self.order(name) {
            for row in out.chunks_exact_mut(order.len().max(1)) {
                let stored = row.to_vec();
                order.iter().zip(stored).for_each(|(j, v)| row[*j as usize] = v);
            }
        }
        Some(out)
    }

    /// Tells the kernel that the pages of a tensor are not needed for now, so that they leave the
    /// resident set; they are read again if touched. Call after packing a tensor. Does nothing for
    /// an unknown name.
    pub fn release(&self, name: &str) {
        let Some(entry) = self.index.get(name) else { return };
        for (shard, bytes) in entry.parts().into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let map = &self.shards[shard].map;
            // SAFETY: the mapping is read-only and file-backed, so dropped pages come back with the
            // same contents. A failure only costs memory.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
        }
    }

    /// Whether two tensors are the same, to the bit. Their pages are given back.
    pub(crate) fn equal(&self, a: &str, b: &str) -> bool {
        let (Some(x), Some(y)) = (self.tensor(a), self.tensor(b)) else { return false };
        let same = (x.dtype, &x.shape) == (y.dtype, &y.shape) && x.data.chunks(BLOCK).eq(y.data.chunks(BLOCK));
        self.release(a);
        self.release(b);
        same
    }

    /// The files the tensors and sizes come from, with names and sizes: `config.json`, the index if
    /// any, then the shards in order of name; the same of a draft, named as in its folder behind `draft/`.
    ///
    /// # Errors
    /// When a file has vanished.
    pub fn source_files(&self) -> Result<Vec<SourceFile>, FrontendError> {
        let stat = |(before, path): (&str, &PathBuf)| {
            let io = |source| FrontendError::Io { path: path.clone(), action: "stat", source };
            let bytes = std::fs::metadata(path).map_err(io)?.len();
            Ok(SourceFile { name: format!("{before}{}", file_name(path)), path: path.clone(), bytes })
        };
        let of_draft = self.draft.iter().flat_map(|draft| &draft.sources).map(|path| (DRAFT, path));
        self.sources.iter().map(|path| ("", path)).chain(of_draft).map(stat).collect()
    }

    /// The error for a weight of an element type that is not compiled.
    pub(crate) fn bad_dtype(&self, name: &str, info: &TensorInfo) -> FrontendError {
        let help = if info.dtype.name.starts_with('F') && info.dtype.bits <= 8 {
            "its quantization is not one that config.json may declare; use the unquantized checkpoint and \
                compile with --w8 or --w4"
        } else {
            "convert the checkpoint, for example with `model.to(torch.bfloat16).save_pretrained(...)`"
        };
        FrontendError::TensorDType { file: self.shard_name(name), name: name.to_string(), dtype: info.dtype.name, help }
    }
}

/// Last component of a path.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}
