//! Bytes as text (RFC 4648, section 4): the standard alphabet, padded.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// The bytes of `text`; `None` unless it is whole groups of four characters, the last of which
/// alone may end in one or two `=`.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let value = |c: &u8| digit(*c);
        let bits = group.iter().map(value).try_fold(0, |bits, d| Some(bits << 6 | d?))? << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

fn digit(c: u8) -> Option<u32> {
    Some(u32::from(match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of section 10.
    #[test]
    fn as_the_standard() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in vectors {
            assert_eq!((encode(bytes.as_bytes()), decode(text)), (text.into(), Some(bytes.into())));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for wrong in ["Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v!mFy", "Zm 9", "Zm9v\n"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
