//! Bytes as characters, as vocabularies of byte-level BPE write them (GPT-2, "Language Models are
//! Unsupervised Multitask Learners", 2019): printable ones of Latin-1 stand for themselves, the 68
//! others are U+0100 and up, in order.

/// The first character that stands for another byte.
const OTHERS: u32 = 0x100;

const fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The characters of all bytes.
static CHARACTERS: [char; 256] = {
    let mut out = ['\0'; 256];
    let (mut byte, mut others) = (0, 0);
    while byte < 256 {
        out[byte] = if printable(byte as u8) {
            byte as u8 as char
        } else {
            others += 1;
            // There is a character of each of these numbers.
            match char::from_u32(OTHERS + others - 1) {
                Some(c) => c,
                None => ' ',
            }
        };
        byte += 1;
    }
    out
};

/// The character that stands for a byte.
pub fn character(byte: u8) -> char {
    CHARACTERS[usize::from(byte)]
}

/// The byte that a character stands for.
pub fn byte(c: char) -> Option<u8> {
    match u8::try_from(u32::from(c)) {
        Ok(byte) => Some(byte).filter(|b| printable(*b)),
        Err(_) => CHARACTERS.iter().position(|other| *other == c).map(|i| i as u8),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokenizers::Decoder;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    #[test]
    fn is_every_byte_once() {
        let alphabet = ByteLevel::alphabet();
        let bytes: HashSet<u8> = alphabet.iter().filter_map(|&c| byte(c)).collect();
        assert_eq!((alphabet.len(), bytes.len()), (256, 256));
        assert!((0..0x200).filter_map(char::from_u32).all(|c| byte(c).is_some() == alphabet.contains(&c)));
        for c in alphabet {
            let decoded = ByteLevel::default().decode_chain(vec![c.to_string()]).unwrap().concat();
            let byte = byte(c).unwrap();
            assert!(decoded.as_bytes() == [byte] || (byte >= 0x80 && decoded == "\u{fffd}"), "{c:?}");
            assert_eq!(character(byte), c);
        }
    }
}
