//! The engine with states of different lifetimes: each has pages and block tables of its own.

use crate::common::speculated::{check_speculation, check_trees};
use crate::common::*;
use llmcc_abi::*;
use llmcc_rt::SeqId;

/// Window of state 0; state 1 has none.
const WINDOW: usize = 24;
/// Sums over the window count so many times as much as those over everything.
const WEIGHT: i32 = 16;

/// The model's logits for a whole sequence.
fn mixed(tokens: &[i32]) -> Vec<f32> {
    let sum = |from: usize| (from..tokens.len()).map(|q| (q as i32 + 1) * tokens[q]).sum::<i32>();
    let s = WEIGHT * sum(tokens.len().saturating_sub(WINDOW)) + sum(0);
    (0..VOCAB - 1).map(|v| (s * (v as i32 + 1)) as f32).collect()
}

/// `append(x, state)`.
unsafe extern "C" fn append(ops: *const *mut u8, ctx: *const StepCtx, _: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: the engine keeps the ABI's promises; that is under test.
    unsafe {
        for i in lo as usize..hi as usize {
            let p = *(*ctx).positions.add(i) as usize;
            *cell(*ops.add(1), &*ctx, i, p) = *(*ops).cast::<f32>().add(i);
        }
    }
}

/// `attend(state, sums)`: adds to the sums, or sets them.
unsafe extern "C" fn attend<const ALL: bool>(
    ops: *const *mut u8,
    ctx: *const StepCtx,
    _: u64,
    lo: u64,
    hi: u64,
    _: *mut u8,
) {
    // SAFETY: as above.
    unsafe {
        for i in lo as usize..hi as usize {
            let p = *(*ctx).positions.add(i) as usize;
            let from = if ALL { 0 } else { (p + 1).saturating_sub(WINDOW) };
            let s: f32 = (from..=p).map(|q| (q + 1) as f32 * *cell(*ops, &*ctx, i, q)).sum();
            let out = (*ops.add(1)).cast::<f32>().add(i);
            *out = if ALL { *out + s } else { WEIGHT as f32 * s };
        }
    }
}

/// The tables; `group` is that of state 1.
fn data(window: u32, group: u32) -> Vec<u8> {
    let functions: [KernelFn; 5] = [embed, append, attend::<false>, attend::<true>, times_weights];
    let mut data = Data::new();
    let texts = ["{}", "", ""].map(|t| data.text(t));
    let kernels = data.kernels(&functions.map(|f| f as usize as u64));
    let op = |kind, index, offset| OperandDesc { kind, index, offset };
    let (buffer, kv) = (|index| op(operand::BUFFER, index, 0), |index| op(operand::STATE, index, 0));
    let operands = [buffer(0), kv(0), buffer(1), buffer(0), kv(1), buffer(1), op(operand::WEIGHT, 0, 8), buffer(2)];
    let step = |kernel, first_operand, operands| StepDesc {
        kernel,
        rows: if kernel == 4 { rows::OUT } else { rows::TOKENS },
        items: if kernel == 4 { VOCAB as u32 } else { 1 },
        items_per_m: u32::from(kernel != 4),
        chunk: 0,
        first_operand,
        operands,
        layer: NONE,
    };
    let steps = [step(0, 0, 1), step(1, 0, 2), step(1, 3, 2), step(2, 1, 2), step(3, 4, 2), step(4, 5, 3)];
    let state = |window, group| StateDesc {
        kv_heads: 1,
        key_dim: 1,
        dtype: kv_dtype::F32,
        window,
        group,
        bytes: layout::page(1, 1, 1, 32).bytes as u64,
        ..StateDesc::default()
    };
    let entries = toy_entry(&mut data, 1, 0);
    let desc = ModelDesc {
        entries,
        states: data.table(&[state(window, 0), state(0, group)]),
        operands: data.table(&operands),
        steps: data.table(&steps),
        regimes: data.table(&[RegimeDesc { max_tokens: NONE, first_step: 0, steps: steps.len() as u32, reserved: 0 }]),
        ..toy_desc(&mut data, host_isa(), &kernels, texts)
    };
    data.finish(desc)
}

/// Random steps of several sequences, forks and cuts where possible: the logits equal a cache that
/// keeps everything.
#[test]
fn windows_and_full_states_side_by_side() {
    for max_batch_tokens in [1, 7, 40] {
        let (mut engine, mut rng) =
            (engine_over(data(WINDOW as u32, 1), max_batch_tokens), Rng(max_batch_tokens as u64));
        let mut live: Vec<(SeqId, Vec<i32>)> = vec![(engine.kv_mut().seq_new().unwrap(), Vec::new())];
        for _ in 0..200 {
            let at = rng.below(live.len());
            match rng.below(10) {
                0 if live.len() < 6 => live.push((engine.kv_mut().seq_new().unwrap(), Vec::new())),
                1 if live.len() < 6 => {
                    let copy = (engine.kv_mut().fork(live[at].0).unwrap(), live[at].1.clone());
                    live.push(copy);
                }
                2 => {
                    let len = live[at].1.len().saturating_sub(rng.below(40));
                    if engine.kv_mut().truncate(live[at].0, len).is_ok() {
                        live[at].1.truncate(len);
                    }
                }
                3 if live[at].1.len() + 50 > CONTEXT => {
                    engine.kv_mut().truncate(live[at].0, 0).unwrap();
                    live[at].1.clear();
                }
                _ => {
                    let (logits, want) = random_step(&mut engine, &mut rng, &mut live, 50, mixed);
                    logits.iter().zip(&want).for_each(|(got, want)| assert_eq!(got[..VOCAB - 1], want[..]));
                }
            }
        }
        assert!(live.iter().any(|(_, history)| history.len() > 4 * WINDOW), "nothing has been given back");
        live.iter().for_each(|(seq, _)| engine.kv_mut().seq_free(*seq).unwrap());
        assert_eq!(engine.kv().used_pages(), 0);
    }
}

#[test]
fn trees_are_their_ways_alone() {
    check_trees(&mut engine_over(data(WINDOW as u32, 1), 40), 5, 16);
}

#[test]
fn guesses_change_no_text() {
    for max_batch_tokens in [3, 40] {
        let mut engine = engine_over(data(WINDOW as u32, 1), max_batch_tokens);
        assert!(check_speculation(&mut engine, max_batch_tokens as u64, 60) > 20);
    }
}

#[test]
fn groups_are_checked() {
    let refused =
        |window, group| toy_image_from(data(window, group).leak()).err().map(|e| e.message).unwrap_or_default();
    assert_eq!(refused(24, 1), "");
    // One group, two windows; a number left out.
    assert!(
        refused(24, 0).contains("state 1 is of kind 0 with a window of 0 in track 0, in group 0"),
        "{}",
        refused(24, 0)
    );
    assert!(
        refused(24, 2).contains("state 1 is of kind 0 with a window of 0 in track 0, in group 2"),
        "{}",
        refused(24, 2)
    );
    assert_eq!(refused(0, 0), "");
    // A step that uses both: the toy's own `append`.
    let mut bad = data(24, 1);
    let steps = toy_image_from(data(24, 1).leak()).unwrap().desc().steps;
    let at = steps.off as usize + size_of::<StepDesc>() + std::mem::offset_of!(StepDesc, operands);
    bad[at..at + 4].copy_from_slice(&5u32.to_le_bytes());
    let error = toy_image_from(bad.leak()).err().unwrap().message;
    assert!(error.contains("step 1 uses states of several groups"), "{error}");
}
