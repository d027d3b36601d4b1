//! Conversions between f32 and the 16-bit floats, by integer arithmetic: Cranelift has none for
//! vectors.

use super::emit::{Emit, LANES};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::I64X2;
use cranelift_codegen::ir::{InstBuilder, Value};

impl<'f> Emit<'f> {
    /// Four finite f16, sign-extended to i32, to f32: exact. With the fields in place the exponent
    /// is 112 too small; multiplying by 2¹¹² corrects it, also for subnormals.
    pub fn finite_f16_to_f32(&mut self, halves: Value) -> Value {
        let bits = self.b.ins().ishl_imm_u(halves, 13);
        let mask = self.ints(0x8fff_e000);
        let bits = self.b.ins().band(bits, mask);
        let x = self.as_floats(bits);
        let scale = self.floats(f32::from_bits((127 + 112) << 23));
        self.fmul(x, scale)
    }

    /// Four e4m3 numbers that are not NaN, in the lowest bytes of i32 (the bits above are ignored),
    /// to f32: as [`Emit::finite_f16_to_f32`].
    pub fn e4m3_to_f32(&mut self, codes: Value) -> Value {
        let top = self.b.ins().ishl_imm_u(codes, 24);
        let sign = self.ints(0x8000_0000);
        let sign = self.b.ins().band(top, sign);
        let magnitude = self.b.ins().ushr_imm_u(top, 4);
        let mask = self.ints(0x07f0_0000);
        let magnitude = self.b.ins().band(magnitude, mask);
        let bits = self.b.ins().bor(sign, magnitude);
        let x = self.as_floats(bits);
        let scale = self.floats(f32::from_bits((127 + 120) << 23));
        self.fmul(x, scale)
    }

    /// Four f16, sign-extended to i32, to f32: exact, infinities and NaN included.
    pub fn f16_to_f32(&mut self, halves: Value) -> Value {
        let x = self.finite_f16_to_f32(halves);
        // Exponent 31 came out as 2¹⁶ and above.
        let magnitude = self.b.ins().fabs(x);
        let limit = self.floats(65536.0);
        let special = self.lanes_where(FloatCC::GreaterThanOrEqual, magnitude, limit);
        let exponent = self.ints(0x7f80_0000);
        let exponent = self.b.ins().band(special, exponent);
        let bits = self.bits(x);
        let bits = self.b.ins().bor(bits, exponent);
        self.as_floats(bits)
    }

    /// Four bf16, extended to i32 in any way, to f32: exact.
    pub fn bf16_to_f32(&mut self, halves: Value) -> Value {
        let bits = self.b.ins().ishl_imm_u(halves, 16);
        self.as_floats(bits)
    }

    /// Rounds the first `lanes` of four f32 to bf16 and stores them.
    pub fn store_bf16(&mut self, x: Value, p: Value, offset: usize, lanes: usize) {
        let halves = self.f32_to_bf16(x);
        if lanes == LANES {
            let packed = self.b.ins().unarrow(halves, halves);
            let packed = self.cast(I64X2, packed);
            let word = self.b.ins().extractlane(packed, 0);
            return self.store(word, p, offset);
        }
        for i in 0..lanes {
            let half = self.lane(halves, i);
            self.store_half(half, p, offset + 2 * i);
        }
    }

    /// Four f32 to f16 in the low half of each i32: round to nearest even, subnormals and
    /// infinities included, NaN becomes a quiet NaN.
    pub fn f32_to_f16(&mut self, x: Value) -> Value {
        let bits = self.bits(x);
        let magnitude_mask = self.ints(0x7fff_ffff);
        let magnitude = self.b.ins().band(bits, magnitude_mask);
        // Normal numbers: rebias, round half to even at bit 13.
        let odd = self.b.ins().ushr_imm_u(magnitude, 13);
        let one = self.ints(1);
        let odd = self.b.ins().band(odd, one);
        let rebias = self.ints(0x0fff_u32.wrapping_sub(112 << 23));
        let normal = self.add(magnitude, rebias);
        let normal = self.add(normal, odd);
        let normal = self.b.ins().ushr_imm_u(normal, 13);
        // Subnormal numbers: adding ½, whose last place is the f16 subnormal unit, rounds as
        // wanted.
        let half = self.floats(0.5);
        let m = self.as_floats(magnitude);
        let shifted = self.fadd(m, half);
        let shifted = self.bits(shifted);
        let half_bits = self.ints(0.5f32.to_bits());
        let subnormal = self.sub(shifted, half_bits);
        let smallest_normal = self.ints(0x3880_0000);
        let is_subnormal = self.b.ins().icmp(IntCC::SignedLessThan, magnitude, smallest_normal);
        let h = self.b.ins().bitselect(is_subnormal, subnormal, normal);
        // Too large: infinity. NaN: quiet.
        let (infinity, largest) = (self.ints(0x7c00), self.ints(0x477f_ffff));
        let overflows = self.b.ins().icmp(IntCC::SignedGreaterThan, magnitude, largest);
        let h = self.b.ins().bitselect(overflows, infinity, h);
        let (nan, f32_infinity) = (self.ints(0x7e00), self.ints(0x7f80_0000));
        let is_nan = self.b.ins().icmp(IntCC::SignedGreaterThan, magnitude, f32_infinity);
        let h = self.b.ins().bitselect(is_nan, nan, h);
        let sign = self.b.ins().ushr_imm_u(bits, 16);
        let sign_mask = self.ints(0x8000);
        let sign = self.b.ins().band(sign, sign_mask);
        self.b.ins().bor(h, sign)
    }

    /// Four f32 to bf16 in the low half of each i32: round to nearest even, NaN becomes a quiet
    /// NaN.
    pub fn f32_to_bf16(&mut self, x: Value) -> Value {
        let bits = self.bits(x);
        let odd = self.b.ins().ushr_imm_u(bits, 16);
        let one = self.ints(1);
        let odd = self.b.ins().band(odd, one);
        let bias = self.ints(0x7fff);
        let rounded = self.add(bits, bias);
        let rounded = self.add(rounded, odd);
        let quiet = self.ints(0x0040_0000);
        let nan = self.b.ins().bor(bits, quiet);
        let is_nan = self.lanes_where(FloatCC::Unordered, x, x);
        let bits = self.b.ins().bitselect(is_nan, nan, rounded);
        self.b.ins().ushr_imm_u(bits, 16)
    }
}
