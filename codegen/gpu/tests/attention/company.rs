//! A token's result depends on nothing else in the step.

use super::*;

/// Every token of a step has the same bits in the whole step, alone, and between two of the others.
fn same_bits_in_any_company(shape: &Shape, sms: u32, tokens: &[(usize, usize)]) {
    let mut target = *shape.target();
    if let target::Arch::Gpu(gpu) = &mut target.arch {
        gpu.sms = sms;
    }
    let compiled = shape.compiled(&target);
    let whole = Step::new(shape, tokens, 11);
    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let run = |step: &Step| run(shape, &compiled, step).0;
    let some = |which: &[usize]| {
        let picked =
            |rows: &Rows| Rows { cols: rows.cols, data: which.iter().flat_map(|i| rows.row(*i).to_vec()).collect() };
        let (q, own) = (picked(&whole.q), picked(&whole.own));
        let of: Vec<(usize, usize)> = which.iter().map(|i| tokens[*i]).collect();
        run(&Step {
            batch: batch(&of),
            state: whole.state.clone(),
            q,
            own,
            sinks: whole.sinks.clone(),
            bias: whole.bias.clone(),
            near: whole.near.clone(),
        })
    };
    let all = run(&whole);
    for i in 0..tokens.len() {
        let others = [(i + 1) % tokens.len(), i, (i + 2) % tokens.len()];
        let (alone, few) = (some(&[i]), some(&others));
        assert!(bits(all.row(i)) == bits(alone.row(0)), "{shape:?}: token {i}, {:?}, alone", tokens[i]);
        assert!(bits(all.row(i)) == bits(few.row(1)), "{shape:?}: token {i}, {:?}, beside two", tokens[i]);
    }
}

/// Alone, a sequence's chunks are dealt to many blocks; beside a few others, to some; beside many,
/// to one.
#[test]
fn decode_has_the_same_bits_in_any_company() {
    let mut tokens = vec![(0, 1400), (1, 0), (2, 299), (3, 127), (4, 128), (5, 700), (6, 15), (7, 16)];
    tokens.extend((8..14).map(|s| (s, 3 * s)));
    same_bits_in_any_company(&DECODE, 6, &tokens);
    same_bits_in_any_company(
        &Shape { dtype: KvDType::Int8, out: RowElem::F32, window: Some(333), ..DECODE },
        6,
        &tokens,
    );
    same_bits_in_any_company(&Shape { d: 36, group: 1, out: RowElem::F32, ..DECODE }, 7, &tokens[..9]);
    same_bits_in_any_company(&Shape { d: 256, group: 2, kv_heads: 1, out: RowElem::F32, ..DECODE }, 6, &tokens[..9]);
}

/// Also where a block's tokens are of several sequences, or see different parts of one.
#[test]
fn prefill_has_the_same_bits_in_any_company() {
    let tokens = prompts(&[(2, 143, 6), (0, 0, 3), (2, 40, 1), (1, 77, 1), (0, 29, 4), (3, 16, 1)]);
    for window in [None, Some(20), Some(75)] {
        same_bits_in_any_company(&Shape { out: RowElem::F32, window, ..PROMPT }, 132, &tokens);
        same_bits_in_any_company(&Shape { d: 80, window, target: "sm80", ..PROMPT }, 108, &tokens);
    }
    same_bits_in_any_company(&Shape { dtype: KvDType::Int8, d: 128, window: Some(33), ..PROMPT }, 132, &tokens);
    same_bits_in_any_company(&Shape { d: 256, kv_heads: 1, ..PROMPT }, 132, &tokens);
}
