//! Heads that look further ahead from one row, on a hand-made model: which row they take, what they guess, and that
//! sequences stay as they are.

use crate::common::{Data, VOCAB, embed, engine_over, host_isa, toy_desc};
use llmcc_abi::output::kind;
use llmcc_abi::*;
use llmcc_rt::candidates::Want;
use llmcc_rt::engine::{Io, Row, STEP, Sink};
use llmcc_rt::speculate::Course;
use llmcc_rt::speculate::ahead::Ahead;
use llmcc_rt::speculate::heads::Heads;
use llmcc_rt::{Batch, Engine};

/// The token that head `k` predicts from a row; -1: the model itself.
fn seen(row: f32, k: i32) -> i32 {
    (row as i32 * 5 + 3 * (k + 2)) % VOCAB as i32
}

unsafe extern "C" fn pick(ops: *const *mut u8, ctx: *const StepCtx, m: u64, lo: u64, hi: u64, _: *mut u8) {
    // SAFETY: the engine keeps the ABI's promises; that is under test.
    unsafe { one_hot((*ops).cast::<f32>(), (*ops.add(1)).cast::<f32>(), &*ctx, -1, (m, lo, hi)) }
}

unsafe extern "C" fn look<const K: i32>(
    ops: *const *mut u8,
    ctx: *const StepCtx,
    m: u64,
    lo: u64,
    hi: u64,
    _: *mut u8,
) {
    // SAFETY: as above.
    unsafe { one_hot((*ctx).arrays.given.cast::<f32>(), (*ops).cast::<f32>(), &*ctx, K, (m, lo, hi)) }
}

/// Logits of the token that head `k` predicts from the wanted rows.
unsafe fn one_hot(rows: *const f32, logits: *mut f32, ctx: &StepCtx, k: i32, (m, lo, hi): (u64, u64, u64)) {
    // SAFETY: as above.
    unsafe {
        for r in 0..m as usize {
            let token = seen(*rows.add(*ctx.out_rows.add(r) as usize), k);
            (lo as usize..hi as usize)
                .for_each(|v| logits.add(r * VOCAB + v).write(f32::from(u8::from(v as i32 == token))));
        }
    }
}

/// A model whose rows are its tokens, with two heads and a state that only `step` would have.
fn model() -> Engine {
    let functions: [KernelFn; 4] = [embed, pick, look::<0>, look::<1>];
    let mut data = Data::new();
    let texts = ["{}", "", ""].map(|t| data.text(t));
    let kernels = data.kernels(&functions.map(|f| f as usize as u64));
    let buffer = |index| OperandDesc { kind: operand::BUFFER, index, offset: 0 };
    let operands = [buffer(0), buffer(2)];
    let step = |kernel, rows, items, first_operand, operands| StepDesc {
        kernel,
        rows,
        items,
        items_per_m: u32::from(rows == rows::TOKENS),
        chunk: 0,
        first_operand,
        operands,
        layer: NONE,
    };
    let on_rows = |kernel, first, count| step(kernel, rows::OUT, VOCAB as u32, first, count);
    let steps = [step(0, rows::TOKENS, 1, 0, 1), on_rows(1, 0, 2), on_rows(2, 1, 1), on_rows(3, 1, 1)];
    let regime = |first_step, steps| RegimeDesc { max_tokens: NONE, first_step, steps, reserved: 0 };
    let regimes = [regime(0, 2), regime(2, 1), regime(3, 1)];
    let logits = OutputDesc { kind: kind::LOGITS, columns: VOCAB as u64, buffer: 2, ..OutputDesc::default() };
    let hidden = OutputDesc { kind: kind::HIDDEN, columns: 1, buffer: 0, ..OutputDesc::default() };
    let outputs = [logits, hidden];
    let given = [InputDesc { kind: input::ROWS, token: 0, size: 1 }];
    let mut entries = vec![];
    for entry in 0..3 {
        entries.push(EntryDesc {
            name: data.text(&format!("entry{entry}")),
            inputs: data.table(if entry > 0 { &given[..] } else { &[] }),
            outputs: data.table(&outputs[..if entry > 0 { 1 } else { 2 }]),
            first_regime: entry,
            regimes: 1,
            ..EntryDesc::default()
        });
    }
    let desc = ModelDesc {
        entries: data.table(&entries),
        operands: data.table(&operands),
        steps: data.table(&steps),
        regimes: data.table(&regimes),
        ..toy_desc(&mut data, host_isa(), &kernels, texts)
    };
    engine_over(data.finish(desc), 16)
}

#[test]
fn heads_look_ahead_from_the_last_row() {
    let mut engine = model();
    assert!(Heads::of(engine.image()).is_none());
    let mut ahead = Ahead::of(engine.image()).unwrap();
    assert_eq!(ahead.count(), 2);
    let seq = engine.kv_mut().seq_new().unwrap();
    let choose = |mut row: Row, _: &[i32]| Ok(row.values()?.iter().position(|v| *v == 1.0).unwrap() as i32);
    let mut text: Vec<i32> = vec![3];
    for (i, more) in [vec![4, 1, 6], vec![2], vec![5, 5, 0, 1]].into_iter().enumerate() {
        let seen_before = text.len() - 1;
        text.extend(more);
        let (new, mut rows) = (&text[seen_before..text.len() - 1], vec![]);
        let batch = Batch { tokens: new, seqs: &vec![seq; new.len()], out_rows: &[], ..Batch::default() };
        let mut keep = |_: usize, kept: &[f32]| rows.extend_from_slice(kept);
        let io = Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: Some(&mut keep), taps: None };
        engine.run(STEP, io).unwrap();
        ahead.take((seen_before, &rows)).unwrap();
        let row = text[text.len() - 2] as f32;
        let course = Course { history: &text, choose: &choose, want: Want::Logits };
        for n in [0, 1, 2, 5] {
            let guesses = ahead.guess(&mut engine, seq, &course, n).unwrap();
            let expected: Vec<i32> = (0..2).map(|k| seen(row, k)).take(n).collect();
            assert_eq!(guesses, expected, "round {i}, {n} guesses");
            assert_eq!(engine.kv().tokens(seq).unwrap(), &text[..text.len() - 1]);
        }
    }
    // Of a text that went on, and after a restart, nothing is known.
    let longer = [&text[..], &[1]].concat();
    let course = Course { history: &longer, choose: &choose, want: Want::Logits };
    assert!(ahead.guess(&mut engine, seq, &course, 2).unwrap().is_empty());
    ahead.restart();
    let course = Course { history: &text, choose: &choose, want: Want::Logits };
    assert!(ahead.guess(&mut engine, seq, &course, 2).unwrap().is_empty());
}
