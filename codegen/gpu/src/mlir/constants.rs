//! Constants.

use super::{Builder, F32, F64, I1, I32, I64, Ty, V};

impl Builder {
    /// An `i32` constant.
    pub fn i32(&mut self, x: i64) -> V {
        let v = self.op(I32, format!("arith.constant {} : i32", x as u32 as i32));
        self.record_const(v, x);
        v
    }

    /// An `i64` constant.
    pub fn i64(&mut self, x: i64) -> V {
        self.op(I64, format!("arith.constant {x} : i64"))
    }

    /// The truth.
    pub fn yes(&mut self) -> V {
        let v = self.op(I1, "arith.constant true");
        self.record_const(v, 1);
        v
    }

    /// The opposite.
    pub fn no(&mut self) -> V {
        let v = self.op(I1, "arith.constant false");
        self.record_const(v, 0);
        v
    }

    /// An `f32` constant, exactly.
    pub fn f32(&mut self, x: f32) -> V {
        self.op(F32, format!("arith.constant 0x{:08X} : f32", x.to_bits()))
    }

    /// An `f64` constant, exactly.
    pub fn f64(&mut self, x: f64) -> V {
        self.op(F64, format!("arith.constant 0x{:016X} : f64", x.to_bits()))
    }

    /// A bit pattern as a value of a float type or a vector of floats of at most 32 bits.
    pub fn bits32(&mut self, bits: u32, ty: Ty) -> V {
        let v = self.i32(i64::from(bits));
        self.bitcast(v, ty)
    }

    /// A constant of integer type `ty`: `i64`, else `i32`.
    pub(super) fn int_const(&mut self, ty: Ty, x: i64) -> V {
        if ty == I64 { self.i64(x) } else { self.i32(x) }
    }
}
