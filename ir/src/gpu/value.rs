//! Integers that a skeleton computes: which stage, which half of the threads, how often. Recorded
//! with it, so that nobody has to say them a second time.

/// Number of a value: index in [`Program::values`](super::program::Program::values).
pub type ValueId = usize;

/// Where a value comes from. All are 32-bit integers; truths are 0 and 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A constant.
    Const(i64),
    /// Number of the thread in its block.
    Thread,
    /// Not known before the kernel runs, the same in all threads; values to try for it.
    Unknown(Vec<i64>),
    /// Computed from two others.
    Two(Arith, ValueId, ValueId),
    /// The second if the first is true, else the third.
    Select(ValueId, ValueId, ValueId),
    /// Carried by a loop, or result of a loop or branch.
    Carried,
}

/// Arithmetic and comparisons of 32-bit integers; names with `U` take them as unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Arith {
    Add,
    Sub,
    Mul,
    DivU,
    RemU,
    MinU,
    MaxU,
    MaxS,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    Eq,
    Ne,
    Slt,
    Sge,
    Ult,
    Uge,
}

impl Arith {
    /// Its name in MLIR's `arith` dialect, with the predicate of comparisons.
    pub const ALL: [(&'static str, Arith); 19] = [
        ("arith.addi", Arith::Add),
        ("arith.subi", Arith::Sub),
        ("arith.muli", Arith::Mul),
        ("arith.divui", Arith::DivU),
        ("arith.remui", Arith::RemU),
        ("arith.minui", Arith::MinU),
        ("arith.maxui", Arith::MaxU),
        ("arith.maxsi", Arith::MaxS),
        ("arith.andi", Arith::And),
        ("arith.ori", Arith::Or),
        ("arith.xori", Arith::Xor),
        ("arith.shli", Arith::Shl),
        ("arith.shrui", Arith::ShrU),
        ("eq", Arith::Eq),
        ("ne", Arith::Ne),
        ("slt", Arith::Slt),
        ("sge", Arith::Sge),
        ("ult", Arith::Ult),
        ("uge", Arith::Uge),
    ];

    /// The operation of that name.
    pub fn named(name: &str) -> Option<Arith> {
        Arith::ALL.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
    }

    /// The result, wrapped to 32 bits; 0 where a kernel's would be undefined (division by 0).
    pub fn of(self, a: i64, b: i64) -> i64 {
        let (x, y, ua, ub) = (a as i32, b as i32, a as u32, b as u32);
        let unsigned = |v: u32| i64::from(v as i32);
        match self {
            Arith::Add => x.wrapping_add(y).into(),
            Arith::Sub => x.wrapping_sub(y).into(),
            Arith::Mul => x.wrapping_mul(y).into(),
            Arith::DivU => unsigned(ua.checked_div(ub).unwrap_or(0)),
            Arith::RemU => unsigned(ua.checked_rem(ub).unwrap_or(0)),
            Arith::MinU => unsigned(ua.min(ub)),
            Arith::MaxU => unsigned(ua.max(ub)),
            Arith::MaxS => x.max(y).into(),
            Arith::And => (x & y).into(),
            Arith::Or => (x | y).into(),
            Arith::Xor => (x ^ y).into(),
            Arith::Shl => unsigned(ua.checked_shl(ub).unwrap_or(0)),
            Arith::ShrU => unsigned(ua.checked_shr(ub).unwrap_or(0)),
            Arith::Eq => i64::from(x == y),
            Arith::Ne => i64::from(x != y),
            Arith::Slt => i64::from(x < y),
            Arith::Sge => i64::from(x >= y),
            Arith::Ult => i64::from(ua < ub),
            Arith::Uge => i64::from(ua >= ub),
        }
    }
}

/// A value that a loop carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carry {
    /// The body's view.
    pub arg: ValueId,
    /// In the first turn.
    pub first: ValueId,
    /// In the turn after.
    pub next: ValueId,
    /// After the loop.
    pub last: ValueId,
}

/// A value that a branch results in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The result.
    pub result: ValueId,
    /// Value on the one side.
    pub then: ValueId,
    /// Value on the other.
    pub other: ValueId,
}
