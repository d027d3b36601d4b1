//! Factors of activation rows, where products of many rows find them: a line of each row apart they
//! are in the rows.

use core::arch::x86_64::*;

use super::super::SIDE;
use super::Panel;

/// Rows that pass over decoded weights: more would drive each other from the first-level cache.
pub(super) const ROWS: usize = 64;
/// Groups whose factors are kept.
pub(super) const SECTION: usize = 32;

/// Scales of the rows, and the sums of their codes, a group after the other.
#[repr(C, align(64))]
pub(super) struct Rows {
    pub(super) scales: [[f32; ROWS]; SECTION],
    pub(super) sums: [[f32; ROWS]; SECTION],
}

impl Panel<'_> {
    /// Reads the factors of groups `from..to` of rows `first..first + rows`.
    ///
    /// # Safety
    /// As [`super::run`]; there are at most [`SECTION`] groups and [`ROWS`] rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
    pub(super) unsafe fn factors(&self, first: usize, rows: usize, (from, to): (usize, usize), kept: *mut Rows) {
        for at in (from..to).step_by(SIDE) {
            for row in (0..rows).step_by(SIDE) {
                let square =
                    Square { stride: self.p.a_stride as usize, rows: SIDE.min(rows - row), columns: SIDE.min(to - at) };
                unsafe {
                    let a = self.p.a.add((first + row) * square.stride + at * 4);
                    square.transpose(a.add(self.q8.scales), false, (&raw mut (*kept).scales[at - from][row]).cast());
                    if self.weights.has_minimum() {
                        square.transpose(a.add(self.q8.sums), true, (&raw mut (*kept).sums[at - from][row]).cast());
                    }
                }
            }
        }
    }
}

/// Numbers of rows `stride` bytes apart, at most 16 × 16.
struct Square {
    stride: usize,
    rows: usize,
    columns: usize,
}

impl Square {
    /// Writes a column each to lines at `to`, as far apart as [`Rows`] has them; integers as f32.
    /// Behind the last row it is repeated.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,gfni")]
    #[inline(never)]
    unsafe fn transpose(&self, from: *const u8, integers: bool, to: *mut f32) {
        let some = (1u32 << self.columns).wrapping_sub(1) as __mmask16;
        let mut x = [_mm512_setzero_si512(); SIDE];
        for (row, x) in x.iter_mut().enumerate() {
            *x = unsafe { _mm512_maskz_loadu_epi32(some, from.add(row.min(self.rows - 1) * self.stride).cast()) };
        }
        let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        // Rows whose indices differ in one bit exchange the columns whose indices have that bit.
        for distance in [1, 2, 4, 8] {
            let bit = _mm512_set1_epi32(distance);
            let (other, high) = (_mm512_xor_si512(lanes, bit), _mm512_test_epi32_mask(lanes, bit));
            for row in (0..SIDE).filter(|row| row & distance as usize == 0) {
                let (a, b) = (x[row], x[row + distance as usize]);
                x[row] = _mm512_mask_permutexvar_epi32(a, high, other, b);
                x[row + distance as usize] = _mm512_mask_permutexvar_epi32(b, !high, other, a);
            }
        }
        for (column, x) in x.iter().enumerate().take(self.columns) {
            let x = if integers { _mm512_cvtepi32_ps(*x) } else { _mm512_castsi512_ps(*x) };
            unsafe { _mm512_storeu_ps(to.add(column * ROWS), x) };
        }
    }
}
