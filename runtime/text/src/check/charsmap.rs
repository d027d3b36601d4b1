//! SentencePiece's precompiled character maps: a double-array trie (Darts-clone) and the texts that
//! its leaves point to.
//!
//! Format: the trie's size in bytes, its units of 32 bits, all little-endian, then texts that end
//! with NUL.

use crate::base64;

type Result<T> = std::result::Result<T, String>;

/// How many times as long the map makes a text, at most.
///
/// # Errors
/// It is malformed: walking the trie or taking a text would leave the map.
pub fn growth(text: &str) -> Result<usize> {
    let bytes = base64::decode(text).ok_or("not base64")?;
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or("no size")?;
    let size = u32::from_le_bytes(*size) as usize / 4 * 4;
    let (units, texts) = rest.split_at_checked(size).ok_or("the trie is longer than the map")?;
    let texts = std::str::from_utf8(texts).map_err(|_| "its texts are not UTF-8")?;
    let units: Vec<u32> = units.chunks_exact(4).map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]])).collect();
    walk(&units, texts)
}

fn offset(unit: u32) -> usize {
    ((unit as usize) >> 10) << ((unit as usize & (1 << 9)) >> 6)
}

/// Visits every node that any text reaches, in order of depth.
fn walk(units: &[u32], texts: &str) -> Result<usize> {
    let outside = || "a node lies outside the trie".to_owned();
    let root = offset(*units.first().ok_or("an empty trie")?);
    let mut seen = vec![false; units.len()];
    let mut level = vec![root];
    let (mut depth, mut growth) = (0usize, 1);
    while !level.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for node in level {
            // Any byte may follow, so the whole block of 256 must be there.
            if node | 0xff >= units.len() {
                return Err(outside());
            }
            for byte in 1..=255usize {
                let at = node ^ byte;
                let unit = units[at];
                if unit & (1 << 31 | 0xff) != byte as u32 {
                    continue;
                }
                let child = at ^ offset(unit);
                if unit >> 8 & 1 == 1 {
                    let leaf = *units.get(child).ok_or_else(outside)?;
                    let index = (leaf & !(1 << 31)) as usize;
                    let text = texts.get(index..).ok_or("a leaf points outside the texts, or into a character")?;
                    let len = text.find('\0').unwrap_or(text.len());
                    growth = growth.max(len.div_ceil(depth));
                }
                if child >= units.len() {
                    return Err(outside());
                }
                if !seen[child] {
                    seen[child] = true;
                    next.push(child);
                }
            }
        }
        level = next;
    }
    Ok(growth)
}
