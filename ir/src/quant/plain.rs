//! Unquantized floats.

use super::{Encoding, FormatDef, NO_GROUPS, Quantize};

pub(super) const F32: FormatDef = of("f32", Encoding::F32);
pub(super) const F16: FormatDef = of("f16", Encoding::F16);
pub(super) const BF16: FormatDef = of("bf16", Encoding::BF16);

const fn of(name: &'static str, encoding: Encoding) -> FormatDef {
    FormatDef { name, encoding, groups: NO_GROUPS, quantize: Quantize::Round }
}
