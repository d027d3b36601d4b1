//! Attention kernels, run by the PTX emulator, against the evaluator.
//!
//! The bound on an output's error follows from the number formats: queries and probabilities are
//! rounded to the cache's 16 bits (unit roundoff `u`), so that a score is off by at most
//! `u·scale·Σ|q·k|`, a probability by twice that and by `u`, relatively; and the output is rounded
//! once more.

#[path = "attention/company.rs"]
mod company;
#[path = "attention/kinds.rs"]
mod kinds;
#[path = "attention/prompt.rs"]
mod prompt;
#[path = "attention/registers.rs"]
mod registers;
#[path = "attention/rows.rs"]
mod rows;
#[path = "attention/selected.rs"]
mod selected;
#[path = "attention/wide.rs"]
mod wide;

use crate::support::{Case, Compiled};
use llmcc_gpu::Source;
use llmcc_gpu::llvm::Compiler;
use llmcc_ir::eval::{Batch, KvState, OperandData, Rows, ScoreBias};
use llmcc_ir::graph::F32;
use llmcc_ir::kernel::{Attention, Body, Kernel, Param, ParamKind, RowElem};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::target::{self, TargetSpec};
use llmcc_ir::ty::Dim;
use llmcc_ptx::Stats;
use llmcc_test_support::Rng;

/// A kernel to be tried.
#[derive(Clone, Copy, Debug)]
struct Shape {
    dtype: KvDType,
    kv_heads: usize,
    /// Elements of a head that are stored as keys, and as values if not as many.
    d: usize,
    values: Option<usize>,
    /// Keys end with the values.
    latent: bool,
    group: usize,
    window: Option<usize>,
    q: RowElem,
    out: RowElem,
    softcap: Option<f32>,
    sinks: bool,
    /// Index of a bias.
    bias: Option<ScoreBias>,
    /// How far distances go that have keys and queries.
    relative: Option<usize>,
    /// Most rows that a token selects.
    selected: Option<usize>,
    causal: bool,
    /// The window is a chunk.
    chunked: bool,
    tile_m: usize,
    target: &'static str,
}

const DECODE: Shape = Shape {
    dtype: KvDType::F16,
    kv_heads: 2,
    d: 64,
    values: None,
    latent: false,
    group: 4,
    window: None,
    q: RowElem::F32,
    out: RowElem::F16,
    softcap: None,
    sinks: false,
    bias: None,
    relative: None,
    selected: None,
    causal: true,
    chunked: false,
    tile_m: 1,
    target: "sm90",
};

impl Shape {
    fn spec(&self) -> KvSpec {
        let (value_dim, latent) = (self.dv(), self.latent);
        let key_dim = if latent { self.d + value_dim } else { self.d };
        KvSpec {
            dtype: self.dtype,
            kv_heads: self.kv_heads,
            key_dim,
            value_dim,
            latent,
            window: self.window,
            every: 1,
            first: None,
        }
    }

    fn dv(&self) -> usize {
        self.values.unwrap_or(self.d)
    }

    /// Columns of a head's queries.
    fn dq(&self) -> usize {
        if self.latent { self.dv() } else { self.d }
    }

    /// Whether the part stored as keys has queries beside the values' queries.
    fn has_own(&self) -> bool {
        self.latent && self.d > 0
    }

    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn scale(&self) -> f32 {
        1.0 / (self.spec().key_dim as f32).sqrt()
    }

    fn kernel(&self) -> Kernel {
        let rows = |name: &str, of_head: usize, elem| {
            let cols = self.heads() * of_head;
            Param { name: name.into(), kind: ParamKind::Rows { rows: Dim::Tokens, cols, elem } }
        };
        let kv = Param { name: "kv".into(), kind: ParamKind::State(self.spec().into()) };
        let body = Attention {
            own: self.has_own().then_some(3),
            softcap: self.softcap.map(F32::new),
            sinks: self.sinks.then_some(3 + usize::from(self.has_own())),
            bias: self.bias.map(|_| 3 + usize::from(self.has_own()) + usize::from(self.sinks)),
            relative: self.relative.map(|_| [3, 4]),
            selected: self.selected.map(|_| 3 + usize::from(self.has_own()) + usize::from(self.sinks)),
            causal: self.causal,
            chunked: self.chunked && self.window.is_some(),
            tile_m: self.tile_m,
            ..Attention::usual([0, 1, 2], self.heads(), F32::new(self.scale()))
        };
        let vector = |name: &str, len| Param { name: name.into(), kind: ParamKind::Vector { len } };
        let mut params = vec![rows("q", self.dq(), self.q), kv, rows("a", self.dv(), self.out)];
        params.extend(self.has_own().then(|| rows("own", self.d, self.q)));
        params.extend(self.sinks.then(|| vector("sinks", self.heads())));
        params.extend(self.bias.map(|bias| vector("bias", self.heads() * bias.width())));
        params.extend(self.near_params());
        params.extend(self.selected_param());
        Kernel { name: "layer.attention0".into(), rows: Dim::Tokens, params, body: Body::Attention(body) }
    }

    fn compiled(&self, target: &TargetSpec) -> Compiled {
        Compiled::new(&self.kernel(), &Compiler::new(), target)
    }

    fn source(&self) -> Source {
        llmcc_gpu::emit(&self.kernel(), self.target()).unwrap()
    }

    fn target(&self) -> &'static TargetSpec {
        target::find(self.target).unwrap()
    }

    /// Unit roundoff of the operands of tensor cores; without them, the error of summing.
    fn roundoff(&self, generic: bool) -> f64 {
        match self.dtype {
            _ if generic => self.spec().key_dim as f64 * f64::from(f32::EPSILON),
            KvDType::Bf16 => 2f64.powi(-8),
            _ => 2f64.powi(-11),
        }
    }
}

/// A step: `tokens[i]` = (sequence, position).
fn batch(tokens: &[(usize, usize)]) -> Batch {
    Batch {
        tokens: vec![0; tokens.len()],
        seqs: tokens.iter().map(|t| t.0).collect(),
        positions: tokens.iter().map(|t| t.1 as i32).collect(),
        out_rows: vec![0],
        ..Batch::default()
    }
}

struct Step {
    batch: Batch,
    state: KvState,
    q: Rows,
    own: Rows,
    sinks: Vec<f32>,
    bias: Vec<f32>,
    near: [Vec<f32>; 2],
    /// Numbers of the rows that each token selects.
    chosen: Rows,
}

impl Step {
    fn new(shape: &Shape, tokens: &[(usize, usize)], seed: u64) -> Step {
        let mut rng = Rng::new(seed);
        let mut state = KvState::new(shape.spec());
        let width = |key| shape.spec().width(key);
        let sequences = tokens.iter().map(|t| t.0 + 1).max().unwrap();
        for seq in 0..sequences {
            let len = tokens.iter().filter(|t| t.0 == seq).map(|t| t.1 + 1).max().unwrap_or(0);
            for p in 0..len {
                let mut row =
                    |key, scale: f32| -> Vec<f64> { (0..width(key)).map(|_| f64::from(rng.float() * scale)).collect() };
                let (k, v) = (row(true, 3.0), row(false, 1.0));
                if !k.is_empty() {
                    state.store_key(seq, p, &k);
                }
                state.store_value(seq, p, &v);
            }
        }
        let mut rows = |cols: usize| {
            let data = (0..tokens.len() * cols).map(|_| shape.q.round(rng.float() * 2.0)).collect();
            Rows { cols, data }
        };
        let q = rows(shape.heads() * shape.dq());
        let own = rows(if shape.latent { shape.heads() * shape.d } else { 0 });
        // As large as scores are, and larger.
        let sinks = (0..shape.heads()).map(|_| rng.float() * 4.0).collect();
        let slopes = shape.bias == Some(ScoreBias::Slopes);
        let slope = |rng: &mut Rng| if slopes { rng.float().abs() * 0.1 } else { rng.float() * 3.0 };
        let bias = (0..shape.heads() * shape.bias.map_or(0, ScoreBias::width)).map(|_| slope(&mut rng)).collect();
        let near = shape.near_values(&mut rng);
        let chosen = shape.selections(&mut rng, tokens);
        Step { batch: batch(tokens), state, q, own, sinks, bias, near, chosen }
    }

    fn case(&self, kernel: Kernel) -> Case {
        let out = OperandData::poisoned(&kernel.params[2].kind, &self.batch).unwrap();
        let mut operands = vec![OperandData::Rows(self.q.clone()), OperandData::State(self.state.clone().into()), out];
        for param in &kernel.params[3..] {
            operands.push(match param.name.as_str() {
                "own" => OperandData::Rows(self.own.clone()),
                "selected" => OperandData::Rows(self.chosen.clone()),
                "sinks" => OperandData::Vector(self.sinks.clone().into()),
                "near_keys" => OperandData::Vector(self.near[0].clone().into()),
                "near_queries" => OperandData::Vector(self.near[1].clone().into()),
                _ => OperandData::Vector(self.bias.clone().into()),
            });
        }
        Case { kernel, batch: self.batch.clone(), operands }
    }

    fn expected(&self, shape: &Shape) -> Rows {
        output(self.case(Kernel { params: f32_out(shape), ..shape.kernel() }).expected())
    }

    /// Largest error that the formats allow, for one head of one token.
    fn bound(&self, shape: &Shape, generic: bool, token: usize, head: usize) -> Vec<f64> {
        let (seq, position) = (self.batch.seqs[token], self.batch.positions[token] as usize);
        let of_head = |rows: &Rows, d: usize| rows.row(token)[head * d..][..d].to_vec();
        let q = match shape.latent {
            true => [of_head(&self.own, shape.d), of_head(&self.q, shape.dv())].concat(),
            false => of_head(&self.q, shape.d),
        };
        let seen = self.seen(shape, token);
        let scale = f64::from(shape.scale());
        let mut scores = vec![];
        let mut largest: f64 = 0.0;
        for p in seen.iter().copied() {
            let mut k = if shape.d > 0 { self.state.key(seq, p, head / shape.group).unwrap() } else { vec![] };
            if shape.latent {
                k.extend(self.state.value(seq, p, head / shape.group).unwrap());
            }
            let near = self.near(shape, (head, position, p), &q, &k);
            let products = || q.iter().zip(&k).map(|(q, k)| f64::from(*q) * k).chain(near.iter().copied());
            let score = scale * products().sum::<f64>();
            let score = shape.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
            let bias = self.biased(shape, head, position, p);
            scores.push(score + bias);
            largest = largest.max(scale * products().map(f64::abs).sum::<f64>() + bias.abs());
        }
        let sink = shape.sinks.then(|| f64::from(self.sinks[head]));
        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().copied().chain(sink).map(|s| (s - max).exp()).sum();
        let u = shape.roundoff(generic);
        let u_out = match shape.out {
            RowElem::F16 => 2f64.powi(-11),
            RowElem::Bf16 => 2f64.powi(-8),
            _ => 2f64.powi(-23),
        };
        let relative = 2.0 * u * largest + u + 2f64.powi(-18) * (1.0 + largest);
        let mut bound = vec![0.0; shape.dv()];
        for (p, s) in seen.into_iter().zip(&scores) {
            let v = self.state.value(seq, p, head / shape.group).unwrap();
            let weight = (s - max).exp() / sum;
            for (b, v) in bound.iter_mut().zip(v) {
                // The second term: probabilities below the smallest normal f16. With int8 values
                // they are relative to the largest of other scales.
                let tiny = if shape.dtype == KvDType::Int8 { 2f64.powi(-21) } else { 2f64.powi(-24) };
                *b += v.abs() * (weight * (relative + u_out * 1.1) + tiny / sum);
            }
        }
        bound
    }
}

fn f32_out(shape: &Shape) -> Vec<Param> {
    let mut params = shape.kernel().params;
    if let ParamKind::Rows { elem, .. } = &mut params[2].kind {
        *elem = RowElem::F32;
    }
    params
}

fn output(mut operands: Vec<OperandData<'static>>) -> Rows {
    match operands.swap_remove(2) {
        OperandData::Rows(rows) => rows,
        _ => unreachable!(),
    }
}

/// Runs the kernel twice on the same workspace: the output of both runs must be the same.
fn run(shape: &Shape, compiled: &Compiled, step: &Step) -> (Rows, Stats) {
    let (runs, stats) = compiled.run(&step.case(shape.kernel()), 2);
    let mut runs: Vec<Rows> = runs.into_iter().map(output).collect();
    assert_eq!(runs[0], runs[1], "{shape:?}: the second run differs, or something is not written");
    (runs.swap_remove(0), stats)
}

/// Runs a kernel on steps and compares; returns the bank conflicts of the first step.
fn check(shape: &Shape, steps: &[&[(usize, usize)]]) -> Stats {
    let compiled = shape.compiled(shape.target());
    let mut first = None;
    for (i, tokens) in steps.iter().enumerate() {
        let step = Step::new(shape, tokens, i as u64 + 1);
        let (got, stats) = run(shape, &compiled, &step);
        let want = step.expected(shape);
        for token in 0..tokens.len() {
            for head in 0..shape.heads() {
                let bound = step.bound(shape, compiled.source.generic.is_some(), token, head);
                for (j, bound) in bound.iter().enumerate() {
                    let col = head * shape.dv() + j;
                    let (g, w) = (f64::from(got.row(token)[col]), f64::from(want.row(token)[col]));
                    assert!(
                        (g - w).abs() <= *bound,
                        "{shape:?} step {i}: token {token} head {head} column {j}: {g} for {w}, at most {bound} off"
                    );
                }
            }
        }
        first.get_or_insert(stats);
    }
    first.unwrap()
}

/// Page borders, a sequence of one token, several sequences in any order.
const RAGGED: &[(usize, usize)] = &[(2, 40), (0, 0), (1, 15), (3, 16), (0, 1), (2, 31), (4, 129), (3, 17)];
const LONE: &[(usize, usize)] = &[(0, 0)];
/// Enough pages for several chunks.
const LONG: &[(usize, usize)] = &[(0, 700)];
const MIXED: &[(usize, usize)] = &[(1, 333), (0, 3), (2, 64)];

#[test]
fn decode_of_f16_and_bf16_caches() {
    check(&DECODE, &[RAGGED, LONE, LONG, MIXED]);
    check(&Shape { dtype: KvDType::Bf16, out: RowElem::Bf16, ..DECODE }, &[RAGGED, LONG]);
    check(&Shape { d: 128, group: 2, out: RowElem::F32, ..DECODE }, &[RAGGED, LONG]);
}

#[test]
fn decode_with_a_window() {
    check(&Shape { window: Some(50), ..DECODE }, &[RAGGED, LONG, MIXED]);
    check(&Shape { window: Some(1), ..DECODE }, &[RAGGED]);
    check(&Shape { window: Some(300), kv_heads: 1, ..DECODE }, &[LONG]);
}

#[test]
fn decode_of_other_heads_and_groups() {
    check(&Shape { d: 80, group: 1, q: RowElem::F16, ..DECODE }, &[RAGGED]);
    check(&Shape { d: 96, group: 12, kv_heads: 1, ..DECODE }, &[RAGGED, LONG]);
    check(&Shape { d: 16, group: 24, kv_heads: 1, q: RowElem::Bf16, ..DECODE }, &[RAGGED]);
    check(&Shape { d: 256, group: 4, kv_heads: 1, dtype: KvDType::Bf16, target: "sm86", ..DECODE }, &[MIXED]);
}

#[test]
fn other_caches_and_head_sizes() {
    check(&Shape { dtype: KvDType::F32, out: RowElem::F32, ..DECODE }, &[RAGGED, LONG]);
    check(&Shape { dtype: KvDType::Int8, d: 48, window: Some(20), out: RowElem::F32, ..DECODE }, &[RAGGED, MIXED]);
    check(&Shape { d: 36, group: 1, ..DECODE }, &[RAGGED, MIXED]);
    check(&Shape { d: 50, group: 3, dtype: KvDType::Bf16, ..DECODE }, &[RAGGED]);
}

/// Values narrower and wider than keys, and values that keys end with: without tensor cores.
#[test]
fn keys_and_values_of_different_width() {
    let prompt = prompts(&[(0, 3, 30), (1, 0, 12)]);
    for (i, dtype) in [KvDType::F32, KvDType::F16, KvDType::Bf16, KvDType::Int8, KvDType::Int4].into_iter().enumerate()
    {
        let unequal = Shape { dtype, d: 48, values: Some(32), out: RowElem::F32, group: 2, ..DECODE };
        let latent = Shape { d: 16, values: Some(64), latent: true, kv_heads: 1, group: 5, ..unequal };
        for shape in [unequal, Shape { d: 24, values: Some(40), ..unequal }, latent] {
            // These suit tensor cores.
            assert_eq!(shape.source().generic.is_none(), shape.latent && dtype.is_half());
            let q = [RowElem::F32, RowElem::F16][i % 2];
            check(&Shape { q, ..shape }, &[RAGGED, LONG]);
        }
        check(&Shape { tile_m: 32, window: Some(20), ..latent }, &[&prompt]);
        check(&Shape { sinks: true, ..latent }, &[RAGGED, LONG]);
    }
}

/// Above 128, values are made by columns; of 16 rows, queries are read again for every stage.
#[test]
fn heads_above_128() {
    let prompt = prompts(&[(0, 3, 30), (1, 0, 12)]);
    for (dtype, d) in [KvDType::F16, KvDType::Bf16, KvDType::Int8].into_iter().flat_map(|t| [192, 256].map(|d| (t, d)))
    {
        let shape = Shape { dtype, d, out: RowElem::F32, kv_heads: 1, ..DECODE };
        assert_eq!(shape.source().generic, None);
        check(&shape, &[MIXED, LONE]);
        check(&Shape { group: 8, q: RowElem::Bf16, window: Some(50), target: "sm80", ..shape }, &[RAGGED]);
        // Heads that two items share; rows that no head fills.
        check(&Shape { group: 12, q: RowElem::F16, ..shape }, &[MIXED]);
        check(&Shape { group: 3, kv_heads: 2, target: "sm86", ..shape }, &[MIXED]);
        check(&Shape { group: 1, target: "sm80", ..shape }, &[LONG]);
        check(&Shape { tile_m: 32, ..shape }, &[&prompt]);
        check(&Shape { tile_m: 8, group: 1, q: RowElem::Bf16, window: Some(20), target: "sm89", ..shape }, &[&prompt]);
    }
    check(&Shape { d: 144, group: 5, ..DECODE }, &[MIXED]);
    check(&Shape { d: 256, dtype: KvDType::F32, ..DECODE }, &[MIXED]);
    check(&Shape { d: 256, dtype: KvDType::F32, tile_m: 32, ..DECODE }, &[&prompt]);
}

/// On tensor cores: any multiple of 32.
#[test]
fn decode_of_int8_caches() {
    let int8 = Shape { dtype: KvDType::Int8, ..DECODE };
    assert_eq!(int8.source().generic, None);
    check(&int8, &[RAGGED, LONE, LONG, MIXED]);
    check(&Shape { d: 128, group: 2, q: RowElem::Bf16, out: RowElem::Bf16, ..int8 }, &[RAGGED, LONG]);
    check(
        &Shape { d: 96, group: 12, kv_heads: 1, q: RowElem::F16, out: RowElem::F32, window: Some(50), ..int8 },
        &[RAGGED, LONG],
    );
    check(&Shape { d: 32, group: 1, target: "sm80", ..int8 }, &[MIXED]);
}

#[test]
fn prefill_of_int8_caches() {
    let int8 = Shape { dtype: KvDType::Int8, ..PROMPT };
    assert_eq!(int8.source().generic, None);
    let ragged = prompts(&[(2, 5, 20), (0, 0, 33), (1, 77, 1), (3, 16, 16)]);
    check(&int8, &[&prompts(&[(0, 0, 70)]), &ragged, LONE]);
    check(
        &Shape { d: 128, q: RowElem::Bf16, out: RowElem::Bf16, window: Some(20), target: "sm86", ..int8 },
        &[&ragged],
    );
}

/// Values whose scales are far apart, or zero: probabilities stay in the range of f16, and sums in
/// that of f32.
#[test]
fn scales_of_int8_values_may_be_anything() {
    let shape = Shape { dtype: KvDType::Int8, out: RowElem::F32, ..DECODE };
    let compiled = shape.compiled(shape.target());
    let mut step = Step::new(&shape, &[(0, 100)], 3);
    let width = shape.spec().width(false);
    for (p, size) in (0..101).zip([0.0, 1e-30, 1e-9, 1e-4, 1.0, 3e5].into_iter().cycle()) {
        let row: Vec<f64> = (0..width).map(|i| size * (((i * 7 + p) % 13) as f64 - 6.0)).collect();
        step.state.store_value(0, p, &row);
    }
    for keep in [1.0, 1e-9, 0.0] {
        let mut step = Step {
            batch: step.batch.clone(),
            state: step.state.clone(),
            q: step.q.clone(),
            own: step.own.clone(),
            sinks: vec![],
            bias: vec![],
            near: [vec![], vec![]],
            chosen: Rows { cols: 0, data: vec![] },
        };
        if keep < 1.0 {
            (0..101).for_each(|p| step.state.store_value(0, p, &vec![keep * p as f64; width]));
        }
        let (got, want) = (run(&shape, &compiled, &step).0, step.expected(&shape));
        let size = want.data.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (g, w) in got.data.iter().zip(&want.data) {
            assert!((g - w).abs() <= size * 4e-3, "{g} for {w} of at most {size}");
        }
    }
}

const PROMPT: Shape = Shape { tile_m: 32, ..DECODE };

/// `(sequence, first position, tokens)` one after the other.
fn prompts(parts: &[(usize, usize, usize)]) -> Vec<(usize, usize)> {
    parts.iter().flat_map(|(seq, first, n)| (*first..first + n).map(|p| (*seq, p))).collect()
}

#[test]
fn prefill_of_a_prompt() {
    let (whole, later) = (prompts(&[(0, 0, 70)]), prompts(&[(0, 150, 37)]));
    check(&PROMPT, &[&whole, &later, LONE]);
    check(&Shape { d: 128, dtype: KvDType::Bf16, out: RowElem::Bf16, ..PROMPT }, &[&whole]);
    check(&Shape { window: Some(20), ..PROMPT }, &[&whole, &later]);
    check(&Shape { target: "sm80", ..PROMPT }, &[&whole]);
}

#[test]
fn prefill_of_several_sequences() {
    let ragged = prompts(&[(2, 5, 20), (0, 0, 33), (1, 77, 1), (3, 16, 16)]);
    let mut shuffled = ragged.clone();
    let mut rng = Rng::new(5);
    (1..shuffled.len()).for_each(|i| shuffled.swap(i, rng.below(0, i + 1)));
    check(&PROMPT, &[&ragged, &shuffled, RAGGED]);
    check(&Shape { window: Some(7), ..PROMPT }, &[&shuffled]);
}

#[test]
fn prefill_of_other_heads_and_groups() {
    let ragged = prompts(&[(0, 3, 30), (1, 0, 12)]);
    check(&Shape { d: 80, group: 3, out: RowElem::F32, ..PROMPT }, &[&ragged]);
    check(&Shape { d: 96, group: 1, kv_heads: 1, q: RowElem::F16, target: "sm80", ..PROMPT }, &[&ragged]);
    check(&Shape { d: 16, group: 24, kv_heads: 1, ..PROMPT }, &[&ragged]);
    check(&Shape { d: 256, group: 2, kv_heads: 1, dtype: KvDType::Bf16, target: "sm86", ..PROMPT }, &[&ragged]);
}

#[test]
fn decode_has_no_bank_conflicts_in_its_loop() {
    let stats = check(&Shape { d: 128, ..DECODE }, &[LONG]);
    let coded = check(&Shape { d: 128, dtype: KvDType::Int8, ..DECODE }, &[LONG]);
    let bad: Vec<_> = stats.conflicts.iter().chain(&coded.conflicts).filter(|c| c.text.contains("ldmatrix")).collect();
    assert!(bad.is_empty(), "{bad:?}");
}
