//! Integer dot products, with the instruction of `dotprod` and without.

use core::arch::aarch64::*;
use core::arch::asm;

use super::{Apart, FEW, Shape};

/// A way to sum products of bytes.
pub(crate) trait Dots: Copy {
    /// Dot products in progress, of two registers of weights.
    type Sums: Copy;
    /// Tile of the panel with int8 rows.
    const INT8: Shape;

    /// See [`super::Isa::apart`].
    unsafe fn apart<A, P: Apart<A>>(args: A);
    /// Sums that begin with `x`.
    unsafe fn new(x: i32) -> Self::Sums;
    /// Adds to each lane the dot product of the four bytes of `w` and of `a`, all signed.
    unsafe fn add(sums: Self::Sums, w: [int32x4_t; 2], a: [int32x4_t; 2]) -> Self::Sums;
    /// The sums, one in each lane.
    unsafe fn total(sums: Self::Sums) -> [int32x4_t; 2];
}

/// Products of 16 bits, added up in pairs.
#[derive(Clone, Copy)]
pub(crate) struct Widening;

impl Dots for Widening {
    /// For each register of weights, sums of two of the four products: of lanes 0 and 1, and of lanes 2 and 3.
    type Sums = [[int32x4_t; 2]; 2];
    const INT8: Shape = Shape { tokens: 4, vectors: 1, single: 2, few: FEW };

    #[inline(never)]
    unsafe fn apart<A, P: Apart<A>>(args: A) {
        unsafe { P::run(args) }
    }

    #[inline(always)]
    unsafe fn new(x: i32) -> Self::Sums {
        // Once for each lane, in the first of its two halves.
        unsafe { [[vreinterpretq_s32_u64(vdupq_n_u64(u64::from(x as u32))); 2]; 2] }
    }

    #[inline(always)]
    unsafe fn add(sums: Self::Sums, w: [int32x4_t; 2], a: [int32x4_t; 2]) -> Self::Sums {
        let mut out = sums;
        for i in 0..2 {
            unsafe {
                let (w, a) = (vreinterpretq_s8_s32(w[i]), vreinterpretq_s8_s32(a[i]));
                // A product is at most 2¹⁴.
                out[i][0] = vpadalq_s16(sums[i][0], vmull_s8(vget_low_s8(w), vget_low_s8(a)));
                out[i][1] = vpadalq_s16(sums[i][1], vmull_high_s8(w, a));
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn total(sums: Self::Sums) -> [int32x4_t; 2] {
        sums.map(|[low, high]| unsafe { vpaddq_s32(low, high) })
    }
}

/// The instruction of `dotprod`.
#[derive(Clone, Copy)]
pub(crate) struct Sdot;

impl Dots for Sdot {
    type Sums = [int32x4_t; 2];
    const INT8: Shape = Shape { tokens: 4, vectors: 2, single: 4, few: FEW };

    #[inline(never)]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn apart<A, P: Apart<A>>(args: A) {
        unsafe { P::run(args) }
    }

    #[inline(always)]
    unsafe fn new(x: i32) -> Self::Sums {
        unsafe { [vdupq_n_s32(x); 2] }
    }

    #[inline(always)]
    unsafe fn add(sums: Self::Sums, w: [int32x4_t; 2], a: [int32x4_t; 2]) -> Self::Sums {
        unsafe { [sdot(sums[0], w[0], a[0]), sdot(sums[1], w[1], a[1])] }
    }

    #[inline(always)]
    unsafe fn total(sums: Self::Sums) -> [int32x4_t; 2] {
        sums
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
