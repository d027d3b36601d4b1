//! A builder of MLIR text: one kernel, in the `nvvm`, `llvm`, `arith` and `scf` dialects.
//!
//! Text, not LLVM objects, so that kernels are made, printed and snapshot-tested without LLVM
//! installed, and LLVM itself can run in another process. The builder knows the type of every value
//! and prints one operation per method; whatever repeats in kernels (byte addressing, quads, warp
//! reductions, async copies) has a method here, so that emitters read like the kernels they make.
//!
//! Values are typed [`V`]; a mistake in types is a bug of an emitter and shows as an MLIR error
//! with the operation's text.
//!
//! [`Builder`] is one type whose methods fill several files, each with the part of its state that
//! belongs to them: these files use each other (`tests/tests/circles.rs`).

mod asm;
mod constants;
mod control;
mod copies;
mod dependencies;
#[cfg(test)]
mod dependencies_tests;
mod floats;
mod integers;
mod lanes;
mod mbarriers;
mod memory;
mod mma;
mod record;
mod threads;
mod types;
mod vectors;
mod wgmma;

pub use copies::Cache;
pub use integers::Cmp;
pub use lanes::WARP;
pub use record::{Mbarrier, Memory};
pub use types::{BF16, Elem, F16, F32, F64, I1, I8, I16, I32, I64, StructElem, Ty, V, V4I32};
pub use wgmma::{Left, Products};

use dependencies::Dependencies;
use llmcc_ir::gpu::program::Program;
use record::Recording;

/// Use of a pointer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Constant: weights, and the step. Written by no one while kernels run, so loads may take any
    /// path and any place (`ld.global.nc`).
    Read,
    /// Only read, written by a kernel before. Such loads stay loads (`ld.global`): that the kernel
    /// before has ended may one day be known from an instruction only, which nothing may be moved
    /// before.
    Result,
    /// Written (and perhaps read).
    Write,
}

/// Makes the text of one kernel.
pub struct Builder {
    out: String,
    depth: usize,
    next: u32,
    smem: V,
    /// Threads that meet at [`Builder::barrier`], and the barrier's number, where they are not all of
    /// the block.
    team: Option<(V, u32)>,
    recording: Recording,
    dependencies: Dependencies,
}

impl Builder {
    /// Emits a kernel called `name`, and its skeleton: one global pointer per entry of `params`, at
    /// most `threads` threads in a block; `min_blocks` blocks should fit on a multiprocessor. With
    /// `overlaps` it may begin before the kernels before have ended: see
    /// [`Builder::wait_for_inputs`].
    pub fn kernel(
        name: &str,
        params: &[Access],
        (threads, min_blocks): (u32, u32),
        overlaps: bool,
        body: impl FnOnce(&mut Builder, &[V]),
    ) -> (String, Program) {
        let smem = V { id: 0, part: None, ty: Ty::Shared };
        let recording = Recording::new(name, threads);
        let args: Vec<V> = (0..params.len()).map(|i| V { id: i as u32, part: None, ty: Ty::Global }).collect();
        let made = args.iter().zip(params).filter(|(_, a)| **a != Access::Read).map(|(v, _)| *v);
        let dependencies = Dependencies::new(overlaps, made);
        let next = params.len() as u32;
        let mut b = Builder { out: String::new(), depth: 2, next, smem, team: None, recording, dependencies };
        b.launch_dependents();
        b.smem = b.op(Ty::Shared, "llvm.mlir.addressof @shared : !llvm.ptr<3>");
        body(&mut b, &args);
        let attributes = |a: &Access| match a {
            Access::Read => "llvm.noalias, llvm.align = 16 : i64, llvm.readonly",
            // LLVM loads read-only unshared memory as constants.
            Access::Result => "llvm.align = 16 : i64, llvm.readonly",
            // Accesses through a pointer that no one else has may pass any other instruction.
            Access::Write if overlaps => "llvm.align = 16 : i64",
            Access::Write => "llvm.noalias, llvm.align = 16 : i64",
        };
        let list: Vec<String> =
            args.iter().zip(params).map(|(v, a)| format!("{v}: !llvm.ptr<1> {{{}}}", attributes(a))).collect();
        let text = format!(
            "module {{\n  gpu.module @kernels {{\n    llvm.mlir.global external @shared() {{addr_space = 3 : i32, alignment = 1024 : i64}} : !llvm.array<0 x i8>\n    \
             llvm.func @{name}({}) attributes {{gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: {threads}, 1, 1>, nvvm.minctasm = {min_blocks} : i32}} {{\n{}      llvm.return\n    }}\n  }}\n}}\n",
            list.join(", "),
            b.out
        );
        (text, b.recording.finish(b.dependencies.into_early()))
    }

    /// Start of the dynamic shared memory.
    pub fn shared(&self) -> V {
        self.smem
    }

    /// Byte `at` of it.
    pub fn shared_at(&mut self, at: usize) -> V {
        let p = self.atc(self.smem, at as i64);
        self.point(p, None, at);
        p
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
        self.record_uses(text.as_ref());
        self.check_use(text.as_ref());
        self.line(text.as_ref());
    }

    /// Emits an operation with one result of type `ty`, as MLIR text.
    pub fn op(&mut self, ty: Ty, text: impl AsRef<str>) -> V {
        self.record_uses(text.as_ref());
        let v = self.fresh(ty);
        self.follow(v, text.as_ref());
        self.line(&format!("{v} = {}", text.as_ref()));
        v
    }

    /// An operation on two values of one type, with a result of that type.
    fn two(&mut self, name: &str, a: V, b: V) -> V {
        debug_assert_eq!(a.ty, b.ty, "{name}");
        let v = self.op(a.ty, format!("{name} {a}, {b} : {}", a.ty));
        self.record_two(v, name, a, b);
        v
    }
}
