//! Numbers in memory, and elements of caches, one at a time.

use llmcc_abi::{PAGE_TOKENS, kv_dtype, layout};

/// The value `byte` bytes from `p`, which may be anywhere.
#[inline(always)]
pub(crate) unsafe fn read<T>(p: *const u8, byte: usize) -> T {
    unsafe { p.add(byte).cast::<T>().read_unaligned() }
}

/// Widens an IEEE binary16.
pub(crate) fn f16_to_f32(h: u16) -> f32 {
    let sign = (h as u32 & 0x8000) << 16;
    let magnitude = h as u32 & 0x7fff;
    if magnitude >= 0x7c00 {
        return f32::from_bits(sign | 0x7f80_0000 | (magnitude & 0x3ff) << 13);
    }
    // The exponent is 112 too small once the fields are in place; multiplying by 2^112 corrects it,
    // also for subnormals.
    let value = f32::from_bits(magnitude << 13) * f32::from_bits((112 + 127) << 23);
    f32::from_bits(sign | value.to_bits())
}

/// Widens a bfloat16.
pub(crate) fn bf16_to_f32(b: u16) -> f32 {
    f32::from_bits((b as u32) << 16)
}

/// The scale of slot `slot` of a page's keys or values, whose scales are at `p`: 1 where elements of type
/// `dtype` have none.
#[inline(always)]
pub(crate) unsafe fn scale(p: *const u8, slot: usize, dtype: u32) -> f32 {
    if kv_dtype::has_scales(dtype) { unsafe { read(p, slot * 4) } } else { 1.0 }
}

/// Element `j` of slot `slot` of a key (or value) of `d` elements, in a cache of type `dtype`.
pub(crate) unsafe fn cached(p: *const u8, (key, d, slot, j): (bool, usize, usize, usize), dtype: u32) -> f32 {
    let i = if key { j * PAGE_TOKENS + slot } else { slot * d + j };
    unsafe {
        match dtype {
            kv_dtype::INT4 => {
                let (byte, up) = layout::kv_nibble(d, key, j);
                let at = if key { byte * PAGE_TOKENS + slot } else { slot * (d / 2) + byte };
                let code = read::<u8>(p, at) >> up & 15;
                f32::from((code ^ 8) as i8 - 8)
            }
            kv_dtype::F32 => read(p, i * 4),
            kv_dtype::F16 => f16_to_f32(read(p, i * 2)),
            kv_dtype::BF16 => bf16_to_f32(read(p, i * 2)),
            _ => f32::from(read::<i8>(p, i)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::f16_to_f32;

    #[test]
    fn every_f16_widens() {
        for h in 0..=u16::MAX {
            let (got, expected) = (f16_to_f32(h), half::f16::from_bits(h).to_f32());
            assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{h:#x}");
        }
    }
}
