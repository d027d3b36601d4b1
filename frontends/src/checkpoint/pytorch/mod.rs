//! Files of `torch.save`, read without trusting them and without running anything.
//!
//! Such a file is a pickle, a program whose values are tensors, and the bytes of these: since
//! PyTorch 1.6 in a ZIP archive (`NAME/data.pkl`, `NAME/data/KEY`), before that one after the other.
//! See <https://docs.pytorch.org/docs/stable/notes/serialization.html> and Python's `pickletools`.

mod calls;
mod error;
mod globals;
mod heap;
mod machine;
mod tensors;
mod zip;

pub use error::PytorchError;
pub(crate) use error::SAVE;
use error::{AGAIN, error};
use heap::{Object, Pickle};
use machine::Unpickler;
use std::collections::BTreeMap;
use std::ops::Range;
pub use tensors::{Contents, Found};

/// Whether a file says in its first bytes that `torch.save` wrote it.
pub fn is_pytorch(file: &[u8]) -> bool {
    // A safetensors file may have a header of 640 bytes or so.
    let safetensors = matches!(file, [_, _, _, _, _, _, 0, 0, b'{', ..]);
    file.starts_with(b"PK\x03\x04") || matches!(file, [0x80, 2..=5, ..]) && !safetensors
}

/// First bytes of pickles of the first two protocols with dictionaries, lists, objects, or
/// `torch.save`'s header; they have no magic number.
const OLD: &[&[u8]] = &[
    b"(dp",
    b"(lp",
    b"(dq",
    b"}q",
    b"]q",
    b"ccopy_reg\n",
    b"ccopyreg\n",
    b"ccollections\n",
    b"cnumpy",
    b"ctorch",
    b"L119547037146038801333356L\n.",
];

/// Whether a file is a pickle of protocol 0 or 1, as far as its beginning and its end say.
pub(crate) fn is_of_protocol_0(file: &[u8]) -> bool {
    OLD.iter().any(|first| file.starts_with(first)) && file.ends_with(b".")
        || OLD.last().is_some_and(|torch| file.starts_with(torch))
}

/// Reads the tensors' places of a whole file, and checks that they lie in it.
///
/// # Errors
/// The fault, and its place.
pub fn parse(file: &[u8]) -> Result<Contents, PytorchError> {
    if file.starts_with(b"PK\x03\x04") { archive(file) } else { legacy(file) }
}

/// A file of PyTorch 1.6 or later.
fn archive(file: &[u8]) -> Result<Contents, PytorchError> {
    let entries = zip::entries(file)?;
    let of_name = |name: &str| {
        let mut found = entries.iter().filter_map(|(full, range)| Some((full.strip_suffix(name)?, range)));
        found.find(|(folder, _)| folder.ends_with('/') && folder.matches('/').count() == 1)
    };
    let Some((folder, pickle)) = of_name("data.pkl") else {
        return Err(error(0, "this archive is none of PyTorch: it has no `data.pkl` in a folder".into(), SAVE));
    };
    if entries.contains_key(format!("{folder}constants.pkl").as_str()) {
        return Err(error(pickle.start, "this is a TorchScript program, not a file of tensors".into(), SAVE));
    }
    let order = entries.get(format!("{folder}byteorder").as_str()).and_then(|range| file.get(range.clone()));
    if order.is_some_and(|order| order != b"little") {
        return Err(error(pickle.start, "its numbers are big-endian".into(), SAVE));
    }
    let mut machine = Unpickler::new(file, pickle.start, pickle.end);
    let value = machine.load()?;
    let place = |key: &str| entries.get(format!("{folder}data/{key}").as_str()).cloned();
    tensors::collect(&machine.heap, (machine.at, value), &place)
}

/// First bytes of older versions' files, little-endian.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const PROTOCOL: Pickle<'_> = Pickle::Int(1001);

/// A file of an earlier version: pickles of a number, a version, the machine, the tensors and the keys
/// of storages, then these.
fn legacy(file: &[u8]) -> Result<Contents, PytorchError> {
    let mut machine = Unpickler::new(file, 0, file.len());
    if machine.load()? != Pickle::Long(MAGIC) {
        return Err(error(0, "this pickle is none that `torch.save` wrote".into(), SAVE));
    }
    let at = machine.at;
    if machine.load()? != PROTOCOL {
        return Err(error(at, "this version of PyTorch's files is not known (1001 is)".into(), SAVE));
    }
    let at = machine.at;
    let about = machine.load()?;
    let Some(Object::Dict(about)) = machine.heap.object(about) else {
        return Err(error(at, "nothing is said of the machine that wrote it".into(), AGAIN));
    };
    if about.contains(&(Pickle::Text("little_endian"), Pickle::Bool(false))) {
        return Err(error(at, "its numbers are big-endian".into(), SAVE));
    }
    let value = machine.load()?;
    let at = machine.at;
    let keys = machine.load()?;
    let places = storages(file, &machine, (at, keys))?;
    tensors::collect(&machine.heap, (machine.at, value), &|key| places.get(key).cloned())
}

/// Where the storages are that follow the pickles: each a number of elements and these.
fn storages<'a>(
    file: &[u8],
    m: &Unpickler<'a>,
    (at, keys): (usize, Pickle<'a>),
) -> Result<BTreeMap<&'a str, Range<usize>>, PytorchError> {
    let bad = |at: usize, what: &str| error(at, what.to_string(), AGAIN);
    let keys = m.heap.list(keys).ok_or_else(|| bad(at, "the keys of storages are no list"))?;
    let mut bits = BTreeMap::new();
    for object in &m.heap.objects {
        if let Object::Storage(s) = object {
            bits.insert(s.key, s.ty.bits);
        }
    }
    let (mut out, mut from) = (BTreeMap::new(), m.at);
    for key in keys {
        let Pickle::Text(key) = key else { return Err(bad(at, "the key of a storage is no text")) };
        let bits = bits.get(key).ok_or_else(|| bad(at, "a storage is one that no tensor has"))?;
        let count = file.get(from..).and_then(|rest| rest.first_chunk::<8>()).map(|n| u64::from_le_bytes(*n));
        let bytes = count.and_then(|count| usize::try_from(count.checked_mul(bits / 8)?).ok());
        let to = bytes.and_then(|bytes| (from + 8).checked_add(bytes)).filter(|to| *to <= file.len());
        let to = to.ok_or_else(|| bad(from, "the file ends within a storage"))?;
        if out.insert(*key, from + 8..to).is_some() {
            return Err(bad(at, "a storage is there twice"));
        }
        from = to;
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
