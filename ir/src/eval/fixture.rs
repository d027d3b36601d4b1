//! A tiny two-layer model as module and as plan, for the tests of this crate.

use crate::eval::{Batch, State};
use crate::graph::{
    Arg, BinaryOp, Call, Entry, F32, Func, FuncBuilder, Input, ModelInfo, Module, Op, Role, STEP, UnaryOp, Value,
    ValueType, Weight,
};
use crate::kernel::{
    Attention, Body, Embed, Expr, Kernel, Matmul, Norm, Param, ParamKind, Prologue, RopeTable, RowElem, RowNorm,
    Segment, Store,
};
use crate::kv::{KvDType, KvSpec};
use crate::output::{EntryOutput, Output};
use crate::plan::{Buffer, Launch, Operand, PackedWeight, Plan, PlanEntry, Regime, Slot, Storage, WeightExpr};
use crate::quant::{BLOCK, Format, pack_block};
use crate::ty::{DType, Dim, TensorType};
use std::borrow::Cow;

pub(crate) const HIDDEN: usize = 32;
pub(crate) const HEADS: usize = 2;
pub(crate) const HEAD: usize = 16;
pub(crate) const FFN: usize = 48;
pub(crate) const VOCAB: usize = 40;
pub(crate) const LAYERS: usize = 2;
const EPS: f32 = 1e-5;
const SCALE: f32 = 0.25;

/// Pseudo-random numbers in −1…1.
pub(crate) fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut s = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..20).for_each(|_| _ = next());
    (0..n).map(|_| next()).collect()
}

/// Normally distributed numbers of variance 1, as sums of twelve uniform ones.
pub(crate) fn normal(seed: u64, n: usize) -> Vec<f32> {
    random(seed, 12 * n).chunks(12).map(|x| x.iter().sum::<f32>() / 2.0).collect()
}

/// Angles of positions by the frequencies that a parameter has.
fn rope_table(inv_freq: usize, out: usize) -> RopeTable {
    RopeTable { inv_freq, scale: F32::new(1.0), border: None, most: None, axes: false, out }
}

pub(crate) fn spec(dtype: KvDType, window: Option<usize>) -> KvSpec {
    KvSpec { dtype, kv_heads: 1, key_dim: HEAD, value_dim: HEAD, latent: false, window, every: 1, first: None }
}

fn matrix(n: usize, k: usize) -> ValueType {
    TensorType::rows(Dim::Static(n), k).into()
}

fn vector(n: usize) -> ValueType {
    TensorType::vector(n).into()
}

fn ints(dim: Dim) -> ValueType {
    TensorType::new(DType::I32, [dim]).into()
}

fn rows(cols: usize) -> ValueType {
    TensorType::rows(Dim::Tokens, cols).into()
}

fn embed_func() -> Func {
    let mut f = FuncBuilder::new("embed");
    let tokens = f.param("tokens", ints(Dim::Tokens), Role::Data);
    let positions = f.param("positions", ints(Dim::Tokens), Role::Data);
    let table = f.param("table", matrix(VOCAB, HIDDEN), Role::SharedWeight);
    let freq = f.param("inv_freq", vector(HEAD / 2), Role::Weight);
    let x = f.op(Op::Embed, &[table, tokens]);
    let rope = f.op(Op::RopeTable { scale: F32::new(1.0), border: 0, most: 0 }, &[positions, freq]);
    f.finish(&[x, rope])
}

/// Weights of a layer: name, rows, columns (0 = vector).
const LAYER_WEIGHTS: [(&str, usize, usize); 9] = [
    ("g1", HIDDEN, 0),
    ("wq", HEADS * HEAD, HIDDEN),
    ("wk", HEAD, HIDDEN),
    ("wv", HEAD, HIDDEN),
    ("wo", HIDDEN, HEADS * HEAD),
    ("g2", HIDDEN, 0),
    ("wg", FFN, HIDDEN),
    ("wu", FFN, HIDDEN),
    ("wd", HIDDEN, FFN),
];

fn layer_func(kv: KvSpec) -> Func {
    let mut f = FuncBuilder::new("layer");
    let x = f.param("x", rows(HIDDEN), Role::Data);
    let table = f.param("rope", rows(HEAD), Role::Data);
    let positions = f.param("positions", ints(Dim::Tokens), Role::Data);
    let kv = f.param("kv", ValueType::State(kv.into()), Role::State);
    let w: Vec<Value> = LAYER_WEIGHTS
        .iter()
        .map(|(name, n, k)| f.param(*name, if *k == 0 { vector(*n) } else { matrix(*n, *k) }, Role::Weight))
        .collect();
    let h = f.rms_norm(x, w[0], EPS, HIDDEN);
    let (q, k, v) = (f.matmul(h, w[1]), f.matmul(h, w[2]), f.matmul(h, w[3]));
    let q = f.op(Op::Rope { head_dim: HEAD }, &[q, table]);
    let k = f.op(Op::Rope { head_dim: HEAD }, &[k, table]);
    let kv = f.op(Op::KvAppend, &[kv, k, v, positions]);
    let a = f.op(
        Op::Attention {
            heads: HEADS,
            scale: F32::new(SCALE),
            softcap: F32::new(0.0),
            causal: true,
            chunked: false,
            biased: false,
            sums: false,
        },
        &[q, kv, positions],
    );
    let o = f.matmul(a, w[4]);
    let x = f.add(x, o);
    let h = f.rms_norm(x, w[5], EPS, HIDDEN);
    let (g, u) = (f.matmul(h, w[6]), f.matmul(h, w[7]));
    let g = f.unary(UnaryOp::Silu, g);
    let h = f.mul(g, u);
    let d = f.matmul(h, w[8]);
    let x = f.add(x, d);
    f.finish(&[x])
}

fn head_func() -> Func {
    let mut f = FuncBuilder::new("head");
    let x = f.param("x", rows(HIDDEN), Role::Data);
    let out_rows = f.param("out_rows", ints(Dim::Rows), Role::Data);
    let gain = f.param("g", vector(HIDDEN), Role::Weight);
    let table = f.param("table", matrix(VOCAB, HIDDEN), Role::SharedWeight);
    let x = f.op(Op::GatherRows, &[x, out_rows]);
    let x = f.rms_norm(x, gain, EPS, HIDDEN);
    let y = f.matmul(x, table);
    f.finish(&[y])
}

/// The model as a module. Weights: 0 embedding, 1 frequencies, then nine per layer, then the last
/// gain.
pub(crate) fn module(kv: KvSpec) -> Module {
    let weight = |name: String, n: usize, k: usize| {
        let ty = if k == 0 { TensorType::vector(n) } else { TensorType::rows(Dim::Static(n), k) };
        Weight { name, ty, data: None }
    };
    let mut weights = vec![weight("embed".into(), VOCAB, HIDDEN), weight("$inv_freq".into(), HEAD / 2, 0)];
    weights[1].data = Some((0..HEAD / 2).map(|j| 10000f32.powf(-2.0 * j as f32 / HEAD as f32)).collect());
    let mut step = vec![Call {
        func: 0,
        args: vec![Arg::Input(Input::Tokens), Arg::Input(Input::Positions), Arg::Weight(0), Arg::Weight(1)],
    }];
    for layer in 0..LAYERS {
        let x = if layer == 0 { 0 } else { layer + 1 };
        let mut args = vec![Arg::Value(x), Arg::Value(1), Arg::Input(Input::Positions), Arg::State(layer)];
        for (name, n, k) in LAYER_WEIGHTS {
            args.push(Arg::Weight(weights.len()));
            weights.push(weight(format!("layers.{layer}.{name}"), n, k));
        }
        step.push(Call { func: 1, args });
    }
    let last = Arg::Weight(weights.len());
    weights.push(weight("norm".into(), HIDDEN, 0));
    step.push(Call { func: 2, args: vec![Arg::Value(LAYERS + 1), Arg::Input(Input::OutRows), last, Arg::Weight(0)] });
    Module {
        name: "tiny".into(),
        info: ModelInfo { vocab: VOCAB, hidden: HIDDEN, max_context: 64 },
        weights,
        states: vec![kv.into(); LAYERS],
        funcs: vec![embed_func(), layer_func(kv), head_func()],
        entries: vec![Entry {
            name: STEP.into(),
            calls: step,
            outputs: logits(LAYERS + 2),
            taps: vec![],
            context: None,
        }],
    }
}

/// Logits at a place.
fn logits(at: usize) -> Vec<EntryOutput> {
    vec![EntryOutput { output: Output::Logits, at }]
}

/// Values of the module's weights: decoded from `format` for matrices.
pub(crate) fn weights(module: &Module, format: Format) -> Vec<Vec<f32>> {
    let value = |(i, w): (usize, &Weight)| {
        if let Some(data) = &w.data {
            return data.clone();
        }
        let n = w.ty.elements().unwrap();
        let mut x = random(i as u64 + 1, n);
        match w.ty.shape[..] {
            [Dim::Static(rows), Dim::Static(k)] => {
                x.iter_mut().for_each(|v| *v *= 0.3);
                let packed = pack(format, &x, rows, k);
                for (r, row) in x.chunks_mut(k).enumerate() {
                    crate::quant::unpack_row(format, &packed, k, r, row);
                }
            }
            _ => x.iter_mut().for_each(|v| *v = 1.0 + 0.2 * *v),
        }
        x
    };
    module.weights.iter().enumerate().map(value).collect()
}

/// A packed matrix.
pub(crate) fn pack(format: Format, x: &[f32], n: usize, k: usize) -> Vec<u8> {
    let mut out = vec![0; format.packed_bytes(n, k)];
    for (rows, block) in x.chunks(BLOCK * k).zip(out.chunks_mut(format.block_bytes(k))) {
        pack_block(format, rows, k, block).unwrap();
    }
    out
}

/// Packed bytes of all weights of the plan, from values of the module's weights that are multiples
/// of the format's steps.
pub(crate) fn packed(plan: &Plan, weights: &[Vec<f32>]) -> Vec<Cow<'static, [u8]>> {
    let bytes = |(i, w): (usize, &PackedWeight)| match w.storage {
        Storage::Matrix { n, k, format } => pack(format, &weights[i], n, k),
        Storage::Vector { .. } => weights[i].iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    plan.weights.iter().enumerate().map(|w| Cow::Owned(bytes(w))).collect()
}

pub(crate) fn param(name: &str, kind: ParamKind) -> Param {
    Param { name: name.into(), kind }
}

pub(crate) fn f32_rows(rows: Dim, cols: usize) -> ParamKind {
    ParamKind::Rows { rows, cols, elem: RowElem::F32 }
}

fn t(cols: usize) -> ParamKind {
    f32_rows(Dim::Tokens, cols)
}

pub(crate) fn kernel(name: &str, rows: Dim, params: Vec<Param>, body: Body) -> Kernel {
    Kernel { name: name.into(), rows, params, body }
}

pub(crate) fn segment(n: usize, weights: Vec<usize>, expr: Expr, store: Store) -> Segment {
    Segment { n, weights, tile_n: 16, expr, store }
}

pub(crate) fn out(param: usize) -> Store {
    Store::Rows { param, start: 0 }
}

pub(crate) fn add(a: Expr, b: Expr) -> Expr {
    Expr::Binary(BinaryOp::Add, Box::new(a), Box::new(b))
}

fn residual(param: usize) -> Expr {
    add(Expr::Rows { param, start: 0 }, Expr::Acc(0))
}

fn matmul(segments: Vec<Segment>, norm: Option<Prologue>) -> Body {
    Body::Matmul(Matmul { x: 0, prologue: norm, segments, tile_m: 4, k_parts: 1 })
}

/// Attention of queries 0 over the state 1 into rows 2.
pub(crate) fn usual_attention() -> Attention {
    Attention::usual([0, 1, 2], HEADS, F32::new(SCALE))
}

/// The kernels of the plan: embed, rope, qkv, attention, o, gate/up, down, norm, head.
pub(crate) fn kernels(kv: KvSpec, format: Format) -> Vec<Kernel> {
    let (tok, w) = (Dim::Tokens, |n, k| ParamKind::Matrix { n, k, format });
    let norm = Norm::rms(EPS, HIDDEN);
    let prologue = |gain| Some(Prologue { norm: Some(norm), gain: Some(gain), ..Prologue::plain(RowElem::F32) });
    let rope = || Expr::Rope { head_dim: HEAD, table: 1, x: Box::new(Expr::Acc(0)) };
    let qkv = vec![
        segment(HEADS * HEAD, vec![4], rope(), out(7)),
        segment(HEAD, vec![5], rope(), Store::KvKey(2)),
        segment(HEAD, vec![6], Expr::Acc(0), Store::KvValue(2)),
    ];
    let gated = Expr::Binary(
        BinaryOp::Mul,
        Box::new(Expr::Unary(UnaryOp::Silu, Box::new(Expr::Acc(0)))),
        Box::new(Expr::Acc(1)),
    );
    let (p, g) = (param, ParamKind::Vector { len: HIDDEN });
    vec![
        kernel(
            "embed",
            tok,
            vec![p("table", w(VOCAB, HIDDEN)), p("out", t(HIDDEN))],
            Body::Embed(Embed::of_tokens(0, 1)),
        ),
        kernel(
            "rope",
            tok,
            vec![p("inv_freq", ParamKind::Vector { len: HEAD / 2 }), p("out", t(HEAD))],
            Body::RopeTable(rope_table(0, 1)),
        ),
        kernel(
            "qkv",
            tok,
            vec![
                p("x", t(HIDDEN)),
                p("rope", t(HEAD)),
                p("kv", ParamKind::State(kv.into())),
                p("g", g.clone()),
                p("wq", w(HEADS * HEAD, HIDDEN)),
                p("wk", w(HEAD, HIDDEN)),
                p("wv", w(HEAD, HIDDEN)),
                p("q", t(HEADS * HEAD)),
            ],
            matmul(qkv, prologue(3)),
        ),
        kernel(
            "attention",
            tok,
            vec![p("q", t(HEADS * HEAD)), p("kv", ParamKind::State(kv.into())), p("out", t(HEADS * HEAD))],
            Body::Attention(usual_attention()),
        ),
        kernel(
            "o",
            tok,
            vec![p("x", t(HEADS * HEAD)), p("w", w(HIDDEN, HEADS * HEAD)), p("res", t(HIDDEN)), p("out", t(HIDDEN))],
            matmul(vec![segment(HIDDEN, vec![1], residual(2), out(3))], None),
        ),
        kernel(
            "gate_up",
            tok,
            vec![
                p("x", t(HIDDEN)),
                p("g", g.clone()),
                p("wg", w(FFN, HIDDEN)),
                p("wu", w(FFN, HIDDEN)),
                p("out", t(FFN)),
            ],
            matmul(vec![segment(FFN, vec![2, 3], gated, out(4))], prologue(1)),
        ),
        kernel(
            "down",
            tok,
            vec![p("x", t(FFN)), p("w", w(HIDDEN, FFN)), p("res", t(HIDDEN)), p("out", t(HIDDEN))],
            matmul(vec![segment(HIDDEN, vec![1], residual(2), out(3))], None),
        ),
        kernel(
            "norm",
            Dim::Rows,
            vec![p("x", t(HIDDEN)), p("g", g), p("out", f32_rows(Dim::Rows, HIDDEN))],
            Body::RowNorm(RowNorm { gather: true, norm: Some(norm), gain: Some(1), ..RowNorm::plain(0, 2) }),
        ),
        kernel(
            "head",
            Dim::Rows,
            vec![p("x", f32_rows(Dim::Rows, HIDDEN)), p("w", w(VOCAB, HIDDEN)), p("out", f32_rows(Dim::Rows, VOCAB))],
            matmul(vec![segment(VOCAB, vec![1], Expr::Acc(0), out(2))], None),
        ),
    ]
}

/// Buffers: 0 x, 1 rope, then per layer q, attention, x after attention, ffn, x; then normalized
/// rows and logits.
fn regime(max_tokens: Option<usize>) -> Regime {
    let buffer = |rows, cols, slot| Buffer { rows, cols, elem: RowElem::F32, slot };
    let tok = |cols, slot| buffer(Dim::Tokens, cols, slot);
    let mut buffers = vec![tok(HIDDEN, 1), tok(HEAD, 0)];
    let (b, w, kv) = (Operand::Buffer, Operand::Weight, Operand::State);
    let launch = |kernel, call, operands: &[Operand]| Launch { kernel, call, operands: operands.to_vec() };
    let mut launches = vec![launch(0, 0, &[w(0), b(0)]), launch(1, 0, &[w(1), b(1)])];
    let mut x = 0;
    for layer in 0..LAYERS {
        let (n, base, call) = (buffers.len(), 2 + layer * LAYER_WEIGHTS.len(), layer + 1);
        buffers.extend([tok(HEADS * HEAD, 3), tok(HEADS * HEAD, 4), tok(HIDDEN, 2), tok(FFN, 3), tok(HIDDEN, 1)]);
        let at = |i: usize| w(base + i);
        launches.push(launch(2, call, &[b(x), b(1), kv(layer), at(0), at(1), at(2), at(3), b(n)]));
        launches.push(launch(3, call, &[b(n), kv(layer), b(n + 1)]));
        launches.push(launch(4, call, &[b(n + 1), at(4), b(x), b(n + 2)]));
        launches.push(launch(5, call, &[b(n + 2), at(5), at(6), at(7), b(n + 3)]));
        launches.push(launch(6, call, &[b(n + 3), at(8), b(n + 2), b(n + 4)]));
        x = n + 4;
    }
    let (n, call) = (buffers.len(), LAYERS + 1);
    buffers.extend([buffer(Dim::Rows, HIDDEN, 5), buffer(Dim::Rows, VOCAB, 6)]);
    launches.push(launch(7, call, &[b(x), w(2 + LAYERS * LAYER_WEIGHTS.len()), b(n)]));
    launches.push(launch(8, call, &[b(n), w(0), b(n + 1)]));
    Regime { entry: 0, max_tokens, buffers, launches }
}

/// The same model as a plan with matrices in `format`; packed weight `i` is module weight `i`.
pub(crate) fn plan(kv: KvSpec, format: Format) -> Plan {
    let module = module(kv);
    let storage = |w: &Weight| match w.ty.shape[..] {
        [Dim::Static(n), Dim::Static(k)] => Storage::Matrix { n, k, format },
        _ => Storage::Vector { len: w.ty.elements().unwrap() },
    };
    let weights = module
        .weights
        .iter()
        .enumerate()
        .map(|(i, w)| PackedWeight { expr: WeightExpr::Weight(i), storage: storage(w) });
    let slot = |per_token: usize, per_row: usize| Slot { per_token: per_token * 4, per_row: per_row * 4 };
    Plan {
        name: "tiny".into(),
        info: module.info,
        states: module.states.clone(),
        kernels: kernels(kv, format),
        weights: weights.collect(),
        slots: vec![
            slot(HEAD, 0),
            slot(HIDDEN, 0),
            slot(HIDDEN, 0),
            slot(FFN, 0),
            slot(HEADS * HEAD, 0),
            slot(0, HIDDEN),
            slot(0, VOCAB),
        ],
        entries: vec![PlanEntry {
            name: STEP.into(),
            outputs: logits(6),
            candidates: None,
            taps: vec![],
            context: None,
        }],
        regimes: vec![regime(Some(1)), regime(None)],
    }
}

/// Empty states for a model.
pub(crate) fn states(kv: KvSpec) -> Vec<State> {
    vec![State::new(kv.into()); LAYERS]
}

/// Two sequences: 21 tokens (crossing a page) and 3, mixed.
pub(crate) fn ragged() -> Batch {
    let mut b = Batch::default();
    b.push(1, &[7, 3], 0);
    b.push(0, &(0..21).map(|i| (i * 7 + 3) % VOCAB as i32).collect::<Vec<_>>(), 0);
    b.push(1, &[12], 2);
    b
}
