//! 4 bits, asymmetric, with two levels of scales, as GGML's `Q4_K`: super-groups of 256 columns are
//! 8 groups of 32, whose scales and minima are codes of 6 bits; the super-group has an f16 scale
//! for the scales and one for the minima. `w = (d·s)·u + (e·m)`, where `e` is GGML's `dmin`,
//! negated.
//!
//! GGML packs the 6-bit codes tightly (4.5 bits per weight); here they are bytes (4.625), which
//! vector code reads without shifts.

use super::ggml::asymmetric;
use super::{Encoding, FormatDef, Quantize};

pub(super) const Q4K: FormatDef = FormatDef {
    name: "q4k",
    encoding: Encoding::Q4K,
    groups: &[32],
    quantize: Quantize::Super(|x, codes, factors| asymmetric((x, codes), factors, 32, (15.0, 63.0))),
};
