//! What every emitter needs to know of the kernel at hand, and the step's data as its code sees
//! them.

use crate::mlir::{Access, Builder, Cmp, I32, I64, V};
use llmcc_abi::GpuCtx;
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::program::Program;
use llmcc_ir::kernel::{Kernel, Param, ParamId, ParamKind, RowElem};
use llmcc_ir::kv::KvSpec;
use llmcc_ir::quant::Format;
use llmcc_ir::state::FixedSpec;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Dim;
use std::mem::offset_of;

/// A kernel on its way to MLIR.
pub struct Cx<'k> {
    /// The kernel.
    pub kernel: &'k Kernel,
    /// What it is made for.
    pub target: &'k TargetSpec,
}

/// The arguments of a kernel's entry.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    all: &'a [V],
}

impl<'k> Cx<'k> {
    /// A kernel for a GPU target.
    ///
    /// # Errors
    /// Not a GPU target.
    pub fn new(kernel: &'k Kernel, target: &'k TargetSpec) -> Result<Cx<'k>, CodegenError> {
        Ok(Cx { kernel, target })
    }

    /// Something this backend does not do.
    pub fn error(&self, what: impl Into<String>) -> CodegenError {
        CodegenError::Unsupported { kernel: self.kernel.name.clone(), what: what.into() }
    }

    /// The symbol of the entry: the kernel's name with what PTX does not allow replaced.
    pub fn entry(&self) -> String {
        let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("k_{}", self.kernel.name.chars().map(fit).collect::<String>())
    }

    /// Emits the kernel's function, and its skeleton: see [`Builder::kernel`].
    pub fn function(
        &self,
        threads: u32,
        min_blocks: u32,
        body: impl FnOnce(&mut Builder, Args<'_>),
    ) -> (String, Program) {
        let written = self.kernel.written();
        let of = |(p, param): (ParamId, &Param)| match param.kind {
            _ if written.contains(&p) => Access::Write,
            ParamKind::Rows { .. } | ParamKind::Kv(_) | ParamKind::Fixed(_) => Access::Result,
            ParamKind::Matrix { .. } | ParamKind::Vector { .. } => Access::Read,
        };
        let mut access: Vec<Access> = self.kernel.params.iter().enumerate().map(of).collect();
        access.extend([Access::Read, Access::Write]);
        Builder::kernel(&self.entry(), &access, threads, min_blocks, |b, args| body(b, Args { all: args }))
    }

    fn kind(&self, p: ParamId) -> Result<&ParamKind, CodegenError> {
        self.kernel.params.get(p).map(|p| &p.kind).ok_or_else(|| self.error(format!("there is no operand {p}")))
    }

    fn wrong(&self, p: ParamId, want: &str) -> CodegenError {
        self.error(format!("operand `{}` must be {want}", self.kernel.params.get(p).map_or("?", |p| &p.name)))
    }

    /// Columns and storage of a matrix of rows.
    pub fn rows(&self, p: ParamId) -> Result<(usize, RowElem), CodegenError> {
        match *self.kind(p)? {
            ParamKind::Rows { cols, elem, .. } => Ok((cols, elem)),
            _ => Err(self.wrong(p, "a matrix of rows")),
        }
    }

    /// Rows, columns and storage of a packed matrix.
    pub fn matrix(&self, p: ParamId) -> Result<(usize, usize, Format), CodegenError> {
        match *self.kind(p)? {
            ParamKind::Matrix { n, k, format } => Ok((n, k, format)),
            _ => Err(self.wrong(p, "a packed matrix")),
        }
    }

    /// Length of a vector.
    pub fn vector(&self, p: ParamId) -> Result<usize, CodegenError> {
        match *self.kind(p)? {
            ParamKind::Vector { len } if len > 0 => Ok(len),
            _ => Err(self.wrong(p, "a vector that is not empty")),
        }
    }

    /// An attention state.
    pub fn kv(&self, p: ParamId) -> Result<KvSpec, CodegenError> {
        match *self.kind(p)? {
            ParamKind::Kv(spec) => Ok(spec),
            _ => Err(self.wrong(p, "an attention state")),
        }
    }

    /// A state of fixed size.
    pub fn fixed(&self, p: ParamId) -> Result<FixedSpec, CodegenError> {
        match *self.kind(p)? {
            ParamKind::Fixed(spec) if !spec.is_empty() => Ok(spec),
            ParamKind::Fixed(_)
            | ParamKind::Rows { .. }
            | ParamKind::Matrix { .. }
            | ParamKind::Vector { .. }
            | ParamKind::Kv(_) => Err(self.wrong(p, "a state of fixed size that is not empty")),
        }
    }

    /// Columns of f32 rows.
    pub fn f32_rows(&self, p: ParamId) -> Result<usize, CodegenError> {
        match self.rows(p)? {
            (cols, RowElem::F32) => Ok(cols),
            _ => Err(self.wrong(p, "f32 rows")),
        }
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
