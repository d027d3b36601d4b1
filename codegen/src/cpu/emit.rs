//! A thin layer over [`FunctionBuilder`]: the operations kernels are written in.
//!
//! Everything here lowers to plain SSE2 instructions on the x86-64 baseline, without library calls
//! and relocations. Memory is accessed without alignment: `MemFlagsData::aligned` would let
//! Cranelift fold 16-byte loads into SSE instructions that fault on other addresses.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    Endianness, InstBuilder, MemFlagsData, StackSlot, StackSlotData, StackSlotKind, Type, Value,
};
use cranelift_frontend::FunctionBuilder;

pub(super) use cranelift_codegen::ir::types::{F32, F32X4, F64, F64X2, I8X16, I16X8, I32, I32X4, I64, I64X2};

/// Lanes of a vector.
pub(super) const LANES: usize = 4;

/// Code under construction.
pub(super) struct Emit<'f> {
    /// Cranelift's builder, for operations without a helper.
    pub b: FunctionBuilder<'f>,
    /// Whether the target has fused multiply-add.
    pub has_fma: bool,
}

fn memory() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

impl<'f> Emit<'f> {
    // Constants.

    /// i64 constant.
    pub fn int(&mut self, x: i64) -> Value {
        self.b.ins().iconst(I64, x)
    }

    /// Scalar f32 constant.
    pub fn float(&mut self, x: f32) -> Value {
        self.b.ins().f32const(x)
    }

    fn vector_const(&mut self, ty: Type, word: u32) -> Value {
        let bytes = word.to_le_bytes().repeat(LANES);
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(ty, constant)
    }

    /// `x` in all lanes.
    pub fn floats(&mut self, x: f32) -> Value {
        self.vector_const(F32X4, x.to_bits())
    }

    /// `x` in all lanes.
    pub fn ints(&mut self, x: u32) -> Value {
        self.vector_const(I32X4, x)
    }

    /// `0, 1, 2, 3`, plus `first`.
    pub fn lane_numbers(&mut self, first: u32) -> Value {
        let bytes: Vec<u8> = (first..first + 4).flat_map(u32::to_le_bytes).collect();
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(I32X4, constant)
    }

    /// The bytes of an i32 as four i32.
    pub fn bytes(&mut self, word: Value) -> Value {
        let zero = self.ints(0);
        let v = self.b.ins().insertlane(zero, word, 0);
        let v = self.cast(I8X16, v);
        let v = self.b.ins().uwiden_low(v);
        self.b.ins().uwiden_low(v)
    }

    // Memory.

    /// Room for a `T` on the stack, for code in several blocks.
    pub fn stack_slot<T>(&mut self) -> StackSlot {
        self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size_of::<T>() as u32, 3))
    }

    /// Address of room for a `T` on the stack.
    pub fn on_stack<T>(&mut self) -> Value {
        let slot = self.stack_slot::<T>();
        self.b.ins().stack_addr(I64, slot, 0)
    }

    /// Loads a `ty`.
    pub fn load(&mut self, ty: Type, p: Value, offset: usize) -> Value {
        self.b.ins().load(ty, memory(), p, offset as i32)
    }

    /// Stores `x`.
    pub fn store(&mut self, x: Value, p: Value, offset: usize) {
        self.b.ins().store(memory(), x, p, offset as i32);
    }

    /// Stores each of some values at its offset.
    pub fn store_all(&mut self, p: Value, values: &[(usize, Value)]) {
        for (offset, value) in values {
            self.store(*value, p, *offset);
        }
    }

    /// Stores each of some i64 constants at its offset.
    pub fn store_ints(&mut self, p: Value, values: &[(usize, usize)]) {
        for (offset, x) in values {
            let x = self.int(*x as i64);
            self.store(x, p, *offset);
        }
    }

    /// Stores the low byte of an i32.
    pub fn store_byte(&mut self, x: Value, p: Value, offset: usize) {
        self.b.ins().istore8(memory(), x, p, offset as i32);
    }

    /// Stores the low half of an i32.
    pub fn store_half(&mut self, x: Value, p: Value, offset: usize) {
        self.b.ins().istore16(memory(), x, p, offset as i32);
    }

    /// A byte, zero-extended to i32.
    pub fn load_byte(&mut self, p: Value, offset: usize) -> Value {
        self.b.ins().uload8(I32, memory(), p, offset as i32)
    }

    /// Loads two bytes as i32, zero extended.
    pub fn load_half(&mut self, p: Value, offset: usize) -> Value {
        self.b.ins().uload16(I32, memory(), p, offset as i32)
    }

    /// Loads an i32 as i64.
    pub fn load_index(&mut self, p: Value, offset: usize) -> Value {
        self.b.ins().sload32(memory(), p, offset as i32)
    }

    /// Four halves, sign-extended to i32.
    pub fn load_halves(&mut self, p: Value, offset: usize) -> Value {
        self.b.ins().sload16x4(memory(), p, offset as i32)
    }

    /// Four bytes, sign-extended to i32.
    pub fn load_bytes(&mut self, p: Value, offset: usize) -> Value {
        let word = self.load(I32, p, offset);
        let zero = self.ints(0);
        let v = self.b.ins().insertlane(zero, word, 0);
        let v = self.cast(I8X16, v);
        let v = self.b.ins().swiden_low(v);
        self.b.ins().swiden_low(v)
    }

    /// The 4 bytes at `p` in each lane.
    pub fn load_word_splat(&mut self, p: Value, offset: usize) -> Value {
        let x = self.load_splat(p, offset);
        self.cast(I8X16, x)
    }

    /// The f32 at `p` in all lanes.
    pub fn load_splat(&mut self, p: Value, offset: usize) -> Value {
        let x = self.load(F32, p, offset);
        self.b.ins().splat(F32X4, x)
    }

    /// `lanes` (1 to 4) f32, the rest zero; touches no memory beyond them.
    pub fn load_lanes(&mut self, p: Value, offset: usize, lanes: usize) -> Value {
        if lanes == LANES {
            return self.load(F32X4, p, offset);
        }
        let mut v = self.floats(0.0);
        for i in 0..lanes {
            let x = self.load(F32, p, offset + 4 * i);
            v = self.b.ins().insertlane(v, x, i as u8);
        }
        v
    }

    /// Stores the first `lanes` f32 of `v`.
    pub fn store_lanes(&mut self, v: Value, p: Value, offset: usize, lanes: usize) {
        if lanes == LANES {
            return self.store(v, p, offset);
        }
        for i in 0..lanes {
            let x = self.lane(v, i);
            self.store(x, p, offset + 4 * i);
        }
    }

    // Integers.

    /// `a + b`.
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().iadd(a, b)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().isub(a, b)
    }

    /// `a + k`.
    pub fn offset(&mut self, a: Value, k: usize) -> Value {
        if k == 0 { a } else { self.b.ins().iadd_imm_s(a, k as i64) }
    }

    /// `a · k`.
    pub fn times(&mut self, a: Value, k: usize) -> Value {
        if k == 1 {
            return a;
        }
        if k.is_power_of_two() {
            return self.b.ins().ishl_imm_u(a, i64::from(k.trailing_zeros()));
        }
        self.b.ins().imul_imm_s(a, k as i64)
    }

    /// `p + i · k`.
    pub fn index(&mut self, p: Value, i: Value, k: usize) -> Value {
        let i = self.times(i, k);
        self.add(p, i)
    }

    /// `a / k` and `a mod k`, of non-negative i64 below 2³².
    pub fn div_mod(&mut self, a: Value, k: usize) -> (Value, Value) {
        if k == 1 {
            return (a, self.int(0));
        }
        if k.is_power_of_two() {
            let q = self.b.ins().ushr_imm_u(a, i64::from(k.trailing_zeros()));
            return (q, self.b.ins().band_imm_u(a, k as i64 - 1));
        }
        let a = self.b.ins().ireduce(I32, a);
        let k = self.b.ins().iconst(I32, k as i64);
        let q = self.b.ins().udiv(a, k);
        let whole = self.b.ins().imul(q, k);
        let r = self.b.ins().isub(a, whole);
        (self.b.ins().uextend(I64, q), self.b.ins().uextend(I64, r))
    }

    /// The smaller of two i64, signed.
    pub fn min(&mut self, a: Value, b: Value) -> Value {
        let less = self.b.ins().icmp(IntCC::SignedLessThan, a, b);
        self.b.ins().select(less, a, b)
    }

    /// The larger of two i64, signed.
    pub fn max(&mut self, a: Value, b: Value) -> Value {
        let less = self.b.ins().icmp(IntCC::SignedLessThan, a, b);
        self.b.ins().select(less, b, a)
    }

    /// Comparison of two integers.
    pub fn compare(&mut self, cc: IntCC, a: Value, b: Value) -> Value {
        self.b.ins().icmp(cc, a, b)
    }

    // Vectors and floats (scalars too where an operation has no lanes in its name).

    /// The same bits as another vector type.
    pub fn cast(&mut self, ty: Type, v: Value) -> Value {
        if self.b.func.dfg.value_type(v) == ty {
            return v;
        }
        let flags =
            if ty.is_vector() { MemFlagsData::new().with_endianness(Endianness::Little) } else { MemFlagsData::new() };
        self.b.ins().bitcast(ty, flags, v)
    }

    /// The bits of four f32.
    pub fn bits(&mut self, v: Value) -> Value {
        self.cast(I32X4, v)
    }

    /// Four f32 of these bits.
    pub fn as_floats(&mut self, v: Value) -> Value {
        self.cast(F32X4, v)
    }

    /// `x` in all lanes.
    pub fn splat(&mut self, x: Value) -> Value {
        let ty = match self.b.func.dfg.value_type(x) {
            F32 => F32X4,
            _ => I32X4,
        };
        self.b.ins().splat(ty, x)
    }

    /// Lane `i`.
    pub fn lane(&mut self, v: Value, i: usize) -> Value {
        self.b.ins().extractlane(v, i as u8)
    }

    /// `a + b`.
    pub fn fadd(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().fadd(a, b)
    }

    /// `a - b`.
    pub fn fsub(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().fsub(a, b)
    }

    /// `a · b`.
    pub fn fmul(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().fmul(a, b)
    }

    /// `a / b`.
    pub fn fdiv(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().fdiv(a, b)
    }

    /// `a · b + c` of four f32, rounded once. For accumulations, never in expressions.
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        if self.has_fma {
            return self.b.ins().fma(a, b, c);
        }
        let low = self.fused_pair([a, b, c]);
        let upper = [a, b, c].map(|x| {
            let x = self.cast(F64X2, x);
            let x = self.lane(x, 1);
            let x = self.b.ins().scalar_to_vector(F64X2, x);
            self.as_floats(x)
        });
        let high = self.fused_pair(upper);
        let (low, high) = (self.cast(F64X2, low), self.cast(F64X2, high));
        let high = self.lane(high, 0);
        let both = self.b.ins().insertlane(low, high, 1);
        self.as_floats(both)
    }

    /// The two lower lanes of `a · b + c`. The product is exact in f64; of its sum with `c` the
    /// number with an odd last bit is taken where it is not exact, so that rounding it to f32 is
    /// rounding the exact sum (Boldo and Melquiond, Emulation of FMA and correctly rounded sums,
    /// 2008).
    fn fused_pair(&mut self, operands: [Value; 3]) -> Value {
        let [a, b, c] = operands.map(|x| self.b.ins().fvpromote_low(x));
        let product = self.fmul(a, b);
        let sum = self.fadd(product, c);
        // The rounding error, exactly (Knuth's TwoSum).
        let of_c = self.fsub(sum, product);
        let of_product = self.fsub(sum, of_c);
        let (rest, rest_of_c) = (self.fsub(product, of_product), self.fsub(c, of_c));
        let rest = self.fadd(rest, rest_of_c);
        let constant = self.b.func.dfg.constants.insert(vec![0u8; 16].into());
        let zero = self.b.ins().vconst(F64X2, constant);
        // Neither of NaN.
        let (below, above) =
            (self.lanes_where(FloatCC::LessThan, rest, zero), self.lanes_where(FloatCC::GreaterThan, rest, zero));
        let inexact = self.b.ins().bor(below, above);
        // Where the exact sum is nearer to zero, the number before.
        let negative = self.lanes_where(FloatCC::LessThan, sum, zero);
        let inwards = self.b.ins().bxor(below, negative);
        let inwards = self.b.ins().band(inwards, inexact);
        let bits = self.cast(I64X2, sum);
        let truncated = self.add(bits, inwards);
        let odd = self.b.ins().ushr_imm_u(inexact, 63);
        let bits = self.b.ins().bor(truncated, odd);
        let sum = self.cast(F64X2, bits);
        self.b.ins().fvdemote(sum)
    }

    /// Lanes of `a` where the mask (all ones or zeros per lane) is set, else of `b`; f32.
    pub fn choose(&mut self, mask: Value, a: Value, b: Value) -> Value {
        let mask = self.as_floats(mask);
        self.b.ins().bitselect(mask, a, b)
    }

    /// Mask of lanes where the comparison holds; f32.
    pub fn lanes_where(&mut self, cc: FloatCC, a: Value, b: Value) -> Value {
        self.b.ins().fcmp(cc, a, b)
    }

    /// The larger; `b` if either is NaN.
    pub fn fmax(&mut self, a: Value, b: Value) -> Value {
        let greater = self.lanes_where(FloatCC::GreaterThan, a, b);
        self.choose(greater, a, b)
    }

    /// The smaller; `b` if either is NaN.
    pub fn fmin(&mut self, a: Value, b: Value) -> Value {
        let less = self.lanes_where(FloatCC::LessThan, a, b);
        self.choose(less, a, b)
    }

    /// Sum of the lanes, always in the same order.
    pub fn sum_lanes(&mut self, v: Value) -> Value {
        let l: Vec<Value> = (0..LANES).map(|i| self.lane(v, i)).collect();
        if self.b.func.dfg.value_type(v) == I32X4 {
            let (a, b) = (self.add(l[0], l[1]), self.add(l[2], l[3]));
            return self.add(a, b);
        }
        let (a, b) = (self.fadd(l[0], l[1]), self.fadd(l[2], l[3]));
        self.fadd(a, b)
    }

    /// Largest lane of an i32 vector.
    pub fn max_lane_int(&mut self, v: Value) -> Value {
        let l: Vec<Value> = (0..LANES).map(|i| self.lane(v, i)).collect();
        let (a, b) = (self.max(l[0], l[1]), self.max(l[2], l[3]));
        self.max(a, b)
    }

    /// Largest lane of an f32 vector without NaN.
    pub fn max_lane_float(&mut self, v: Value) -> Value {
        let l: Vec<Value> = (0..LANES).map(|i| self.lane(v, i)).collect();
        let (a, b) = (self.max_float(l[0], l[1]), self.max_float(l[2], l[3]));
        self.max_float(a, b)
    }

    /// The larger of two scalar f32 that are not NaN.
    pub fn max_float(&mut self, a: Value, b: Value) -> Value {
        let greater = self.b.ins().fcmp(FloatCC::GreaterThan, a, b);
        self.b.ins().select(greater, a, b)
    }

    /// Nearest integer, ties to even, of |x| ≤ 2²² as (f32 vector, its i32 vector). Adding 1.5·2²³
    /// leaves the integer in the low mantissa bits; SSE2 has no rounding instruction.
    pub fn round(&mut self, x: Value) -> (Value, Value) {
        let magic = self.floats(ROUND_MAGIC);
        let shifted = self.fadd(x, magic);
        let float = self.fsub(shifted, magic);
        let bits = self.bits(shifted);
        let magic_bits = self.ints(ROUND_MAGIC.to_bits());
        let int = self.sub(bits, magic_bits);
        (float, int)
    }
}

/// 1.5·2²³.
const ROUND_MAGIC: f32 = 12_582_912.0;
