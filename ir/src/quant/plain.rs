//! Unquantized floats.

use super::{Elem, FormatDef};

fn none(_: &[f32], _: &mut [u8]) -> (f32, f32) {
    (0.0, 0.0)
}

pub(super) const F32: FormatDef = FormatDef { name: "f32", elem: Elem::F32, bits: 32, decode: None, quantize: none };
pub(super) const F16: FormatDef = FormatDef { name: "f16", elem: Elem::F16, bits: 16, decode: None, quantize: none };
pub(super) const BF16: FormatDef = FormatDef { name: "bf16", elem: Elem::Bf16, bits: 16, decode: None, quantize: none };
