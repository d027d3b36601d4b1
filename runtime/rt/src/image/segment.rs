//! The segments of an artifact in memory, and what is read of them: only what lies inside.

use std::mem::{MaybeUninit, size_of};
use std::{ptr, slice};

use llmcc_abi::{ABI_VERSION, BufferDesc, MODEL_MAGIC, ModelDesc, NONE, RegimeDesc, Span, StateDesc, StepDesc, Table};

use crate::error::{Error, Result};

/// A byte range in memory that lives as long as the library (or as the caller of
/// [`Image::from_parts`](super::Image::from_parts) promised).
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) ptr: *const u8,
    pub(super) len: u64,
}

// SAFETY: segments are read-only memory.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// The tables of a version that its entries refer to.
pub(super) struct Tables<'a> {
    pub(super) desc: &'a ModelDesc,
    pub(super) data: Segment,
    pub(super) buffers: &'a [BufferDesc],
    pub(super) regimes: &'a [RegimeDesc],
    pub(super) steps: &'a [StepDesc],
    pub(super) states: &'a [StateDesc],
}

/// The most versions of a model in an artifact.
pub const MAX_ALTERNATIVES: usize = 16;

pub fn damaged(what: impl std::fmt::Display) -> Error {
    Error::artifact(format!("the artifact is damaged ({what}); compile it again"))
}

pub fn version_error(found: u32) -> Error {
    Error::artifact(format!(
        "the artifact has format version {found}, its runtime reads version {ABI_VERSION}; compile it again with one llmcc"
    ))
}

/// The descriptor at `at` in the data segment.
pub(super) fn read_desc(data: Segment, at: u64) -> Result<ModelDesc> {
    if data.len.checked_sub(at).is_none_or(|room| room < size_of::<ModelDesc>() as u64) {
        return Err(damaged("data segment too short"));
    }
    // SAFETY: the bytes are there, and any bytes are a valid ModelDesc.
    let desc = unsafe { data.ptr.add(at as usize).cast::<ModelDesc>().read_unaligned() };
    if desc.magic != MODEL_MAGIC {
        return Err(damaged(format_args!("no model descriptor at {at} in the data segment")));
    }
    if desc.version != ABI_VERSION {
        return Err(version_error(desc.version));
    }
    Ok(desc)
}

/// Copies a table out of the data segment.
pub(super) fn table<T: Copy>(data: Segment, table: Table, what: &str) -> Result<Vec<T>> {
    let bytes = table.count.checked_mul(size_of::<T>() as u64);
    let inside = bytes.and_then(|b| b.checked_add(table.off)).is_some_and(|end| end <= data.len);
    if !inside || table.count >= u64::from(NONE) {
        return Err(damaged(format_args!("table of {what} lies outside the data segment")));
    }
    let mut out = vec![MaybeUninit::<T>::uninit(); table.count as usize];
    // SAFETY: the range was checked; all table types are plain integers, for which any bytes are
    // valid.
    unsafe {
        let from = data.ptr.add(table.off as usize);
        ptr::copy_nonoverlapping(from, out.as_mut_ptr().cast::<u8>(), table.count as usize * size_of::<T>());
        Ok(out.iter().map(|x| x.assume_init()).collect())
    }
}

/// Text of a span that [`check_text`] accepted.
pub(super) fn text_of<'a>(data: Segment, span: Span) -> &'a str {
    // SAFETY: bounds and UTF-8 were checked, and the segment outlives the image.
    unsafe {
        let bytes = slice::from_raw_parts(data.ptr.add(span.off as usize), span.len as usize);
        std::str::from_utf8_unchecked(bytes)
    }
}

pub(super) fn check_text(data: Segment, span: Span, what: &str) -> Result<()> {
    if span.off.checked_add(span.len).is_none_or(|end| end > data.len) {
        return Err(damaged(format_args!("{what} lies outside the data segment")));
    }
    // SAFETY: just checked.
    let bytes = unsafe { slice::from_raw_parts(data.ptr.add(span.off as usize), span.len as usize) };
    std::str::from_utf8(bytes).map(|_| ()).map_err(|_| damaged(format_args!("{what} is not UTF-8")))
}
