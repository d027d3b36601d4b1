//! Files of moments, as `llmcc tap` writes them.

use crate::digest;
use crate::error::Error;
use llmcc_frontends::Checkpoint;
use llmcc_frontends::checkpoint::safetensors::{MAX_HEADER, TensorInfo, parse};
use llmcc_passes::method::{Method, Moments, Needs, Pruning};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// The kind of file, in its notes.
pub const FORMAT: &str = "llmcc-moments-1";

/// The notes of a file of moments, and of a manifest, about the texts of calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Chose the documents.
    pub seed: u64,
    /// Tokens.
    pub tokens: usize,
    /// Sequences that they were cut into.
    pub sequences: usize,
    /// Tokens of documents that were kept out, to compare with.
    pub held_out_tokens: usize,
    /// The median and the largest difference of a product's mean squares on these: √(Σ(a − b)² / Σa²) over its columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<[f64; 2]>,
    /// By source.
    pub texts: Vec<TextRecord>,
}

/// A source of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextRecord {
    /// `builtin`, or the name of the file or folder, without its path.
    pub name: String,
    /// Its share of the tokens, relative to the other shares.
    pub weight: f64,
    /// SHA-256 of the documents used, in their order.
    pub sha256: String,
    /// Documents used.
    pub documents: usize,
    /// Tokens used.
    pub tokens: usize,
}

/// Sequences of tokens by which artifacts are checked (`calib/check.rs`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Some that the moments are of.
    pub used: Vec<Vec<i32>>,
    /// Some of the same sources that they are not of.
    pub held_out: Vec<Vec<i32>>,
}

/// Moments of the inputs of a checkpoint's tensors.
#[derive(Debug)]
pub struct Statistics {
    map: Mmap,
    /// For each tensor, its parts.
    tensors: BTreeMap<String, Parts>,
    /// Files of the checkpoint, each with its hash.
    source: String,
    /// The texts.
    pub record: Record,
    /// Some of their tokens.
    pub sample: Sample,
}

/// Where the sums of a tensor are in the file.
#[derive(Clone, Debug)]
struct Parts {
    count: Range<usize>,
    squares: Range<usize>,
    min: Range<usize>,
    max: Range<usize>,
    products: Range<usize>,
}

/// Whether a file is one of moments: one of safetensors with such notes.
pub fn is_one(path: &Path) -> bool {
    map(path).is_ok_and(|map| notes(&map).get("format").is_some_and(|format| format == FORMAT))
}

fn map(path: &Path) -> std::io::Result<Mmap> {
    // SAFETY: as for checkpoints, nobody changes the file while it is read.
    File::open(path).and_then(|file| unsafe { Mmap::map(&file) })
}

/// The notes of a file of safetensors; none of others.
fn notes(file: &[u8]) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    struct Header {
        #[serde(default, rename = "__metadata__")]
        notes: BTreeMap<String, String>,
    }
    let header = file.split_first_chunk::<8>().and_then(|(length, rest)| {
        let length = u64::from_le_bytes(*length);
        rest.get(..usize::try_from(length).ok().filter(|_| length <= MAX_HEADER)?)
    });
    header.and_then(|header| serde_json::from_slice::<Header>(header).ok()).unwrap_or_default().notes
}

impl Statistics {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is not one of moments.
    pub fn open(path: &Path) -> Result<Statistics, Error> {
        let map = map(path).map_err(|e| Error::io("read", path, e))?;
        Statistics::of(map).map_err(|what| {
            Error::Usage(format!("{}: it is not a file of moments that --save-calib wrote: {what}", path.display()))
        })
    }

    fn of(map: Mmap) -> Result<Statistics, String> {
        let all = parse(&map).map_err(|e| e.to_string())?;
        let notes = notes(&map);
        let note = |name: &str| notes.get(name).map_or("", String::as_str);
        if note("format") != FORMAT {
            return Err("its notes name no such format".into());
        }
        let record = serde_json::from_str(note("calibration")).unwrap_or_default();
        let sample = serde_json::from_str(note("sample")).unwrap_or_default();
        let shared: BTreeMap<String, String> = match note("shared") {
            "" => BTreeMap::new(),
            text => serde_json::from_str(text).map_err(|e| format!("its note `shared`: {e}"))?,
        };
        let mut tensors = BTreeMap::new();
        for name in all.keys().filter_map(|k| k.strip_suffix(".count")) {
            tensors.insert(name.to_owned(), parts(name, &all)?);
        }
        for (name, of) in shared {
            let missing = || format!("`{name}` shares the sums of `{of}`, which has none");
            let found = tensors.get(&of).cloned().ok_or_else(missing)?;
            tensors.insert(name, found);
        }
        let source = note("source").to_owned();
        Ok(Statistics { map, tensors, source, record, sample })
    }

    /// Refuses statistics of another checkpoint, or without those that method and pruning need.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(
        &self,
        path: &Path,
        checkpoint: &Checkpoint,
        method: &Method,
        pruning: Option<Pruning>,
    ) -> Result<(), Error> {
        let file = path.display();
        let own = digest::hash_sources(checkpoint)?;
        let own = own.iter().map(|f| format!("{} {}", f.sha256, f.file)).collect::<Vec<_>>().join("\n");
        if own != self.source {
            return Err(Error::Usage(format!(
                "--calib {file}: it was made of another checkpoint, or of other files of it: give the texts"
            )));
        }
        let without = |part: fn(&Parts) -> &Range<usize>| self.tensors.values().all(|p| part(p).is_empty());
        let more = pruning.filter(|p| p.pruner.needs > method.needs);
        let lacking = match (more.map_or(method.needs, |p| p.pruner.needs), method.moves) {
            (Needs::Products, _) if without(|p| &p.products) => "products of columns",
            (_, Some(moves)) if moves.ranges && without(|p| &p.max) => "largest magnitudes",
            (Needs::Products | Needs::Squares | Needs::Nothing, _) => return Ok(()),
        };
        let by = match more {
            Some(pruning) => format!("--prune {}", pruning.pruner.name),
            None => format!("--method {}", method.name),
        };
        Err(Error::Usage(format!(
            "--calib {file}: {by} needs {lacking}, which it has not: give the texts, or save it with this option"
        )))
    }

    /// Tensors with moments.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The moments of the inputs of a tensor.
    pub fn moments(&self, name: &str) -> Option<Moments<'_>> {
        let parts = self.tensors.get(name)?;
        Some(Moments {
            count: elements(&self.map[parts.count.clone()]),
            squares: elements(&self.map[parts.squares.clone()]),
            min: elements(&self.map[parts.min.clone()]),
            max: elements(&self.map[parts.max.clone()]),
            products: elements(&self.map[parts.products.clone()]),
        })
    }
}

/// Kinds of numbers of at most 8 bytes for which all bits are valid.
trait Word: Copy {}
impl Word for u64 {}
impl Word for f64 {}
impl Word for f32 {}

/// The numbers of a part, which begins at a multiple of their bytes.
fn elements<T: Word>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are such a number.
    let (before, numbers, after) = unsafe { bytes.align_to::<T>() };
    debug_assert!(before.is_empty() && after.is_empty());
    numbers
}

/// Bytes of a number.
fn bytes(dtype: &str) -> usize {
    if dtype == "F32" { 4 } else { 8 }
}

/// The parts of a tensor, checked against each other.
fn parts(name: &str, all: &BTreeMap<String, TensorInfo>) -> Result<Parts, String> {
    let part = |of: &str, dtype: &str| -> Result<Option<Range<usize>>, String> {
        let full = format!("{name}.{of}");
        match all.get(&full) {
            None => Ok(None),
            Some(t) if t.dtype.name == dtype && t.bytes.start.is_multiple_of(bytes(dtype)) => Ok(Some(t.bytes.clone())),
            Some(_) => Err(format!("`{full}` is not a tensor of {dtype} at a multiple of {} bytes", bytes(dtype))),
        }
    };
    let missing = |of: &str| format!("`{name}.{of}` is missing");
    let count = part("count", "U64")?.ok_or_else(|| missing("count"))?;
    let squares = part("squares", "F64")?.ok_or_else(|| missing("squares"))?;
    let (min, max) = (part("min", "F32")?.unwrap_or_default(), part("max", "F32")?.unwrap_or_default());
    let products = part("products", "F64")?.unwrap_or_default();
    let experts = count.len() / 8;
    let columns = (squares.len() / 8).checked_div(experts).unwrap_or(0);
    let whole = columns.checked_mul(experts).and_then(|n| n.checked_mul(columns)).and_then(|n| n.checked_mul(8));
    let ranges = [&min, &max].iter().all(|r| r.is_empty() || r.len() == experts * columns * 4);
    let sizes = squares.len() == experts * columns * 8 && ranges;
    if experts == 0 || !sizes || !products.is_empty() && whole != Some(products.len()) {
        return Err(format!("the sums of `{name}` are of sizes that do not belong together"));
    }
    Ok(Parts { count, squares, min, max, products })
}
