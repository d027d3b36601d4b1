//! Runs compiled kernels in the test process.
//!
//! Every operand ends where an inaccessible page begins, so that reading or writing past it is a fault, not a wrong number; scratch ends
//! there too. What a kernel writes starts as NaN.

use crate::{Backend, Object};
use llmcc_abi::{ATTEND_BLOCK, KernelFn, PAGE_TOKENS, StepCtx, UkTable};
use llmcc_ir::diag::Diagnostics;
use llmcc_ir::eval::{
    Batch, KvState, OperandData, eval_kernel, half_rows_from_bytes, half_rows_to_bytes, kv_from_pages, kv_to_pages, q8_rows_from_bytes,
    q8_rows_to_bytes, rows_from_bytes, rows_to_bytes,
};
use llmcc_ir::kernel::{Kernel, ParamKind, RowElem};
use llmcc_ir::target::TargetSpec;
use llmcc_ir::verify::verify_kernel;
use std::ops::Range;

/// Memory that ends at an inaccessible page.
pub(super) struct Guarded {
    map: *mut u8,
    map_len: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    pub fn new(bytes: &[u8]) -> Guarded {
        let data = bytes.len().next_multiple_of(PAGE);
        let map_len = data + PAGE;
        // SAFETY: a fresh private mapping, filled within its bounds.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let map = libc::mmap(std::ptr::null_mut(), map_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0).cast::<u8>();
            assert_ne!(map.cast(), libc::MAP_FAILED);
            assert_eq!(libc::mprotect(map.add(data).cast(), PAGE, libc::PROT_NONE), 0);
            let g = Guarded { map, map_len, len: bytes.len() };
            g.ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            g
        }
    }

    pub fn ptr(&self) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.map.add(self.map_len - PAGE - self.len) }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `ptr` are mapped; nobody writes while the slice lives.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.map.cast(), self.map_len) };
    }
}

/// Code in executable memory.
pub(super) struct Code(Guarded);

impl Code {
    pub fn new(code: &[u8]) -> Code {
        // Page aligned: the code comes first, padded with breakpoints.
        let mut padded = code.to_vec();
        padded.resize(code.len().next_multiple_of(PAGE), 0xcc);
        let g = Guarded::new(&padded);
        // SAFETY: whole pages of our own mapping.
        unsafe { assert_eq!(libc::mprotect(g.ptr().cast(), padded.len(), libc::PROT_READ | libc::PROT_EXEC), 0) };
        Code(g)
    }

    pub fn entry(&self) -> KernelFn {
        // SAFETY: the backend puts a `KernelFn` at offset 0.
        unsafe { std::mem::transmute::<*mut u8, KernelFn>(self.0.ptr()) }
    }
}

/// A kernel with its operands, a step, and the pages of its sequences.
#[derive(Clone)]
pub(super) struct Case {
    pub kernel: Kernel,
    pub batch: Batch,
    pub operands: Vec<OperandData<'static>>,
}

/// How to run a case.
#[derive(Clone)]
pub(super) struct Run<'a> {
    pub backend: &'a dyn Backend,
    pub target: &'a TargetSpec,
    pub table: UkTable,
    /// Boundaries between the item ranges of threads, ascending.
    pub cuts: Vec<usize>,
}

impl Case {
    /// Number of rows of the kernel.
    pub fn m(&self) -> usize {
        self.kernel.rows.eval(self.batch.env())
    }

    /// What the oracle says.
    pub fn expected(&self) -> Vec<OperandData<'static>> {
        let mut operands = self.operands.clone();
        eval_kernel(&self.kernel, &self.batch, &mut operands).unwrap();
        operands
    }

    /// Pages of each sequence: scattered over the pool, every other page unused.
    fn tables(&self) -> Vec<Vec<u32>> {
        let sequences = self.batch.seqs.iter().max().map_or(0, |s| s + 1);
        let longest = self.batch.positions.iter().max().map_or(0, |p| *p as usize + 1);
        let each = longest.div_ceil(PAGE_TOKENS);
        let pages = sequences * each;
        (0..sequences).map(|s| (0..each).map(|i| (2 * (pages - i * sequences - s) - 1) as u32).collect()).collect()
    }

    fn pages(&self, tables: &[Vec<u32>]) -> usize {
        tables.iter().flatten().max().map_or(0, |p| *p as usize + 1)
    }

    fn bytes(&self, i: usize, tables: &[Vec<u32>]) -> Vec<u8> {
        match (&self.operands[i], &self.kernel.params[i].kind) {
            (OperandData::Rows(r), ParamKind::Rows { elem, .. }) if elem.is_half() => half_rows_to_bytes(r, *elem),
            (OperandData::Rows(r), _) => rows_to_bytes(r),
            (OperandData::Q8(r), _) => q8_rows_to_bytes(r),
            (OperandData::Matrix(b), _) => b.to_vec(),
            (OperandData::Vector(v), _) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            (OperandData::Kv(state), ParamKind::Kv(spec)) => {
                let page = llmcc_abi::layout::page(spec.kv_heads, spec.head_dim, spec.dtype.bytes()).bytes;
                // All ones is NaN in every float format.
                let mut pool = vec![0xff; self.pages(tables) * page];
                kv_to_pages(state, tables, &mut pool).unwrap();
                pool
            }
            (o, k) => panic!("{o:?} does not fit {k:?}"),
        }
    }

    fn operand(&self, i: usize, bytes: &[u8], tables: &[Vec<u32>], lens: &[usize]) -> OperandData<'static> {
        match self.kernel.params[i].kind {
            ParamKind::Rows { cols, elem: RowElem::F32, .. } => OperandData::Rows(rows_from_bytes(cols, bytes)),
            ParamKind::Rows { cols, elem, .. } if elem.is_half() => OperandData::Rows(half_rows_from_bytes(cols, elem, bytes)),
            ParamKind::Rows { cols, elem: RowElem::Q8 { group }, .. } => OperandData::Q8(q8_rows_from_bytes(cols, group, bytes)),
            ParamKind::Kv(spec) => OperandData::Kv(kv_from_pages(spec, tables, lens, bytes).unwrap()),
            _ => self.operands[i].clone(),
        }
    }

    /// Positions of each sequence that are stored after the step, as the oracle says.
    fn lens(&self) -> Vec<usize> {
        let sequences = self.batch.seqs.iter().max().map_or(0, |s| s + 1);
        let in_batch = |s: usize| {
            let positions = self.batch.positions.iter().zip(&self.batch.seqs);
            positions.filter(|(_, q)| **q == s).map(|(p, _)| *p as usize + 1).max().unwrap_or(0)
        };
        let stored = |s: usize| {
            let states = self.operands.iter().filter_map(|o| if let OperandData::Kv(k) = o { Some(k.len(s)) } else { None });
            states.max().unwrap_or(0)
        };
        (0..sequences).map(|s| in_batch(s).max(stored(s))).collect()
    }

    /// Number of work items.
    pub fn items(&self) -> usize {
        let (count, per_row) = self.kernel.items();
        if per_row { count * self.m() } else { count }
    }

    /// Compiles.
    pub fn compile(&self, run: &Run) -> Object {
        let found = Diagnostics(verify_kernel(&self.kernel));
        found.check().unwrap_or_else(|e| panic!("the test made an invalid kernel: {e}\n{:?}", self.kernel));
        run.backend.lower(&self.kernel, run.target).unwrap_or_else(|e| panic!("{e}\n{:?}", self.kernel))
    }

    /// Compiles and runs.
    pub fn run(&self, run: &Run) -> Vec<OperandData<'static>> {
        self.run_object(&self.compile(run), run)
    }

    pub fn run_object(&self, object: &Object, run: &Run) -> Vec<OperandData<'static>> {
        let code = Code::new(&object.code);
        let tables = self.tables();
        let memory: Vec<Guarded> = (0..self.operands.len()).map(|i| Guarded::new(&self.bytes(i, &tables))).collect();
        let pointers: Vec<*mut u8> = memory.iter().map(Guarded::ptr).collect();
        let batch = &self.batch;
        let seqs: Vec<i32> = batch.seqs.iter().map(|s| *s as i32).collect();
        let out_rows: Vec<i32> = batch.out_rows.iter().map(|r| *r as i32).collect();
        let stride = tables.first().map_or(0, Vec::len);
        let block_tables: Vec<u32> = tables.concat();
        let threads = run.cuts.len() + 1;
        let blocks = (stride * PAGE_TOKENS).div_ceil(ATTEND_BLOCK) + 1;
        let slot = (64 + blocks * object.shared_per_block as usize).next_multiple_of(64);
        // Aligned to 64 bytes: it ends where a page does.
        let shared = Guarded::new(&vec![0; slot * run.cuts.len()]);
        let ctx = StepCtx {
            tokens: batch.tokens.as_ptr(),
            positions: batch.positions.as_ptr(),
            seqs: seqs.as_ptr(),
            out_rows: out_rows.as_ptr(),
            block_tables: block_tables.as_ptr(),
            block_stride: stride as u64,
            n_tokens: batch.tokens.len() as u64,
            n_rows: out_rows.len() as u64,
            n_seqs: tables.len() as u64,
            uk: &run.table,
            threads: threads as u64,
            shared: shared.ptr(),
            shared_stride: slot as u64,
        };
        let m = self.m() as u64;
        let scratch_len = (object.scratch + m * object.scratch_per_m) as usize;
        for range in ranges(&run.cuts, self.items()) {
            let scratch = Guarded::new(&vec![0xff; scratch_len]);
            // SAFETY: the operands are what the kernel's parameters say.
            unsafe { code.entry()(pointers.as_ptr(), &ctx, m, range.start as u64, range.end as u64, scratch.ptr()) };
        }
        let lens = self.lens();
        memory.iter().enumerate().map(|(i, g)| self.operand(i, g.bytes(), &tables, &lens)).collect()
    }
}

/// The ranges of items between the cuts.
fn ranges(cuts: &[usize], items: usize) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut out: Vec<Range<usize>> = vec![];
    for cut in cuts.iter().map(|c| (*c).min(items)).chain([items]) {
        out.push(at..cut.max(at));
        at = cut.max(at);
    }
    out
}

/// The bits of two results are the same: NaN too, if both have one.
pub(super) fn same_bits(a: &OperandData, b: &OperandData) -> bool {
    let bits = |x: &[f32]| x.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect::<Vec<_>>();
    match (a, b) {
        (OperandData::Rows(a), OperandData::Rows(b)) => bits(&a.data) == bits(&b.data),
        (OperandData::Q8(a), OperandData::Q8(b)) => a.codes == b.codes && a.sums == b.sums && bits(&a.scales) == bits(&b.scales),
        (OperandData::Kv(a), OperandData::Kv(b)) => same_state(a, b),
        (a, b) => a == b,
    }
}

fn same_state(a: &KvState, b: &KvState) -> bool {
    // Slots that nothing stored hold NaN in both.
    format!("{a:?}") == format!("{b:?}")
}

/// Row `i` of rows; other operands as they are.
pub(super) fn row_of(operand: &OperandData<'static>, i: usize) -> OperandData<'static> {
    match operand {
        OperandData::Rows(r) => OperandData::Rows(llmcc_ir::eval::Rows { cols: r.cols, data: r.row(i).to_vec() }),
        OperandData::Q8(q) => {
            let g = q.groups();
            OperandData::Q8(llmcc_ir::eval::Q8Rows {
                cols: q.cols,
                group: q.group,
                codes: q.codes[i * q.cols..][..q.cols].to_vec(),
                scales: q.scales[i * g..][..g].to_vec(),
                sums: q.sums[i * g..][..g].to_vec(),
            })
        }
        other => other.clone(),
    }
}

impl Case {
    /// The same with token `i` alone.
    pub fn only(&self, i: usize) -> Option<Case> {
        let b = &self.batch;
        let batch =
            Batch { tokens: vec![b.tokens[i]], seqs: vec![0], positions: vec![b.positions[i]], out_rows: vec![0], ..Batch::default() };
        let rows = self.kernel.params.iter().all(|p| !matches!(p.kind, ParamKind::Rows { rows, .. } if rows != self.kernel.rows));
        rows.then(|| Case { kernel: self.kernel.clone(), batch, operands: self.operands.iter().map(|o| row_of(o, i)).collect() })
    }
}
