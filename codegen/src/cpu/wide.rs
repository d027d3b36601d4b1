//! Elementwise work by microkernels, whose vectors are as long as the processor has them. They
//! compute the bits of the code that `math.rs`, `expr.rs` and `quant.rs` make, which stays for
//! targets without them.
//!
//! A call takes 5 ns, as long as a function of three numbers made here. Tiles have 16 columns and
//! more, most of them 64 to 256, so whatever can be a call is one. With AVX-512 (Granite Rapids)
//! `silu(a)·b` takes 0.5 ns per element instead of 2, rounding to int8 0.2 instead of 0.4; sums
//! wait for memory.

use super::Lowering;
use super::emit::{Emit, I32, I64};
use super::microkernel::Microkernel;
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use llmcc_abi::math::{Binary, Unary};
use llmcc_abi::{HalfKind, Uk};
use llmcc_ir::graph::{BinaryOp, UnaryOp};

/// One call of `Map`: `binary(unary(a), b)` of memory.
pub(super) struct Map {
    pub unary: Unary,
    pub binary: Binary,
    pub a: Value,
    pub b: Value,
}

impl Map {
    /// Computes `width` f32 at `out`, which may be `a` or `b`.
    pub fn call(&self, low: &Lowering, e: &mut Emit, width: Value, out: Value) {
        let unary = e.b.ins().iconst(I32, self.unary as i64);
        let binary = e.b.ins().iconst(I32, self.binary as i64);
        call(low, e, Uk::Map, &[I32, I32, I64, I64, I64, I64], &[unary, binary, width, self.a, self.b, out]);
    }
}

/// Where the parts of an int8 row lie whose columns are quantized.
pub(super) struct Codes {
    pub codes: Value,
    pub scales: Value,
    pub sums: Value,
}

/// Quantizes `width` f32 at `x`.
pub(super) fn quantize(low: &Lowering, e: &mut Emit, x: Value, width: Value, group: usize, to: &Codes) {
    let group = e.int(group as i64);
    call(low, e, Uk::QuantRows, &[I64; 6], &[x, width, group, to.codes, to.scales, to.sums]);
}

/// Runs of floats of 16 bits, see [`llmcc_abi::RoundHalvesFn`].
pub(super) struct Halves {
    pub kind: HalfKind,
    /// The first run.
    pub out: Value,
    /// The element of it that is written first.
    pub first: Value,
    pub run: usize,
    pub jump: usize,
}

/// Rounds `width` f32 at `x` to bf16, side by side.
pub(super) fn round_bf16(low: &Lowering, e: &mut Emit, x: Value, width: Value, out: Value) {
    let first = e.int(0);
    round(low, e, x, width, &Halves { kind: HalfKind::Bf16, out, first, run: u32::MAX as usize, jump: 0 });
}

/// Rounds `width` f32 at `x` to 16 bits.
pub(super) fn round(low: &Lowering, e: &mut Emit, x: Value, width: Value, to: &Halves) {
    let kind = e.b.ins().iconst(I32, to.kind as i64);
    let (run, jump) = (e.int(to.run as i64), e.int(to.jump as i64));
    let types = [I64, I64, I32, I64, I64, I64, I64];
    call(low, e, Uk::RoundHalves, &types, &[x, width, kind, to.out, to.first, run, jump]);
}

fn call(low: &Lowering, e: &mut Emit, uk: Uk, types: &[Type], args: &[Value]) {
    Microkernel::new(low, e, uk, types, &[]).call(e, args);
}

/// The function of the microkernel that is `op`, if it has it.
pub(super) fn unary(op: UnaryOp) -> Option<Unary> {
    match op {
        UnaryOp::Silu => Some(Unary::Silu),
        UnaryOp::Gelu => Some(Unary::Gelu),
        UnaryOp::GeluTanh => Some(Unary::GeluTanh),
        UnaryOp::Relu => Some(Unary::Relu),
        UnaryOp::Exp => Some(Unary::Exp),
        UnaryOp::Sigmoid => Some(Unary::Sigmoid),
        UnaryOp::Tanh => Some(Unary::Tanh),
        UnaryOp::Softplus => Some(Unary::Softplus),
        // A few instructions, which wait for memory with four lanes as well.
        UnaryOp::Neg | UnaryOp::Relu2 | UnaryOp::Sqrt | UnaryOp::RoundI8 | UnaryOp::RoundE4m3 => None,
    }
}

/// As [`unary`].
pub(super) fn binary(op: BinaryOp) -> Option<Binary> {
    match op {
        BinaryOp::Add => Some(Binary::Add),
        BinaryOp::Mul => Some(Binary::Mul),
        BinaryOp::Sub | BinaryOp::Div | BinaryOp::Max | BinaryOp::Min => None,
    }
}
