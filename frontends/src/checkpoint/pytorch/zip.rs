//! The directory of a ZIP archive whose entries are stored as they are, read without trusting it
//! (PKWARE's APPNOTE 6.3.10, with ZIP64).
//!
//! `torch.save` compresses nothing, so that tensors can be mapped where they lie: all that is needed
//! of the format is where entries begin and end. A library for archives would bring decompressors
//! that no checkpoint needs.

use super::error::{AGAIN, PytorchError, SAVE, error};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where entries are in the file, by name.
pub(super) type Entries<'a> = BTreeMap<&'a str, Range<usize>>;

const LOCAL: u64 = 0x0403_4b50;
const CENTRAL: u64 = 0x0201_4b50;
const END: u64 = 0x0605_4b50;
const END_64: u64 = 0x0606_4b50;
const LOCATOR_64: u64 = 0x0706_4b50;
/// Bytes of these records without their variable parts.
const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
/// Says that the number is in a field for ZIP64.
const ELSEWHERE: u64 = 0xffff_ffff;
/// Most entries. A storage is one.
const MOST_ENTRIES: u64 = 1 << 20;

/// All entries, uncompressed and inside the file.
pub(super) fn entries(file: &[u8]) -> Result<Entries<'_>, PytorchError> {
    let (from, bytes, count) = directory(file)?;
    let bad = |at: usize, what: String| error(at, what, AGAIN);
    let end = from.checked_add(bytes).filter(|end| *end <= file.len());
    let Some(end) = end else {
        return Err(bad(file.len(), format!("the archive's directory is said to be at {from}, of {bytes} bytes")));
    };
    if count > MOST_ENTRIES || count.saturating_mul(CENTRAL_BYTES as u64) > bytes as u64 {
        return Err(bad(from, format!("the archive's directory claims {count} entries in {bytes} bytes")));
    }
    let (mut at, mut out) = (from, Entries::new());
    for _ in 0..count {
        let (entry, next) = Member::read(file, at, end)?;
        // Folders.
        if !entry.name.ends_with('/') {
            let range = entry.check(file)?;
            if out.insert(entry.name, range).is_some() {
                return Err(bad(at, format!("entry `{}` is in the archive twice", entry.name)));
            }
        }
        at = next;
    }
    Ok(out)
}

/// A number of `n` bytes.
fn number(file: &[u8], at: usize, n: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(n)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Where the directory begins, its bytes, its entries.
fn directory(file: &[u8]) -> Result<(usize, usize, u64), PytorchError> {
    let missing = || error(file.len(), "the archive has no end".into(), AGAIN);
    // A comment of up to 65535 bytes may follow.
    let latest = file.len().checked_sub(END_BYTES).ok_or_else(missing)?;
    let whole = |at: usize| {
        let comment = number(file, at + 20, 2)?;
        (number(file, at, 4)? == END && at as u64 + END_BYTES as u64 + comment == file.len() as u64).then_some(at)
    };
    let end = (latest.saturating_sub(0xffff)..=latest).rev().find_map(whole).ok_or_else(missing)?;
    let locator = end.checked_sub(LOCATOR_BYTES).filter(|at| number(file, *at, 4) == Some(LOCATOR_64));
    let (record, places) = match locator {
        None => (end, [(12, 4), (16, 4), (10, 2)]),
        Some(locator) => {
            let at = number(file, locator + 8, 8).and_then(|at| usize::try_from(at).ok());
            let at = at.filter(|at| number(file, *at, 4) == Some(END_64)).ok_or_else(missing)?;
            (at, [(40, 8), (48, 8), (32, 8)])
        }
    };
    let field = |(at, bytes): (usize, usize)| number(file, record.checked_add(at)?, bytes);
    let [Some(bytes), Some(from), Some(count)] = places.map(field) else { return Err(missing()) };
    let size = |n: u64| usize::try_from(n).map_err(|_| missing());
    Ok((size(from)?, size(bytes)?, count))
}

/// An entry of the directory.
struct Member<'a> {
    at: usize,
    name: &'a str,
    flags: u64,
    method: u64,
    stored: u64,
    bytes: u64,
    /// Offset of its own header.
    offset: u64,
}

impl<'a> Member<'a> {
    /// The entry at `at`, and where the next one begins.
    fn read(file: &'a [u8], at: usize, end: usize) -> Result<(Member<'a>, usize), PytorchError> {
        let cut = || error(at, "the archive's directory ends within an entry".into(), AGAIN);
        let field = |offset: usize, n: usize| number(file, at.checked_add(offset)?, n).ok_or(()).ok();
        let get = |offset: usize, n: usize| field(offset, n).ok_or_else(cut);
        if get(0, 4)? != CENTRAL {
            return Err(error(at, "no entry of the archive's directory is here".into(), AGAIN));
        }
        let [name, extra, comment] = [get(28, 2)? as usize, get(30, 2)? as usize, get(32, 2)? as usize];
        let name_at = at + CENTRAL_BYTES;
        let next = name_at + name + extra + comment;
        if next > end {
            return Err(cut());
        }
        let name_bytes = file.get(name_at..name_at + name).ok_or_else(cut)?;
        let text = std::str::from_utf8(name_bytes)
            .map_err(|_| error(at, "the name of an entry of the archive is not UTF-8".into(), AGAIN))?;
        let (mut bytes, mut stored, mut offset) = (get(24, 4)?, get(20, 4)?, get(42, 4)?);
        let extra = name_at + name..name_at + name + extra;
        let mut long = long_fields(file, extra).into_iter();
        for number in [&mut bytes, &mut stored, &mut offset] {
            if *number == ELSEWHERE {
                *number = long.next().ok_or_else(cut)?;
            }
        }
        Ok((Member { at, name: text, flags: get(8, 2)?, method: get(10, 2)?, stored, bytes, offset }, next))
    }

    /// Where its bytes are.
    fn check(&self, file: &[u8]) -> Result<Range<usize>, PytorchError> {
        let name = self.name;
        if self.flags & 1 != 0 {
            return Err(error(self.at, format!("entry `{name}` of the archive is encrypted"), SAVE));
        }
        if self.method != 0 || self.stored != self.bytes {
            return Err(error(self.at, format!("entry `{name}` of the archive is compressed"), SAVE));
        }
        let outside = || error(self.at, format!("entry `{name}` of {} bytes leaves the file", self.bytes), AGAIN);
        let header = usize::try_from(self.offset).map_err(|_| outside())?;
        if number(file, header, 4) != Some(LOCAL) {
            return Err(error(self.at, format!("entry `{name}` of the archive does not begin at {header}"), AGAIN));
        }
        let length = |at: usize| number(file, header + at, 2).map(|n| n as usize).ok_or_else(outside);
        let from = header + LOCAL_BYTES + length(26)? + length(28)?;
        let bytes = usize::try_from(self.bytes).map_err(|_| outside())?;
        let to = from.checked_add(bytes).filter(|to| *to <= file.len()).ok_or_else(outside)?;
        Ok(from..to)
    }
}

/// The numbers of the field for ZIP64.
fn long_fields(file: &[u8], extra: Range<usize>) -> Vec<u64> {
    let mut at = extra.start;
    while at + 4 <= extra.end {
        let (Some(kind), Some(len)) = (number(file, at, 2), number(file, at + 2, 2)) else { break };
        let from = at + 4;
        let to = (from + len as usize).min(extra.end);
        if kind == 1 {
            return (from..to).step_by(8).filter(|at| at + 8 <= to).filter_map(|at| number(file, at, 8)).collect();
        }
        at = to;
    }
    vec![]
}
