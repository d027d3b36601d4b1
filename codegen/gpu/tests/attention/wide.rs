//! Heads whose columns the warps of a block share: latent caches, keys and values of different width,
//! heads above 256.

use super::company::same_bits_in_any_company;
use super::*;
use crate::support::assembled::assembled;
use llmcc_gpu::assembler::Ptxas;

/// DeepSeek-V2 and its heirs.
const LATENT: Shape =
    Shape { dtype: KvDType::Bf16, kv_heads: 1, d: 64, values: Some(512), latent: true, group: 16, ..DECODE };
/// Gemma 4's global layers.
const LARGE: Shape = Shape { dtype: KvDType::Bf16, kv_heads: 1, d: 512, group: 8, ..DECODE };
/// MiMo-V2.
const UNEQUAL: Shape = Shape { kv_heads: 2, d: 192, values: Some(128), group: 16, ..DECODE };

fn checked(shape: &Shape, steps: &[&[(usize, usize)]]) -> Stats {
    assert_eq!(shape.source().generic, None, "{shape:?}");
    check(shape, steps)
}

#[test]
fn latent_caches() {
    let stats = checked(&LATENT, &[MIXED, LONE]);
    let bad: Vec<_> = stats.conflicts.iter().filter(|c| c.text.contains("ldmatrix")).collect();
    assert!(bad.is_empty(), "{bad:?}");
    checked(&Shape { dtype: KvDType::F16, group: 24, q: RowElem::F16, target: "sm80", ..LATENT }, &[MIXED]);
    checked(&Shape { group: 32, q: RowElem::Bf16, out: RowElem::Bf16, target: "sm86", ..LATENT }, &[&[(0, 20)]]);
    // So many heads that 16 of them share a pass over the cache.
    checked(&Shape { d: 32, values: Some(128), group: 64, ..LATENT }, &[&[(0, 300), (1, 7)]]);
    // Fewer steps of keys than warps, and one more; none.
    for d in [16, 80, 0] {
        let small = Shape { d, values: Some(64), group: 5, out: RowElem::F32, sinks: d == 80, ..LATENT };
        checked(&small, &[RAGGED, LONG]);
        checked(&Shape { window: Some(20), softcap: Some(2.0), dtype: KvDType::F16, ..small }, &[RAGGED, MIXED]);
        checked(&Shape { tile_m: 32, ..small }, &[&prompts(&[(0, 3, 30), (1, 0, 12)])]);
    }
}

#[test]
fn heads_above_256() {
    checked(&LARGE, &[MIXED, LONE]);
    checked(&Shape { group: 3, kv_heads: 2, window: Some(50), dtype: KvDType::F16, ..LARGE }, &[RAGGED]);
    checked(&Shape { d: 320, group: 16, causal: false, target: "sm80", ..LARGE }, &[MIXED]);
    // The plain kernel takes care of other heads and caches.
    for other in [Shape { d: 528, ..LARGE }, Shape { d: 1024, ..LARGE }, Shape { dtype: KvDType::Int8, ..LARGE }] {
        assert!(other.source().generic.is_some(), "{other:?}");
    }
}

#[test]
fn keys_wider_than_values() {
    checked(&UNEQUAL, &[RAGGED, LONG]);
    checked(&Shape { d: 128, values: Some(192), group: 9, window: Some(33), target: "sm89", ..UNEQUAL }, &[RAGGED]);
    checked(&Shape { tile_m: 8, group: 8, sinks: true, ..UNEQUAL }, &[&prompts(&[(0, 3, 30), (1, 0, 12)])]);
}

#[test]
fn wide_heads_have_the_same_bits_in_any_company() {
    let mut tokens = vec![(0, 1400), (1, 0), (2, 299), (3, 127), (4, 128), (5, 16)];
    tokens.extend((6..10).map(|s| (s, 3 * s)));
    let small = Shape { d: 16, values: Some(64), group: 4, out: RowElem::F32, ..LATENT };
    same_bits_in_any_company(&small, 5, &tokens);
    same_bits_in_any_company(&Shape { window: Some(200), kv_heads: 2, ..small }, 7, &tokens);
}

/// With `ptxas` at hand: nothing is spilled, and as many blocks fit as the grid counts on.
#[test]
fn registers_suffice_for_wide_heads() {
    let Some(ptxas) = Ptxas::find() else { return };
    for name in ["sm80", "sm86", "sm90", "sm100"] {
        let target = target::find(name).unwrap().gpu().unwrap();
        for shape in [LATENT, Shape { group: 128, ..LATENT }, LARGE, Shape { group: 64, ..LARGE }, UNEQUAL] {
            let shape = Shape { target: name, window: Some(1000), sinks: true, ..shape };
            let source = shape.source();
            let (made, wanted) = assembled(&ptxas, &source, target);
            let resident = made.resident(target, source.threads, source.shared);
            println!(
                "{name} {shape:?}: {} registers, {} shared, {resident} of {wanted}",
                made.registers, source.shared
            );
            assert!(resident >= wanted && made.spills == [0; 3], "{name} {shape:?}: {:?}", made.spills);
        }
    }
}
