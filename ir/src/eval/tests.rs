use super::fixture::{self, HIDDEN, VOCAB, f32_rows, kernel, out, pack, param, random, segment};
use super::kv_tests::heads;
use super::*;
use crate::graph::{BinaryOp, F32, Func, FuncBuilder, Node, Op, Role, UnaryOp, Value as Id, ValueType};
use crate::kernel::{
    Attention, Body, Expr, Matmul, Norm, ParamKind, Pointwise, Prologue, RopeTable, RowElem, RowNorm, Store,
};
use crate::kv::KvDType;
use crate::plan::WeightExpr;
use crate::quant::{Format, Packing};
use crate::state::StateSpec;
use crate::ty::{Dim, TensorType};
use proptest::prelude::*;
use std::borrow::Cow;

fn w4(group: u16) -> Format {
    Format::parse(&format!("w4g{group}")).unwrap()
}

fn rows(cols: usize, data: &[f32]) -> OperandData<'static> {
    OperandData::Rows(Rows { cols, data: data.to_vec() })
}

fn vector(data: &[f32]) -> OperandData<'static> {
    OperandData::Vector(Cow::Owned(data.to_vec()))
}

fn data<'a>(o: &'a OperandData<'_>) -> &'a [f32] {
    match o {
        OperandData::Rows(r) => &r.data,
        _ => panic!("not f32 rows: {o:?}"),
    }
}

/// Largest difference, relative to the largest magnitude.
fn distance(a: &[f64], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let top = a.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
    let worst = |m: f64, d: f64| if d.is_nan() { d } else { m.max(d) };
    a.iter().zip(b).map(|(x, y)| (x - f64::from(*y)).abs() / top).fold(0.0, worst)
}

#[test]
fn functions_of_one_number() {
    for (op, x, y) in [
        (UnaryOp::Neg, 1.5, -1.5),
        (UnaryOp::Exp, 1.0, std::f64::consts::E),
        (UnaryOp::Sigmoid, 0.0, 0.5),
        (UnaryOp::Silu, 1.0, 0.731_058_578_630_004_9),
        (UnaryOp::Gelu, 1.0, 0.841_344_746_068_542_9),
        (UnaryOp::Gelu, -6.0, -5.919_525_868_240_893e-9),
        (UnaryOp::GeluTanh, 1.0, 0.841_191_990_608_276_7),
        (UnaryOp::Relu, -2.0, 0.0),
        (UnaryOp::Relu, 2.0, 2.0),
        (UnaryOp::Relu2, -2.0, 0.0),
        (UnaryOp::Relu2, 3.0, 9.0),
        (UnaryOp::Sqrt, -2.0, 0.0),
        (UnaryOp::Sqrt, 9.0, 3.0),
        (UnaryOp::Tanh, 0.5, 0.462_117_157_260_009_8),
    ] {
        let got = op.eval(x);
        assert!((got - y).abs() <= 1e-8 * y.abs(), "{}({x}) = {got}, not {y}", op.name());
    }
    assert!(UnaryOp::Relu.eval(f64::NAN).is_nan());
    for op in [BinaryOp::Max, BinaryOp::Min] {
        assert!(op.eval(f64::NAN, 1.0).is_nan() && op.eval(1.0, f64::NAN).is_nan());
    }
    assert_eq!((BinaryOp::Max.eval(1.0, 2.0), BinaryOp::Min.eval(1.0, 2.0)), (2.0, 1.0));
}

#[test]
fn int8_rows_round_to_even() {
    let (codes, scales, sums) = quantize_q8_row(&[1.0, -0.5, 0.25, 0.0], 32);
    // -63.5 is a tie and goes to -64; 31.75 goes to 32.
    assert_eq!((codes, scales, sums), (vec![127, -64, 32, 0], vec![1.0 / 127.0], vec![95]));
    let x: Vec<f32> = (0..40).map(|j| if j < 32 { 0.0 } else { -2.0 }).collect();
    let (codes, scales, sums) = quantize_q8_row(&x, 32);
    assert_eq!((codes[31], codes[32], scales, sums), (0, -127, vec![0.0, 2.0 / 127.0], vec![0, -127 * 8]));
    let tiny = [f32::MIN_POSITIVE / 1024.0; 3];
    assert_eq!(quantize_q8_row(&tiny, 32).0, vec![0; 3], "a factor that overflows gives code 0");
    let (_, scales, _) = quantize_q8_row(&[1.0, f32::NAN], 32);
    assert!(scales[0].is_nan(), "a NaN is not lost");
}

#[test]
fn int8_rows_convert_to_bytes_and_back() {
    let x = Rows { cols: 70, data: random(5, 3 * 70) };
    let q = Q8Rows::quantize(&x, 64);
    let bytes = q8_rows_to_bytes(&q);
    // 96 codes with padding, two scales, two sums: 112 bytes, rounded up to an odd number of 64.
    assert_eq!(bytes.len(), 3 * 192);
    assert!(bytes[70..96].iter().all(|b| *b == 0));
    assert_eq!(q8_rows_from_bytes(70, 64, &bytes), q);
    assert_eq!(rows_from_bytes(70, &rows_to_bytes(&x)), x);
}

#[test]
fn half_rows_convert_to_bytes_and_back() {
    let x = Rows { cols: 13, data: random(5, 3 * 13) };
    for elem in [RowElem::F16, RowElem::Bf16] {
        let bytes = half_rows_to_bytes(&x, elem);
        assert_eq!(bytes.len(), 3 * 32, "26 bytes rounded up to 16");
        let back = half_rows_from_bytes(13, elem, &bytes);
        let rounded: Vec<f32> = x.data.iter().map(|v| elem.round(*v)).collect();
        assert_eq!(back, Rows { cols: 13, data: rounded });
        assert_eq!(half_rows_to_bytes(&back, elem), bytes);
    }
}

/// A kernel that stores 16-bit rows, and one that multiplies them by weights in fragment order.
#[test]
fn half_rows_round_when_stored_and_read_back_exactly() {
    let (k, n) = (40, 20);
    let batch = Batch::single(&[0, 0], 0);
    let x = random(8, 2 * k);
    for elem in [RowElem::F16, RowElem::Bf16] {
        let half = ParamKind::Rows { rows: Dim::Tokens, cols: k, elem };
        let store = kernel(
            "store",
            Dim::Tokens,
            vec![param("x", f32_rows(Dim::Tokens, k)), param("out", half.clone())],
            Body::RowNorm(RowNorm { norm: Some(Norm::rms(0.0, k)), ..RowNorm::plain(0, 1) }),
        );
        let mut o = [rows(k, &x), OperandData::poisoned(&half, &batch).unwrap()];
        eval_kernel(&store, &batch, &mut o).unwrap();
        for (row, stored) in x.chunks(k).zip(data(&o[1]).chunks(k)) {
            let rms = (row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / k as f64).sqrt();
            assert!(row.iter().zip(stored).all(|(v, s)| *s == elem.round((f64::from(*v) / rms) as f32)));
        }
        let format = w4(32).with_packing(Packing::Fragment);
        let w = random(9, n * k);
        let product = |x: ParamKind, prologue| {
            let params = vec![
                param("x", x),
                param("w", ParamKind::Matrix { n, k, format }),
                param("out", f32_rows(Dim::Tokens, n)),
            ];
            let segments = vec![segment(n, vec![1], Expr::Acc(0), out(2))];
            kernel("mm", Dim::Tokens, params, Body::Matmul(Matmul { x: 0, prologue, segments, tile_m: 2, k_parts: 1 }))
        };
        let packed = OperandData::Matrix(pack(format, &w, n, k).into());
        let run = |kernel: &crate::kernel::Kernel, x: OperandData<'static>| {
            let mut o = [x, packed.clone(), rows(n, &[0.0; 40])];
            eval_kernel(kernel, &batch, &mut o).map(|()| data(&o[2]).to_vec())
        };
        let norm = Some(Norm::rms(0.0, k));
        let fused = product(f32_rows(Dim::Tokens, k), Some(Prologue { norm, gain: None, bias: None, elem }));
        let [_, stored] = o;
        assert_eq!(run(&fused, rows(k, &x)).unwrap(), run(&product(half.clone(), None), stored).unwrap());
        // Packing changes no value.
        let mut panels = product(half.clone(), None);
        panels.params[1].kind = ParamKind::Matrix { n, k, format: w4(32) };
        let short: Vec<f32> = x.iter().map(|v| elem.round(*v)).collect();
        let mut p = [rows(k, &short), OperandData::Matrix(pack(w4(32), &w, n, k).into()), rows(n, &[0.0; 40])];
        eval_kernel(&panels, &batch, &mut p).unwrap();
        assert_eq!(run(&product(half.clone(), None), rows(k, &short)).unwrap(), data(&p[2]));
        let inexact = run(&product(half, None), rows(k, &x)).unwrap_err().to_string();
        assert!(inexact.contains("cannot hold"), "{inexact}");
    }
}

#[test]
fn pointwise_by_hand() {
    // out = relu(a[:, 1..3] - v) * 2
    let relu = Expr::Unary(
        UnaryOp::Relu,
        Box::new(Expr::Binary(BinaryOp::Sub, Box::new(Expr::Rows { param: 0, start: 1 }), Box::new(Expr::Vector(1)))),
    );
    let expr = Expr::Binary(BinaryOp::Mul, Box::new(relu), Box::new(Expr::Const(F32::new(2.0))));
    let params = vec![
        param("a", f32_rows(Dim::Tokens, 3)),
        param("v", ParamKind::Vector { len: 1 }),
        param("out", f32_rows(Dim::Tokens, 4)),
    ];
    let body =
        Body::Pointwise(Pointwise { segments: vec![segment(2, vec![], expr, Store::Rows { param: 2, start: 1 })] });
    let k = kernel("p", Dim::Tokens, params, body);
    let batch = Batch::single(&[0, 0], 0);
    let mut o = [
        rows(3, &[9.0, 5.0, 1.0, 9.0, 2.0, 4.0]),
        vector(&[1.5]),
        OperandData::poisoned(&k.params[2].kind, &batch).unwrap(),
    ];
    eval_kernel(&k, &batch, &mut o).unwrap();
    let got = data(&o[2]);
    assert!(got[0].is_nan() && got[3].is_nan(), "columns that are not stored keep their contents");
    assert_eq!((&got[1..3], &got[5..7]), (&[7.0f32, 0.0][..], &[1.0f32, 5.0][..]));
}

#[test]
fn normalization_by_hand_gathers_and_quantizes() {
    let params = vec![
        param("x", f32_rows(Dim::Tokens, 4)),
        param("g", ParamKind::Vector { len: 2 }),
        param("out", f32_rows(Dim::Rows, 4)),
    ];
    let norm = Some(Norm::rms(0.5, 2));
    let mut k = kernel(
        "n",
        Dim::Rows,
        params,
        Body::RowNorm(RowNorm { gather: true, norm, gain: Some(1), ..RowNorm::plain(0, 2) }),
    );
    let mut batch = Batch::single(&[0, 0], 0);
    batch.out_rows = vec![1];
    let x = [f32::NAN, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 5.0];
    let mut o = vec![rows(4, &x), vector(&[1.0, 10.0]), OperandData::poisoned(&k.params[2].kind, &batch).unwrap()];
    eval_kernel(&k, &batch, &mut o).unwrap();
    let (a, b) = (3f32.sqrt(), 17.5f32.sqrt());
    let want = [1.0 / a, 20.0 / a, 3.0 / b, 50.0 / b];
    let got = data(&o[2]).to_vec();
    assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() <= 1e-6 * w), "{got:?} {want:?}");

    k.params[2].kind = ParamKind::Rows { rows: Dim::Rows, cols: 4, elem: RowElem::Q8 { group: 32 } };
    o[2] = OperandData::poisoned(&k.params[2].kind, &batch).unwrap();
    eval_kernel(&k, &batch, &mut o).unwrap();
    assert_eq!(o[2], OperandData::Q8(Q8Rows::quantize(&Rows { cols: 4, data: got }, 32)));
}

#[test]
fn int8_matmul_is_integer_arithmetic() {
    let (k, n) = (64, 3);
    let (x, w) = (random(1, k), random(2, n * k));
    for format in ["w8g32", "w4g32", "w4ag32"].map(|f| Format::parse(f).unwrap()) {
        let params = vec![
            param("x", ParamKind::Rows { rows: Dim::Tokens, cols: k, elem: RowElem::Q8 { group: 32 } }),
            param("w", ParamKind::Matrix { n, k, format }),
            param("out", f32_rows(Dim::Tokens, n)),
        ];
        let body = Body::Matmul(Matmul {
            x: 0,
            prologue: None,
            segments: vec![segment(n, vec![1], Expr::Acc(0), out(2))],
            tile_m: 1,
            k_parts: 1,
        });
        let kernel = kernel("m", Dim::Tokens, params, body);
        let packed = pack(format, &w, n, k);
        let batch = Batch::single(&[0], 0);
        let q = Q8Rows::quantize(&Rows { cols: k, data: x.clone() }, 32);
        let poison = OperandData::poisoned(&kernel.params[2].kind, &batch).unwrap();
        let mut o = [OperandData::Q8(q.clone()), OperandData::Matrix(packed.clone().into()), poison];
        eval_kernel(&kernel, &batch, &mut o).unwrap();
        // Independently: codes recovered from decoded weights by their scale.
        let layout = format.block(k);
        let f16 = |at: usize| f64::from(half::f16::from_le_bytes([packed[at], packed[at + 1]]).to_f32());
        let mut row = vec![0f32; k];
        for j in 0..n {
            crate::quant::unpack_row(format, &packed, k, j, &mut row);
            let mut sum = 0.0;
            for g in 0..2 {
                let scales = layout.scales_of(g) + j * 2;
                let (scale, min) = (f16(scales), if format == w4a() { f16(scales + layout.mins) } else { 0.0 });
                let code = |c: usize| ((f64::from(row[c]) - min) / scale).round() as i64;
                let int: i64 = (g * 32..g * 32 + 32).map(|c| code(c) * i64::from(q.codes[c])).sum();
                sum += f64::from(q.scales[g]) * (scale * int as f64 + min * f64::from(q.sums[g]));
            }
            let got = f64::from(data(&o[2])[j]);
            assert!((got - sum).abs() <= 1e-6 * sum.abs().max(0.1), "{format}: {got} {sum}");
        }
    }
}

fn w4a() -> Format {
    Format::parse("w4ag32").unwrap()
}

#[test]
fn a_prologue_equals_its_own_kernel() {
    let (k, n) = (32, 5);
    let norm = Norm::rms(1e-5, 32);
    let batch = Batch::single(&[0, 0], 0);
    let w = OperandData::Matrix(pack(w4(32), &random(7, n * k), n, k).into());
    let (x, g) = (rows(k, &random(8, 2 * k)), vector(&random(9, k)));
    let q8 = ParamKind::Rows { rows: Dim::Tokens, cols: k, elem: RowElem::Q8 { group: 32 } };
    let x_param = || param("x", f32_rows(Dim::Tokens, k));
    let g_param = || param("g", ParamKind::Vector { len: k });
    let w_param = || param("w", ParamKind::Matrix { n, k, format: w4(32) });
    let out_param = || param("out", f32_rows(Dim::Tokens, n));
    let product = |weights, store, prologue| {
        Body::Matmul(Matmul {
            x: 0,
            prologue,
            segments: vec![segment(n, vec![weights], Expr::Acc(0), out(store))],
            tile_m: 2,
            k_parts: 1,
        })
    };
    let fused = kernel(
        "fused",
        Dim::Tokens,
        vec![x_param(), g_param(), w_param(), out_param()],
        product(2, 3, Some(Prologue { norm: Some(norm), gain: Some(1), bias: None, elem: RowElem::Q8 { group: 32 } })),
    );
    let poison = || OperandData::poisoned(&out_param().kind, &batch).unwrap();
    let mut a = [x.clone(), g.clone(), w.clone(), poison()];
    eval_kernel(&fused, &batch, &mut a).unwrap();

    let first = kernel(
        "norm",
        Dim::Tokens,
        vec![x_param(), g_param(), param("q", q8.clone())],
        Body::RowNorm(RowNorm { norm: Some(norm), gain: Some(1), ..RowNorm::plain(0, 2) }),
    );
    let mut b = [x, g, OperandData::poisoned(&q8, &batch).unwrap()];
    eval_kernel(&first, &batch, &mut b).unwrap();
    let second = kernel("mm", Dim::Tokens, vec![param("x", q8), w_param(), out_param()], product(1, 2, None));
    let [_, _, q] = b;
    let mut c = [q, w, poison()];
    eval_kernel(&second, &batch, &mut c).unwrap();
    assert_eq!(a[3], c[2]);
}

#[test]
fn rope_by_hand_leaves_columns_past_the_table() {
    let params = vec![param("inv_freq", ParamKind::Vector { len: 1 }), param("out", f32_rows(Dim::Tokens, 2))];
    let k = kernel(
        "r",
        Dim::Tokens,
        params,
        Body::RopeTable(RopeTable { inv_freq: 0, scale: F32::new(2.0), border: None, most: None, axes: false, out: 1 }),
    );
    let batch = Batch { tokens: vec![0], seqs: vec![0], positions: vec![3], out_rows: vec![], ..Batch::default() };
    let mut o = [vector(&[0.1]), rows(2, &[0.0, 0.0])];
    eval_kernel(&k, &batch, &mut o).unwrap();
    let angle = f64::from(3.0 * 0.1f32);
    assert_eq!(data(&o[1]), [(2.0 * angle.cos()) as f32, (2.0 * angle.sin()) as f32]);

    let params = vec![
        param("x", f32_rows(Dim::Tokens, 6)),
        param("t", f32_rows(Dim::Tokens, 2)),
        param("out", f32_rows(Dim::Tokens, 6)),
    ];
    let expr = Expr::Rope { head_dim: 3, table: 1, x: Box::new(Expr::Rows { param: 0, start: 0 }) };
    let k = kernel(
        "p",
        Dim::Tokens,
        params,
        Body::Pointwise(Pointwise { segments: vec![segment(6, vec![], expr, out(2))] }),
    );
    let mut o = [rows(6, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), rows(2, &[0.5, 2.0]), rows(6, &[0.0; 6])];
    eval_kernel(&k, &batch, &mut o).unwrap();
    // Pair (j, j+1) of a head: (a·0.5 − b·2, b·0.5 + a·2); the third column stays.
    assert_eq!(data(&o[2]), [-3.5, 3.0, 3.0, -8.0, 10.5, 6.0]);
}

#[test]
fn attention_by_hand_with_window_and_two_sequences() {
    let spec = heads(KvDType::F32, 1, 1, Some(2));
    let params = vec![
        param("q", f32_rows(Dim::Tokens, 2)),
        param("kv", ParamKind::State(spec.into())),
        param("out", f32_rows(Dim::Tokens, 2)),
    ];
    let body = Attention { heads: 2, scale: F32::new(0.5), ..fixture::usual_attention() };
    let body = Body::Attention(body);
    let k = kernel("a", Dim::Tokens, params, body);
    let mut kv = KvState::new(spec);
    for (p, (key, value)) in [(1e6, 1e6), (2.0, 10.0), (4.0, 20.0)].into_iter().enumerate() {
        kv.store_key(0, p, &[key]);
        kv.store_value(0, p, &[value]);
    }
    kv.store_key(1, 0, &[1.0]);
    kv.store_value(1, 0, &[7.0]);
    let batch =
        Batch { tokens: vec![0, 0], seqs: vec![0, 1], positions: vec![2, 0], out_rows: vec![], ..Batch::default() };
    let mut o = [rows(2, &[1.0, 0.0, 3.0, 4.0]), OperandData::State(kv.into()), rows(2, &[0.0; 4])];
    eval_kernel(&k, &batch, &mut o).unwrap();
    // Head 0 of token 0: scores 1 and 2 over the last two positions; head 1: equal scores. Sequence
    // 1 sees one position.
    let e = 1f64.exp();
    let want = [((10.0 + 20.0 * e) / (1.0 + e)) as f32, 15.0, 7.0, 7.0];
    assert!(data(&o[2]).iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-5), "{:?}", data(&o[2]));

    let batch = Batch { positions: vec![3, 0], ..batch };
    let missing = eval_kernel(&k, &batch, &mut o).unwrap_err();
    assert_eq!(missing, EvalError::MissingKv { seq: 0, position: 3 });
}

#[test]
fn softcaps_sinks_and_both_ways_by_hand() {
    let spec = heads(KvDType::F32, 1, 1, Some(2));
    let params = vec![
        param("q", f32_rows(Dim::Tokens, 1)),
        param("kv", ParamKind::State(spec.into())),
        param("sinks", ParamKind::Vector { len: 1 }),
        param("out", f32_rows(Dim::Tokens, 1)),
    ];
    let mut kv = KvState::new(spec);
    for (p, (key, value)) in [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)].into_iter().enumerate() {
        kv.store_key(0, p, &[key]);
        kv.store_value(0, p, &[value]);
    }
    // Token 0 sees positions 0 and 1, token 2 positions 1 and 2.
    let batch =
        Batch { tokens: vec![0, 0], seqs: vec![0, 0], positions: vec![0, 2], out_rows: vec![], ..Batch::default() };
    let score = |key: f64| (4.0 * (key / 4.0).tanh()).exp();
    let mean =
        |a: (f64, f64), b: (f64, f64)| (score(a.0) * a.1 + score(b.0) * b.1) / (score(a.0) + score(b.0) + 0.5f64.exp());
    let want = [mean((1.0, 10.0), (2.0, 20.0)), mean((2.0, 20.0), (3.0, 30.0))];
    let body = Attention {
        out: 3,
        heads: 1,
        scale: F32::new(1.0),
        softcap: Some(F32::new(4.0)),
        sinks: Some(2),
        causal: false,
        ..fixture::usual_attention()
    };
    let k = kernel("a", Dim::Tokens, params, Body::Attention(body));
    let mut o = [rows(1, &[1.0, 1.0]), OperandData::State(kv.into()), vector(&[0.5]), rows(1, &[0.0; 2])];
    eval_kernel(&k, &batch, &mut o).unwrap();
    assert!(data(&o[3]).iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-5), "{:?} {want:?}", data(&o[3]));
}

#[test]
fn the_plan_computes_what_the_module_means() {
    for dtype in [KvDType::F32, KvDType::F16] {
        for (format, window) in [(Format::F32, None), (w4(32), Some(5)), (Format::BF16, Some(17))] {
            let spec = fixture::spec(dtype, window);
            let (module, plan) = (fixture::module(spec), fixture::plan(spec, format));
            let weights = fixture::weights(&module, format);
            let packed = fixture::packed(&plan, &weights);
            let (mut a, mut b) = (fixture::states(spec), fixture::states(spec));
            // A ragged batch, then a decode step of one token, which takes the first regime.
            let mut decode = Batch::default();
            decode.push(0, &[5], 21);
            for batch in [fixture::ragged(), decode] {
                let want = eval_module(&module, &|i| weights[i].clone(), &mut a, &batch).unwrap();
                let got = eval_plan(&plan, &packed, &mut b, &batch).unwrap();
                assert_eq!(want.len(), batch.out_rows.len() * VOCAB);
                let d = distance(&want, &got);
                // Rounding of stored rows to f32; with an f16 cache a value may round to the other
                // side.
                let bound = if dtype == KvDType::F32 { 2e-6 } else { 5e-4 };
                assert!(d < bound, "{format}, {dtype}, window {window:?}: {d}");
            }
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_the_batch() {
    let spec = fixture::spec(KvDType::Int8, Some(6));
    let module = fixture::module(spec);
    let weights = fixture::weights(&module, Format::F32);
    let load = |i: usize| weights[i].clone();
    let mut states = fixture::states(spec);
    let batch = fixture::ragged();
    let mixed = eval_module(&module, &load, &mut states, &batch).unwrap();
    for seq in 0..2 {
        // Alone and token by token.
        let mut alone = fixture::states(spec);
        let mut last = vec![];
        for i in (0..batch.tokens.len()).filter(|i| batch.seqs[*i] == seq) {
            last = eval_module(&module, &load, &mut alone, &Batch::single(&batch.tokens[i..=i], batch.positions[i]))
                .unwrap();
        }
        let row = batch.out_rows.iter().rposition(|r| batch.seqs[*r] == seq).unwrap();
        assert_eq!(mixed[row * VOCAB..][..VOCAB], last);
    }
}

#[test]
fn a_wrong_slot_shows() {
    let spec = fixture::spec(KvDType::F32, None);
    let module = fixture::module(spec);
    let weights = fixture::weights(&module, Format::F32);
    let mut plan = fixture::plan(spec, Format::F32);
    let packed = fixture::packed(&plan, &weights);
    let batch = fixture::ragged();
    let good = eval_plan(&plan, &packed, &mut fixture::states(spec), &batch).unwrap();
    // x after attention into the slot of x before it: the residual is gone.
    plan.regimes[1].buffers[4].slot = 1;
    let bad = eval_plan(&plan, &packed, &mut fixture::states(spec), &batch).unwrap();
    assert!(good.iter().all(|v| v.is_finite()) && bad.iter().any(|v| v.is_nan()));
    // A missing launch leaves NaN.
    plan.regimes[1].buffers[4].slot = 2;
    plan.regimes[1].launches.remove(3);
    let bad = eval_plan(&plan, &packed, &mut fixture::states(spec), &batch).unwrap();
    assert!(bad.iter().any(|v| v.is_nan()));
}

#[test]
fn malformed_things_are_errors() {
    let spec = fixture::spec(KvDType::F32, None);
    let module = fixture::module(spec);
    let weights = fixture::weights(&module, Format::F32);
    let load = |i: usize| weights[i].clone();
    let run =
        |module: &crate::graph::Module, batch: &Batch| eval_module(module, &load, &mut fixture::states(spec), batch);
    let batch = Batch::single(&[1, 2], 0);
    assert!(run(&module, &batch).is_ok());
    assert!(matches!(run(&module, &Batch::single(&[VOCAB as i32], 0)), Err(EvalError::Batch(_))));
    assert!(matches!(run(&module, &Batch::single(&[1], -1)), Err(EvalError::Batch(_))));
    assert_eq!(run(&module, &Batch::single(&[1], 4)), Err(EvalError::MissingKv { seq: 0, position: 0 }));
    assert!(matches!(run(&module, &Batch { out_rows: vec![2], ..batch.clone() }), Err(EvalError::Batch(_))));
    let mut m = module.clone();
    m.entries[0].outputs[0].at = 99;
    assert!(matches!(run(&m, &batch), Err(EvalError::Malformed { .. })));
    let mut m = module.clone();
    m.entries[0].calls[1].args.swap(4, 5);
    assert!(matches!(run(&m, &batch), Err(EvalError::Operand { .. })));
    let mut m = module;
    m.funcs[1].nodes[0].op = Op::Normalize { eps: F32::new(0.0), width: 5 };
    assert!(matches!(run(&m, &batch), Err(EvalError::Malformed { .. })));
}

#[test]
fn every_graph_operation_by_hand() {
    let batch = Batch::single(&[0, 1], 0);
    let x = || Tensor::new([2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    let w = || Tensor::new([3, 2], vec![1.0, 0.0, 0.0, 1.0, 2.0, -1.0]).unwrap();
    let run = |op: Op, args: &[Tensor]| {
        let mut f = FuncBuilder::new("f");
        let dims = |t: &Tensor| -> ValueType {
            // Activations have a row per token; only they are 2×2 here.
            let shape = t
                .shape
                .iter()
                .enumerate()
                .map(|(i, n)| if i == 0 && t.shape == [2, 2] { Dim::Tokens } else { Dim::Static(*n) });
            TensorType::new(crate::ty::DType::F32, shape).into()
        };
        let ids: Vec<Id> =
            args.iter().enumerate().map(|(i, t)| f.param(format!("a{i}"), dims(t), Role::Data)).collect();
        let y = f.op(op, &ids);
        let f = f.finish(&[y]);
        eval_func(&f, &args.iter().cloned().map(Value::tensor).collect::<Vec<_>>(), &mut [], &batch)
            .unwrap()
            .remove(0)
            .data
    };
    let v = |data: &[f64]| Tensor::new([data.len()], data.to_vec()).unwrap();
    assert_eq!(run(Op::MatMul, &[x(), w()]), [1.0, 2.0, 0.0, 3.0, 4.0, 2.0]);
    assert_eq!(run(Op::Unary(UnaryOp::Neg), &[x()]), [-1.0, -2.0, -3.0, -4.0]);
    assert_eq!(run(Op::Binary(BinaryOp::Sub), &[x(), v(&[1.0])]), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(run(Op::Binary(BinaryOp::Mul), &[x(), v(&[1.0, 2.0])]), [1.0, 4.0, 3.0, 8.0]);
    assert_eq!(run(Op::Binary(BinaryOp::Div), &[x(), x()]), [1.0; 4]);
    assert_eq!(run(Op::Binary(BinaryOp::Max), &[x(), Tensor::new([], vec![2.5]).unwrap()]), [2.5, 2.5, 3.0, 4.0]);
    assert_eq!(run(Op::Const { value: F32::new(0.5) }, &[]), [0.5]);
    assert_eq!(run(Op::Normalize { eps: F32::new(0.0), width: 1 }, &[x()]), [1.0; 4]);
    assert_eq!(run(Op::Standardize { eps: F32::new(0.0), width: 2 }, &[x()]), [-1.0, 1.0, -1.0, 1.0]);
    // Runs of 1, 2 and 3, 4: a deviation of 1/2, and √(1/4 + 3/4) = 1.
    assert_eq!(run(Op::Standardize { eps: F32::new(0.75), width: 2 }, &[x()]), [-0.5, 0.5, -0.5, 0.5]);
    assert_eq!(run(Op::SliceCols { start: 1, len: 1 }, &[x()]), [2.0, 4.0]);
    assert_eq!(run(Op::ConcatCols, &[x(), x()]), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
    assert_eq!(run(Op::Transpose, &[w()]), [1.0, 0.0, 2.0, 0.0, 1.0, -1.0]);
    assert_eq!(run(Op::ScaleCols, &[w(), v(&[2.0, 3.0])]), [2.0, 0.0, 0.0, 3.0, 4.0, -3.0]);
    assert_eq!(run(Op::ScaleRows, &[w(), v(&[2.0, 3.0, 4.0])]), [2.0, 0.0, 0.0, 3.0, 8.0, -4.0]);
    let unit = |a: f64, b: f64| [a / a.hypot(b), b / a.hypot(b)];
    assert_eq!(run(Op::UnitRows, &[w()]), [unit(1.0, 0.0), unit(0.0, 1.0), unit(2.0, -1.0)].concat());
    assert_eq!(run(Op::UnitRows, &[Tensor::new([1, 2], vec![0.0, 1e-13]).unwrap()]), [0.0, 1e-13 / 1e-12]);
    assert_eq!(run(Op::LookUp, &[v(&[5.0, 6.0]), v(&[1.0, 0.0, 1.0])]), [6.0, 5.0, 6.0]);
    assert_eq!(run(Op::ConcatRows, &[w(), w()])[6..], w().data);
    assert_eq!(run(Op::ConcatRows, &[v(&[1.0]), v(&[2.0, 3.0])]), [1.0, 2.0, 3.0]);
    assert_eq!(run(Op::SliceRows { start: 1, len: 2 }, &[w()]), [0.0, 1.0, 2.0, -1.0]);
    assert_eq!(run(Op::Row { index: 2 }, &[w()]), [2.0, -1.0]);
    let numbers: Vec<f64> = (0..12).map(f64::from).collect();
    let pick = |run, start, len, pairs| Op::PickRows { run, start, len, pairs };
    assert_eq!(run(pick(6, 1, 3, 0), &[v(&numbers)]), [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]);
    assert_eq!(run(pick(6, 1, 5, 4), &[v(&numbers)]), [1.0, 3.0, 2.0, 4.0, 5.0, 7.0, 9.0, 8.0, 10.0, 11.0]);
    let six = Tensor::new([6, 2], numbers).unwrap();
    assert_eq!(run(pick(3, 1, 2, 2), &[six]), [2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 10.0, 11.0]);
    assert_eq!(run(Op::Rope { head_dim: 2 }, &[x(), x()]), [1.0 - 4.0, 2.0 + 2.0, 9.0 - 16.0, 12.0 + 12.0]);
}

#[test]
fn an_undefined_value_is_an_error() {
    let ty: ValueType = TensorType::rows(Dim::Tokens, HIDDEN).into();
    let node = Node { op: Op::Unary(UnaryOp::Neg), args: vec![Id(1)], ty: ty.clone() };
    let f = Func { name: "f".into(), params: vec![], nodes: vec![node], results: vec![Id(0)] };
    assert!(eval_func(&f, &[], &mut [], &Batch::single(&[0], 0)).is_err());
}

#[test]
fn weight_expressions_round_each_operation() {
    let leaf = |i: usize| {
        let t = match i {
            0 => WeightTensor::new([2, 2], vec![1.0, 0.1, 3.0, 0.3]),
            1 => WeightTensor::new([2], vec![0.1, 3.0]),
            _ => None,
        };
        t.ok_or_else(|| EvalError::batch("no such weight"))
    };
    let w = WeightExpr::Weight;
    let run = |e: WeightExpr| eval_weight(&e, &leaf).map(|t| (t.shape, t.data));
    let run = |op: Op, args: &[WeightExpr]| run(WeightExpr::Op(op, args.to_vec()));
    assert_eq!(run(Op::Transpose, &[w(0)]), Ok((vec![2, 2], vec![1.0, 3.0, 0.1, 0.3])));
    assert_eq!(run(Op::ScaleCols, &[w(0), w(1)]), Ok((vec![2, 2], vec![0.1, 0.1 * 3.0, 3.0 * 0.1, 0.3 * 3.0])));
    assert_eq!(run(Op::ScaleRows, &[w(0), w(1)]), Ok((vec![2, 2], vec![0.1, 0.1 * 0.1, 9.0, 0.3 * 3.0])));
    assert_eq!(run(Op::ConcatRows, &[w(1), w(1)]), Ok((vec![4], vec![0.1, 3.0, 0.1, 3.0])));
    assert_eq!(run(Op::SliceRows { start: 1, len: 1 }, &[w(0)]), Ok((vec![1, 2], vec![3.0, 0.3])));
    assert_eq!(run(Op::SliceRows { start: 1, len: 1 }, &[w(1)]), Ok((vec![1], vec![3.0])));
    let two = WeightExpr::Op(Op::Const { value: F32::new(2.0) }, vec![]);
    assert_eq!(run(Op::Binary(BinaryOp::Mul), &[w(1), two]), Ok((vec![2], vec![0.2, 6.0])));
    assert_eq!(
        run(Op::Unary(UnaryOp::Exp), &[w(1)]),
        Ok((vec![2], vec![f64::from(0.1f32).exp() as f32, 3f64.exp() as f32]))
    );
    assert!(run(Op::ScaleCols, &[w(1), w(1)]).is_err());
    assert!(run(Op::SliceRows { start: 1, len: 2 }, &[w(0)]).is_err());
    assert!(run(Op::ConcatRows, &[w(0), w(1)]).is_err());
    assert!(run(Op::MatMul, &[w(0), w(0)]).is_err(), "products run, they are not packed");
    assert!(run(Op::Transpose, &[]).is_err());
    assert!(run(Op::Transpose, &[w(9)]).is_err());
}

/// Steps that feed each sequence in order: `(sequence, tokens)` chunks, some of them joined into
/// one step.
fn steps() -> impl Strategy<Value = Vec<Vec<(usize, usize)>>> {
    prop::collection::vec(prop::collection::vec((0usize..3, 1usize..20), 1..4), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However tokens are cut into steps and mixed, with the cache going through its pages between
    /// steps, the plan agrees with the module, and the module with itself token by token.
    #[test]
    fn any_ragged_batches_agree(steps in steps(), window in prop::option::of(1usize..20), int8 in any::<bool>()) {
        let spec = fixture::spec(if int8 { KvDType::Int8 } else { KvDType::F32 }, window);
        let (module, plan) = (fixture::module(spec), fixture::plan(spec, Format::F32));
        let weights = fixture::weights(&module, Format::F32);
        let (packed, load) = (fixture::packed(&plan, &weights), |i: usize| weights[i].clone());
        let (mut whole, mut single, mut paged) = (fixture::states(spec), fixture::states(spec), fixture::states(spec));
        let mut lens = [0usize; 3];
        let page = spec.page().bytes;
        let tables: Vec<Vec<u32>> = (0..3).map(|s| (0..16).map(|i| i * 3 + s).collect()).collect();
        for step in steps {
            let mut batch = Batch::default();
            for (seq, n) in step {
                let tokens: Vec<i32> = (0..n).map(|i| ((lens[seq] + i) * 13 + seq * 5) as i32 % VOCAB as i32).collect();
                batch.push(seq, &tokens, lens[seq] as i32);
                lens[seq] += n;
            }
            let want = eval_module(&module, &load, &mut whole, &batch).unwrap();
            let got = eval_plan(&plan, &packed, &mut paged, &batch).unwrap();
            // A code of the int8 cache may round to the other side.
            let d = distance(&want, &got);
            prop_assert!(d < if int8 { 2e-2 } else { 2e-6 }, "{}", d);
            let mut last = vec![];
            for i in 0..batch.tokens.len() {
                let one = Batch { tokens: vec![batch.tokens[i]], seqs: vec![batch.seqs[i]], positions: vec![batch.positions[i]], out_rows: vec![0], ..Batch::default() };
                let logits = eval_module(&module, &load, &mut single, &one).unwrap();
                if batch.out_rows.contains(&i) {
                    last.extend(logits);
                }
            }
            prop_assert_eq!(want, last);
            for state in &mut paged {
                let State::Paged(state) = state else { unreachable!() };
                let mut pool = vec![0; 48 * page];
                kv_to_pages(state, &tables, &mut pool).unwrap();
                let back = kv_from_pages(spec, &tables, &lens, &pool).unwrap();
                prop_assert!((0..state.sequences()).all(|s| (0..state.len(s)).all(|p| state.key(s, p, 0) == back.key(s, p, 0))));
                *state = back;
            }
        }
    }

    /// Whatever the numbers in a kernel are, it runs or is refused.
    #[test]
    fn wrong_numbers_in_kernels_do_not_panic(which in 0usize..9, at in 0usize..12, to in 0usize..70, group in 0usize..40, format in 0usize..3) {
        let formats = [Format::F32, w4(32), Format { group: 0, ..w4(32) }];
        let mut k = fixture::kernels(fixture::spec(KvDType::Int8, Some(to)), formats[format]).swap_remove(which);
        let n = k.params.len();
        match (&mut k.params[at % n].kind, at) {
            (ParamKind::Rows { elem, .. }, 0..4) => *elem = RowElem::Q8 { group },
            (ParamKind::Rows { cols, .. }, _) => *cols = to,
            (ParamKind::Matrix { n, .. }, 0..4) => *n = to,
            (ParamKind::Matrix { k, .. }, _) => *k = to,
            (ParamKind::Vector { len }, _) => *len = to,
            (ParamKind::State(StateSpec::Paged(spec)), _) => spec.key_dim = to,
            (ParamKind::State(StateSpec::Fixed(spec)), _) => spec.rows = to,
            (ParamKind::State(StateSpec::Adapter(spec)), _) => spec.n = to,
            (ParamKind::State(StateSpec::Tally(spec)), _) => spec.most = to,
        }
        if let Body::Matmul(m) = &mut k.body {
            m.prologue = (at > 2).then_some(Prologue::plain(RowElem::Q8 { group }));
            m.segments[0].tile_n = to;
            m.segments[0].store = if at > 8 { Store::KvKey(to % n) } else { Store::Rows { param: at % n, start: group } };
        }
        let batch = Batch::single(&[1, 2, 3], 0);
        let operand = |p: &crate::kernel::Param| match p.kind {
            ParamKind::Matrix { .. } => OperandData::Matrix(vec![0; 1 << 14].into()),
            ParamKind::Vector { .. } => vector(&[1.0; 70]),
            ParamKind::State(spec) => OperandData::State(State::new(spec)),
            ParamKind::Rows { elem: RowElem::Q8 { group: 0 }, .. } => rows(0, &[]),
            ParamKind::Rows { .. } => OperandData::poisoned(&p.kind, &batch).unwrap(),
        };
        let mut operands: Vec<_> = k.params.iter().map(operand).collect();
        let _ = eval_kernel(&k, &batch, &mut operands);
    }
}
