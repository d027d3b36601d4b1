//! Runs compiled kernels in the test process.
//!
//! Every operand ends where an inaccessible page begins, so that reading or writing past it is a
//! fault, not a wrong number; scratch ends there too. Outputs of a kernel start as NaN.

use crate::{Backend, Object};
use llmcc_abi::{ATTEND_BLOCK, Arrays, KernelFn, PAGE_TOKENS, StepCtx, UkTable};
use llmcc_ir::diag::Diagnostics;
use llmcc_ir::eval::{KvState, OperandData};
use llmcc_ir::kernel::ParamId;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::verify::verify_kernel;
use llmcc_test_support::Case;
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
            let map = libc::mmap(std::ptr::null_mut(), map_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
                .cast::<u8>();
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

/// How to run a case.
#[derive(Clone)]
pub(super) struct Run<'a> {
    pub backend: &'a dyn Backend,
    pub target: &'a TargetSpec,
    pub table: UkTable,
    /// Boundaries between the item ranges of threads, ascending.
    pub cuts: Vec<usize>,
}

impl Run<'_> {
    /// The same for a case whose items so many threads share.
    pub fn shared(&self, case: &Case, threads: usize) -> Self {
        let cuts = (1..threads).map(|t| case.items() * t / threads).collect();
        Run { cuts, ..self.clone() }
    }
}

/// Running a case in this process.
pub(super) trait Jit {
    /// Number of work items.
    fn items(&self) -> usize;
    /// Compiles.
    fn compile(&self, run: &Run) -> Object;
    /// Runs the compiled code; returns the operands afterwards.
    fn run_object(&self, object: &Object, run: &Run) -> Vec<OperandData<'static>>;

    /// Compiles and runs.
    fn run(&self, run: &Run) -> Vec<OperandData<'static>> {
        self.run_object(&self.compile(run), run)
    }
}

impl Jit for Case {
    fn items(&self) -> usize {
        let (count, per_row) = self.kernel.items();
        if per_row { count * self.m() } else { count }
    }

    fn compile(&self, run: &Run) -> Object {
        let found = Diagnostics(verify_kernel(&self.kernel));
        found.check().unwrap_or_else(|e| panic!("the test made an invalid kernel: {e}\n{:?}", self.kernel));
        run.backend.lower(&self.kernel, run.target).unwrap_or_else(|e| panic!("{e}\n{:?}", self.kernel))
    }

    fn run_object(&self, object: &Object, run: &Run) -> Vec<OperandData<'static>> {
        let native = object.native().expect("native code");
        let code = Code::new(&native.bytes);
        let tables = self.tables();
        let memory: Vec<Guarded> = (0..self.operands.len()).map(|i| Guarded::new(&self.bytes(i, &tables))).collect();
        let pointers: Vec<*mut u8> = memory.iter().map(Guarded::ptr).collect();
        let batch = &self.batch;
        let seqs: Vec<i32> = batch.seqs.iter().map(|s| *s as i32).collect();
        let ends = self.ends();
        let types: Vec<i32> = (0..batch.tokens.len()).map(|i| batch.type_of(i)).collect();
        let axes: Vec<i32> = (0..batch.tokens.len()).flat_map(|i| batch.axes_of(i)).collect();
        let out_rows: Vec<i32> = batch.out_rows.iter().map(|r| *r as i32).collect();
        let stride = tables.first().map_or(0, Vec::len);
        let block_tables: Vec<u32> = tables.concat();
        let threads = run.cuts.len() + 1;
        let blocks = (stride * PAGE_TOKENS).div_ceil(ATTEND_BLOCK) + 1;
        let slot = (64 + blocks * native.shared_per_block as usize).next_multiple_of(64);
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
            ends: ends.as_ptr(),
            arrays: Arrays {
                types: types.as_ptr().cast(),
                given: batch.hidden.as_ptr().cast(),
                axes: axes.as_ptr().cast(),
            },
        };
        let m = self.m() as u64;
        let scratch_len = (object.scratch + m * object.scratch_per_m) as usize;
        for range in ranges(&run.cuts, self.items()) {
            let scratch = Guarded::new(&vec![0xff; scratch_len]);
            // SAFETY: the operands match the kernel's parameters.
            unsafe { code.entry()(pointers.as_ptr(), &ctx, m, range.start as u64, range.end as u64, scratch.ptr()) };
        }
        memory.iter().enumerate().map(|(i, g)| self.operand(i, g.bytes(), &tables)).collect()
    }
}

/// Lengths of the tokens' sequences in the attention state that a case has, or after its step.
trait Ends {
    fn ends(&self) -> Vec<i32>;
}

impl Ends for Case {
    fn ends(&self) -> Vec<i32> {
        let state = |o: &OperandData| if let OperandData::State(s) = o { s.paged().cloned() } else { None };
        match self.operands.iter().find_map(state) {
            Some(kv) => self.batch.seqs.iter().map(|seq| kv.len(*seq) as i32).collect(),
            None => self.batch.ends(),
        }
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

/// Checks that operand `out` has the same bits however many threads share the work.
pub(super) fn check_threads(case: &Case, run: &Run, out: ParamId, name: &str) {
    let object = case.compile(run);
    let whole = case.run_object(&object, run);
    for threads in [2, 3, 7, 16, 61] {
        let shared = case.run_object(&object, &run.shared(case, threads));
        assert!(same_bits(&shared[out], &whole[out]), "{threads} threads, {name}");
    }
}

/// The bits of two results are the same: NaN too, if both have one.
pub(super) fn same_bits(a: &OperandData, b: &OperandData) -> bool {
    let bits = |x: &[f32]| x.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect::<Vec<_>>();
    match (a, b) {
        (OperandData::Rows(a), OperandData::Rows(b)) => bits(&a.data) == bits(&b.data),
        (OperandData::Q8(a), OperandData::Q8(b)) => {
            (&a.codes, &a.sums, &a.excesses) == (&b.codes, &b.sums, &b.excesses) && bits(&a.scales) == bits(&b.scales)
        }
        (OperandData::State(a), OperandData::State(b)) => match (a.paged(), b.paged()) {
            (Some(a), Some(b)) => same_state(a, b),
            (_, _) => a == b,
        },
        (a, b) => a == b,
    }
}

fn same_state(a: &KvState, b: &KvState) -> bool {
    // Slots that nothing stored hold NaN in both.
    format!("{a:?}") == format!("{b:?}")
}
