//! Expressions whose operands have addresses: four columns at a time, or a call of `Map`.

use super::emit::{Emit, F32, LANES};
use super::span::Span;
use super::wide::{self, Map};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use llmcc_abi::math::{Binary, Unary};
use llmcc_ir::graph::{BinaryOp, UnaryOp};

/// A leaf with its address computed, so that the column loop only adds the column.
pub(super) enum Ready {
    At(Value),
    Wrapped {
        base: Value,
        len: usize,
        col: Value,
    },
    /// The same number in all columns.
    Same(Value),
    Const(f32),
    Unary(UnaryOp, Box<Ready>),
    Binary(BinaryOp, Box<Ready>, Box<Ready>),
}

impl Ready {
    /// As a call of a microkernel, if it can be one.
    pub fn map(&self) -> Option<Map> {
        if let Some((unary, a)) = self.function() {
            return Some(Map { unary, binary: Binary::First, a, b: a });
        }
        let Ready::Binary(op, x, y) = self else { return None };
        let binary = wide::binary(*op)?;
        // Both functions that there are take their operands in any order.
        let ((unary, a), b) = match (x.function()?, y.function()?) {
            (x, (Unary::Same, b)) => (x, b),
            ((Unary::Same, b), y) => (y, b),
            _ => return None,
        };
        Some(Map { unary, binary, a, b })
    }

    /// A function of memory.
    fn function(&self) -> Option<(Unary, Value)> {
        match self {
            Ready::At(p) => Some((Unary::Same, *p)),
            Ready::Unary(op, x) => match **x {
                Ready::At(p) => Some((wide::unary(*op)?, p)),
                _ => None,
            },
            Ready::Wrapped { .. } | Ready::Same(_) | Ready::Const(_) | Ready::Binary(..) => None,
        }
    }

    /// Stores the span's columns at `out`, four at a time (the last ones of the segment may be
    /// fewer).
    pub fn store(&self, e: &mut Emit, span: &Span, out: Value) {
        let zero = e.int(0);
        let tail = span.n % LANES;
        let bytes = e.times(span.width, 4);
        let whole = if tail == 0 { bytes } else { e.b.ins().band_imm_s(bytes, -16) };
        let some = |e: &mut Emit, at: Value, lanes: usize| {
            let v = self.value(e, at, lanes);
            let p = e.add(out, at);
            e.store_lanes(v, p, 0, lanes);
        };
        e.each(zero, whole, 16, |e, at| some(e, at, LANES));
        if tail != 0 {
            let more = e.compare(IntCC::NotEqual, bytes, whole);
            e.when(more, |e| some(e, whole, tail));
        }
    }

    /// Value of `lanes` columns, `at` bytes from the start of the span; the other lanes hold
    /// anything.
    fn value(&self, e: &mut Emit, at: Value, lanes: usize) -> Value {
        match self {
            Ready::At(p) => {
                let p = e.add(*p, at);
                e.load_lanes(p, 0, lanes)
            }
            Ready::Wrapped { base, len, col } => wrapped(e, *base, *len, *col, at, lanes),
            Ready::Same(p) => e.load_splat(*p, 0),
            Ready::Const(c) => e.floats(*c),
            Ready::Unary(op, x) => {
                let x = x.value(e, at, lanes);
                e.unary(*op, x)
            }
            Ready::Binary(op, a, b) => {
                let a = a.value(e, at, lanes);
                let b = b.value(e, at, lanes);
                e.binary(*op, a, b)
            }
        }
    }
}

/// Elements `(col + at/4 + i) mod len` of a vector. Columns are multiples of 4, so where `len` is
/// one, four columns never wrap.
fn wrapped(e: &mut Emit, base: Value, len: usize, col: Value, at: Value, lanes: usize) -> Value {
    if len == 1 {
        return e.load_splat(base, 0);
    }
    let at = e.b.ins().ushr_imm_u(at, 2);
    let col = e.add(col, at);
    if len.is_multiple_of(LANES) {
        let (_, at) = e.div_mod(col, len);
        let p = e.index(base, at, 4);
        return e.load_lanes(p, 0, lanes);
    }
    let mut v = e.floats(0.0);
    for i in 0..lanes {
        let at = e.offset(col, i);
        let (_, at) = e.div_mod(at, len);
        let p = e.index(base, at, 4);
        let x = e.load(F32, p, 0);
        v = e.b.ins().insertlane(v, x, i as u8);
    }
    v
}
