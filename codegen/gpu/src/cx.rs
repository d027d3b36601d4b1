//! The facts every emitter needs about the kernel at hand, and the step's data as its code sees
//! them.

use crate::mlir::{Access, Builder, Cmp, I32, I64, V};
use llmcc_abi::GpuCtx;
use llmcc_ir::gpu::program::Program;
use llmcc_ir::kernel::{Checked, Param, ParamId, ParamKind, RowElem};
use llmcc_ir::target::{GpuArch, TargetSpec};
use llmcc_ir::ty::Dim;
use std::mem::offset_of;

/// A kernel on its way to MLIR: one that `supported` does not refuse.
pub struct Cx<'k> {
    /// The kernel.
    pub kernel: Checked<'k>,
    /// The target.
    pub target: &'k TargetSpec,
    /// Its architecture.
    pub gpu: &'k GpuArch,
}

/// The arguments of a kernel's entry.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    all: &'a [V],
}

impl Cx<'_> {
    /// The symbol of the entry: the kernel's name with characters replaced that PTX does not allow.
    pub fn entry(&self) -> String {
        let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("k_{}", self.kernel.name.chars().map(fit).collect::<String>())
    }

    /// Emits the kernel's function, and its skeleton: see [`Builder::kernel`]. It waits for the
    /// kernels before at once.
    pub fn function(
        &self,
        threads: u32,
        min_blocks: u32,
        body: impl FnOnce(&mut Builder, Args<'_>),
    ) -> (String, Program) {
        self.function_that_waits(threads, min_blocks, |b, args| {
            b.wait_for_inputs();
            body(b, args);
        })
    }

    /// The same; `body` waits for the kernels before ([`Builder::wait_for_inputs`]).
    pub fn function_that_waits(
        &self,
        threads: u32,
        min_blocks: u32,
        body: impl FnOnce(&mut Builder, Args<'_>),
    ) -> (String, Program) {
        let written = self.kernel.written();
        let of = |(p, param): (ParamId, &Param)| match param.kind {
            _ if written.contains(&p) => Access::Write,
            ParamKind::Rows { .. } | ParamKind::State(_) => Access::Result,
            ParamKind::Matrix { .. } | ParamKind::Vector { .. } => Access::Read,
        };
        let mut access: Vec<Access> = self.kernel.params.iter().enumerate().map(of).collect();
        access.extend([Access::Read, Access::Write]);
        let overlaps = self.gpu.overlaps_launches();
        Builder::kernel(&self.entry(), &access, (threads, min_blocks), overlaps, |b, args| body(b, Args { all: args }))
    }

    /// Columns and storage of a matrix of rows.
    pub fn rows(&self, p: ParamId) -> (usize, RowElem) {
        let rows = self.kernel.rows(p);
        (rows.cols, rows.elem)
    }

    /// Columns of a matrix of rows.
    pub fn cols(&self, p: ParamId) -> usize {
        self.kernel.rows(p).cols
    }

    /// Most shared memory that a block may have.
    pub fn shared_limit(&self) -> usize {
        self.gpu.shared_per_block as usize
    }

    /// Number of rows of the step, `T` or `R` (`i32`).
    pub fn row_count(&self, b: &mut Builder, a: Args<'_>) -> V {
        let field =
            if self.kernel.rows == Dim::Tokens { offset_of!(GpuCtx, n_tokens) } else { offset_of!(GpuCtx, n_rows) };
        let m = a.number(b, field);
        b.assume(m, &[1, 70]);
        m
    }
}

impl Args<'_> {
    /// Address of operand `p`.
    pub fn operand(&self, p: ParamId) -> V {
        self.all[p]
    }

    /// Runs `body` with arguments that read the step anew: see [`Builder::anew`].
    pub fn anew<R>(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, Args<'_>) -> R) -> R {
        let mut all = self.all.to_vec();
        let step = all.len() - 2;
        all[step] = b.anew(all[step]);
        body(b, Args { all: &all })
    }

    fn ctx(&self) -> V {
        self.all[self.all.len() - 2]
    }

    /// Address of the workspace.
    pub fn workspace(&self) -> V {
        self.all[self.all.len() - 1]
    }

    /// A number of the step context, as `i32`.
    pub fn number(&self, b: &mut Builder, field: usize) -> V {
        let p = b.atc(self.ctx(), field as i64);
        let wide = b.load_const(p, I64);
        b.trunc(wide, I32)
    }

    /// An array of the step context.
    pub fn array(&self, b: &mut Builder, field: usize) -> V {
        let p = b.atc(self.ctx(), field as i64);
        b.load_ptr(p)
    }

    /// Element `i` of an `i32` array of the step context.
    pub fn array_at(&self, b: &mut Builder, field: usize, i: V) -> V {
        let base = self.array(b, field);
        let offset = b.shlc(i, 2);
        let p = b.at(base, offset);
        b.load_const(p, I32)
    }

    /// Position of token `row` in its sequence.
    pub fn position(&self, b: &mut Builder, row: V) -> V {
        self.array_at(b, offset_of!(GpuCtx, positions), row)
    }

    /// Length of the sequence of token `row` after the step.
    pub fn end(&self, b: &mut Builder, row: V) -> V {
        self.array_at(b, offset_of!(GpuCtx, ends), row)
    }

    /// Sequence of token `row`: its row of the block table.
    pub fn seq(&self, b: &mut Builder, row: V) -> V {
        self.array_at(b, offset_of!(GpuCtx, seqs), row)
    }

    /// Address of row `seq` of the block table.
    pub fn table(&self, b: &mut Builder, seq: V) -> V {
        let stride = self.number(b, offset_of!(GpuCtx, block_stride));
        let entry = b.mul(seq, stride);
        let entry = b.zext(entry, I64);
        let offset = b.shlc(entry, 2);
        let tables = self.array(b, offset_of!(GpuCtx, block_tables));
        b.at(tables, offset)
    }

    /// Number of sequences of the step: rows of the block table, each with a token or more.
    pub fn sequences(&self, b: &mut Builder) -> V {
        let n = self.number(b, offset_of!(GpuCtx, n_seqs));
        b.assume(n, &[1, 3]);
        n
    }

    /// Address of the slot of sequence `seq` in the pool `state` of states of so many bytes.
    pub fn slot(&self, b: &mut Builder, state: V, bytes: usize, seq: V) -> V {
        let entry = self.table(b, seq);
        let slot = b.load_const(entry, I32);
        let slot = b.zext(slot, I64);
        let offset = b.mulc(slot, bytes as i64);
        b.at(state, offset)
    }

    /// Address of page `number` (in its sequence) of the sequence of token `row`, in the pool `kv`
    /// of pages of `page_bytes`.
    pub fn page(&self, b: &mut Builder, kv: V, page_bytes: usize, row: V, number: V) -> V {
        let seq = self.seq(b, row);
        let stride = self.number(b, offset_of!(GpuCtx, block_stride));
        let first = b.mul(seq, stride);
        let entry = b.add(first, number);
        let page = self.array_at(b, offset_of!(GpuCtx, block_tables), entry);
        let page = b.zext(page, I64);
        let offset = b.mulc(page, page_bytes as i64);
        b.at(kv, offset)
    }
}

/// Bytes from one row to the next of a matrix of rows.
pub fn row_stride(cols: usize, elem: RowElem) -> usize {
    llmcc_ir::plan::row_bytes(cols, elem)
}

/// Runs `body` for `i` in `first..n` in steps of the block's threads, for this thread's `i`s: a
/// block shares out `n` items.
pub fn share_out(b: &mut Builder, n: V, threads: u32, body: impl FnOnce(&mut Builder, V)) {
    let tid = b.sreg("tid.x");
    b.for_range(tid, n, i64::from(threads), body);
}

/// Returns early from the work of a block: runs `body` only when `row < m`.
pub fn when_below(b: &mut Builder, row: V, m: V, body: impl FnOnce(&mut Builder)) {
    let inside = b.cmp(Cmp::Slt, row, m);
    b.if_(inside, body);
}
