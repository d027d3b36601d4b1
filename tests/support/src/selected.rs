//! Random choices of the rows of a cache, and how far off they may be.

use crate::{Case, Gen, ULP};
use llmcc_ir::eval::{KvState, OperandData, Rows};
use llmcc_ir::kernel::{Body, ParamId, ParamKind, RowElem, Select, SelectWindows};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::Dim;

/// A cache of rows of `d` elements, one for `every` tokens.
pub fn rows_of(d: usize, dtype: KvDType, every: usize) -> KvSpec {
    KvSpec { dtype, kv_heads: 1, key_dim: d, value_dim: d, latent: true, window: None, every, first: None }
}

impl Gen {
    /// A cache whose rows are made by `row` for all positions up to those of the step's tokens.
    pub fn cached(&mut self, spec: KvSpec, row: impl Fn(&mut Gen, usize) -> Vec<f32>) -> ParamId {
        let mut state = KvState::new(spec);
        let mut ends = vec![];
        for (seq, position) in self.batch.seqs.iter().zip(&self.batch.positions) {
            ends.resize(ends.len().max(seq + 1), 0);
            ends[*seq] = ends[*seq].max(*position as usize + 1);
        }
        for (seq, end) in ends.into_iter().enumerate() {
            for p in 0..end {
                let mut of = |key| row(self, spec.width(key)).into_iter().map(f64::from).collect::<Vec<_>>();
                let (k, v) = (of(true), of(false));
                if spec.own_dim() > 0 {
                    state.store_key(seq, p, &k);
                }
                state.store_value(seq, p, &v);
            }
        }
        self.kv(state)
    }

    /// Numbers of up to `top` of the first `seen` rows of a cache, each with a chance of a half, and −1 for the others.
    pub fn selection(&mut self, seen: usize, top: usize) -> Vec<f32> {
        let mut some: Vec<f32> = (0..seen).filter(|_| self.rng.chance(2)).map(|n| n as f32).take(top).collect();
        some.resize(top, -1.0);
        some
    }

    /// A choice of `windows` windows of `every` tokens, by KV heads, query heads of each and elements of a key; `row`
    /// makes so many numbers.
    pub fn select_windows(
        &mut self,
        [kv_heads, group, d]: [usize; 3],
        (every, windows): (usize, usize),
        row: fn(&mut Gen, usize) -> Vec<f32>,
    ) -> Body {
        self.rows = Dim::Tokens;
        let heads = kv_heads * group;
        let data = row(self, self.batch.tokens.len() * heads * d);
        let kind = ParamKind::Rows { rows: Dim::Tokens, cols: heads * d, elem: RowElem::F32 };
        let q = self.push(kind, OperandData::Rows(Rows { cols: heads * d, data }));
        let kv = self.cached(rows_of(2 * kv_heads * d, KvDType::F32, every), row);
        let out = self.output(kv_heads * (windows + 1) * every, RowElem::F32);
        Body::SelectWindows(SelectWindows { q, kv, heads, kv_heads, windows, out })
    }

    /// A choice of `top` rows of a cache of `spec` by so many heads; `row` makes so many numbers.
    pub fn select(&mut self, spec: KvSpec, [heads, top]: [usize; 2], row: fn(&mut Gen, usize) -> Vec<f32>) -> Body {
        let mut rows = |cols: usize| {
            let data = row(self, self.batch.tokens.len() * cols);
            let kind = ParamKind::Rows { rows: Dim::Tokens, cols, elem: RowElem::F32 };
            self.push(kind, OperandData::Rows(Rows { cols, data }))
        };
        let (q, weights) = (rows(heads * spec.value_dim), rows(heads));
        let kv = self.cached(spec, row);
        let out = self.output(top, RowElem::F32);
        Body::Select(Select { q, weights, kv, heads, top, out })
    }
}

impl Case {
    /// Numbers that the kernel, a choice of rows, has stored for token `i`.
    ///
    /// # Panics
    /// When it is none.
    pub fn selected(&self, operands: &[OperandData], i: usize) -> Vec<f32> {
        f32s(operands, self.choice().out, i)
    }

    fn choice(&self) -> &Select {
        let Body::Select(k) = &self.kernel.body else { panic!("no choice: {:?}", self.kernel.body) };
        k
    }

    /// Checks a choice of rows: it is the evaluator's, but for rows whose scores differ by less than f32 loses.
    ///
    /// # Panics
    /// When it is not.
    pub fn check_select(&self, got: &[OperandData]) {
        let wanted = self.expected();
        for i in 0..self.m() {
            let (got, want) = (self.selected(got, i), self.selected(&wanted, i));
            assert!(got.windows(2).all(|w| w[0] < w[1] || w[1] == -1.0), "token {i}: {got:?}\n{}", self.text());
            let only = |a: &[f32], b: &[f32]| a.iter().copied().filter(|n| !b.contains(n)).collect::<Vec<f32>>();
            let (more, less) = (only(&got, &want), only(&want, &got));
            assert_eq!(more.len(), less.len(), "token {i}: {got:?} for {want:?}\n{}", self.text());
            for (a, b) in more.iter().flat_map(|a| less.iter().map(move |b| (*a, *b))) {
                let ((x, of_x), (y, of_y)) = (self.score(i, a), self.score(i, b));
                let bound = self.terms() as f64 * ULP * (of_x + of_y);
                assert!((x - y).abs() <= bound, "token {i}: row {a} ({x}) for {b} ({y})\n{}", self.text());
            }
        }
    }

    /// Roundings on the way to a score.
    fn terms(&self) -> usize {
        let (k, q) = (self.choice(), f32s(&self.operands, self.choice().q, 0));
        q.len() / k.heads + k.heads + 12
    }

    /// The score of row `n` for token `i`, and the sum of magnitudes that it is made of.
    fn score(&self, i: usize, n: f32) -> (f64, f64) {
        let k = self.choice();
        let OperandData::State(state) = &self.operands[k.kv] else { panic!("no state") };
        let state = state.paged().expect("a cache");
        let at = (n as usize + 1) * state.spec.every - 1;
        let row = state.value(self.batch.seqs[i], at, 0).expect("a row");
        let (q, w) = (f32s(&self.operands, k.q, i), f32s(&self.operands, k.weights, i));
        let of_head = |(q, w): (&[f32], &f32)| {
            let terms = || q.iter().zip(&row).map(|(q, x)| f64::from(*q) * x);
            let w = f64::from(*w);
            (w * terms().sum::<f64>().max(0.0), w.abs() * terms().map(f64::abs).sum::<f64>())
        };
        q.chunks(row.len()).zip(&w).map(of_head).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y))
    }
}

fn f32s(operands: &[OperandData], p: ParamId, i: usize) -> Vec<f32> {
    match &operands[p] {
        OperandData::Rows(rows) => rows.row(i).to_vec(),
        _ => panic!("no rows"),
    }
}
