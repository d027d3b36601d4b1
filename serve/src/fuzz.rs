//! Fuzz targets: arbitrary bytes in, no panic, hang or exhausted memory out.

use crate::gbnf;

/// A grammar in GBNF.
pub fn gbnf(data: &[u8]) {
    if let Ok(source) = std::str::from_utf8(data) {
        let _ = gbnf::lark(source);
    }
}
