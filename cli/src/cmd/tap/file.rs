//! A file of safetensors whose tensors are written one by one, in any order.

use crate::Error;
use llmcc_codegen::link::Pending;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Types of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// Binary64.
    F64,
    /// Whole numbers of 64 bits.
    U64,
    /// Binary32.
    F32,
}

impl Item {
    /// Its name in the file, and its bytes.
    fn facts(self) -> (&'static str, usize) {
        match self {
            Item::F64 => ("F64", 8),
            Item::U64 => ("U64", 8),
            Item::F32 => ("F32", 4),
        }
    }
}

/// The tensors of a file and its notes.
pub struct Contents {
    notes: Map<String, Value>,
    tensors: BTreeMap<String, (Item, Vec<usize>)>,
}

impl Contents {
    /// No tensors, with notes.
    pub fn new<const N: usize>(notes: [(&str, String); N]) -> Contents {
        let notes = notes.into_iter().map(|(name, text)| (name.to_string(), Value::String(text))).collect();
        Contents { notes, tensors: BTreeMap::new() }
    }

    /// Adds a note.
    pub fn note(&mut self, name: &str, text: String) {
        self.notes.insert(name.into(), Value::String(text));
    }

    /// Adds a tensor.
    pub fn add(&mut self, name: String, item: Item, shape: Vec<usize>) {
        self.tensors.insert(name, (item, shape));
    }

    /// Begins the file: larger elements come first, so that all are aligned, and then names in their order.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(&self, path: &Path) -> Result<Writer, Error> {
        let mut order: Vec<_> = self.tensors.iter().map(|(name, (item, shape))| (*item, name, shape)).collect();
        order.sort_unstable_by_key(|(item, name, _)| (*item, *name));
        let mut header = Map::new();
        header.insert("__metadata__".into(), Value::Object(self.notes.clone()));
        let (mut places, mut end) = (BTreeMap::new(), 0usize);
        for (item, name, shape) in order {
            let (dtype, bytes) = item.facts();
            let len = shape.iter().product::<usize>() * bytes;
            header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [end, end + len] }));
            places.insert(name.clone(), (end as u64, len));
            end += len;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut out = Pending::create(path)?;
        out.append(&(text.len() as u64).to_le_bytes())?;
        out.append(&text)?;
        let first = out.pos();
        out.pad_to(first + end as u64)?;
        Ok(Writer { out, first, places })
    }
}

/// A file under way.
pub struct Writer {
    out: Pending,
    /// Where the tensors begin.
    first: u64,
    /// Offset and bytes of each.
    places: BTreeMap<String, (u64, usize)>,
}

impl Writer {
    /// Writes a tensor.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        match self.places.get(name) {
            Some((at, len)) if *len == bytes.len() => Ok(self.out.patch(self.first + at, bytes)?),
            place => Err(Error::Failed(format!("a bug: {} bytes of `{name}`, which has {place:?}", bytes.len()))),
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), Error> {
        Ok(self.out.commit(0o644)?)
    }
}
