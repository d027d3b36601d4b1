//! Floats, scalars and vectors alike: arithmetic, conversions, approximations.

use super::{Builder, F32, I1, I16, Ty, V};

impl Builder {
    /// `a + b`.
    pub fn fadd(&mut self, a: V, b: V) -> V {
        self.two("arith.addf", a, b)
    }
    /// `a − b`.
    pub fn fsub(&mut self, a: V, b: V) -> V {
        self.two("arith.subf", a, b)
    }
    /// `a · b`.
    pub fn fmul(&mut self, a: V, b: V) -> V {
        self.two("arith.mulf", a, b)
    }
    /// `a / b`, correctly rounded.
    pub fn fdiv(&mut self, a: V, b: V) -> V {
        self.two("arith.divf", a, b)
    }
    /// `−a`.
    pub fn fneg(&mut self, a: V) -> V {
        self.op(a.ty, format!("arith.negf {a} : {}", a.ty))
    }
    /// `a · b + c`, rounded once.
    pub fn fma(&mut self, a: V, b: V, c: V) -> V {
        self.op(a.ty, format!("llvm.intr.fma({a}, {b}, {c}) : ({0}, {0}, {0}) -> {0}", a.ty))
    }
    /// Larger number (the other if one is NaN).
    pub fn fmax(&mut self, a: V, b: V) -> V {
        self.two("arith.maxnumf", a, b)
    }
    /// Smaller number.
    pub fn fmin(&mut self, a: V, b: V) -> V {
        self.two("arith.minnumf", a, b)
    }
    /// `a < b`, ordered.
    pub fn flt(&mut self, a: V, b: V) -> V {
        self.op(I1, format!("arith.cmpf olt, {a}, {b} : {}", a.ty))
    }
    /// Widens: exact.
    pub fn fext(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.extf {a} : {} to {ty}", a.ty))
    }
    /// Narrows, to nearest even.
    pub fn ftrunc(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.truncf {a} : {} to {ty}", a.ty))
    }
    /// Converts a signed integer.
    pub fn sitofp(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.sitofp {a} : {} to {ty}", a.ty))
    }
    /// Converts to a signed integer, towards zero.
    pub fn fptosi(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.fptosi {a} : {} to {ty}", a.ty))
    }
    /// Two f32 as e4m3 numbers in the bytes of an `i16`, rounded to nearest even, saturated.
    pub fn e4m3(&mut self, low: V, high: V) -> V {
        self.asm(I16, "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", &[low, high])
    }
    /// Reinterprets bits.
    pub fn bitcast(&mut self, a: V, ty: Ty) -> V {
        if a.ty == ty {
            return a;
        }
        self.op(ty, format!("llvm.bitcast {a} : {} to {ty}", a.ty))
    }
    /// `2^a` (`ex2.approx`: 2 ulp).
    pub fn exp2(&mut self, a: V) -> V {
        self.asm(F32, "ex2.approx.ftz.f32 $0, $1;", "=f,f", &[a])
    }
    /// `1 / a` (`rcp.approx`: 1 ulp).
    pub fn rcp(&mut self, a: V) -> V {
        self.asm(F32, "rcp.approx.ftz.f32 $0, $1;", "=f,f", &[a])
    }
    /// `√a` (`sqrt.approx`: 1 ulp).
    pub fn sqrt(&mut self, a: V) -> V {
        self.asm(F32, "sqrt.approx.ftz.f32 $0, $1;", "=f,f", &[a])
    }
    /// `1 / √a` (`rsqrt.approx`: 2 ulp).
    pub fn rsqrt(&mut self, a: V) -> V {
        self.asm(F32, "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", &[a])
    }
}
