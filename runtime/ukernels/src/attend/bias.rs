//! Biases of scores, by slot or by distance.

use super::{Row, Run};
use crate::isa::Isa;

/// Lanes of a vector, counted.
const LANES: [f32; 16] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Scores `s` of slots `slot..` of the sequence with their biases. Distances are whole numbers, which
/// f32 has exactly up to 2^24.
#[inline(always)]
pub(super) unsafe fn biased<I: Isa>(run: &Run, row: &Row, slot: usize, s: I::F) -> I::F {
    unsafe {
        let distance = slot as i64 - row.position as i64;
        let of_head = run.more.bias.add(row.head * run.more.bias_width());
        let (reach, slots) = (i64::from(run.more.reach), i64::from(run.more.bias_slots));
        if reach == 0 && slots == 0 {
            let far = I::add(I::splat(distance as f32), I::load(LANES.as_ptr().cast()));
            let far = I::keep_bits(far, 0x7fff_ffff);
            return I::sub(s, I::mul(I::splat(of_head.read()), far));
        }
        let (first, last) = if slots > 0 { (slot as i64, slots - 1) } else { (distance + reach, 2 * reach) };
        let mut bias = [0f32; 16];
        for lane in 0..I::LANES {
            let at = (first + lane as i64).max(0).min(last);
            *bias.get_unchecked_mut(lane) = of_head.add(at as usize).read();
        }
        I::add(s, I::load(bias.as_ptr().cast()))
    }
}
