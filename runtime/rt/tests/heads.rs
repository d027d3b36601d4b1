//! Draft heads on a hand-made model: which rows and tokens they take, and what they guess.

use crate::common::{Data, Rng, VOCAB, cell, embed, engine_over, host_isa, toy_desc};
use llmcc_abi::output::kind;
use llmcc_abi::*;
use llmcc_rt::candidates::Want;
use llmcc_rt::engine::{Io, Row, STEP, Sink};
use llmcc_rt::speculate::Course;
use llmcc_rt::speculate::heads::Heads;
use llmcc_rt::{Batch, Engine};

const CONTEXT: usize = 900;

/// The rows of a sequence of values: `Σ_{q ≤ p} (q + 1) · value_q`, modulo 97.
fn sums(values: &[f32]) -> Vec<f32> {
    let mut sum = 0.0;
    let add = |(q, value): (usize, &f32)| {
        sum = (sum + (q + 1) as f32 * value) % 97.0;
        sum
    };
    values.iter().enumerate().map(add).collect()
}

/// The value that a head makes of a row and a token.
fn met(row: f32, token: i32) -> f32 {
    (row + 2.0 * token as f32) % 97.0
}

/// The token that a row stands for.
fn picked(row: f32) -> i32 {
    row as i32 % VOCAB as i32
}

unsafe extern "C" fn meet(ops: *const *mut u8, ctx: *const StepCtx, _: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: the engine keeps the ABI's promises; that is under test.
    unsafe {
        let (x, ctx) = ((*ops).cast::<f32>(), &*ctx);
        (lo as usize..hi as usize)
            .for_each(|i| x.add(i).write(met(*ctx.arrays.given.cast::<f32>().add(i), *ctx.tokens.add(i))));
    }
}

unsafe extern "C" fn append(ops: *const *mut u8, ctx: *const StepCtx, _: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: as above.
    unsafe {
        for i in lo as usize..hi as usize {
            *cell(*ops.add(1), &*ctx, i, *(*ctx).positions.add(i) as usize) = *(*ops).cast::<f32>().add(i);
        }
    }
}

unsafe extern "C" fn attend(ops: *const *mut u8, ctx: *const StepCtx, _: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: as above.
    unsafe {
        for i in lo as usize..hi as usize {
            let p = *(*ctx).positions.add(i) as usize;
            let values: Vec<f32> = (0..=p).map(|q| *cell(*ops, &*ctx, i, q)).collect();
            (*ops.add(1)).cast::<f32>().add(i).write(sums(&values)[p]);
        }
    }
}

unsafe extern "C" fn pick(ops: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: as above.
    unsafe {
        let (rows, logits) = ((*ops).cast::<f32>(), (*ops.add(1)).cast::<f32>());
        for r in 0..m as usize {
            let token = picked(*rows.add(*(*ctx).out_rows.add(r) as usize));
            (lo as usize..hi as usize)
                .for_each(|v| logits.add(r * VOCAB + v).write(f32::from(u8::from(v as i32 == token))));
        }
    }
}

/// A model with `heads` draft heads.
fn model(heads: usize, max_batch_tokens: usize) -> Engine {
    let functions: [KernelFn; 5] = [embed, meet, append, attend, pick];
    let mut data = Data::new();
    let texts = ["{}", "", ""].map(|t| data.text(t));
    let kernels = data.kernels(&functions.map(|f| f as usize as u64));
    let op = |kind, index| OperandDesc { kind, index, offset: 0 };
    let buffer = |index| op(operand::BUFFER, index);
    let (mut operands, mut steps, mut regimes, mut entries) = (vec![], vec![], vec![], vec![]);
    let outputs = [(kind::LOGITS, VOCAB, 2), (kind::HIDDEN, 1, 1)];
    let outputs = outputs.map(|(kind, columns, buffer)| OutputDesc {
        kind,
        columns: columns as u64,
        buffer,
        ..OutputDesc::default()
    });
    for entry in 0..=heads as u32 {
        let first = operands.len() as u32;
        let state = op(operand::STATE, entry);
        operands.extend([buffer(0), state, buffer(1), buffer(2)]);
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
        regimes.push(RegimeDesc { max_tokens: NONE, first_step: steps.len() as u32, steps: 4, reserved: 0 });
        let start = u32::from(entry > 0);
        steps.extend([step(start, first, 1), step(2, first, 2), step(3, first + 1, 2), step(4, first + 2, 2)]);
        let given = [InputDesc { kind: input::ROWS, token: 0, size: 1 }];
        entries.push(EntryDesc {
            name: data.text(&format!("entry{entry}")),
            inputs: data.table(if entry > 0 { &given[..] } else { &[] }),
            outputs: data.table(&outputs),
            first_regime: entry,
            regimes: 1,
            track: entry,
            ..EntryDesc::default()
        });
    }
    let state = |track| StateDesc {
        kv_heads: 1,
        key_dim: 1,
        dtype: kv_dtype::F32,
        group: track,
        track,
        bytes: layout::page(1, 1, 1, 32).bytes as u64,
        ..StateDesc::default()
    };
    let desc = ModelDesc {
        max_context: CONTEXT as u64,
        entries: data.table(&entries),
        states: data.table(&(0..=heads as u32).map(state).collect::<Vec<_>>()),
        operands: data.table(&operands),
        steps: data.table(&steps),
        regimes: data.table(&regimes),
        ..toy_desc(&mut data, host_isa(), &kernels, texts)
    };
    engine_over(data.finish(desc), max_batch_tokens)
}

/// The guesses after a text, by the definition of entries. The heads have seen rows from `first` on.
fn expected(text: &[i32], first: usize, heads: usize, n: usize) -> Vec<i32> {
    let mut text = text.to_vec();
    let values: Vec<f32> = text.iter().map(|t| *t as f32).collect();
    let mut rows = sums(&values[..values.len() - 1])[first..].to_vec();
    let (entries, start) = (rows.len(), text.len());
    let mut met_by_last: Vec<f32> = vec![];
    for k in 0..n {
        if k < heads {
            met_by_last = rows.iter().zip(&text[first + 1 + k..]).map(|(row, token)| met(*row, *token)).collect();
            assert_eq!(met_by_last.len(), entries);
        } else {
            met_by_last.push(met(rows[rows.len() - 1], text[text.len() - 1]));
        }
        rows = sums(&met_by_last);
        text.push(picked(rows[rows.len() - 1]));
    }
    text.split_off(start)
}

/// Random texts in pieces, with guesses now and then, and after going back.
#[test]
fn heads_guess_as_they_are_defined() {
    for (heads, max_batch_tokens) in [(1, 7), (1, 300), (2, 64), (3, 5), (3, 300)] {
        let (mut engine, mut rng) = (model(heads, max_batch_tokens), Rng(heads as u64 * 31 + 1));
        let seq = engine.kv_mut().seq_new().unwrap();
        let mut of = Heads::of(engine.image()).unwrap();
        assert_eq!(of.count(), heads);
        let (mut first, mut guessed) = (0, 0);
        let mut text: Vec<i32> = vec![rng.below(VOCAB) as i32];
        while text.len() < CONTEXT - 330 {
            // The model sees some tokens, and one more is known.
            let seen = text.len() - 1;
            let most = if rng.below(9) == 0 { 320 } else { 1 + rng.below(12) };
            text.extend((0..most).map(|_| rng.below(VOCAB) as i32));
            let (new, mut rows) = (&text[seen..text.len() - 1], vec![]);
            let seqs = vec![seq; new.len()];
            let batch = Batch { tokens: new, seqs: &seqs, out_rows: &[], ..Batch::default() };
            let mut keep = |_: usize, kept: &[f32]| rows.extend_from_slice(kept);
            let io =
                Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: Some(&mut keep), taps: None };
            engine.run(STEP, io).unwrap();
            of.take(&mut engine, seq, (seen, &rows), &text).unwrap();
            let n = rng.below(7);
            let choose = |mut row: Row, _: &[i32]| Ok(row.values()?.iter().position(|v| *v == 1.0).unwrap() as i32);
            let course = Course { history: &text, choose: &choose, want: Want::Logits };
            let guesses = of.guess(&mut engine, seq, &course, n).unwrap();
            assert_eq!(guesses, expected(&text, first, heads, n), "{heads} heads, {} tokens from {first}", text.len());
            guessed += n;
            // Back to fewer tokens: the heads begin anew with the next row.
            if rng.below(12) == 0 {
                text.truncate(text.len() - rng.below(text.len().min(4)));
                engine.kv_mut().truncate(seq, text.len() - 1).unwrap();
                of.restart(&mut engine, seq).unwrap();
                first = text.len() - 1;
            }
        }
        assert!(guessed > 30, "{guessed}");
        engine.kv_mut().seq_free(seq).unwrap();
        assert_eq!(engine.kv().used_pages(), 0);
    }
}
