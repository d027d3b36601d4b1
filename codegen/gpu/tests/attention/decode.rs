//! Few tokens over long contexts, and what the kernel without tensor cores does.

use super::*;

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

/// On tensor cores: any multiple of 32.
#[test]
fn decode_of_int8_caches() {
    let int8 = Shape { dtype: KvDType::Int8, ..DECODE };
    assert_eq!(int8.source().generic, None);
    check(&int8, &[RAGGED, LONE, LONG, MIXED]);
    check(&Shape { d: 128, group: 2, q: RowElem::Bf16, out: RowElem::Bf16, ..int8 }, &[RAGGED, LONG]);
    check(&Shape { d: 96, group: 12, kv_heads: 1, q: RowElem::F16, out: RowElem::F32, window: Some(50), ..int8 }, &[RAGGED, LONG]);
    check(&Shape { d: 32, group: 1, target: "sm80", ..int8 }, &[MIXED]);
}

/// Values whose scales are far apart, or zero: probabilities stay in the range of f16, and sums in that of f32.
#[test]
fn scales_of_int8_values_may_be_anything() {
    let shape = Shape { dtype: KvDType::Int8, out: RowElem::F32, ..DECODE };
    let source = shape.source();
    let module = ptx(&shape, &source);
    let mut step = Step::new(&shape, &[(0, 100)], 3);
    let width = shape.spec().width();
    for (p, size) in (0..101).zip([0.0, 1e-30, 1e-9, 1e-4, 1.0, 3e5].into_iter().cycle()) {
        let row: Vec<f64> = (0..width).map(|i| size * (((i * 7 + p) % 13) as f64 - 6.0)).collect();
        step.state.store_value(0, p, &row);
    }
    for keep in [1.0, 1e-9, 0.0] {
        let mut step = Step { batch: step.batch.clone(), state: step.state.clone(), q: step.q.clone() };
        if keep < 1.0 {
            (0..101).for_each(|p| step.state.store_value(0, p, &vec![keep * p as f64; width]));
        }
        let (got, want) = (run(&shape, &source, &module, &step).0, step.expected(&shape));
        let size = want.data.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (g, w) in got.data.iter().zip(&want.data) {
            assert!((g - w).abs() <= size * 4e-3, "{g} for {w} of at most {size}");
        }
    }
}

/// As many splits as there can be.
#[test]
fn decode_of_a_very_long_context() {
    let shape = Shape { kv_heads: 1, group: 2, d: 32, ..DECODE };
    check(&shape, &[&[(0, 5000)], &[(0, 4095), (1, 2)]]);
}

#[test]
fn decode_has_no_bank_conflicts_in_its_loop() {
    let stats = check(&Shape { d: 128, ..DECODE }, &[LONG]);
    let coded = check(&Shape { d: 128, dtype: KvDType::Int8, ..DECODE }, &[LONG]);
    let bad: Vec<_> = stats.conflicts.iter().chain(&coded.conflicts).filter(|c| c.text.contains("ldmatrix")).collect();
    assert!(bad.is_empty(), "{bad:?}");
}
