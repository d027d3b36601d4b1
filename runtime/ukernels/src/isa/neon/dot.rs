//! Integer dot products, with the instruction of `dotprod` and without.

use core::arch::aarch64::*;
use core::arch::asm;

/// Dot products in progress, for each register of weights. With `dotprod`, a lane has its sum in the first register.
/// Without, the first register has sums of two of the four products of lanes 0 and 1, the second of lanes 2 and 3.
#[derive(Clone, Copy)]
pub(crate) struct Dot([[int32x4_t; 2]; 2]);

impl Dot {
    /// Sums that begin with `x`.
    #[inline(always)]
    pub(super) unsafe fn new<const DOT: bool>(x: i32) -> Dot {
        unsafe {
            let first = match DOT {
                true => vdupq_n_s32(x),
                // Once in each lane of two halves.
                false => vreinterpretq_s32_u64(vdupq_n_u64(u64::from(x as u32))),
            };
            Dot([[first; 2]; 2])
        }
    }

    /// The sums, one in each lane.
    #[inline(always)]
    pub(super) unsafe fn total<const DOT: bool>(self) -> [int32x4_t; 2] {
        match DOT {
            true => self.0.map(|sums| sums[0]),
            false => self.0.map(|[low, high]| unsafe { vpaddq_s32(low, high) }),
        }
    }
}

/// `acc` and the dot product of the four bytes of each lane, as signed numbers.
#[inline(always)]
unsafe fn sdot(acc: int32x4_t, w: int32x4_t, a: int32x4_t) -> int32x4_t {
    let mut sum = acc;
    // The intrinsic is not stable in this version of the compiler.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) w, in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds to each lane the dot product of the four bytes of `w` and of `a`, all signed. All words of `a` are the same.
///
/// # Safety
/// With `DOT`, the processor has `dotprod`, and the caller is compiled for it.
#[inline(always)]
pub(super) unsafe fn multiply_add<const DOT: bool>(acc: Dot, w: [int32x4_t; 2], a: [int32x4_t; 2]) -> Dot {
    let mut out = acc;
    for i in 0..2 {
        unsafe {
            if DOT {
                out.0[i][0] = sdot(acc.0[i][0], w[i], a[i]);
            } else {
                let (w, a) = (vreinterpretq_s8_s32(w[i]), vreinterpretq_s8_s32(a[i]));
                // A product is at most 2¹⁴.
                out.0[i][0] = vpadalq_s16(acc.0[i][0], vmull_s8(vget_low_s8(w), vget_low_s8(a)));
                out.0[i][1] = vpadalq_s16(acc.0[i][1], vmull_high_s8(w, a));
            }
        }
    }
    out
}
