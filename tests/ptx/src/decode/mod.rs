//! Decoding of instructions into closures that run the lanes of a warp.
//!
//! Every modifier and operand must be consumed by the decoder of its instruction: a leftover is an
//! error, never ignored.

mod arith;
mod asynchronous;
mod bitwise;
mod compare;
mod convert;
mod float;
mod matrix;
mod memory;
mod moves;
mod sync;
mod warp;
mod warpgroup;

use std::collections::VecDeque;

use crate::ast::{Operand, Raw, Width, type_bytes};
use crate::build::{Builder, Symbol, branch_target};
use crate::error::{Error, at};
use crate::machine::{Exec, Next, Slot};
use crate::value::Bits;

pub(crate) type Res<T> = Result<T, Error>;

/// An address operand: a register plus an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addr {
    pub base: Slot,
    pub offset: u64,
}

/// An instruction being decoded.
pub(crate) struct Dec<'b, 'a> {
    pub b: &'b mut Builder<'a>,
    pub root: &'a str,
    pub line: u32,
    mods: Vec<&'a str>,
    ops: VecDeque<Operand<'a>>,
    pub uses: Vec<Slot>,
    pub defs: Vec<Slot>,
    /// Under which name the statistics count it.
    pub class: String,
}

/// Bits of an instruction type such as `f32`; 1 for `pred`.
pub(crate) fn bits_of(ty: &str) -> Option<Width> {
    if ty == "pred" { Some(1) } else { type_bytes(ty).map(|b| 8 * b as u32) }
}

impl<'b, 'a> Dec<'b, 'a> {
    pub fn new(b: &'b mut Builder<'a>, root: &'a str, mods: Vec<&'a str>, raw: &Raw<'a>) -> Self {
        let ops = raw.operands.iter().cloned().collect();
        Dec { b, root, line: raw.line, mods, ops, uses: Vec::new(), defs: Vec::new(), class: root.to_owned() }
    }

    pub fn error(&self, what: impl Into<String>) -> Error {
        at(self.line, what.into())
    }

    pub fn unknown<T>(&self) -> Res<T> {
        Err(self.error(format!("instruction {} with modifiers {:?} is not emulated", self.root, self.mods)))
    }

    /// All modifiers and operands must have been used.
    pub fn finish(&self) -> Res<()> {
        if !self.mods.is_empty() {
            return Err(self.error(format!("{} with modifiers {:?} is not emulated", self.root, self.mods)));
        }
        if !self.ops.is_empty() {
            return Err(self.error(format!("{} has {} operands too many", self.root, self.ops.len())));
        }
        Ok(())
    }

    /// Takes modifier `m` if it is there.
    pub fn flag(&mut self, m: &str) -> bool {
        match self.mods.iter().position(|x| *x == m) {
            Some(i) => {
                self.mods.remove(i);
                true
            }
            None => false,
        }
    }

    /// Takes the first modifier that is in `list`.
    pub fn pick(&mut self, list: &[&'static str]) -> Option<&'static str> {
        let (i, hit) =
            self.mods.iter().enumerate().find_map(|(i, m)| list.iter().find(|l| *l == m).map(|l| (i, *l)))?;
        self.mods.remove(i);
        Some(hit)
    }

    /// Takes every modifier that is in `list`.
    pub fn drop_all(&mut self, list: &[&'static str]) {
        while self.pick(list).is_some() {}
    }

    /// Takes the last modifier, which must be a type.
    pub fn ty(&mut self) -> Res<&'a str> {
        match self.mods.pop() {
            Some(t) if bits_of(t).is_some() || t.contains('x') || t == "tf32" => Ok(t),
            t => Err(self.error(format!("{} ends in {t:?}, which is not a type", self.root))),
        }
    }

    /// Takes the last modifier.
    pub fn pop_mod(&mut self) -> Option<&'a str> {
        self.mods.pop()
    }

    /// Takes the next modifier, in order.
    pub fn next_mod(&mut self) -> Option<&'a str> {
        if self.mods.is_empty() { None } else { Some(self.mods.remove(0)) }
    }

    pub fn has_mod(&self, m: &str) -> bool {
        self.mods.contains(&m)
    }

    pub fn remaining(&self) -> usize {
        self.ops.len()
    }

    pub fn op(&mut self) -> Res<Operand<'a>> {
        self.ops.pop_front().ok_or_else(|| self.error(format!("{} has too few operands", self.root)))
    }

    /// Gives an operand back.
    pub fn push_front(&mut self, op: Operand<'a>) {
        self.ops.push_front(op);
    }

    pub fn peek_vec(&self) -> bool {
        matches!(self.ops.front(), Some(Operand::Vec(_)))
    }

    /// The target of a branch.
    pub fn target(&mut self) -> Res<u32> {
        self.flag("uni");
        let ops: Vec<_> = self.ops.drain(..).collect();
        let name = branch_target(&ops).ok_or_else(|| self.error("a branch goes to a label"))?;
        self.b.label(name, self.line)
    }

    fn dst_of(&mut self, op: Operand<'a>, width: Width) -> Res<(Slot, Width)> {
        let (slot, have) = match op {
            Operand::Sink => (self.b.new_slot("_"), width),
            Operand::Name(name, 0) => match self.b.lookup(name, self.line)? {
                Symbol::Reg(slot, have) => (slot, have),
                Symbol::Address(_) | Symbol::Global(_) => return Err(self.error(format!("{name} is not a register"))),
            },
            o => return Err(self.error(format!("not a register: {o:?}"))),
        };
        self.fits(have, width)?;
        self.defs.push(slot);
        Ok((slot, have))
    }

    fn fits(&self, have: Width, need: Width) -> Res<()> {
        if (have == 1) != (need == 1) || have < need {
            return Err(self.error(format!("a register of {have} bits where {need} are needed")));
        }
        Ok(())
    }

    pub fn dst_from(&mut self, op: Operand<'a>, width: Width) -> Res<Slot> {
        Ok(self.dst_of(op, width)?.0)
    }

    /// Destination register of at least `width` bits.
    pub fn dst(&mut self, width: Width) -> Res<Slot> {
        let op = self.op()?;
        Ok(self.dst_of(op, width)?.0)
    }

    /// Destination register and its own width.
    pub fn dst_wide(&mut self, width: Width) -> Res<(Slot, Width)> {
        let op = self.op()?;
        self.dst_of(op, width)
    }

    /// Destination `d` or `d|p`.
    pub fn dst_pair(&mut self, width: Width, second: Width) -> Res<(Slot, Option<Slot>)> {
        match self.op()? {
            Operand::Pair(a, b) => Ok((self.dst_of(*a, width)?.0, Some(self.dst_of(*b, second)?.0))),
            o => Ok((self.dst_of(o, width)?.0, None)),
        }
    }

    /// `{a, b, ..}` or a single register: their slots, and the width of the first.
    pub fn dst_list(&mut self, width: Width) -> Res<(Vec<Slot>, Width)> {
        let items = match self.op()? {
            Operand::Vec(v) => v,
            o => vec![o],
        };
        let mut have = width;
        let mut out = Vec::new();
        for o in items {
            let sink = o == Operand::Sink;
            let (slot, w) = self.dst_of(o, width)?;
            out.push(slot);
            have = if sink { have } else { w };
        }
        Ok((out, have))
    }

    pub fn src_of(&mut self, op: Operand<'a>, ty: &str) -> Res<Slot> {
        let width =
            if ty == "tf32" { 32 } else { bits_of(ty).ok_or_else(|| self.error(format!("unknown type {ty}")))? };
        let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        Ok(match op {
            Operand::Name(name, offset) => match self.b.lookup(name, self.line)? {
                Symbol::Reg(slot, have) if offset == 0 => {
                    self.fits(have, width)?;
                    self.uses.push(slot);
                    slot
                }
                Symbol::Reg(..) => return Err(self.error("a register plus an offset is not an operand")),
                Symbol::Address(a) => self.b.constant(a.wrapping_add_signed(offset)),
                Symbol::Global(i) => self.b.link(i, offset),
            },
            Operand::Int(v) if width == 1 => self.b.constant(u64::from(v != 0)),
            Operand::Int(_) if matches!(ty, "f32" | "f64") => {
                return Err(self.error("an integer where a float is needed"));
            }
            Operand::Int(v) => self.b.constant(v as u64 & mask),
            Operand::F32(v) if width == 32 => self.b.constant(u64::from(v)),
            Operand::F64(v) if width == 64 => self.b.constant(v),
            Operand::F64(v) if ty == "f32" => self.b.constant(u64::from((f64::from_bits(v) as f32).to_bits())),
            o => return Err(self.error(format!("operand {o:?} does not fit type {ty}"))),
        })
    }

    /// Source operand of type `ty`.
    pub fn src(&mut self, ty: &str) -> Res<Slot> {
        let op = self.op()?;
        self.src_of(op, ty)
    }

    /// `{a, b, ..}` or a single operand.
    pub fn src_list(&mut self, ty: &str) -> Res<Vec<Slot>> {
        match self.op()? {
            Operand::Vec(v) => v.into_iter().map(|o| self.src_of(o, ty)).collect(),
            o => Ok(vec![self.src_of(o, ty)?]),
        }
    }

    /// Predicate operand `p` or `!p`.
    pub fn pred(&mut self) -> Res<(Slot, bool)> {
        match self.op()? {
            Operand::Not(p) => Ok((self.src_of(*p, "pred")?, true)),
            o => Ok((self.src_of(o, "pred")?, false)),
        }
    }

    /// An integer that must be written in the instruction.
    pub fn immediate(&mut self) -> Res<i64> {
        match self.op()? {
            Operand::Int(v) => Ok(v as i64),
            o => Err(self.error(format!("{o:?} must be a number"))),
        }
    }

    /// Address operand, with coordinates if it has them.
    pub fn tensor_addr(&mut self) -> Res<(Addr, Vec<Operand<'a>>)> {
        let (base, offset, coords) = match self.op()? {
            Operand::Mem(base, offset, coords) => (base, offset as u64, coords),
            o => return Err(self.error(format!("not an address: {o:?}"))),
        };
        let base = match base {
            None => self.b.constant(0),
            Some(name) => match self.b.lookup(name, self.line)? {
                Symbol::Reg(slot, 32 | 64) => {
                    self.uses.push(slot);
                    slot
                }
                Symbol::Reg(..) => return Err(self.error("an address is in a register of 32 or 64 bits")),
                Symbol::Address(a) => self.b.constant(a),
                Symbol::Global(i) => self.b.link(i, 0),
            },
        };
        Ok((Addr { base, offset }, coords))
    }

    pub fn addr(&mut self) -> Res<Addr> {
        let (addr, coords) = self.tensor_addr()?;
        if coords.is_empty() { Ok(addr) } else { Err(self.error("coordinates in a plain address")) }
    }

    /// Notes an access of global memory of `bytes` bytes.
    pub fn touches_global(&mut self, bytes: u64) {
        let k = &mut self.b.kernel;
        k.global_granule = k.global_granule.min(bytes);
    }

    /// Notes an access of shared memory of `bytes` bytes.
    pub fn touches_shared(&mut self, bytes: u64) {
        let k = &mut self.b.kernel;
        k.granule = k.granule.min(bytes);
    }
}

/// Runs the lanes of `mask` of a function of registers, all of which are read before one is written.
macro_rules! lanewise {
    ($cx:ident, $mask:ident, $d:ident, $lane:ident => $value:expr) => {{
        let mut out = [0u64; 32];
        if $mask == u32::MAX {
            for $lane in 0..32 {
                out[$lane] = $value;
            }
        } else {
            out = *$cx.reg($d);
            for $lane in 0..32 {
                if $mask >> $lane & 1 == 1 {
                    out[$lane] = $value;
                }
            }
        }
        *$cx.reg_mut($d) = out;
        Ok($crate::machine::Next::Step)
    }};
}
pub(crate) use lanewise;

pub(crate) fn map1<A: Bits, D: Bits>(d: Slot, a: Slot, f: impl Fn(A) -> D + Send + Sync + 'static) -> Exec {
    Box::new(move |cx, mask| {
        let a = cx.reg(a);
        lanewise!(cx, mask, d, l => f(A::get(a[l])).put())
    })
}

pub(crate) fn map2<A: Bits, B: Bits, D: Bits>(
    d: Slot,
    [a, b]: [Slot; 2],
    f: impl Fn(A, B) -> D + Send + Sync + 'static,
) -> Exec {
    Box::new(move |cx, mask| {
        let (a, b) = (cx.reg(a), cx.reg(b));
        lanewise!(cx, mask, d, l => f(A::get(a[l]), B::get(b[l])).put())
    })
}

pub(crate) fn map3<A: Bits, B: Bits, C: Bits, D: Bits>(
    d: Slot,
    [a, b, c]: [Slot; 3],
    f: impl Fn(A, B, C) -> D + Send + Sync + 'static,
) -> Exec {
    Box::new(move |cx, mask| {
        let (a, b, c) = (cx.reg(a), cx.reg(b), cx.reg(c));
        lanewise!(cx, mask, d, l => f(A::get(a[l]), B::get(b[l]), C::get(c[l])).put())
    })
}

/// An instruction without effect.
pub(crate) fn nothing() -> Exec {
    Box::new(|_, _| Ok(Next::Step))
}

/// Decodes one instruction other than a branch or an exit.
pub(crate) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    match d.root {
        "add" | "sub" | "mul" | "mad" | "mul24" | "fma" | "min" | "max" | "neg" | "abs" | "div" | "rem" | "sad"
        | "dp4a" => arith::decode(d),
        "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "sin" | "cos" | "tanh" | "copysign" | "testp" => float::decode(d),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "prmt" | "bfe" | "bfi" | "bfind"
        | "bmsk" | "popc" | "clz" | "brev" => bitwise::decode(d),
        "setp" | "set" | "selp" | "slct" => compare::decode(d),
        "cvt" => convert::decode(d),
        "mov" | "cvta" | "isspacep" => moves::decode(d),
        "ld" | "ldu" | "st" | "atom" | "red" | "prefetch" | "prefetchu" | "applypriority" | "discard" => {
            memory::decode(d)
        }
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => warp::decode(d),
        "bar" | "barrier" | "membar" | "fence" | "nanosleep" | "griddepcontrol" | "setmaxnreg" | "pmevent" => {
            sync::decode(d)
        }
        "mbarrier" | "cp" | "createpolicy" | "mapa" | "getctarank" => asynchronous::decode(d),
        "ldmatrix" | "stmatrix" | "movmatrix" | "mma" => matrix::decode(d),
        "wgmma" => warpgroup::decode(d),
        _ => d.unknown(),
    }
}
