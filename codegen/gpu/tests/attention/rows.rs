//! Keys that are values, of every token and of several, and the sums of the weights of attention.

use crate::support::{Case, Compiled, Gen, step_of};
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{Batch, KvState, OperandData};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Attention, Body, ParamId, RowElem};
use llmcc_ir::kv::{First, KvDType, KvSpec};
use llmcc_ir::target::{Arch, find};
use llmcc_ir::ty::Dim;

/// Rows of a cache that the tokens of a step see, and attention to them.
struct Rows {
    /// The kernel's result.
    out: ParamId,
    spec: KvSpec,
    heads: usize,
    sums: bool,
    case: Case,
}

impl Rows {
    fn new(mut g: Gen, spec: KvSpec, group: usize, sums: bool) -> Rows {
        g.rows = Dim::Tokens;
        let heads = spec.kv_heads * group;
        let q = g.input(Dim::Tokens, heads * spec.key_dim);
        let mut state = KvState::new(spec);
        for (seq, position) in g.batch.seqs.clone().into_iter().zip(g.batch.positions.clone()) {
            for p in spec.sees(position as usize, None) {
                let mut row =
                    |key| g.rng.floats(spec.width(key)).into_iter().map(|x| f64::from(2.0 * x)).collect::<Vec<_>>();
                let (k, v) = (row(true), row(false));
                if spec.own_dim() > 0 {
                    state.store_key(seq, p, &k);
                }
                state.store_value(seq, p, &v);
            }
        }
        let kv = g.kv(state);
        let out = g.output(heads * (spec.value_dim + if sums { 2 } else { 0 }), RowElem::F32);
        let sinks = g.rng.chance(2).then(|| g.vector(heads));
        let softcap = g.rng.chance(4).then(|| F32::new(2.0));
        let scale = F32::new(1.0 / (spec.key_dim as f32).sqrt());
        let body = Attention { sinks, softcap, sums, ..Attention::usual([q, kv, out], heads, scale) };
        Rows { out, spec, heads, sums, case: g.case(Body::Attention(body)) }
    }

    /// Values, maxima and sums equal the evaluator's, and a token alone gets the same bits.
    fn check(&self, seed: u64) {
        let compiler = Compiler::new();
        let mut target = *find(["sm80", "sm90"][seed as usize % 2]).unwrap();
        if let (Arch::Gpu(gpu), true) = (&mut target.arch, seed.is_multiple_of(3)) {
            // So few that a token beside others has fewer blocks than alone.
            gpu.sms = 7;
        }
        let compiled = Compiled::new(&self.case.kernel, &compiler, &target);
        assert!(compiled.source.generic.is_some());
        let got = self.rows(compiled.run(&self.case, 1).0.swap_remove(0));
        let want = self.rows(self.case.expected());
        let values = self.heads * self.spec.value_dim;
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let position = self.case.batch.positions[i];
            for (j, (g, w)) in got.iter().zip(want).enumerate() {
                // Errors of scores, which are sums over columns, are relative ones of weights.
                let size = if j < values { 8.0 } else { w.abs().max(1.0) };
                let most = 3e-6 * f64::from(size);
                assert!(
                    (f64::from(*g) - f64::from(*w)).abs() <= most,
                    "seed {seed} token {i} at {position}, column {j} of {values}: {g} for {w}\n{}",
                    self.case.text()
                );
            }
            if self.spec.rows(position as usize + 1) == 0 && !self.case.text().contains("sinks") {
                assert!(got[..values].iter().all(|x| *x == 0.0));
            }
            if i % 3 == 0 {
                let mut alone = self.case.only(i).unwrap();
                alone.batch.seqs = vec![self.case.batch.seqs[i]];
                let alone = self.rows(compiled.run(&alone, 1).0.swap_remove(0));
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&alone[0]), bits(got), "seed {seed} token {i} alone");
            }
        }
        assert_eq!((got.len(), self.sums), (want.len(), got[0].len() > values));
    }

    fn rows(&self, mut operands: Vec<OperandData<'static>>) -> Vec<Vec<f32>> {
        match operands.swap_remove(self.out) {
            OperandData::Rows(rows) => (0..rows.rows()).map(|i| rows.row(i).to_vec()).collect(),
            _ => unreachable!("rows"),
        }
    }
}

/// Rows that are key and value: few columns and many, odd numbers of them, several KV heads.
fn alone(g: &mut Gen, seed: u64, every: usize) -> KvSpec {
    let dtype = KvDType::ALL[seed as usize % KvDType::ALL.len()].0;
    // With a single column LLVM loads the kept number together with the bytes behind it, which the
    // emulator refuses, as nobody has written them.
    let dim = if dtype == KvDType::Int4 { 2 * g.rng.below(1, 40) } else { g.rng.below(2, 80) };
    let window = if every == 1 && g.rng.chance(2) { Some(g.rng.below(1, 40)) } else { None };
    let kv_heads = g.rng.below(1, 3);
    KvSpec { dtype, kv_heads, key_dim: dim, value_dim: dim, latent: true, window, every, first: None }
}

#[test]
fn rows_of_one_token_and_of_several() {
    for seed in 0..30 {
        let mut g = Gen::new(seed, 6, 200);
        let every = [1, 2, 3, 4, 10, 16, 40, 128][seed as usize % 8];
        let spec = alone(&mut g, seed, every);
        let (group, sums) = (g.rng.below(1, 5), seed % 3 > 0);
        Rows::new(g, spec, group, sums).check(seed);
    }
}

/// Contexts of several chunks, and prompts.
#[test]
fn rows_of_long_contexts() {
    for (seed, (position, every)) in [(1500, 1), (4000, 3), (127, 128), (6000, 4), (128, 128)].into_iter().enumerate() {
        let mut g = step_of(seed as u64, 1);
        g.batch = Batch {
            tokens: vec![0; 2],
            seqs: vec![1, 0],
            positions: vec![position, 5],
            out_rows: vec![],
            ..Batch::default()
        };
        let spec = KvSpec { window: None, ..alone(&mut g, seed as u64, every) };
        Rows::new(g, spec, 3, true).check(seed as u64);
    }
    // Rows as wide as DeepSeek-V4's.
    let dtype = KvDType::Bf16;
    let wide =
        KvSpec { dtype, kv_heads: 1, key_dim: 512, value_dim: 512, latent: true, window: None, every: 4, first: None };
    Rows::new(step_of(9, 9), wide, 2, true).check(9);
    let mut g = step_of(7, 70);
    let spec = alone(&mut g, 2, 4);
    Rows::new(g, spec, 4, true).check(7);
}

/// Sums of caches that tensor cores serve, too.
#[test]
fn sums_of_any_cache() {
    for (seed, dtype) in [KvDType::F32, KvDType::F16, KvDType::Int8].into_iter().enumerate() {
        let (kv_heads, key_dim, value_dim, latent, every) = (2, 32, 32, false, 1);
        let far = First { rows: 20, behind: 60 };
        for (window, first) in [(Some(90), None), (None, Some(far)), (None, Some(First { rows: 300, behind: 1 }))] {
            let g = Gen::new(seed as u64, 5, 300);
            let spec = KvSpec { dtype, kv_heads, key_dim, value_dim, latent, window, every, first };
            Rows::new(g, spec, 2, true).check(seed as u64);
        }
    }
}
