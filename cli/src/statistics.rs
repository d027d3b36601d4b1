//! Files of moments, as `llmcc tap` writes them.

use crate::digest;
use crate::error::Error;
use llmcc_frontends::Checkpoint;
use llmcc_passes::method::Moments;
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// The kind of file, in its notes.
pub const FORMAT: &str = "llmcc-moments-1";
/// A header is at most so long.
const LONGEST: u64 = 100 << 20;

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
}

/// Where the sums of a tensor are in the file.
#[derive(Clone, Debug)]
struct Parts {
    count: Range<usize>,
    squares: Range<usize>,
    products: Range<usize>,
}

/// Whether a file is one of moments: it begins as one of safetensors does, with such notes.
pub fn is_one(path: &Path) -> bool {
    let mut start = [0u8; 8];
    let read = |mut file: File| {
        file.read_exact(&mut start)?;
        let mut header = vec![];
        file.take(u64::from_le_bytes(start).min(LONGEST)).read_to_end(&mut header)?;
        Ok::<_, std::io::Error>(header)
    };
    let header = File::open(path).and_then(read).unwrap_or_default();
    serde_json::from_slice::<Value>(&header).is_ok_and(|h| h["__metadata__"]["format"] == FORMAT)
}

impl Statistics {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is not one of moments.
    pub fn open(path: &Path) -> Result<Statistics, Error> {
        let failed = |e| Error::io("read", path, e);
        let file = File::open(path).map_err(failed)?;
        // SAFETY: as for checkpoints, nobody changes the file while it is read.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Statistics::of(map).map_err(|what| {
            Error::Usage(format!("{}: it is not a file of moments that --save-calib wrote: {what}", path.display()))
        })
    }

    fn of(map: Mmap) -> Result<Statistics, String> {
        let start = map.first_chunk::<8>().ok_or("it is too short")?;
        let len = u64::from_le_bytes(*start);
        let data =
            usize::try_from(len).ok().filter(|_| len <= LONGEST && len % 8 == 0).ok_or("its header is too long")? + 8;
        let header: Map<String, Value> = serde_json::from_slice(map.get(8..data).ok_or("it is too short")?)
            .map_err(|e| format!("its header is not JSON: {e}"))?;
        let note = |name: &str| header.get("__metadata__").and_then(|n| n[name].as_str()).unwrap_or_default();
        if note("format") != FORMAT {
            return Err("its notes name no such format".into());
        }
        let record = serde_json::from_str(note("calibration")).unwrap_or_default();
        let shared: BTreeMap<String, String> = match note("shared") {
            "" => BTreeMap::new(),
            text => serde_json::from_str(text).map_err(|e| format!("its note `shared`: {e}"))?,
        };
        let mut tensors = BTreeMap::new();
        for name in header.keys().filter_map(|k| k.strip_suffix(".count")) {
            tensors.insert(name.to_owned(), parts(name, &header, data, map.len())?);
        }
        for (name, of) in shared {
            let missing = || format!("`{name}` shares the sums of `{of}`, which has none");
            let found = tensors.get(&of).cloned().ok_or_else(missing)?;
            tensors.insert(name, found);
        }
        let source = note("source").to_owned();
        Ok(Statistics { map, tensors, source, record })
    }

    /// Refuses statistics of another checkpoint, or, if they are wanted, without products of columns.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self, path: &Path, checkpoint: &Checkpoint, full: bool) -> Result<(), Error> {
        let file = path.display();
        let own = digest::hash_sources(checkpoint)?;
        let own = own.iter().map(|f| format!("{} {}", f.sha256, f.file)).collect::<Vec<_>>().join("\n");
        if own != self.source {
            return Err(Error::Usage(format!(
                "--calib {file}: it was made of another checkpoint, or of other files of it: give the texts"
            )));
        }
        if full && self.tensors.values().all(|p| p.products.is_empty()) {
            return Err(Error::Usage(format!(
                "--calib {file}: --method gptq needs products of columns, which it has not: give the texts, or save \
                    it with this method"
            )));
        }
        Ok(())
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
            products: elements(&self.map[parts.products.clone()]),
        })
    }
}

/// Kinds of numbers of 8 bytes for which all bits are valid.
trait Word: Copy {}
impl Word for u64 {}
impl Word for f64 {}

/// The numbers of a part, which begins at a multiple of 8.
fn elements<T: Word>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are such a number.
    let (before, numbers, after) = unsafe { bytes.align_to::<T>() };
    debug_assert!(before.is_empty() && after.is_empty());
    numbers
}

/// The parts of a tensor, checked against each other and the file.
fn parts(name: &str, header: &Map<String, Value>, data: usize, end: usize) -> Result<Parts, String> {
    let part = |of: &str, dtype: &str| -> Result<Option<Range<usize>>, String> {
        let full = format!("{name}.{of}");
        let Some(tensor) = header.get(&full) else { return Ok(None) };
        let offset = |i: usize| usize::try_from(tensor["data_offsets"][i].as_u64()?).ok();
        let range = offset(0).zip(offset(1)).and_then(|(a, b)| Some(data.checked_add(a)?..data.checked_add(b)?));
        let fits = |r: &Range<usize>| {
            r.start <= r.end && r.end <= end && r.start.is_multiple_of(8) && r.len().is_multiple_of(8)
        };
        match range.filter(fits).filter(|_| tensor["dtype"] == dtype) {
            Some(range) => Ok(Some(range)),
            None => Err(format!("`{full}` is not a tensor of {dtype} within it")),
        }
    };
    let missing = |of: &str| format!("`{name}.{of}` is missing");
    let count = part("count", "U64")?.ok_or_else(|| missing("count"))?;
    let squares = part("squares", "F64")?.ok_or_else(|| missing("squares"))?;
    let products = part("products", "F64")?.unwrap_or_default();
    let experts = count.len() / 8;
    let columns = (squares.len() / 8).checked_div(experts).unwrap_or(0);
    let whole = columns.checked_mul(experts).and_then(|n| n.checked_mul(columns)).and_then(|n| n.checked_mul(8));
    if experts == 0 || squares.len() != experts * columns * 8 || !products.is_empty() && whole != Some(products.len()) {
        return Err(format!("the sums of `{name}` are of sizes that do not belong together"));
    }
    Ok(Parts { count, squares, products })
}
