//! Random kernels, run by the PTX emulator.
//!
//! Every operand is a buffer of its own with nothing around it; outputs start as NaN and never
//! written, so that reading them is a fault.

pub mod assembled;

use llmcc_abi::{Arrays, GpuCtx, PAGE_TOKENS};
use llmcc_gpu::llvm::Compiler;
use llmcc_gpu::worker::Stage;
use llmcc_gpu::{COUNTER_BYTES, Source, emit};
use llmcc_ir::eval::{Batch, KvState, OperandData, Wanted};
use llmcc_ir::graph::UnaryOp;
use llmcc_ir::kernel::{Kernel, RowElem, Segment, Store};
use llmcc_ir::quant::BLOCK;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Dim;
use llmcc_ptx::{Memory, Module, Options, Stats, launch};
use llmcc_test_support::ULP;
pub use llmcc_test_support::{Case, Gen};

/// A case in the making, of a step of `m` tokens of one sequence.
pub fn step_of(seed: u64, m: usize) -> Gen {
    let mut g = Gen::new(seed, 1, 1);
    g.batch = Batch::single(&vec![0; m], 0);
    g
}

/// A segment of a pointwise kernel with a random width, expression and destination.
pub fn segment(g: &mut Gen) -> Segment {
    let (n, runs) = g.columns();
    let store = if g.rng.chance(3) && g.rows == Dim::Tokens {
        let spec = g.spec(n, &runs);
        let kv = g.kv(KvState::new(spec));
        if g.rng.chance(2) { Store::KvKey(kv) } else { Store::KvValue(kv) }
    } else {
        let start = g.rng.pick(&[0, 0, 8, 5]);
        let cols = start + n + g.rng.pick(&[0, 0, 4, 3]);
        let elem = g.rng.pick(&[RowElem::F32, RowElem::F16, RowElem::Bf16]);
        Store::Rows { param: g.output(cols, elem), start }
    };
    let depth = g.rng.below(0, 5);
    let expr = g.expr(depth, n, 0, &runs);
    // A pointwise segment is one tile.
    Segment { n, weights: vec![], tile_n: n.next_multiple_of(BLOCK), expr, store }
}

/// Error of an elementary function, absolute. For `ex2.approx`, `rcp.approx` and `rsqrt.approx`
/// they come from PTX (2, 1 and 2 units in the last place).
pub fn own_error(op: UnaryOp, x: f64, value: f64) -> f64 {
    // e^x is 2^(x·log₂e): the rounded exponent moves it by |x| units relatively.
    let size = x.abs();
    match op {
        UnaryOp::Neg | UnaryOp::Relu | UnaryOp::RoundI8 | UnaryOp::RoundE4m3 => 0.0,
        UnaryOp::Relu2 => value.abs() * ULP,
        // Subnormal arguments are 0.
        UnaryOp::Sqrt => 2.0 * value.abs() * ULP + 1.1e-19,
        UnaryOp::Exp => (3.0 + size) * value.abs() * ULP,
        UnaryOp::Sigmoid | UnaryOp::Silu => (6.0 + size) * value.abs() * ULP,
        // 2·sigmoid(2x) − 1 from |x| = 0.25 on, where tanh is 0.245: four units of a number below
        // 2.
        UnaryOp::Tanh => 32.0 * value.abs() * ULP,
        // 1 + erf: absolutely as good as erf, 1.5e-7 and a few units.
        UnaryOp::Gelu => 0.5 * size * (1.5e-7 + 8.0 * ULP),
        // e^(−|x|) as above, and a series.
        UnaryOp::Softplus => (12.0 + size) * value.abs() * ULP,
        UnaryOp::GeluTanh => (8.0 + 4.0 * (1.6 * (size + 0.045 * size.powi(3)))) * value.abs() * ULP,
    }
}

/// A kernel compiled.
pub struct Compiled {
    /// As emitted.
    pub source: Source,
    ptx: String,
    module: Module,
}

impl Compiled {
    /// Emits a kernel for `target`.
    pub fn new(kernel: &Kernel, compiler: &Compiler, target: &TargetSpec) -> Compiled {
        let text = || llmcc_ir::text::print_kernel(kernel);
        let source = emit(kernel, target).unwrap_or_else(|e| panic!("{e}\n{}", text()));
        let gpu = target.gpu().expect("a GPU");
        let ptx = compiler.lower(&source.mlir, gpu.processor, gpu.ptx_for(kernel), Stage::Ptx);
        let ptx = ptx.unwrap_or_else(|e| panic!("{e}\n{}\n{}", text(), source.mlir));
        let module = Module::parse(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        Compiled { source, ptx, module }
    }

    /// Runs a case of this kernel `n` times in the same memory and workspace; the operands after
    /// each, and the counts of the last time.
    pub fn run(&self, case: &Case, n: usize) -> (Vec<Vec<OperandData<'static>>>, Stats) {
        self.run_with(case, n, &Options::default())
    }

    /// The same on a machine with other options.
    pub fn run_with(&self, case: &Case, n: usize, options: &Options) -> (Vec<Vec<OperandData<'static>>>, Stats) {
        let mut prepared = Prepared::new(case, self);
        let mut stats = Stats::default();
        let mut once = || {
            stats = prepared.launch(options);
            prepared.operands()
        };
        ((0..n).map(|_| once()).collect(), stats)
    }
}

/// A case with its operands, step and workspace in device memory.
struct Prepared<'a> {
    case: &'a Case,
    compiled: &'a Compiled,
    memory: Memory,
    tables: Vec<Vec<u32>>,
    /// Address and length of each operand, and whether the kernel is to write it first.
    operands: Vec<(u64, usize, bool)>,
    args: Vec<u64>,
    /// Address and length of the counters in the workspace.
    counters: (u64, usize),
}

impl<'a> Prepared<'a> {
    fn new(case: &'a Case, compiled: &'a Compiled) -> Prepared<'a> {
        let (mut memory, tables) = (Memory::new(), case.tables());
        let operands: Vec<_> = (0..case.operands.len()).map(|i| load(case, i, &mut memory, &tables)).collect();
        let ctx = context(case, &mut memory, &tables);
        let source = &compiled.source;
        let scratch = (source.scratch + source.scratch_per_m * case.m() as u64) as usize;
        let workspace = memory.alloc_from(&vec![0; scratch.max(1)]);
        let counters = COUNTER_BYTES.min(source.scratch as usize);
        // The workspace behind the counters may hold anything. (Top-k has a counter per row
        // instead.)
        if counters > 0 {
            memory.poison(workspace + counters as u64, scratch - counters).expect("the workspace is there");
        }
        let args = operands.iter().map(|(at, ..)| *at).chain([ctx, workspace]).collect();
        Prepared { case, compiled, memory, tables, operands, args, counters: (workspace, counters) }
    }

    fn launch(&mut self, options: &Options) -> Stats {
        for (at, len, _) in self.operands.iter().filter(|(.., unwritten)| *unwritten) {
            self.memory.poison(*at, *len).expect("the buffer is there");
        }
        // A captured graph launches more blocks than there are rows.
        let m = self.case.m() as u64 + 40;
        let Compiled { source, ptx, module } = self.compiled;
        let (grid, block, shared) =
            (source.grid.map(|d| d.blocks(m) as u32), [source.threads, 1, 1], u64::from(source.shared));
        let done = launch(module, &source.entry, grid, block, shared, &self.args, &mut self.memory, options);
        let stats = done.unwrap_or_else(|e| panic!("{e}\n{}\n{ptx}", self.case.text()));
        let counters = self.memory.read(self.counters.0, self.counters.1).expect("the workspace is there");
        assert!(counters.iter().all(|b| *b == 0), "counters are left behind\n{}", self.case.text());
        stats
    }

    fn operands(&mut self) -> Vec<OperandData<'static>> {
        let read = |(i, (at, len, _)): (usize, &(u64, usize, bool))| {
            let bytes = self.memory.read(*at, *len).expect("the buffer is there");
            self.case.operand(i, bytes, &self.tables)
        };
        self.operands.iter().enumerate().map(read).collect()
    }
}

/// Puts operand `i` into a buffer of its own.
fn load(case: &Case, i: usize, memory: &mut Memory, tables: &[Vec<u32>]) -> (u64, usize, bool) {
    let bytes = case.bytes(i, tables);
    let unwritten = match &case.operands[i] {
        OperandData::Rows(r) => r.data.iter().all(|v| v.is_nan()),
        OperandData::Fp8(r) => r.scales.iter().all(|v| v.is_nan()),
        _ => false,
    };
    (memory.alloc_from(&bytes), bytes.len(), unwritten)
}

/// The step, as kernels read it. Pages that a sequence does not have, be it that another one has as
/// many, are none of the pool's.
fn context(case: &Case, memory: &mut Memory, tables: &[Vec<u32>]) -> u64 {
    let b = &case.batch;
    let mut array =
        |values: Vec<i32>| memory.alloc_from(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    let wanted: Vec<Wanted> = (0..b.out_rows.len()).map(|i| b.wanted.get(i).copied().unwrap_or_default()).collect();
    let lens = case.lens();
    let has = |seq: usize, page: usize| page * PAGE_TOKENS < lens[seq];
    let entry = |(seq, page, number): (usize, usize, u32)| if has(seq, page) { number as i32 } else { -1 };
    let entries = tables
        .iter()
        .enumerate()
        .flat_map(|(s, t)| t.iter().enumerate().map(move |(i, n)| (s, i, *n)))
        .map(entry)
        .collect();
    let ctx = GpuCtx {
        wanted: array(wanted.iter().map(|w| w.candidates.min(i32::MAX as usize) as i32).collect()),
        scales: array(wanted.iter().map(|w| w.scale.get().to_bits() as i32).collect()),
        tokens: array(b.tokens.clone()),
        positions: array(b.positions.clone()),
        seqs: array(b.seqs.iter().map(|s| *s as i32).collect()),
        out_rows: array(b.out_rows.iter().map(|r| *r as i32).collect()),
        ends: array(b.ends()),
        arrays: Arrays {
            types: array((0..b.tokens.len()).map(|i| b.type_of(i)).collect()),
            given: array(b.hidden.iter().map(|x| x.to_bits() as i32).collect()),
            axes: array((0..b.tokens.len()).flat_map(|i| b.axes_of(i)).collect()),
        },
        block_tables: array(entries),
        block_stride: tables.first().map_or(0, Vec::len) as u64,
        n_tokens: b.tokens.len() as u64,
        n_rows: b.out_rows.len() as u64,
        n_seqs: tables.len() as u64,
    };
    let arrays = [ctx.tokens, ctx.positions, ctx.seqs, ctx.out_rows, ctx.block_tables];
    let sizes = [ctx.block_stride, ctx.n_tokens, ctx.n_rows, ctx.n_seqs];
    let Arrays { types, given, axes } = ctx.arrays;
    let fields = [&arrays[..], &sizes, &[ctx.wanted, ctx.scales, ctx.ends, types, given, axes]].concat();
    memory.alloc_from(&fields.iter().flat_map(|f| f.to_le_bytes()).collect::<Vec<_>>())
}

/// Running a case by the emulator.
pub trait Emulated {
    /// Compiles for `target` and runs; the operands afterwards, and the counts.
    fn run_with_stats(&self, compiler: &Compiler, target: &TargetSpec) -> (Vec<OperandData<'static>>, Stats);

    /// Runs `n` times on the same memory, outputs and workspace included; the operands after each.
    fn run_times(&self, compiler: &Compiler, target: &TargetSpec, n: usize) -> Vec<Vec<OperandData<'static>>>;

    /// Compiles for `target` and runs; the operands afterwards.
    fn run(&self, compiler: &Compiler, target: &TargetSpec) -> Vec<OperandData<'static>> {
        self.run_with_stats(compiler, target).0
    }
}

impl Emulated for Case {
    fn run_with_stats(&self, compiler: &Compiler, target: &TargetSpec) -> (Vec<OperandData<'static>>, Stats) {
        let (mut all, stats) = Compiled::new(&self.kernel, compiler, target).run(self, 1);
        (all.remove(0), stats)
    }

    fn run_times(&self, compiler: &Compiler, target: &TargetSpec, n: usize) -> Vec<Vec<OperandData<'static>>> {
        Compiled::new(&self.kernel, compiler, target).run(self, n).0
    }
}
