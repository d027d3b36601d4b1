//! The name (`DT_SONAME`) under which the system's loader knows an artifact.
//!
//! The runtime object is linked with a long name in its place, so that its dynamic section has the
//! entry and its table of strings the room. An artifact with a name has that entry with another
//! string; in one without a name the entry is gone, and those behind it move up.

use object::elf::{DT_NULL, DT_SONAME, DT_STRTAB, Dyn64, DynamicTag, PT_DYNAMIC, PT_LOAD, ProgramHeader64};
use object::endian::{I64, LittleEndian as LE, U64};
use object::pod;
use object::read::elf::{Dyn, ProgramHeader};

/// Bytes to write at a place of a file.
pub(super) type Patch = (u64, Vec<u8>);

/// Bytes of the longest name: as long as the name of a file may be.
pub const LONGEST: usize = 255;

/// The differences of an artifact's copy of the runtime that give it this name, or none.
///
/// # Errors
/// The runtime is not as this file expects it.
pub(super) fn patches(
    runtime: &[u8],
    headers: &[ProgramHeader64<LE>],
    name: Option<&str>,
) -> Result<Vec<Patch>, String> {
    let Some(dynamic) = headers.iter().find(|h| h.p_type(LE) == PT_DYNAMIC) else { return absent(name) };
    let entries: &[Dyn64<LE>] = dynamic.data_as_array(LE, runtime).map_err(|()| "its dynamic section is cut off")?;
    let value = |tag: DynamicTag| entries.iter().find(|d| d.tag(LE) == tag).map(|d| d.d_val.get(LE));
    let Some(soname) = value(DT_SONAME) else { return absent(name) };
    let at = value(DT_STRTAB).and_then(|strings| offset(headers, strings + soname)).ok_or("it has no strings")?;
    let old = runtime.get(at as usize..).and_then(|s| s.iter().position(|b| *b == 0)).ok_or("its name has no end")?;
    let mut text = name.unwrap_or_default().as_bytes().to_vec();
    if text.len() > old {
        return Err(format!("it has room for a name of {old} bytes, and this one has {}", text.len()));
    }
    text.resize(old, 0);
    let mut all = vec![(at, text)];
    if name.is_none() {
        all.push((dynamic.p_offset(LE), without_name(entries)));
    }
    Ok(all)
}

/// A runtime without an entry for a name, as tests have them, is as it should be where none is asked for.
fn absent(name: Option<&str>) -> Result<Vec<Patch>, String> {
    match name {
        None => Ok(vec![]),
        Some(_) => Err("it has no entry for a name (DT_SONAME)".into()),
    }
}

/// The dynamic section without `DT_SONAME`: the entries behind it one place earlier, and one more of
/// those that end it.
fn without_name(entries: &[Dyn64<LE>]) -> Vec<u8> {
    let end = Dyn64 { d_tag: I64::new(LE, DT_NULL), d_val: U64::new(LE, 0) };
    let mut kept: Vec<Dyn64<LE>> = entries.iter().filter(|d| d.tag(LE) != DT_SONAME).copied().collect();
    kept.resize(entries.len(), end);
    pod::bytes_of_slice(&kept).to_vec()
}

/// Where the byte at an address is in the file.
fn offset(headers: &[ProgramHeader64<LE>], address: u64) -> Option<u64> {
    let held = |h: &&ProgramHeader64<LE>| {
        h.p_type(LE) == PT_LOAD && (h.p_vaddr(LE)..h.p_vaddr(LE) + h.p_filesz(LE)).contains(&address)
    };
    headers.iter().find(held).map(|h| address - h.p_vaddr(LE) + h.p_offset(LE))
}
