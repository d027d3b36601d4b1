//! Random kernels and batches.

use crate::{Case, Rng};
use llmcc_ir::diag::Diagnostics;
use llmcc_ir::eval::{AdapterState, Batch, FixedState, KvState, OperandData, Q8Rows, Rows};
use llmcc_ir::graph::{BinaryOp, F32, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Index, Kernel, Norm, Param, ParamId, ParamKind, RopeTable, RowElem};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::quant::{BLOCK, Elem, Format, pack_block};
use llmcc_ir::state::{AdapterSpec, FixedSpec, State};
use llmcc_ir::ty::{DType, Dim};
use std::borrow::Cow;

/// Stored forms of matrices.
pub const FORMATS: [Elem; 7] = [Elem::F32, Elem::F16, Elem::BF16, Elem::W8, Elem::W4, Elem::W4A, Elem::FP8];

/// Columns that an expression leaves unread in the rows it reads; one of each at random.
#[derive(Clone, Copy)]
pub struct Margins {
    /// Before those it reads: they decide how these are aligned.
    pub before: &'static [usize],
    /// Behind them.
    pub after: &'static [usize],
}

impl Margins {
    /// Half of the rows allow wide loads.
    pub const OFTEN_ALIGNED: Margins = Margins { before: &[0, 0, 4, 7], after: &[0, 0, 3, 8] };
    /// Any number up to 8 and 4.
    pub const ANY: Margins = Margins { before: &[0, 1, 2, 3, 4, 5, 6, 7, 8], after: &[0, 1, 2, 3, 4] };
}

/// A case being made.
pub struct Gen {
    /// Where its random numbers come from.
    pub rng: Rng,
    /// The step.
    pub batch: Batch,
    /// Rows of the kernel.
    pub rows: Dim,
    /// Margins of the rows that expressions read.
    pub margins: Margins,
    params: Vec<Param>,
    operands: Vec<OperandData<'static>>,
}

impl Gen {
    /// A row per token, with a ragged batch of at most `tokens` tokens per sequence at positions
    /// below `longest`.
    pub fn new(seed: u64, tokens: usize, longest: usize) -> Gen {
        let mut rng = Rng::new(seed);
        let batch = batch(&mut rng, tokens, longest);
        Gen { rng, batch, rows: Dim::Tokens, margins: Margins::OFTEN_ALIGNED, params: vec![], operands: vec![] }
    }

    /// A valid kernel of this body over the operands so far.
    pub fn case(self, body: Body) -> Case {
        let kernel = Kernel { name: "test.kernel0".into(), rows: self.rows, params: self.params, body };
        let found = Diagnostics(llmcc_ir::verify::verify_kernel(&kernel));
        found.check().unwrap_or_else(|e| panic!("the test made an invalid kernel: {e}\n{kernel:?}"));
        Case { kernel, batch: self.batch, operands: self.operands }
    }

    /// This kernel over the operands so far, which match its parameters.
    pub fn case_named(self, kernel: Kernel) -> Case {
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

    /// Changes the numbers of f32 rows.
    pub fn change_rows(&mut self, p: ParamId, f: impl Fn(f32) -> f32) {
        if let OperandData::Rows(r) = &mut self.operands[p] {
            r.data.iter_mut().for_each(|x| *x = f(*x));
        }
    }

    /// Makes f32 rows of selections: of each token about every second number of those that are there, ascending, then
    /// −1. A number is there for each position up to the token's.
    pub fn selections(&mut self, p: ParamId) {
        let Gen { rng, batch, operands, .. } = self;
        if let OperandData::Rows(Rows { cols, data }) = &mut operands[p] {
            for (row, position) in data.chunks_mut(*cols).zip(&batch.positions) {
                let mut numbers = (0..=*position).filter(|_| rng.chance(2));
                row.iter_mut().for_each(|x| *x = numbers.next().map_or(-1.0, |n| n as f32));
            }
        }
    }

    /// A function of the numbers of a vector.
    pub fn change_vector(&mut self, p: ParamId, f: impl Fn(f32) -> f32) {
        if let OperandData::Vector(v) = &mut self.operands[p] {
            v.to_mut().iter_mut().for_each(|x| *x = f(*x));
        }
    }

    fn m(&self) -> usize {
        self.rows.eval(self.batch.env())
    }

    /// Random rows of a 16-bit type, as many as the kernel has.
    pub fn input_half(&mut self, cols: usize, elem: RowElem) -> ParamId {
        let data = self.rng.floats(self.m() * cols).into_iter().map(|x| elem.round(x)).collect();
        self.push(ParamKind::Rows { rows: self.rows, cols, elem }, OperandData::Rows(Rows { cols, data }))
    }

    /// Random int8 rows, as many as the kernel has.
    pub fn input_q8(&mut self, cols: usize, group: usize) -> ParamId {
        let data = self.rng.floats(self.m() * cols);
        let q = Q8Rows::quantize(&Rows { cols, data }, group);
        self.push(ParamKind::Rows { rows: self.rows, cols, elem: RowElem::Q8 { group } }, OperandData::Q8(q))
    }

    /// Random rows of integers of 8 bits, as many as the kernel has: of one row in four many are the least.
    pub fn input_integers(&mut self, cols: usize, group: usize) -> ParamId {
        let mut data = vec![];
        for _ in 0..self.m() {
            let least = self.rng.chance(4);
            let code = |g: &mut Gen| if least && g.rng.chance(2) { 0 } else { g.rng.below(0, 256) };
            data.extend((0..cols).map(|_| code(self) as f32 - 128.0));
        }
        let rows = Q8Rows::integers(&Rows { cols, data }, group);
        self.push(ParamKind::Rows { rows: self.rows, cols, elem: RowElem::I8 { group } }, OperandData::Q8(rows))
    }

    /// Rows to be written, as many as the kernel has.
    pub fn output(&mut self, cols: usize, elem: RowElem) -> ParamId {
        let kind = ParamKind::Rows { rows: self.rows, cols, elem };
        let data = OperandData::poisoned(&kind, &self.batch).expect("rows");
        self.push(kind, data)
    }

    /// A random vector.
    pub fn vector(&mut self, len: usize) -> ParamId {
        let data = self.rng.floats(len);
        self.push(ParamKind::Vector { len }, OperandData::Vector(Cow::Owned(data)))
    }

    /// A random order of so many columns.
    pub fn order(&mut self, len: usize) -> ParamId {
        let mut data: Vec<f32> = (0..len).map(|j| j as f32).collect();
        (1..len).for_each(|j| data.swap(j, self.rng.below(0, j + 1)));
        self.push(ParamKind::Vector { len }, OperandData::Vector(Cow::Owned(data)))
    }

    /// The index of a look-up.
    pub fn index(&mut self) -> Index {
        self.rng.pick(&[Index::Tokens, Index::Positions, Index::Types])
    }

    /// Steps of a look-up by that index, of any size for positions: `every` and `shift` of `Embed`.
    pub fn steps(&mut self, index: Index) -> (usize, Option<usize>) {
        match index {
            Index::Positions => self.rng.pick(&[(1, None), (1, None), (3, None), (8, Some(1)), (5, Some(7))]),
            Index::Tokens | Index::Types => (1, None),
        }
    }

    /// A random matrix, packed.
    pub fn matrix(&mut self, n: usize, k: usize, format: Format) -> ParamId {
        let mut bytes = vec![0; format.packed_bytes(n, k)];
        for (i, block) in bytes.chunks_mut(format.block_bytes(k)).enumerate() {
            let rows = BLOCK.min(n - i * BLOCK);
            pack_block(format, &self.rng.floats(rows * k), k, block).expect("packs");
        }
        self.push(ParamKind::Matrix { n, k, format }, OperandData::Matrix(Cow::Owned(bytes)))
    }

    /// Cosines and sines of `half` pairs: their rows, and the kernel's body, with one of the sets of frequencies that
    /// there may be.
    pub fn rope_table(&mut self, half: usize) -> (ParamId, Body) {
        let (axes, scale) = (self.rng.chance(3), F32::new(1.25));
        let border = (!axes && self.rng.chance(2)).then(|| self.rng.below(1, 4000));
        // (LLVM reads three adjacent floats as four: a single pair along axes would be read beyond its end.)
        let half = if axes { half.max(2) } else { half };
        let most = (!axes && self.rng.chance(2)).then(|| self.rng.below(1, 4000));
        let table = RopeTable { inv_freq: 0, scale, border, most, axes, out: 0 };
        let inv_freq = self.vector(table.sets() * half);
        let out = self.output(2 * half, RowElem::F32);
        (out, Body::RopeTable(RopeTable { inv_freq, out, ..table }))
    }

    /// Routes of every row: `top` different experts of `experts`, a few of them much more often
    /// than others, and weights.
    pub fn routes(&mut self, experts: usize, top: usize) -> ParamId {
        let (m, cols) = (self.m(), 2 * top);
        let mut data = vec![];
        for _ in 0..m {
            let mut chosen: Vec<usize> = vec![];
            while chosen.len() < top {
                let most = if self.rng.chance(2) { experts } else { top };
                let e = self.rng.below(0, most);
                if !chosen.contains(&e) {
                    chosen.push(e);
                }
            }
            data.extend(chosen.into_iter().map(|e| e as f32));
            data.extend(self.rng.floats(top));
        }
        let kind = ParamKind::Rows { rows: self.rows, cols, elem: RowElem::F32 };
        self.push(kind, OperandData::Rows(Rows { cols, data }))
    }

    /// A random state of fixed size for every sequence.
    pub fn fixed(&mut self, spec: FixedSpec) -> ParamId {
        let mut state = FixedState::new(spec);
        let sequences = self.batch.seqs.iter().max().map_or(0, |s| s + 1);
        for seq in 0..sequences {
            let numbers = self.rng.floats(spec.len());
            state.of(seq).iter_mut().zip(numbers).for_each(|(to, x)| *to = x.into());
        }
        self.state(state)
    }

    /// Random adapters for some sequences; others have none.
    pub fn adapter(&mut self, spec: AdapterSpec) -> ParamId {
        let mut state = AdapterState::new(spec);
        let sequences = self.batch.seqs.iter().max().map_or(0, |s| s + 1);
        for seq in (0..sequences).filter(|seq| seq % 3 != 1) {
            let numbers = self.rng.floats(spec.n * spec.k);
            let round = |x: f32| if spec.dtype == DType::Bf16 { RowElem::Bf16.round(x) } else { x };
            state.set(seq, numbers.into_iter().map(|x| round(x).into()).collect());
        }
        self.state(state)
    }

    /// A state.
    pub fn state(&mut self, state: impl Into<State>) -> ParamId {
        let state = state.into();
        self.push(ParamKind::State(state.spec()), OperandData::State(state))
    }

    /// A cache.
    pub fn kv(&mut self, state: KvState) -> ParamId {
        self.state(state)
    }

    /// One of `elems`, with groups of a random size if it has any.
    pub fn format(&mut self, elems: &[Elem]) -> Format {
        let elem = self.rng.pick(elems);
        let format = Format::new(elem, 0);
        Format { group: if format.has_its_group() { 0 } else { self.rng.pick(format.def().groups) as u16 }, ..format }
    }

    /// Columns of a segment, and the widths of runs in it (heads) that norms and RoPE may take:
    /// none, or one that divides them.
    pub fn columns(&mut self) -> (usize, Vec<usize>) {
        let run = self.rng.pick(&[1, 1, 6, 8, 20, 64]);
        if run == 1 { (self.rng.below(1, 90), vec![]) } else { (run * self.rng.below(1, 5), vec![run]) }
    }

    /// A cache for heads of `n` columns in all, of the width of a run if there is one.
    pub fn spec(&mut self, n: usize, runs: &[usize]) -> KvSpec {
        let head_dim = match runs.first() {
            Some(run) => *run,
            None => self.divisor(n),
        };
        // Codes of 4 bits come in pairs.
        let dtype = match self.rng.pick(KvDType::ALL).0 {
            KvDType::Int4 if !head_dim.is_multiple_of(2) => KvDType::Int8,
            dtype => dtype,
        };
        KvSpec {
            dtype,
            kv_heads: n / head_dim,
            key_dim: head_dim,
            value_dim: head_dim,
            latent: false,
            window: None,
            every: 1,
            first: None,
        }
    }

    fn divisor(&mut self, n: usize) -> usize {
        let divisors: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
        self.rng.pick(&divisors)
    }

    /// A random expression of `n` columns over `lanes` accumulators. `runs`: widths for norms and
    /// RoPE, which divide `n`.
    pub fn expr(&mut self, depth: usize, n: usize, lanes: usize, runs: &[usize]) -> Expr {
        if depth == 0 {
            return self.leaf(n, lanes);
        }
        match self.rng.below(0, 8) {
            0..=2 => {
                // Rounding functions have no bound on their error; the tests of single functions
                // compare them.
                let functions: Vec<UnaryOp> =
                    UnaryOp::ALL.iter().map(|(op, _)| *op).filter(|op| op.is_continuous()).collect();
                Expr::Unary(self.rng.pick(&functions), Box::new(self.expr(depth - 1, n, lanes, runs)))
            }
            3..=5 => {
                let op = self.rng.pick(BinaryOp::ALL).0;
                let a = self.expr(depth - 1, n, lanes, runs);
                // Divisors stay away from 0.
                let constant = op == BinaryOp::Div;
                let b = if constant {
                    Expr::Const(F32::new(1.5 + self.rng.float()))
                } else {
                    self.expr(depth - 1, n, lanes, runs)
                };
                Expr::Binary(op, Box::new(a), Box::new(b))
            }
            6 if !runs.is_empty() => {
                let norm = Norm { center: self.rng.chance(2), ..Norm::rms(1e-2, self.rng.pick(runs)) };
                Expr::Normalize(norm, Box::new(self.expr(depth - 1, n, lanes, runs)))
            }
            7 if runs.iter().any(|r| *r >= 2) => {
                let wide: Vec<usize> = runs.iter().copied().filter(|r| *r >= 2).collect();
                let head_dim = self.rng.pick(&wide);
                let dim = if self.rng.chance(3) { self.rng.below(1, head_dim / 2 + 1) * 2 } else { head_dim / 2 * 2 };
                let table = self.input(self.rows, dim);
                Expr::Rope { head_dim, table, x: Box::new(self.expr(depth - 1, n, lanes, runs)) }
            }
            _ => self.expr(depth - 1, n, lanes, runs),
        }
    }

    fn leaf(&mut self, n: usize, lanes: usize) -> Expr {
        match self.rng.below(0, if lanes > 0 { 8 } else { 4 }) {
            0 | 1 => {
                let start = self.rng.pick(self.margins.before);
                let cols = n + start + self.rng.pick(self.margins.after);
                Expr::Rows { param: self.input(self.rows, cols), start }
            }
            2 => {
                let len = if self.rng.chance(2) { n } else { self.divisor(n) };
                Expr::Vector(self.vector(len))
            }
            3 => Expr::Const(F32::new(self.rng.float())),
            lane => Expr::Acc(lane % lanes),
        }
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
        let token = rng.below(0, 40) as i32;
        batch.tokens.push(token);
        batch.types.push(token % 3);
        batch.seqs.push(*seq);
        batch.positions.push(*position as i32);
        batch.axes.extend([*position as i32 / 2, token, *position as i32]);
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
