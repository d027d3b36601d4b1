//! Random kernels, run by the PTX emulator.
//!
//! Every operand is a buffer of its own with nothing around it; what a kernel writes starts as NaN and never written, so that reading it is a fault.

#![allow(dead_code)] // Each test takes what it needs.

pub mod bound;

use llmcc_abi::{GpuCtx, PAGE_TOKENS};
use llmcc_gpu::llvm::Compiler;
use llmcc_gpu::worker::Stage;
use llmcc_gpu::{Source, emit};
use llmcc_ir::eval::{
    Batch, KvState, OperandData, Rows, Wanted, eval_kernel, fp8_rows_from_bytes, fp8_rows_to_bytes, half_rows_from_bytes,
    half_rows_to_bytes, kv_from_pages, kv_to_pages, rows_from_bytes, rows_to_bytes,
};
use llmcc_ir::graph::{BinaryOp, F32, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Kernel, Norm, Param, ParamId, ParamKind, RowElem, Segment, Store};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::quant::{BLOCK, Elem, Format, Packing, pack_block};
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Dim;
use llmcc_ptx::{Memory, Module, Options, Stats, launch};
use std::borrow::Cow;

/// xorshift64*.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    /// In `from..to`.
    pub fn below(&mut self, from: usize, to: usize) -> usize {
        from + (self.bits() >> 33) as usize % (to - from)
    }
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(0, one_in) == 0
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(0, of.len())]
    }
    /// In −1…1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        // A few magnitudes apart, so that groups have different scales.
        (0..n).map(|_| self.float() * [0.3, 1.0, 2.0][self.below(0, 3)]).collect()
    }
}

/// A kernel with its operands and a step.
pub struct Case {
    pub kernel: Kernel,
    pub batch: Batch,
    pub operands: Vec<OperandData<'static>>,
}

/// A case being made.
pub struct Gen {
    pub rng: Rng,
    pub batch: Batch,
    pub rows: Dim,
    params: Vec<Param>,
    operands: Vec<OperandData<'static>>,
}

impl Gen {
    pub fn new(seed: u64, tokens: usize, longest: usize) -> Gen {
        let mut rng = Rng::new(seed);
        let batch = batch(&mut rng, tokens, longest);
        Gen { rng, batch, rows: Dim::Tokens, params: vec![], operands: vec![] }
    }

    pub fn case(self, body: Body) -> Case {
        let kernel = Kernel { name: "test.kernel0".into(), rows: self.rows, params: self.params, body };
        let wrong = llmcc_ir::verify::verify_kernel(&kernel);
        assert!(wrong.is_empty(), "the test made an invalid kernel: {wrong:?}");
        Case { kernel, batch: self.batch, operands: self.operands }
    }

    /// Adds an operand.
    pub fn push(&mut self, kind: ParamKind, operand: OperandData<'static>) -> ParamId {
        self.params.push(Param { name: format!("p{}", self.params.len()), kind });
        self.operands.push(operand);
        self.params.len() - 1
    }

    /// Random f32 rows.
    pub fn input(&mut self, rows: Dim, cols: usize) -> ParamId {
        let data = self.rng.floats(rows.eval(self.batch.env()) * cols);
        self.push(ParamKind::Rows { rows, cols, elem: RowElem::F32 }, OperandData::Rows(Rows { cols, data }))
    }

    /// Rows to be written.
    pub fn output(&mut self, cols: usize, elem: RowElem) -> ParamId {
        let kind = ParamKind::Rows { rows: self.rows, cols, elem };
        let data = OperandData::poisoned(&kind, &self.batch).expect("rows");
        self.push(kind, data)
    }

    pub fn vector(&mut self, len: usize) -> ParamId {
        let data = self.rng.floats(len);
        self.push(ParamKind::Vector { len }, OperandData::Vector(Cow::Owned(data)))
    }

    /// A random matrix in a random format, in fragment order.
    pub fn matrix(&mut self, n: usize, k: usize) -> ParamId {
        let elem = self.rng.pick(&[Elem::F32, Elem::F16, Elem::Bf16, Elem::W8, Elem::W4, Elem::W4a, Elem::Fp8]);
        let quantized = matches!(elem, Elem::W8 | Elem::W4 | Elem::W4a);
        let format = Format::new(elem, if quantized { self.rng.pick(&[32, 64, 128]) } else { 0 }).with_packing(Packing::Fragment);
        let mut bytes = vec![0; format.packed_bytes(n, k)];
        for (i, block) in bytes.chunks_mut(format.block_bytes(k)).enumerate() {
            let values = self.rng.floats(BLOCK.min(n - i * BLOCK) * k);
            pack_block(format, &values, k, block).expect("packs");
        }
        self.push(ParamKind::Matrix { n, k, format }, OperandData::Matrix(Cow::Owned(bytes)))
    }

    /// A random expression of `n` columns. `runs`: widths for norms and RoPE, which divide `n`.
    pub fn expr(&mut self, depth: usize, n: usize, runs: &[usize]) -> Expr {
        if depth == 0 {
            return self.leaf(n);
        }
        match self.rng.below(0, 8) {
            0..=2 => Expr::Unary(self.rng.pick(UnaryOp::ALL).0, Box::new(self.expr(depth - 1, n, runs))),
            3..=5 => {
                // Divisors stay away from 0.
                let op = self.rng.pick(BinaryOp::ALL).0;
                let a = self.expr(depth - 1, n, runs);
                let b = if op == BinaryOp::Div { Expr::Const(F32::new(1.5 + self.rng.float())) } else { self.expr(depth - 1, n, runs) };
                Expr::Binary(op, Box::new(a), Box::new(b))
            }
            6 if !runs.is_empty() => {
                let norm = Norm { eps: F32::new(1e-2), width: self.rng.pick(runs) };
                Expr::Normalize(norm, Box::new(self.expr(depth - 1, n, runs)))
            }
            7 if runs.iter().any(|r| *r >= 2) => {
                let wide: Vec<usize> = runs.iter().copied().filter(|r| *r >= 2).collect();
                let head_dim = self.rng.pick(&wide);
                let dim = if self.rng.chance(3) { self.rng.below(1, head_dim / 2 + 1) * 2 } else { head_dim / 2 * 2 };
                let table = self.input(self.rows, dim);
                Expr::Rope { head_dim, table, x: Box::new(self.expr(depth - 1, n, runs)) }
            }
            _ => self.expr(depth - 1, n, runs),
        }
    }

    fn leaf(&mut self, n: usize) -> Expr {
        match self.rng.below(0, 4) {
            0 | 1 => {
                let start = self.rng.pick(&[0, 0, 4, 7]);
                let cols = n + start + self.rng.pick(&[0, 0, 3, 8]);
                Expr::Rows { param: self.input(self.rows, cols), start }
            }
            2 => {
                let divisors: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
                let len = if self.rng.chance(2) { n } else { self.rng.pick(&divisors) };
                Expr::Vector(self.vector(len))
            }
            _ => Expr::Const(F32::new(self.rng.float())),
        }
    }

    /// A segment of a pointwise kernel with a random width, expression and destination.
    pub fn segment(&mut self) -> Segment {
        let run = self.rng.pick(&[1, 1, 6, 8, 20, 64]);
        let runs: Vec<usize> = if run == 1 { vec![] } else { vec![run] };
        let n = if run == 1 { self.rng.below(1, 90) } else { run * self.rng.below(1, 5) };
        let store = if self.rng.chance(3) && self.rows == Dim::Tokens {
            let divisors: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
            let head_dim = if run > 1 { run } else { self.rng.pick(&divisors) };
            let spec = KvSpec { dtype: self.rng.pick(KvDType::ALL).0, kv_heads: n / head_dim, head_dim, window: None };
            let kv = self.push(ParamKind::Kv(spec), OperandData::Kv(KvState::new(spec)));
            if self.rng.chance(2) { Store::KvKey(kv) } else { Store::KvValue(kv) }
        } else {
            let start = self.rng.pick(&[0, 0, 8, 5]);
            let cols = start + n + self.rng.pick(&[0, 0, 4, 3]);
            let elem = self.rng.pick(&[RowElem::F32, RowElem::F16, RowElem::Bf16]);
            Store::Rows { param: self.output(cols, elem), start }
        };
        let depth = self.rng.below(0, 5);
        let expr = self.expr(depth, n, &runs);
        // A pointwise segment is one tile.
        Segment { n, weights: vec![], tile_n: n.next_multiple_of(BLOCK), expr, store }
    }
}

/// Tokens of up to four sequences, interleaved; each sequence's tokens are consecutive positions.
fn batch(rng: &mut Rng, tokens: usize, longest: usize) -> Batch {
    let mut batch = Batch::default();
    let mut left: Vec<(usize, usize, usize)> = (0..rng.below(1, 5))
        .map(|s| {
            let count = rng.below(1, tokens + 1);
            (s, rng.below(0, longest.saturating_sub(count) + 1), count)
        })
        .collect();
    while !left.is_empty() {
        let i = rng.below(0, left.len());
        let (seq, position, count) = &mut left[i];
        batch.tokens.push(rng.below(0, 40) as i32);
        batch.seqs.push(*seq);
        batch.positions.push(*position as i32);
        *position += 1;
        *count -= 1;
        if *count == 0 {
            left.swap_remove(i);
        }
    }
    batch.out_rows = (0..batch.tokens.len()).filter(|_| rng.chance(2)).collect();
    if batch.out_rows.is_empty() {
        batch.out_rows.push(0);
    }
    batch
}

/// A case's operands in device memory.
struct Loaded {
    memory: Memory,
    addresses: Vec<u64>,
    lens: Vec<usize>,
    tables: Vec<Vec<u32>>,
}

impl Case {
    /// Rows of the kernel.
    pub fn m(&self) -> usize {
        self.kernel.rows.eval(self.batch.env())
    }

    /// What the evaluator says.
    pub fn expected(&self) -> Vec<OperandData<'static>> {
        let mut operands = self.operands.clone();
        eval_kernel(&self.kernel, &self.batch, &mut operands).unwrap_or_else(|e| panic!("{e}"));
        operands
    }

    /// Compiles for `target` and runs; the operands afterwards.
    pub fn run(&self, compiler: &Compiler, target: &TargetSpec) -> Vec<OperandData<'static>> {
        self.run_with_stats(compiler, target).0
    }

    /// Runs `n` times on the same memory, what is written and the workspace included; the operands after each.
    pub fn run_times(&self, compiler: &Compiler, target: &TargetSpec, n: usize) -> Vec<Vec<OperandData<'static>>> {
        let source = emit(&self.kernel, target).unwrap_or_else(|e| panic!("{e}\n{}", self.text()));
        let gpu = target.gpu().expect("a GPU");
        let ptx = compiler.lower(&source.mlir, gpu.processor, gpu.ptx, Stage::Ptx).unwrap_or_else(|e| panic!("{e}\n{}", source.mlir));
        let module = Module::parse(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        let mut loaded = self.load();
        let args = self.args(&source, &mut loaded);
        let mut once = || {
            self.launch(&module, &source, &args, &mut loaded).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
            (0..self.operands.len()).map(|i| self.operand(i, &mut loaded, &self.lens())).collect()
        };
        (0..n).map(|_| once()).collect()
    }

    pub fn run_with_stats(&self, compiler: &Compiler, target: &TargetSpec) -> (Vec<OperandData<'static>>, Stats) {
        let source = emit(&self.kernel, target).unwrap_or_else(|e| panic!("{e}\n{}", self.text()));
        let gpu = target.gpu().expect("a GPU");
        let ptx = compiler.lower(&source.mlir, gpu.processor, gpu.ptx_for(&self.kernel), Stage::Ptx);
        let ptx = ptx.unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.text(), source.mlir));
        let module = Module::parse(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        let mut loaded = self.load();
        let args = self.args(&source, &mut loaded);
        let stats = self.launch(&module, &source, &args, &mut loaded).unwrap_or_else(|e| panic!("{e}\n{}\n{ptx}", self.text()));
        let lens = self.lens();
        let operands = (0..self.operands.len()).map(|i| self.operand(i, &mut loaded, &lens)).collect();
        (operands, stats)
    }

    pub fn text(&self) -> String {
        llmcc_ir::text::print_kernel(&self.kernel)
    }

    /// Operands, context and a workspace of zeros.
    fn args(&self, source: &Source, loaded: &mut Loaded) -> Vec<u64> {
        let ctx = self.context(loaded);
        let bytes = (source.scratch + source.scratch_per_m * self.m() as u64) as usize;
        let workspace = loaded.memory.alloc_from(&vec![0; bytes.max(1)]);
        loaded.addresses.iter().copied().chain([ctx, workspace]).collect()
    }

    fn launch(&self, module: &Module, source: &Source, args: &[u64], loaded: &mut Loaded) -> Result<Stats, llmcc_ptx::Fault> {
        let m = self.m() as u64;
        // A captured graph launches more blocks than there are rows.
        let grid = source.grid.map(|d| d.blocks(m + 3) as u32);
        let (block, shared) = ([source.threads, 1, 1], u64::from(source.shared));
        launch(module, &source.entry, grid, block, shared, args, &mut loaded.memory, &Options::default())
    }

    fn load(&self) -> Loaded {
        let tables = self.tables();
        let mut l = Loaded { memory: Memory::new(), addresses: vec![], lens: vec![], tables };
        for i in 0..self.operands.len() {
            let bytes = self.bytes(i, &l.tables);
            let at = l.memory.alloc_from(&bytes);
            let unwritten = match &self.operands[i] {
                OperandData::Rows(r) => r.data.iter().all(|v| v.is_nan()),
                OperandData::Fp8(r) => r.scales.iter().all(|v| v.is_nan()),
                _ => false,
            };
            if unwritten {
                l.memory.poison(at, bytes.len()).expect("the buffer is there");
            }
            l.addresses.push(at);
            l.lens.push(bytes.len());
        }
        l
    }

    fn context(&self, l: &mut Loaded) -> u64 {
        let b = &self.batch;
        let mut array = |values: Vec<i32>| l.memory.alloc_from(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
        let wanted: Vec<Wanted> = (0..b.out_rows.len()).map(|i| b.wanted.get(i).copied().unwrap_or_default()).collect();
        let ctx = GpuCtx {
            wanted: array(wanted.iter().map(|w| w.candidates.min(i32::MAX as usize) as i32).collect()),
            scales: array(wanted.iter().map(|w| w.scale.get().to_bits() as i32).collect()),
            tokens: array(b.tokens.clone()),
            positions: array(b.positions.clone()),
            seqs: array(b.seqs.iter().map(|s| *s as i32).collect()),
            out_rows: array(b.out_rows.iter().map(|r| *r as i32).collect()),
            block_tables: array(l.tables.concat().iter().map(|p| *p as i32).collect()),
            block_stride: l.tables.first().map_or(0, Vec::len) as u64,
            n_tokens: b.tokens.len() as u64,
            n_rows: b.out_rows.len() as u64,
            n_seqs: l.tables.len() as u64,
        };
        let arrays = [ctx.tokens, ctx.positions, ctx.seqs, ctx.out_rows, ctx.block_tables];
        let fields = [&arrays[..], &[ctx.block_stride, ctx.n_tokens, ctx.n_rows, ctx.n_seqs, ctx.wanted, ctx.scales]].concat();
        l.memory.alloc_from(&fields.iter().flat_map(|f| f.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Pages of each sequence: scattered over the pool, every other page unused.
    fn tables(&self) -> Vec<Vec<u32>> {
        let sequences = self.batch.seqs.iter().max().map_or(0, |s| s + 1);
        let longest = self.batch.positions.iter().max().map_or(0, |p| *p as usize + 1);
        let each = longest.div_ceil(PAGE_TOKENS);
        let pages = sequences * each;
        (0..sequences).map(|s| (0..each).map(|i| (2 * (pages - i * sequences - s) - 1) as u32).collect()).collect()
    }

    fn bytes(&self, i: usize, tables: &[Vec<u32>]) -> Vec<u8> {
        match (&self.operands[i], &self.kernel.params[i].kind) {
            (OperandData::Rows(r), ParamKind::Rows { elem: RowElem::F32, .. }) => rows_to_bytes(r),
            (OperandData::Rows(r), ParamKind::Rows { elem, .. }) => half_rows_to_bytes(r, *elem),
            (OperandData::Fp8(r), _) => fp8_rows_to_bytes(r),
            (OperandData::Matrix(b), _) => b.to_vec(),
            (OperandData::Vector(v), _) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            (OperandData::Kv(state), ParamKind::Kv(spec)) => {
                let page = llmcc_abi::layout::page(spec.kv_heads, spec.head_dim, spec.dtype.bytes()).bytes;
                let pages = tables.iter().flatten().max().map_or(0, |p| *p as usize + 1);
                // All ones is NaN in every float format.
                let mut pool = vec![0xff; pages * page];
                kv_to_pages(state, tables, &mut pool).expect("fits");
                pool
            }
            (o, k) => panic!("{o:?} does not fit {k:?}"),
        }
    }

    fn operand(&self, i: usize, l: &mut Loaded, lens: &[usize]) -> OperandData<'static> {
        let bytes = l.memory.read(l.addresses[i], l.lens[i]).expect("the buffer is there").to_vec();
        match self.kernel.params[i].kind {
            ParamKind::Rows { cols, elem: RowElem::F32, .. } => OperandData::Rows(rows_from_bytes(cols, &bytes)),
            ParamKind::Rows { cols, elem: RowElem::Fp8, .. } => OperandData::Fp8(fp8_rows_from_bytes(cols, &bytes)),
            ParamKind::Rows { cols, elem, .. } => OperandData::Rows(half_rows_from_bytes(cols, elem, &bytes)),
            ParamKind::Kv(spec) => OperandData::Kv(kv_from_pages(spec, &l.tables, lens, &bytes).expect("reads back")),
            _ => self.operands[i].clone(),
        }
    }

    /// Positions of each sequence that are stored after the step.
    fn lens(&self) -> Vec<usize> {
        let sequences = self.batch.seqs.iter().max().map_or(0, |s| s + 1);
        let of = |s: usize| {
            let positions = self.batch.positions.iter().zip(&self.batch.seqs);
            positions.filter(|(_, q)| **q == s).map(|(p, _)| *p as usize + 1).max().unwrap_or(0)
        };
        (0..sequences).map(of).collect()
    }
}
