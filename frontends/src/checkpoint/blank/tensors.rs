//! Tensors that are made for those that a model asks for.

use super::super::quantized::{COMPUTED, UNQUANTIZED, Wrong};
use super::super::safetensors::{TensorInfo, stored_type};
use super::super::stored::Entry;
use std::collections::BTreeMap;

/// Tensors that are being made.
#[derive(Default)]
pub(super) struct Blanks {
    pub index: BTreeMap<String, Entry>,
    /// Bytes of the tensors of zeros so far.
    pub bytes: usize,
    /// Those of known numbers.
    pub known: Vec<u8>,
}

/// Numbers of the shards.
const OF_ZEROS: usize = 0;
const OF_KNOWN: usize = 1;

impl Blanks {
    /// Adds a tensor of zeros.
    pub fn add(&mut self, name: String, dtype: &str, shape: &[usize]) -> Result<(), Wrong> {
        let too_large = || (format!("tensor `{name}` {shape:?} is too large"), "check the sizes in config.json");
        let dtype = stored_type(dtype).unwrap_or(&COMPUTED);
        let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).ok_or_else(too_large)?;
        let bits = elements.checked_mul(dtype.bits as usize).ok_or_else(too_large)?;
        let end = self.bytes.checked_add(bits.div_ceil(8)).filter(|end| isize::try_from(*end).is_ok());
        let end = end.ok_or_else(too_large)?;
        let info = TensorInfo { dtype, shape: shape.to_vec(), bytes: self.bytes..end };
        self.bytes = end;
        self.put(name, Entry::plain(OF_ZEROS, info))
    }

    /// Adds a tensor of numbers that are known.
    pub fn known(&mut self, name: String, dtype: &str, shape: &[usize], numbers: &[u8]) -> Result<(), Wrong> {
        // The same numbers one after the other are stored once.
        if !self.known.ends_with(numbers) {
            self.known.extend_from_slice(numbers);
        }
        let start = self.known.len() - numbers.len();
        let dtype = stored_type(dtype).unwrap_or(&COMPUTED);
        let info = TensorInfo { dtype, shape: shape.to_vec(), bytes: start..start + numbers.len() };
        self.put(name, Entry::plain(OF_KNOWN, info))
    }

    /// Adds one number, 1.
    pub fn one(&mut self, name: String, shape: &[usize]) -> Result<(), Wrong> {
        self.known(name, "F32", shape, &1f32.to_le_bytes())
    }

    fn put(&mut self, name: String, entry: Entry) -> Result<(), Wrong> {
        match self.index.insert(name.clone(), entry) {
            None => Ok(()),
            Some(_) => Err((format!("two tensors are called `{name}`"), UNQUANTIZED)),
        }
    }
}
