//! Prompts by `wgmma`, with warps that bring and warps that multiply; and by `mma.sync`, as on
//! other targets.

use super::*;
use llmcc_gpu::assembler::{Ptxas, disassemble};
use llmcc_gpu::worker::Stage;

const MMA: Shape = Shape { target: "sm80", ..PROMPT };

fn shuffled(tokens: &[(usize, usize)], rng: &mut Rng) -> Vec<(usize, usize)> {
    let mut tokens = tokens.to_vec();
    (1..tokens.len()).for_each(|i| tokens.swap(i, rng.below(0, i + 1)));
    tokens
}

/// The kernel with warps that bring and warps that multiply.
fn check_warpgroups(shape: &Shape, steps: &[&[(usize, usize)]]) -> Stats {
    assert_eq!(shape.source().threads, 384, "{shape:?} is not for groups of warps");
    check(shape, steps)
}

/// A token each of many sequences.
fn lone() -> Vec<(usize, usize)> {
    (0..140).map(|s| (s, s * 7 % 40)).collect()
}

#[test]
fn prompts_by_mma() {
    let ragged = prompts(&[(2, 5, 20), (0, 0, 33), (1, 77, 1), (3, 16, 16)]);
    let mixed = shuffled(&ragged, &mut Rng::new(5));
    check(&MMA, &[&prompts(&[(0, 150, 37)]), &mixed, LONE]);
    check(&Shape { d: 128, dtype: KvDType::Bf16, window: Some(7), out: RowElem::Bf16, ..MMA }, &[&mixed]);
    // A token of every sequence, and several of some, in blocks of many tokens.
    let many = Shape { group: 1, kv_heads: 1, d: 16, tile_m: 128, ..MMA };
    let mixed = shuffled(&prompts(&[(0, 3, 60), (1, 0, 2), (2, 90, 71), (3, 16, 1)]), &mut Rng::new(7));
    check(&many, &[&lone(), &mixed]);
    check(&Shape { window: Some(9), dtype: KvDType::Int8, d: 32, ..many }, &[&mixed]);
    // Cases without `wgmma` on sm90: few rows, larger heads.
    check(&Shape { tile_m: 8, target: "sm90", ..MMA }, &[&ragged]);
    check(&Shape { d: 160, kv_heads: 1, target: "sm90", ..MMA }, &[&ragged]);
}

#[test]
fn warpgroups_on_a_prompt() {
    let (whole, later) = (prompts(&[(0, 0, 70)]), prompts(&[(0, 150, 37)]));
    check_warpgroups(&PROMPT, &[&whole, &later, LONE]);
    let large = Shape { d: 128, dtype: KvDType::Bf16, q: RowElem::Bf16, out: RowElem::Bf16, ..PROMPT };
    check_warpgroups(&large, &[&whole, &later]);
    check_warpgroups(&Shape { window: Some(20), ..PROMPT }, &[&whole, &later]);
    // Tiles that are seen whole, in part and not at all.
    check_warpgroups(&Shape { window: Some(200), kv_heads: 1, ..large }, &[&prompts(&[(0, 340, 33)])]);
}

#[test]
fn warpgroups_on_several_sequences() {
    let ragged = prompts(&[(2, 5, 20), (0, 0, 33), (1, 77, 1), (3, 16, 16)]);
    let mixed = shuffled(&ragged, &mut Rng::new(5));
    check_warpgroups(&PROMPT, &[&ragged, &mixed, RAGGED]);
    check_warpgroups(&Shape { window: Some(7), d: 128, kv_heads: 1, ..PROMPT }, &[&mixed]);
    // A token of every sequence, in blocks of many tokens.
    check_warpgroups(&Shape { group: 1, kv_heads: 1, d: 16, tile_m: 128, ..PROMPT }, &[&lone()]);
}

/// The rings go round several times, also from one sequence to the next.
#[test]
fn warpgroups_on_long_contexts() {
    let long = prompts(&[(0, 1100, 20), (1, 700, 9), (2, 1400, 3)]);
    check_warpgroups(&Shape { kv_heads: 1, ..PROMPT }, &[&long]);
    check_warpgroups(&Shape { kv_heads: 1, d: 128, dtype: KvDType::Bf16, ..PROMPT }, &[&long]);
    check_warpgroups(&Shape { kv_heads: 1, d: 80, window: Some(600), ..PROMPT }, &[&long]);
}

/// Any heads, groups, windows, types and steps.
#[test]
fn warpgroups_on_random_steps() {
    for seed in 1..=24 {
        let mut rng = Rng::new(seed);
        let group = rng.pick(&[1, 1, 2, 3, 4, 4, 5, 7, 8, 8, 12, 24]);
        let rows = [RowElem::F32, RowElem::F16, RowElem::Bf16];
        let shape = Shape {
            dtype: rng.pick(&[KvDType::F16, KvDType::Bf16]),
            kv_heads: 1 + rng.below(0, 2),
            d: rng.pick(&[16, 32, 48, 64, 64, 80, 96, 112, 128, 128]),
            values: None,
            latent: false,
            group,
            window: (rng.below(0, 3) == 0).then(|| 1 + rng.below(0, 300)),
            q: rng.pick(&rows),
            out: rng.pick(&rows),
            tile_m: 128 / group,
            target: "sm90",
            softcap: None,
            sinks: false,
            bias: None,
            relative: None,
            selected: None,
            causal: true,
            chunked: rng.below(0, 2) == 0,
        };
        let parts: Vec<(usize, usize, usize)> =
            (0..1 + rng.below(0, 4)).map(|s| (s, rng.below(0, 300) * rng.below(0, 2), 1 + rng.below(0, 30))).collect();
        let mut tokens = prompts(&parts);
        if rng.below(0, 3) == 0 {
            tokens = shuffled(&tokens, &mut rng);
        }
        check_warpgroups(&shape, &[&tokens]);
    }
}

/// Copies and queries go to shared memory without collisions, with the heads that matter.
#[test]
fn warpgroups_have_no_bank_conflicts() {
    let whole = prompts(&[(0, 100, 33)]);
    for d in [64, 128] {
        let shape = Shape { d, kv_heads: 1, q: RowElem::F16, ..PROMPT };
        let stats = check_warpgroups(&shape, &[&whole]);
        assert!(stats.conflicts.is_empty(), "heads of {d}: {:?}", stats.conflicts);
    }
}

/// With `ptxas` at hand: nothing is spilled, nothing serialized, and the tensor cores' instructions
/// are sm90's.
#[test]
fn warpgroups_have_registers() {
    let Some(ptxas) = Ptxas::find() else { return };
    let gpu = target::find("sm90").unwrap().gpu().unwrap();
    for (d, window, q) in
        (1..=8).map(|i| (16 * i, (i % 2 == 0).then_some(4096), if i > 4 { RowElem::Bf16 } else { RowElem::F32 }))
    {
        let shape = Shape { d, window, q, kv_heads: 8, dtype: KvDType::Bf16, ..PROMPT };
        let ptx = Compiler::new().lower(&shape.source().mlir, gpu.processor, gpu.ptx, Stage::Ptx).unwrap();
        let made = ptxas.assemble(&ptx, gpu.processor).unwrap();
        assert_eq!((made.spills, made.warnings), ([0; 3], vec![]), "{shape:?}: {} registers", made.registers);
        let sass = disassemble(&made.cubin).unwrap();
        assert!(sass.contains("HGMMA.64x128x16") && sass.contains("tnspB"), "{shape:?}");
    }
}
