//! Memory: addresses in bytes, loads, stores, atomic additions, the order of accesses.

use super::{Builder, Elem, I32, I64, StructElem, Ty, V};

impl Builder {
    /// `p + offset` bytes (offset `i32`, signed, or `i64`).
    pub fn at(&mut self, p: V, offset: V) -> V {
        let to = self.op(p.ty, format!("llvm.getelementptr {p}[{offset}] : ({}, {}) -> {}, i8", p.ty, offset.ty, p.ty));
        if p.ty == Ty::Shared {
            self.record_at(to, p, Ok(offset));
        }
        to
    }
    /// `p + offset` bytes.
    pub fn atc(&mut self, p: V, offset: i64) -> V {
        if offset == 0 {
            return p;
        }
        let to = self.op(p.ty, format!("llvm.getelementptr {p}[{offset}] : ({}) -> {}, i8", p.ty, p.ty));
        if p.ty == Ty::Shared {
            self.record_at(to, p, Err(offset));
        }
        to
    }
    /// Loads a value aligned to its size.
    pub fn load(&mut self, p: V, ty: Ty) -> V {
        self.record_load(p, ty.bytes());
        self.op(ty, format!("llvm.load {p} {{alignment = {} : i64}} : {} -> {ty}", ty.bytes(), p.ty))
    }
    /// Loads memory that no kernel writes (`ld.global.nc`): weights, the step.
    pub fn load_const(&mut self, p: V, ty: Ty) -> V {
        self.op(ty, format!("llvm.load {p} invariant {{alignment = {} : i64}} : {} -> {ty}", ty.bytes(), p.ty))
    }

    /// Loads 16 bytes that no kernel writes and that are read once: as four words, past the first-level
    /// cache; where `c` does not hold, anything. It stays where it is among instructions with effects.
    pub fn load_once(&mut self, p: V, c: V) -> Vec<V> {
        let c = self.zext(c, I32);
        let text =
            "{ .reg .pred p; setp.ne.b32 p, $5, 0; @p ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4]; }";
        let s = self.asm_volatile(Ty::Struct(4, StructElem::S(Elem::I32)), text, "=r,=r,=r,=r,l,r", &[p, c]);
        self.members(s)
    }

    /// Stores a value aligned to its size.
    pub fn store(&mut self, v: V, p: V) {
        self.record_store(p, v.ty.bytes());
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
        self.record_store(p, 4);
        self.asm_volatile(I32, "atom.shared.add.u32 $0, [$1], $2;", "=r,r,r,~{memory}", &[address, x])
    }
}
