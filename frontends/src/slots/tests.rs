use super::*;
use crate::testing::golden;
use crate::{Checkpoint, lift};
use llmcc_ir::verify::verify_module;
use std::collections::{BTreeMap, BTreeSet};

fn slots(count: usize, rank: usize) -> AdapterSlots {
    AdapterSlots { count, rank, wide: None, targets: vec![] }
}

fn table(name: &str) -> (Module, AdapterTable, Vec<String>) {
    let checkpoint = Checkpoint::open(&golden(name)).unwrap();
    let mut module = lift(&checkpoint, &crate::Options::default()).unwrap();
    let (table, left) = reserve(&mut module, &slots(3, 5)).unwrap();
    let errors: Vec<_> =
        verify_module(&module).into_iter().filter(|d| d.severity == llmcc_ir::diag::Severity::Error).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}");
    (module, table, left)
}

/// Room in fixtures of every kind: fused matrices, transposed ones, rows of other orders.
#[test]
fn modules_stay_valid() {
    for name in llmcc_goldens() {
        let checkpoint = Checkpoint::open(&golden(name)).unwrap();
        let Ok(mut module) = lift(&checkpoint, &crate::Options::default()) else { continue };
        let Ok((table, _)) = reserve(&mut module, &slots(2, 4)) else { continue };
        let errors: Vec<_> =
            verify_module(&module).into_iter().filter(|d| d.severity == llmcc_ir::diag::Severity::Error).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        for m in &table.matrices {
            let rows = m.rows.iter().map(|[_, count, _]| count).sum::<usize>();
            assert!(rows > 0 && m.b.row + rows <= m.b.shape[0] && m.a.row + 4 <= m.a.shape[0], "{name}: {m:?}");
            let last = |[first, count, step]: &[usize; 3]| first + (count - 1) * step;
            assert!(m.rows.iter().map(last).all(|row| row < m.outputs), "{name}: {m:?}");
        }
        // All of a matrix, or nothing: an adapter is whole.
        let mut covered: BTreeMap<&str, (usize, BTreeSet<usize>)> = BTreeMap::new();
        for m in &table.matrices {
            let rows = &mut covered.entry(&m.name).or_insert((m.outputs, BTreeSet::new())).1;
            rows.extend(m.rows.iter().flat_map(|[first, count, step]| (0..*count).map(move |i| first + i * step)));
        }
        for (tensor, (outputs, rows)) in covered {
            assert_eq!(rows.len(), outputs, "{name}: {tensor}");
        }
    }
}

fn llmcc_goldens() -> impl Iterator<Item = &'static str> {
    crate::arch::goldens()
}

#[test]
fn products_of_the_same_rows_share_matrices() {
    let (module, table, left) = table("adapters/base");
    assert!(left.is_empty());
    // Two layers with four groups each: q, k and v; o; gate and up; down.
    let states: Vec<&AdapterSpec> = module.states.iter().filter_map(StateSpec::adapter).collect();
    assert_eq!(states.len(), 16);
    assert_eq!(*states[0], AdapterSpec { n: 16, k: 16, slots: 3, dtype: DType::Bf16 });
    // 16 queries, 8 keys and 8 values, each in whole blocks.
    assert_eq!(*states[1], AdapterSpec { n: 48, k: 5, slots: 3, dtype: DType::Bf16 });
    let v = table.matrices.iter().find(|m| m.name == "model.layers.1.self_attn.v_proj.weight").unwrap();
    assert_eq!((v.inputs, v.outputs, v.a.row, v.b.row, v.rows.clone()), (16, 8, 10, 32, vec![[0, 8, 1]]));
}

#[test]
fn fused_and_transposed_matrices() {
    let (_, table, _) = table("adapters/gpt2");
    let fused: Vec<&AdaptedMatrix> = table.matrices.iter().filter(|m| m.name.ends_with("c_attn.weight")).collect();
    let rows: Vec<_> = fused.iter().map(|m| (m.inputs, m.outputs, m.rows.clone())).collect();
    let part = |first| (16, 48, vec![[first, 16, 1]]);
    assert_eq!(rows, [part(0), part(16), part(32)]);
}

#[test]
fn runs_are_short() {
    assert_eq!(runs(&[0, 1, 2, 5, 7, 9, 4]), [[0, 3, 1], [5, 3, 2], [4, 1, 1]]);
    assert_eq!(runs(&[3, 2, 1]), [[3, 1, 1], [2, 1, 1], [1, 1, 1]]);
    assert!(runs(&[]).is_empty());
}

/// Matrices that make distances' rows at compile time: DeBERTa's queries and keys would need other
/// weights.
#[test]
fn matrices_that_make_weights_have_no_room() {
    let (_, table, left) = table("deberta_v2");
    for (end, room) in [("query_proj.weight", false), ("key_proj.weight", false), ("value_proj.weight", true)] {
        assert_eq!(table.matrices.iter().any(|m| m.name.ends_with(end)), room, "{end}");
        assert_eq!(left.iter().filter(|name| name.ends_with(end)).count(), if room { 0 } else { 2 }, "{end}");
    }
}

/// Rows of a matrix that go through a convolution together are joined again: all of them have room.
#[test]
fn joined_rows_of_one_matrix() {
    let (_, table, left) = table("qwen3_next");
    assert!(!left.iter().any(|name| name.contains("in_proj_qkvz")), "{left:?}");
    let mut rows: BTreeMap<&str, (usize, Vec<usize>)> = BTreeMap::new();
    for m in table.matrices.iter().filter(|m| m.name.contains("in_proj_qkvz")) {
        let of = &mut rows.entry(&m.name).or_insert((m.outputs, vec![])).1;
        of.extend(m.rows.iter().flat_map(|[first, count, step]| (0..*count).map(move |i| first + i * step)));
    }
    assert!(!rows.is_empty());
    for (name, (outputs, mut rows)) in rows {
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..outputs), "{name}");
    }
}
