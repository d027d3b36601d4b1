//! A builder of MLIR text: one kernel, in the `nvvm`, `llvm`, `arith` and `scf` dialects.
//!
//! Text, not LLVM objects, so that kernels are made, printed and snapshot-tested without LLVM installed, and LLVM itself can run in another process.
//! The builder knows the type of every value and prints one operation per method; whatever repeats in kernels (byte addressing, quads, warp
//! reductions, async copies) has a method here, so that emitters read like the kernels they make.
//!
//! Values are typed [`V`]; a mistake in types is a bug of an emitter and shows as an MLIR error with the operation's text.

use std::fmt::{self, Write};

/// Scalar types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Elem {
    I1,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// Types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// A scalar.
    S(Elem),
    /// A vector of so many scalars.
    Vec(u8, Elem),
    /// A structure of so many equal scalars or vectors: what multi-result instructions return.
    Struct(u8, StructElem),
    /// Pointer to global memory.
    Global,
    /// Pointer to shared memory.
    Shared,
}

/// Members of [`Ty::Struct`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructElem {
    /// Scalars.
    S(Elem),
    /// Vectors of two.
    Pair(Elem),
}

/// `i1`.
pub const I1: Ty = Ty::S(Elem::I1);
/// `i8`.
pub const I8: Ty = Ty::S(Elem::I8);
/// `i16`.
pub const I16: Ty = Ty::S(Elem::I16);
/// `i32`.
pub const I32: Ty = Ty::S(Elem::I32);
/// `i64`.
pub const I64: Ty = Ty::S(Elem::I64);
/// `f16`.
pub const F16: Ty = Ty::S(Elem::F16);
/// `bf16`.
pub const BF16: Ty = Ty::S(Elem::Bf16);
/// `f32`.
pub const F32: Ty = Ty::S(Elem::F32);
/// `f64`.
pub const F64: Ty = Ty::S(Elem::F64);
/// Four 32-bit words: a 16-byte load.
pub const V4I32: Ty = Ty::Vec(4, Elem::I32);

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::F16 => "f16",
            Elem::Bf16 => "bf16",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
        })
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::S(e) => write!(f, "{e}"),
            Ty::Vec(n, e) => write!(f, "vector<{n}x{e}>"),
            Ty::Struct(n, e) => {
                let e = match e {
                    StructElem::S(e) => Ty::S(*e),
                    StructElem::Pair(e) => Ty::Vec(2, *e),
                };
                let all: Vec<String> = (0..*n).map(|_| e.to_string()).collect();
                write!(f, "!llvm.struct<({})>", all.join(", "))
            }
            Ty::Global => f.write_str("!llvm.ptr<1>"),
            Ty::Shared => f.write_str("!llvm.ptr<3>"),
        }
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V {
    id: u32,
    /// Which result of an operation with several.
    part: Option<u16>,
    /// Its type.
    pub ty: Ty,
}

impl fmt::Display for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(p) => write!(f, "%{}#{p}", self.id),
            None => write!(f, "%{}", self.id),
        }
    }
}

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

/// What a pointer parameter is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read, by no one else written during the kernel.
    Read,
    /// Written (and perhaps read).
    Write,
}

/// How 16 bytes go from global to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// All levels.
    All,
    /// Second level only.
    L2,
}

/// Makes the text of one kernel.
pub struct Builder {
    out: String,
    depth: usize,
    next: u32,
    smem: V,
    /// Threads that meet at [`Builder::barrier`], where they are not all of the block.
    team: Option<u32>,
}

/// Threads of a warp.
pub const WARP: i32 = 32;

impl Builder {
    /// Emits a kernel called `name`: one global pointer per entry of `params`, at most `threads` threads in a block, of which `min_blocks` should fit on a multiprocessor.
    pub fn kernel(name: &str, params: &[Access], threads: u32, min_blocks: u32, body: impl FnOnce(&mut Builder, &[V])) -> String {
        let mut b =
            Builder { out: String::new(), depth: 2, next: params.len() as u32, smem: V { id: 0, part: None, ty: Ty::Shared }, team: None };
        let args: Vec<V> = (0..params.len()).map(|i| V { id: i as u32, part: None, ty: Ty::Global }).collect();
        b.smem = b.op(Ty::Shared, "llvm.mlir.addressof @shared : !llvm.ptr<3>");
        body(&mut b, &args);
        let attribute = |a: &Access| if *a == Access::Read { ", llvm.readonly" } else { "" };
        let list: Vec<String> = args
            .iter()
            .zip(params)
            .map(|(v, a)| format!("{v}: !llvm.ptr<1> {{llvm.noalias, llvm.align = 16 : i64{}}}", attribute(a)))
            .collect();
        format!(
            "module {{\n  gpu.module @kernels {{\n    llvm.mlir.global external @shared() {{addr_space = 3 : i32, alignment = 1024 : i64}} : !llvm.array<0 x i8>\n    \
             llvm.func @{name}({}) attributes {{gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: {threads}, 1, 1>, nvvm.minctasm = {min_blocks} : i32}} {{\n{}      llvm.return\n    }}\n  }}\n}}\n",
            list.join(", "),
            b.out
        )
    }

    /// Start of the dynamic shared memory.
    pub fn shared(&self) -> V {
        self.smem
    }

    /// Byte `at` of it.
    pub fn shared_at(&mut self, at: usize) -> V {
        self.atc(self.smem, at as i64)
    }

    fn line(&mut self, text: &str) {
        for _ in 0..=self.depth {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn fresh(&mut self, ty: Ty) -> V {
        let v = V { id: self.next, part: None, ty };
        self.next += 1;
        v
    }

    /// Emits an operation without result, as MLIR text.
    pub fn effect(&mut self, text: impl AsRef<str>) {
        self.line(text.as_ref());
    }

    /// Emits an operation with one result of type `ty`, as MLIR text.
    pub fn op(&mut self, ty: Ty, text: impl AsRef<str>) -> V {
        let v = self.fresh(ty);
        self.line(&format!("{v} = {}", text.as_ref()));
        v
    }

    // ---- constants -------------------------------------------------------------------------------------------------

    /// An `i32` constant.
    pub fn i32(&mut self, x: i64) -> V {
        self.op(I32, format!("arith.constant {} : i32", x as u32 as i32))
    }

    /// An `i64` constant.
    pub fn i64(&mut self, x: i64) -> V {
        self.op(I64, format!("arith.constant {x} : i64"))
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

    // ---- integers --------------------------------------------------------------------------------------------------

    fn two(&mut self, name: &str, a: V, b: V) -> V {
        debug_assert_eq!(a.ty, b.ty, "{name}");
        self.op(a.ty, format!("{name} {a}, {b} : {}", a.ty))
    }

    fn int_const(&mut self, ty: Ty, x: i64) -> V {
        if ty == I64 { self.i64(x) } else { self.i32(x) }
    }

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
        self.op(I1, format!("arith.cmpi {p}, {a}, {b} : {}", a.ty))
    }
    /// Comparison with a constant.
    pub fn cmpc(&mut self, p: Cmp, a: V, x: i64) -> V {
        let c = self.int_const(a.ty, x);
        self.cmp(p, a, c)
    }
    /// `if c { a } else { b }`.
    pub fn select(&mut self, c: V, a: V, b: V) -> V {
        self.op(a.ty, format!("arith.select {c}, {a}, {b} : {}", a.ty))
    }
    /// Widens an unsigned integer.
    pub fn zext(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.extui {a} : {} to {ty}", a.ty))
    }
    /// Widens a signed integer.
    pub fn sext(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.extsi {a} : {} to {ty}", a.ty))
    }
    /// Drops high bits.
    pub fn trunc(&mut self, a: V, ty: Ty) -> V {
        self.op(ty, format!("arith.trunci {a} : {} to {ty}", a.ty))
    }

    // ---- floats (scalars and vectors alike) ------------------------------------------------------------------------

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
    /// `1 / √a` (`rsqrt.approx`: 2 ulp).
    pub fn rsqrt(&mut self, a: V) -> V {
        self.asm(F32, "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", &[a])
    }

    // ---- vectors and structures ------------------------------------------------------------------------------------

    /// Element `i` of a vector.
    pub fn extract(&mut self, v: V, i: usize) -> V {
        let Ty::Vec(_, e) = v.ty else { unreachable!("{} is no vector", v.ty) };
        let at = self.i32(i as i64);
        self.op(Ty::S(e), format!("llvm.extractelement {v}[{at} : i32] : {}", v.ty))
    }
    /// All elements of a vector.
    pub fn unpack(&mut self, v: V) -> Vec<V> {
        let Ty::Vec(n, _) = v.ty else { unreachable!("{} is no vector", v.ty) };
        (0..usize::from(n)).map(|i| self.extract(v, i)).collect()
    }
    /// A vector of scalars.
    pub fn pack(&mut self, parts: &[V]) -> V {
        let Ty::S(e) = parts[0].ty else { unreachable!("{} is no scalar", parts[0].ty) };
        let ty = Ty::Vec(parts.len() as u8, e);
        let list: Vec<String> = parts.iter().map(V::to_string).collect();
        self.op(ty, format!("vector.from_elements {} : {ty}", list.join(", ")))
    }
    /// A vector of `n` equal elements.
    pub fn splat(&mut self, v: V, n: u8) -> V {
        let Ty::S(e) = v.ty else { unreachable!("{} is no scalar", v.ty) };
        let ty = Ty::Vec(n, e);
        self.op(ty, format!("vector.broadcast {v} : {} to {ty}", v.ty))
    }
    /// Members of a structure.
    pub fn members(&mut self, v: V) -> Vec<V> {
        let Ty::Struct(n, e) = v.ty else { unreachable!("{} is no structure", v.ty) };
        let ty = match e {
            StructElem::S(e) => Ty::S(e),
            StructElem::Pair(e) => Ty::Vec(2, e),
        };
        (0..n).map(|i| self.op(ty, format!("llvm.extractvalue {v}[{i}] : {}", v.ty))).collect()
    }

    // ---- memory ----------------------------------------------------------------------------------------------------

    /// `p + offset` bytes (offset `i32`, signed, or `i64`).
    pub fn at(&mut self, p: V, offset: V) -> V {
        self.op(p.ty, format!("llvm.getelementptr {p}[{offset}] : ({}, {}) -> {}, i8", p.ty, offset.ty, p.ty))
    }
    /// `p + offset` bytes.
    pub fn atc(&mut self, p: V, offset: i64) -> V {
        if offset == 0 {
            return p;
        }
        self.op(p.ty, format!("llvm.getelementptr {p}[{offset}] : ({}) -> {}, i8", p.ty, p.ty))
    }
    /// Loads a value aligned to its size.
    pub fn load(&mut self, p: V, ty: Ty) -> V {
        self.op(ty, format!("llvm.load {p} {{alignment = {} : i64}} : {} -> {ty}", ty.bytes(), p.ty))
    }
    /// Loads what no thread writes during the kernel (`ld.global.nc`).
    pub fn load_const(&mut self, p: V, ty: Ty) -> V {
        self.op(ty, format!("llvm.load {p} invariant {{alignment = {} : i64}} : {} -> {ty}", ty.bytes(), p.ty))
    }
    /// Loads 16 bytes that are read once (weights): past the first-level cache.
    pub fn load_stream(&mut self, p: V) -> Vec<V> {
        let text = "ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {$0, $1, $2, $3}, [$4];";
        let s = self.asm(Ty::Struct(4, StructElem::S(Elem::I32)), text, "=r,=r,=r,=r,l", &[p]);
        self.members(s)
    }
    /// Stores a value aligned to its size.
    pub fn store(&mut self, v: V, p: V) {
        self.effect(format!("llvm.store {v}, {p} {{alignment = {} : i64}} : {}, {}", v.ty.bytes(), v.ty, p.ty));
    }
    /// A pointer in global memory.
    pub fn load_ptr(&mut self, p: V) -> V {
        let address = self.load_const(p, I64);
        self.op(Ty::Global, format!("llvm.inttoptr {address} : i64 to !llvm.ptr<1>"))
    }
    /// The address of shared memory as `i32`.
    pub fn shared_address(&mut self, p: V) -> V {
        self.op(I32, format!("llvm.ptrtoint {p} : !llvm.ptr<3> to i32"))
    }

    // ---- threads ---------------------------------------------------------------------------------------------------

    /// A special register: `tid.x`, `ctaid.y`, `nctaid.x`, ...
    pub fn sreg(&mut self, name: &str) -> V {
        self.op(I32, format!("nvvm.read.ptx.sreg.{name} : i32"))
    }
    /// Meets all threads of the block, or, inside of [`Builder::team`], those of the team.
    pub fn barrier(&mut self) {
        match self.team {
            None => self.effect("nvvm.barrier"),
            Some(threads) => {
                let (id, threads) = (self.i32(1), self.i32(i64::from(threads)));
                self.effect(format!("nvvm.barrier id = {id} number_of_threads = {threads}"));
            }
        }
    }
    /// Meets all threads of the block, also inside of [`Builder::team`].
    pub fn barrier_all(&mut self) {
        self.effect("nvvm.barrier");
    }
    /// Emits code that only the first `threads` threads of the block run: whole warps. Its barriers are theirs.
    pub fn team<R>(&mut self, threads: u32, body: impl FnOnce(&mut Builder) -> R) -> R {
        let before = self.team.replace(threads);
        let result = body(self);
        self.team = before;
        result
    }
    /// Meets the threads of the warp.
    pub fn sync_warp(&mut self) {
        let all = self.i32(-1);
        self.effect(format!("nvvm.bar.warp.sync {all} : i32"));
    }
    /// The value of the lane whose number differs in `mask`.
    pub fn shuffle_xor(&mut self, v: V, mask: i64) -> V {
        self.shuffle("bfly", v, mask)
    }
    /// The value of lane `lane` (a value below 32).
    pub fn shuffle_from(&mut self, v: V, lane: V) -> V {
        let (all, clamp) = (self.i32(-1), self.i32(31));
        self.op(v.ty, format!("nvvm.shfl.sync idx {all}, {v}, {lane}, {clamp} : {0} -> {0}", v.ty))
    }
    fn shuffle(&mut self, kind: &str, v: V, by: i64) -> V {
        let (all, by, clamp) = (self.i32(-1), self.i32(by), self.i32(31));
        self.op(v.ty, format!("nvvm.shfl.sync {kind} {all}, {v}, {by}, {clamp} : {0} -> {0}", v.ty))
    }
    /// Combines over lanes whose numbers differ in `masks`, in that order: every lane gets the result.
    pub fn reduce(&mut self, v: V, masks: &[i64], combine: impl Fn(&mut Builder, V, V) -> V) -> V {
        masks.iter().fold(v, |acc, m| {
            let other = self.shuffle_xor(acc, *m);
            combine(self, acc, other)
        })
    }

    /// Combines the `i32`s of all lanes in one instruction; `kind` is `add`, `umax` or `umin`.
    pub fn redux(&mut self, v: V, kind: &str) -> V {
        let all = self.i32(-1);
        self.op(I32, format!("nvvm.redux.sync {kind} {v}, {all} : i32 -> i32"))
    }

    /// Orders this thread's memory accesses before and after it for all threads of the device.
    pub fn fence(&mut self) {
        self.asm_effect("fence.acq_rel.gpu;", "~{memory}", &[]);
    }
    /// Adds to an `i32` in global memory that other blocks add to as well; the value before.
    pub fn atomic_add(&mut self, p: V, x: V) -> V {
        self.asm_volatile(I32, "atom.acq_rel.gpu.global.add.u32 $0, [$1], $2;", "=r,l,r,~{memory}", &[p, x])
    }

    /// Adds to an `i32` in shared memory that other threads add to as well; the value before.
    pub fn atomic_add_shared(&mut self, p: V, x: V) -> V {
        let address = self.shared_address(p);
        self.asm_volatile(I32, "atom.shared.add.u32 $0, [$1], $2;", "=r,r,r,~{memory}", &[address, x])
    }

    // ---- assembly --------------------------------------------------------------------------------------------------

    fn asm_text(&self, text: &str, constraints: &str, args: &[V], result: Option<Ty>, effects: &str) -> String {
        let names: Vec<String> = args.iter().map(V::to_string).collect();
        let types: Vec<String> = args.iter().map(|a| a.ty.to_string()).collect();
        let result = result.map_or("!llvm.void".to_string(), |t| t.to_string());
        format!("llvm.inline_asm {effects}\"{text}\", \"{constraints}\" {} : ({}) -> {result}", names.join(", "), types.join(", "))
    }
    /// A pure instruction.
    pub fn asm(&mut self, ty: Ty, text: &str, constraints: &str, args: &[V]) -> V {
        let text = self.asm_text(text, constraints, args, Some(ty), "");
        self.op(ty, text)
    }
    /// An instruction with effects and one result.
    pub fn asm_volatile(&mut self, ty: Ty, text: &str, constraints: &str, args: &[V]) -> V {
        let text = self.asm_text(text, constraints, args, Some(ty), "has_side_effects ");
        self.op(ty, text)
    }
    /// An instruction with effects only. (`~{memory}` in the constraints orders it with loads and stores.)
    pub fn asm_effect(&mut self, text: &str, constraints: &str, args: &[V]) {
        let text = self.asm_text(text, constraints, args, None, "has_side_effects ");
        self.effect(text.replace(" -> !llvm.void", " -> ()"));
    }

    // ---- structure -------------------------------------------------------------------------------------------------

    fn results(&mut self, init: &[V]) -> (String, Vec<V>) {
        let id = self.next;
        self.next += 1;
        match init {
            [] => (String::new(), vec![]),
            [one] => (format!("%{id} = "), vec![V { id, part: None, ty: one.ty }]),
            many => {
                let part = |(i, v): (usize, &V)| V { id, part: Some(i as u16), ty: v.ty };
                (format!("%{id}:{} = ", many.len()), many.iter().enumerate().map(part).collect())
            }
        }
    }

    fn types(values: &[V]) -> String {
        values.iter().map(|v| v.ty.to_string()).collect::<Vec<_>>().join(", ")
    }

    fn yield_(&mut self, values: &[V]) {
        if !values.is_empty() {
            let names: Vec<String> = values.iter().map(V::to_string).collect();
            self.line(&format!("scf.yield {} : {}", names.join(", "), Builder::types(values)));
        }
    }

    /// `for i in (lo..hi).step_by(step)` (`i32`, signed) with values carried round: `body` gets `i` and the values and returns the next ones.
    pub fn for_(&mut self, (lo, hi, step): (V, V, V), init: &[V], body: impl FnOnce(&mut Builder, V, &[V]) -> Vec<V>) -> Vec<V> {
        let iv = self.fresh(lo.ty);
        let args: Vec<V> = init.iter().map(|v| self.fresh(v.ty)).collect();
        let (prefix, results) = self.results(init);
        let mut head = format!("{prefix}scf.for {iv} = {lo} to {hi} step {step}");
        if !init.is_empty() {
            let pairs: Vec<String> = args.iter().zip(init).map(|(a, i)| format!("{a} = {i}")).collect();
            let _ = write!(head, " iter_args({}) -> ({})", pairs.join(", "), Builder::types(init));
        }
        self.line(&format!("{head} : {} {{", lo.ty));
        self.depth += 1;
        let next = body(self, iv, &args);
        debug_assert_eq!(next.len(), init.len(), "values carried round a loop");
        self.yield_(&next);
        self.depth -= 1;
        self.line("}");
        results
    }

    /// `for i in lo..hi step s` with constant bounds and nothing carried.
    pub fn for_range(&mut self, lo: V, hi: V, step: i64, body: impl FnOnce(&mut Builder, V)) {
        let step = self.int_const(lo.ty, step);
        self.for_((lo, hi, step), &[], |b, i, _| {
            body(b, i);
            vec![]
        });
    }

    /// `if c { then }`.
    pub fn if_(&mut self, c: V, then: impl FnOnce(&mut Builder)) {
        self.line(&format!("scf.if {c} {{"));
        self.depth += 1;
        then(self);
        self.depth -= 1;
        self.line("}");
    }

    /// `if c { then } else { otherwise }` with results.
    pub fn if_else(
        &mut self,
        c: V,
        types: &[Ty],
        then: impl FnOnce(&mut Builder) -> Vec<V>,
        otherwise: impl FnOnce(&mut Builder) -> Vec<V>,
    ) -> Vec<V> {
        let like: Vec<V> = types.iter().map(|ty| V { id: 0, part: None, ty: *ty }).collect();
        let (prefix, results) = self.results(&like);
        let arrow = if types.is_empty() { String::new() } else { format!(" -> ({})", Builder::types(&like)) };
        self.line(&format!("{prefix}scf.if {c}{arrow} {{"));
        self.depth += 1;
        let values = then(self);
        self.yield_(&values);
        self.depth -= 1;
        self.line("} else {");
        self.depth += 1;
        let values = otherwise(self);
        self.yield_(&values);
        self.depth -= 1;
        self.line("}");
        results
    }

    // ---- asynchronous copies (sm80) --------------------------------------------------------------------------------

    /// Starts copying 16 bytes from global to shared memory.
    pub fn cp_async(&mut self, to: V, from: V, cache: Cache) {
        let cache = if cache == Cache::All { "ca" } else { "cg" };
        self.effect(format!("nvvm.cp.async.shared.global {to}, {from}, 16, cache = {cache} : !llvm.ptr<3>, !llvm.ptr<1>"));
    }
    /// Starts copying 16 bytes, of which only the first `bytes` (an `i32`, 0 to 16) are read: the rest becomes zero.
    pub fn cp_async_some(&mut self, to: V, from: V, bytes: V) {
        self.effect(format!("nvvm.cp.async.shared.global {to}, {from}, 16, cache = cg, {bytes} : !llvm.ptr<3>, !llvm.ptr<1>, i32"));
    }
    /// Ends a group of copies.
    pub fn cp_commit(&mut self) {
        self.effect("nvvm.cp.async.commit.group");
    }
    /// Waits until at most `pending` groups are under way.
    pub fn cp_wait(&mut self, pending: usize) {
        self.effect(format!("nvvm.cp.async.wait.group {pending}"));
    }

    /// Makes what this thread wrote to shared memory visible to asynchronous readers (wgmma, bulk copies).
    pub fn fence_proxy_async(&mut self) {
        self.asm_effect("fence.proxy.async.shared::cta;", "~{memory}", &[]);
    }

    /// Two f32 as e4m3 numbers in the bytes of an `i16`, rounded to nearest even, saturated.
    pub fn e4m3(&mut self, low: V, high: V) -> V {
        self.asm(I16, "cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", &[low, high])
    }

    // ---- tensor cores ----------------------------------------------------------------------------------------------

    /// Loads four 8×8 matrices of 16-bit elements; lane `l` gives the address of row `l % 8` of matrix `l / 8`.
    pub fn ldmatrix(&mut self, p: V, transposed: bool) -> Vec<V> {
        let layout = if transposed { "col" } else { "row" };
        let s = self.op(
            Ty::Struct(4, StructElem::S(Elem::I32)),
            format!(
                "nvvm.ldmatrix {p} {{num = 4 : i32, layout = #nvvm.mma_layout<{layout}>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, \
                 eltType = #nvvm.ld_st_matrix_elt_type<b16>}} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>"
            ),
        );
        self.members(s)
    }

    /// `m16n8k32`: `C + A·B` with A (4 words) and B (2 words) of e4m3 numbers and C (4 × f32).
    pub fn mma_e4m3(&mut self, a: &[V], b: &[V], c: &[V]) -> Vec<V> {
        let text =
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};";
        let args: Vec<V> = a.iter().chain(b).chain(c).copied().collect();
        let ty = Ty::Struct(4, StructElem::S(Elem::F32));
        let s = self.asm(ty, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", &args);
        self.members(s)
    }

    /// `m16n8k16`: `C + A·B` with A (4 words), B (2 words) of `elem` (f16 or bf16) and C (4 × f32).
    pub fn mma(&mut self, elem: Elem, a: &[V], b: &[V], c: &[V]) -> Vec<V> {
        // For f16, MLIR wants pairs; for bf16, words.
        let (kind, pair) = if elem == Elem::F16 { ("f16", Ty::Vec(2, Elem::F16)) } else { ("bf16", I32) };
        let a: Vec<String> = a.iter().map(|v| self.bitcast(*v, pair).to_string()).collect();
        let b: Vec<String> = b.iter().map(|v| self.bitcast(*v, pair).to_string()).collect();
        let c: Vec<String> = c.iter().map(V::to_string).collect();
        // The types of f16 operands follow from their vectors; giving them would be an error.
        let types = match elem {
            Elem::F16 => String::new(),
            _ => format!(", multiplicandAPtxType = #nvvm.mma_type<{kind}>, multiplicandBPtxType = #nvvm.mma_type<{kind}>"),
        };
        let text = format!(
            "nvvm.mma.sync A[{}] B[{}] C[{}] {{layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>{types}, \
             shape = #nvvm.shape<m = 16, n = 8, k = 16>}} : ({pair}, {pair}, f32) -> !llvm.struct<(f32, f32, f32, f32)>",
            a.join(", "),
            b.join(", "),
            c.join(", ")
        );
        let s = self.op(Ty::Struct(4, StructElem::S(Elem::F32)), text);
        self.members(s)
    }
}

impl Elem {
    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Elem::I1 | Elem::I8 => 1,
            Elem::I16 | Elem::F16 | Elem::Bf16 => 2,
            Elem::I32 | Elem::F32 => 4,
            Elem::I64 | Elem::F64 => 8,
        }
    }
}

impl Ty {
    /// Bytes in memory.
    pub fn bytes(self) -> usize {
        match self {
            Ty::S(e) => e.bytes(),
            Ty::Vec(n, e) => usize::from(n) * e.bytes(),
            Ty::Struct(n, StructElem::S(e)) => usize::from(n) * e.bytes(),
            Ty::Struct(n, StructElem::Pair(e)) => 2 * usize::from(n) * e.bytes(),
            Ty::Global => 8,
            Ty::Shared => 4,
        }
    }
}
