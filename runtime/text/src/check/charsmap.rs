//! SentencePiece's precompiled character maps: a double-array trie (Darts-clone) and the texts that
//! its leaves point to.
//!
//! Format: the trie's size in bytes, its units of 32 bits, all little-endian, then texts that end
//! with NUL.

type Result<T> = std::result::Result<T, String>;

/// How many times as long the map makes a text, at most.
///
/// # Errors
/// It is malformed: walking the trie or taking a text would leave the map.
pub fn growth(base64: &str) -> Result<usize> {
    let bytes = decode(base64).ok_or("not base64")?;
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

/// Standard base64 with padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for i in 0..4 {
            bits = bits << 6 | u32::from(group.get(i).map_or(Some(0), |b| digit(*b))?);
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len().max(1)]);
    }
    Some(out)
}
