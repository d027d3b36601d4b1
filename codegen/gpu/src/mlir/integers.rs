//! Integers: arithmetic, comparisons, widths.

use super::{Builder, I1, Ty, V};

/// Integer comparisons (`u`: unsigned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Slt,
    Sge,
    Ult,
    Uge,
}

impl Builder {
    /// `a + b`.
    pub fn add(&mut self, a: V, b: V) -> V {
        self.two("arith.addi", a, b)
    }
    /// `a + x`.
    pub fn addc(&mut self, a: V, x: i64) -> V {
        if x == 0 {
            return a;
        }
        let c = self.int_const(a.ty, x);
        self.add(a, c)
    }
    /// `a − b`.
    pub fn sub(&mut self, a: V, b: V) -> V {
        self.two("arith.subi", a, b)
    }
    /// `a · b`.
    pub fn mul(&mut self, a: V, b: V) -> V {
        self.two("arith.muli", a, b)
    }
    /// `a · x`.
    pub fn mulc(&mut self, a: V, x: i64) -> V {
        if x == 1 {
            return a;
        }
        let c = self.int_const(a.ty, x);
        self.mul(a, c)
    }
    /// `a / x`, unsigned.
    pub fn divc(&mut self, a: V, x: i64) -> V {
        if x == 1 {
            return a;
        }
        let c = self.int_const(a.ty, x);
        self.two("arith.divui", a, c)
    }
    /// `a / b`, unsigned.
    pub fn div(&mut self, a: V, b: V) -> V {
        self.two("arith.divui", a, b)
    }
    /// `a mod x`, unsigned.
    pub fn remc(&mut self, a: V, x: i64) -> V {
        let c = self.int_const(a.ty, x);
        self.two("arith.remui", a, c)
    }
    /// Smaller, unsigned.
    pub fn min(&mut self, a: V, b: V) -> V {
        self.two("arith.minui", a, b)
    }
    /// Larger, unsigned.
    pub fn max(&mut self, a: V, b: V) -> V {
        self.two("arith.maxui", a, b)
    }
    /// Larger, signed.
    pub fn smax(&mut self, a: V, b: V) -> V {
        self.two("arith.maxsi", a, b)
    }
    /// `a & b`.
    pub fn and(&mut self, a: V, b: V) -> V {
        self.two("arith.andi", a, b)
    }
    /// `a & x`.
    pub fn andc(&mut self, a: V, x: i64) -> V {
        let c = self.int_const(a.ty, x);
        self.and(a, c)
    }
    /// `a | b`.
    pub fn or(&mut self, a: V, b: V) -> V {
        self.two("arith.ori", a, b)
    }
    /// `a | x`.
    pub fn orc(&mut self, a: V, x: i64) -> V {
        let c = self.int_const(a.ty, x);
        self.or(a, c)
    }
    /// `a ^ b`.
    pub fn xor(&mut self, a: V, b: V) -> V {
        self.two("arith.xori", a, b)
    }
    /// `a ^ x`.
    pub fn xorc(&mut self, a: V, x: i64) -> V {
        let c = self.int_const(a.ty, x);
        self.xor(a, c)
    }
    /// `a << x`.
    pub fn shlc(&mut self, a: V, x: i64) -> V {
        if x == 0 {
            return a;
        }
        let c = self.int_const(a.ty, x);
        self.two("arith.shli", a, c)
    }
    /// `a >> x`, unsigned.
    pub fn shrc(&mut self, a: V, x: i64) -> V {
        if x == 0 {
            return a;
        }
        let c = self.int_const(a.ty, x);
        self.two("arith.shrui", a, c)
    }
    /// Comparison.
    pub fn cmp(&mut self, p: Cmp, a: V, b: V) -> V {
        let p = match p {
            Cmp::Eq => "eq",
            Cmp::Ne => "ne",
            Cmp::Slt => "slt",
            Cmp::Sge => "sge",
            Cmp::Ult => "ult",
            Cmp::Uge => "uge",
        };
        let v = self.op(I1, format!("arith.cmpi {p}, {a}, {b} : {}", a.ty));
        self.record_two(v, p, a, b);
        v
    }
    /// Comparison with a constant.
    pub fn cmpc(&mut self, p: Cmp, a: V, x: i64) -> V {
        let c = self.int_const(a.ty, x);
        self.cmp(p, a, c)
    }
    /// `if c { a } else { b }`.
    pub fn select(&mut self, c: V, a: V, b: V) -> V {
        let v = self.op(a.ty, format!("arith.select {c}, {a}, {b} : {}", a.ty));
        self.record_select(v, c, a, b);
        v
    }
    /// Widens an unsigned integer.
    pub fn zext(&mut self, a: V, ty: Ty) -> V {
        let v = self.op(ty, format!("arith.extui {a} : {} to {ty}", a.ty));
        self.record_same(v, a);
        v
    }
    /// Widens a signed integer.
    pub fn sext(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.extsi {a} : {} to {ty}", a.ty))
    }
    /// Drops high bits.
    pub fn trunc(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.trunci {a} : {} to {ty}", a.ty))
    }
    /// How many bits are set.
    pub fn count_ones(&mut self, a: V) -> V {
        self.op(a.ty, format!("math.ctpop {a} : {}", a.ty))
    }
    /// Number of the lowest bit that is set; of none as many as there are.
    pub fn lowest(&mut self, a: V) -> V {
        self.op(a.ty, format!("math.cttz {a} : {}", a.ty))
    }
    /// Zeros before the highest bit that is set; of none as many as there are bits.
    pub fn leading_zeros(&mut self, a: V) -> V {
        self.op(a.ty, format!("math.ctlz {a} : {}", a.ty))
    }
}
