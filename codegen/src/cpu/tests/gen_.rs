//! Random kernels and batches.

use super::jit::Case;
use llmcc_ir::eval::{Batch, KvState, OperandData, Q8Rows, Rows};
use llmcc_ir::graph::{BinaryOp, F32, UnaryOp};
use llmcc_ir::kernel::{Body, Expr, Kernel, Norm, Param, ParamId, ParamKind, RowElem, Segment, Store, lcm};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::quant::{BLOCK, Elem, Format, pack_block};
use llmcc_ir::ty::Dim;
use std::borrow::Cow;

/// xorshift64*.
#[derive(Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn bits(&mut self) -> u64 {
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

/// A case being made.
pub(super) struct Gen {
    pub rng: Rng,
    pub batch: Batch,
    pub rows: Dim,
    params: Vec<Param>,
    operands: Vec<OperandData<'static>>,
}

pub(super) const FORMATS: [Elem; 7] = [Elem::F32, Elem::F16, Elem::Bf16, Elem::W8, Elem::W4, Elem::W4a, Elem::Fp8];

impl Gen {
    /// With a ragged batch of at most `tokens` tokens per sequence.
    pub fn new(seed: u64, tokens: usize, longest: usize) -> Gen {
        let mut rng = Rng::new(seed);
        let batch = batch(&mut rng, tokens, longest);
        let rows = if rng.chance(4) { Dim::Rows } else { Dim::Tokens };
        Gen { rng, batch, rows, params: vec![], operands: vec![] }
    }

    pub fn case(self, body: Body) -> Case {
        let kernel = Kernel { name: "test.kernel0".into(), rows: self.rows, params: self.params, body };
        Case { kernel, batch: self.batch, operands: self.operands }
    }

    pub fn m(&self) -> usize {
        self.rows.eval(self.batch.env())
    }

    fn push(&mut self, kind: ParamKind, operand: OperandData<'static>) -> ParamId {
        self.params.push(Param { name: format!("p{}", self.params.len()), kind });
        self.operands.push(operand);
        self.params.len() - 1
    }

    /// Random f32 rows.
    pub fn input(&mut self, cols: usize) -> ParamId {
        self.input_of(self.rows, cols)
    }

    pub fn input_of(&mut self, rows: Dim, cols: usize) -> ParamId {
        let data = self.rng.floats(rows.eval(self.batch.env()) * cols);
        self.push(ParamKind::Rows { rows, cols, elem: RowElem::F32 }, OperandData::Rows(Rows { cols, data }))
    }

    /// Random bf16 rows.
    pub fn input_bf16(&mut self, cols: usize) -> ParamId {
        let data = self.rng.floats(self.m() * cols).into_iter().map(|x| RowElem::Bf16.round(x)).collect();
        self.push(ParamKind::Rows { rows: self.rows, cols, elem: RowElem::Bf16 }, OperandData::Rows(Rows { cols, data }))
    }

    /// Random int8 rows.
    pub fn input_q8(&mut self, cols: usize, group: usize) -> ParamId {
        let data = self.rng.floats(self.m() * cols);
        let q = Q8Rows::quantize(&Rows { cols, data }, group);
        self.push(ParamKind::Rows { rows: self.rows, cols, elem: RowElem::Q8 { group } }, OperandData::Q8(q))
    }

    /// Rows to be written.
    pub fn output(&mut self, cols: usize, elem: RowElem) -> ParamId {
        let kind = ParamKind::Rows { rows: self.rows, cols, elem };
        let data = OperandData::poisoned(&kind, &self.batch).unwrap();
        self.push(kind, data)
    }

    pub fn vector(&mut self, len: usize) -> ParamId {
        let data = self.rng.floats(len);
        self.push(ParamKind::Vector { len }, OperandData::Vector(Cow::Owned(data)))
    }

    pub fn matrix(&mut self, n: usize, k: usize, format: Format) -> ParamId {
        let bytes = packed(&mut self.rng, n, k, format);
        self.push(ParamKind::Matrix { n, k, format }, OperandData::Matrix(Cow::Owned(bytes)))
    }

    pub fn kv(&mut self, state: KvState) -> ParamId {
        self.push(ParamKind::Kv(state.spec), OperandData::Kv(state))
    }

    pub fn format(&mut self, elems: &[Elem]) -> Format {
        let elem = self.rng.pick(elems);
        let quantized = matches!(elem, Elem::W8 | Elem::W4 | Elem::W4a);
        Format::new(elem, if quantized { self.rng.pick(&[32, 64, 128]) } else { 0 })
    }

    /// A random expression of `n` columns. `runs`: widths for norms and RoPE, which divide `n`.
    pub fn expr(&mut self, depth: usize, n: usize, lanes: usize, runs: &[usize]) -> Expr {
        if depth == 0 {
            return match self.rng.below(0, if lanes > 0 { 8 } else { 4 }) {
                0 | 1 => {
                    let start = self.rng.below(0, 9);
                    let cols = n + start + self.rng.below(0, 5);
                    Expr::Rows { param: self.input(cols), start }
                }
                2 => {
                    let divisors: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
                    let len = if self.rng.chance(2) { n } else { self.rng.pick(&divisors) };
                    Expr::Vector(self.vector(len))
                }
                3 => Expr::Const(F32::new(self.rng.float())),
                lane => Expr::Acc(lane % lanes),
            };
        }
        match self.rng.below(0, 8) {
            0..=2 => {
                let op = self.rng.pick(UnaryOp::ALL).0;
                Expr::Unary(op, Box::new(self.expr(depth - 1, n, lanes, runs)))
            }
            3..=5 => {
                // Divisors stay away from 0.
                let op = self.rng.pick(BinaryOp::ALL).0;
                let a = Box::new(self.expr(depth - 1, n, lanes, runs));
                let b =
                    if op == BinaryOp::Div { Expr::Const(F32::new(1.5 + self.rng.float())) } else { self.expr(depth - 1, n, lanes, runs) };
                Expr::Binary(op, a, Box::new(b))
            }
            6 if !runs.is_empty() => {
                let norm = Norm { eps: F32::new(1e-2), width: self.rng.pick(runs) };
                Expr::Normalize(norm, Box::new(self.expr(depth - 1, n, lanes, runs)))
            }
            7 if runs.iter().any(|r| *r >= 2) => {
                let wide: Vec<usize> = runs.iter().copied().filter(|r| *r >= 2).collect();
                let head_dim = self.rng.pick(&wide);
                let dim = if self.rng.chance(3) { self.rng.below(1, head_dim / 2 + 1) * 2 } else { head_dim / 2 * 2 };
                let table = self.input(dim);
                Expr::Rope { head_dim, table, x: Box::new(self.expr(depth - 1, n, lanes, runs)) }
            }
            _ => self.expr(depth - 1, n, lanes, runs),
        }
    }

    /// Segments with random widths, expressions and destinations. `weights`: makes the matrices of a segment of `n` columns.
    pub fn segments(&mut self, weights: &mut dyn FnMut(&mut Gen, usize) -> Vec<ParamId>) -> Vec<Segment> {
        (0..self.rng.below(1, 4)).map(|_| self.segment(weights)).collect()
    }

    fn segment(&mut self, weights: &mut dyn FnMut(&mut Gen, usize) -> Vec<ParamId>) -> Segment {
        let run = self.rng.pick(&[1, 1, 6, 8, 20, 64]);
        let runs: Vec<usize> = if run == 1 { vec![] } else { vec![run] };
        let n = if run == 1 { self.rng.below(1, 90) } else { run * self.rng.below(1, 5) };
        let mut quantum = lcm(run, BLOCK);
        let store = match self.rng.below(0, 4) {
            0 => {
                let group = self.rng.pick(&[32, 64, 128]);
                quantum = lcm(quantum, group);
                let start = self.rng.below(0, 3) * group;
                Store::Rows { param: self.output(start + n, RowElem::Q8 { group }), start }
            }
            1 if self.rows == Dim::Tokens => {
                let spec = self.spec(n, run);
                if spec.dtype == KvDType::Int8 {
                    quantum = lcm(quantum, spec.head_dim);
                }
                let kv = self.kv(KvState::new(spec));
                if self.rng.chance(2) { Store::KvKey(kv) } else { Store::KvValue(kv) }
            }
            _ => {
                let start = self.rng.below(0, 9);
                let cols = start + n + self.rng.below(0, 5);
                Store::Rows { param: self.output(cols, RowElem::F32), start }
            }
        };
        // One tile for everything may have any size.
        let tile_n = if self.rng.chance(4) { n + self.rng.below(0, 5) } else { quantum * self.rng.below(1, 3) };
        let weights = weights(self, n);
        let depth = self.rng.below(0, 5);
        let expr = self.expr(depth, n, weights.len(), &runs);
        Segment { n, weights, tile_n, expr, store }
    }

    fn spec(&mut self, n: usize, run: usize) -> KvSpec {
        let divisors: Vec<usize> = (1..=n).filter(|d| n.is_multiple_of(*d)).collect();
        let head_dim = if run > 1 { run } else { self.rng.pick(&divisors) };
        KvSpec { dtype: self.rng.pick(KvDType::ALL).0, kv_heads: n / head_dim, head_dim, window: None }
    }
}

pub(super) fn packed(rng: &mut Rng, n: usize, k: usize, format: Format) -> Vec<u8> {
    let mut bytes = vec![0; format.packed_bytes(n, k)];
    for (i, block) in bytes.chunks_mut(format.block_bytes(k)).enumerate() {
        let rows = BLOCK.min(n - i * BLOCK);
        pack_block(format, &rng.floats(rows * k), k, block).unwrap();
    }
    bytes
}

/// Tokens of up to four sequences, interleaved; each sequence's tokens are consecutive positions.
fn batch(rng: &mut Rng, tokens: usize, longest: usize) -> Batch {
    let mut batch = Batch::default();
    let mut next: Vec<(usize, usize, usize)> = (0..rng.below(1, 5))
        .map(|s| {
            let count = rng.below(1, tokens + 1);
            (s, rng.below(0, longest.saturating_sub(count) + 1), count)
        })
        .collect();
    while !next.is_empty() {
        let i = rng.below(0, next.len());
        let (seq, position, left) = &mut next[i];
        batch.tokens.push(rng.below(0, 40) as i32);
        batch.seqs.push(*seq);
        batch.positions.push(*position as i32);
        *position += 1;
        *left -= 1;
        if *left == 0 {
            next.swap_remove(i);
        }
    }
    batch.out_rows = (0..batch.tokens.len()).filter(|_| rng.chance(2)).collect();
    if batch.out_rows.is_empty() {
        batch.out_rows.push(0);
    }
    batch
}
