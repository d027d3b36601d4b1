//! Saved parts of sequences as bytes.
//!
//! ```text
//! magic "llmcckv1" | identity [32] | parent [32] | salt u64
//! from u64 | tokens u64 | places u64 | ends u64 | groups u64
//! tokens i32[] | places (token u64, positions i32[AXES])[]
//! for each group: group u64 | first u64 | count u64 | snapshots u64 | bytes u64 | tokens before each snapshot u64[]
//! the pages of all groups | SHA-256 of all before
//! ```
//!
//! Numbers are little endian. The identity is that of the model whose states these are, the parent is for whoever
//! keeps parts.

use super::saved::{Saved, SavedPages};
use super::{Kv, SeqId};
use crate::error::{Error, Result};
use crate::reserve::need;
use llmcc_abi::AXES;
use llmcc_abi::tree::{Hash, Leaf};

const MAGIC: [u8; 8] = *b"llmcckv1";
/// Bytes before the tokens.
const HEAD: usize = MAGIC.len() + 2 * size_of::<Hash>() + 6 * 8;
/// Bytes of a token with positions.
const PLACE: usize = 8 + 4 * AXES;
/// Bytes of the sizes of a group.
const GROUP: usize = 5 * 8;
/// Most groups of states: more than any model has.
const GROUPS: u64 = 1 << 16;

/// A part with its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The model.
    pub identity: Hash,
    /// The part before it, if it is known by a name.
    pub parent: Hash,
    /// Who may read it.
    pub salt: u64,
    /// The part.
    pub part: Saved,
}

impl Kv {
    /// Bytes of [`pack`] for a whole sequence.
    ///
    /// # Errors
    /// It does not exist.
    pub fn packed_len(&self, seq: SeqId) -> Result<usize> {
        let sequence = &self.seqs[self.slot(seq)?];
        let of_group = |group: usize| {
            let (table, size) = (&sequence.tables[group], self.layout.groups[group].page_bytes);
            let snapshots = table.snapshots.len();
            GROUP + 8 * snapshots + (table.held().len() + snapshots) * size
        };
        let groups: usize = self.own_groups().into_iter().map(of_group).sum();
        let track = &sequence.tracks[0];
        let tokens = 4 * track.tokens.len() + PLACE * track.places.from(0).count();
        Ok(HEAD + tokens + groups + size_of::<Hash>())
    }
}

/// The bytes of a part.
///
/// # Errors
/// There is no memory.
pub fn pack(packed: &Packed) -> Result<Vec<u8>> {
    let Packed { identity, parent, salt, part } = packed;
    need(2 * part.bytes() + 8 * part.tokens.len() + (PLACE + 64) * (part.places.len() + part.pages.len()) + HEAD)?;
    let mut out = [&MAGIC[..], identity, parent].concat();
    let sizes = [part.from, part.tokens.len(), part.places.len(), usize::from(part.ends), part.pages.len()];
    out.extend(salt.to_le_bytes());
    sizes.iter().for_each(|n| out.extend((*n as u64).to_le_bytes()));
    part.tokens.iter().for_each(|token| out.extend(token.to_le_bytes()));
    for (token, at) in &part.places {
        out.extend((*token as u64).to_le_bytes());
        at.iter().for_each(|x| out.extend(x.to_le_bytes()));
    }
    for pages in &part.pages {
        let sizes = [pages.group, pages.first, pages.count, pages.snapshots.len(), pages.bytes.len()];
        sizes.iter().chain(&pages.snapshots).for_each(|n| out.extend((*n as u64).to_le_bytes()));
    }
    part.pages.iter().for_each(|pages| out.extend_from_slice(&pages.bytes));
    let hash = checksum(&out);
    out.extend_from_slice(&hash);
    Ok(out)
}

/// The part that bytes are of. `pages`: whether its pages are wanted, too; without them, they need not be there.
///
/// # Errors
/// They are not as [`pack`] writes them.
pub fn unpack(bytes: &[u8], pages: bool) -> Result<Packed> {
    let mut body = bytes;
    if pages {
        let (all, hash) = bytes.split_last_chunk::<32>().ok_or_else(damaged)?;
        if checksum(all) != *hash {
            return Err(damaged());
        }
        need(2 * all.len())?;
        body = all;
    }
    let mut from = Reader(body);
    if from.array()? != MAGIC {
        return Err(damaged());
    }
    let (identity, parent, salt) = (from.array()?, from.array()?, from.u64()?);
    let [begin, tokens, places, ends, groups] = [from.size()?, from.size()?, from.size()?, from.size()?, from.size()?];
    if begin.checked_add(tokens).is_none_or(|end| end > i32::MAX as usize) || ends > 1 || groups as u64 > GROUPS {
        return Err(damaged());
    }
    let tokens = from.take(tokens.checked_mul(4).ok_or_else(damaged)?)?;
    let tokens = tokens.as_chunks().0.iter().map(|token| i32::from_le_bytes(*token)).collect();
    let mut part = Saved { from: begin, tokens, ends: ends == 1, ..Saved::default() };
    let mut list = Reader(from.take(places.checked_mul(PLACE).ok_or_else(damaged)?)?);
    for _ in 0..places {
        let (token, mut at) = (list.size()?, [0; AXES]);
        for x in &mut at {
            *x = list.i32()?;
        }
        part.places.push((token, at));
    }
    if !part.places.is_sorted_by_key(|(token, _)| *token) {
        return Err(damaged());
    }
    let mut sizes = Vec::new();
    for _ in 0..groups {
        let [group, first, count, snapshots, len] =
            [from.size()?, from.size()?, from.size()?, from.size()?, from.size()?];
        let mut list = Reader(from.take(snapshots.checked_mul(8).ok_or_else(damaged)?)?);
        let snapshots = (0..snapshots).map(|_| list.size()).collect::<Result<_>>()?;
        part.pages.push(SavedPages { group, first, count, snapshots, bytes: Vec::new() });
        sizes.push(len);
    }
    if pages {
        for (pages, len) in part.pages.iter_mut().zip(sizes) {
            pages.bytes = from.take(len)?.to_vec();
        }
        if !from.0.is_empty() {
            return Err(damaged());
        }
    }
    Ok(Packed { identity, parent, salt, part })
}

fn checksum(bytes: &[u8]) -> Hash {
    let mut hash = Leaf::default();
    hash.update(bytes);
    hash.finish()
}

fn damaged() -> Error {
    Error::artifact("these bytes are no saved sequence, or were damaged: evaluate its tokens instead")
}

/// Takes values from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*front)
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn size(&mut self) -> Result<usize> {
        usize::try_from(self.u64()?).map_err(|_| damaged())
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed() -> Packed {
        let pages = |group, snapshots: &[usize]| SavedPages {
            group,
            first: group,
            count: 2,
            snapshots: snapshots.to_vec(),
            bytes: vec![7; 24 + group],
        };
        let part = Saved {
            from: 16,
            tokens: vec![1, 2, -9, 4],
            places: vec![(17, [1, 2, 3]), (19, [4, 4, 4])],
            ends: true,
            pages: vec![pages(0, &[]), pages(3, &[17, 18])],
        };
        Packed { identity: [1; 32], parent: [2; 32], salt: 5, part }
    }

    #[test]
    fn parts_come_back() {
        let bytes = pack(&packed()).unwrap();
        assert_eq!(unpack(&bytes, true).unwrap(), packed());
        let mut without = packed();
        without.part.pages.iter_mut().for_each(|pages| pages.bytes.clear());
        assert_eq!(unpack(&bytes[..bytes.len() - 60], false).unwrap(), without);
    }

    /// Every byte counts, and every length; sizes of another world do not take memory.
    #[test]
    fn damage_is_found() {
        let bytes = pack(&packed()).unwrap();
        for at in 0..bytes.len() {
            assert!(unpack(&bytes[..at], true).is_err());
            let mut other = bytes.clone();
            other[at] ^= 0x41;
            assert!(unpack(&other, true).is_err(), "{at}");
            // (Without the hash, anything may be read, but nothing beyond the end.)
            let _ = unpack(&other, false);
            let _ = unpack(&other[..at], false);
        }
    }
}
