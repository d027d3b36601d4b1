//! A token's result depends on nothing else in the step.

use super::*;

impl Step {
    /// Some of the tokens, which are `tokens`.
    fn only(&self, tokens: &[(usize, usize)], which: &[usize]) -> Step {
        let picked =
            |rows: &Rows| Rows { cols: rows.cols, data: which.iter().flat_map(|i| rows.row(*i).to_vec()).collect() };
        let of: Vec<(usize, usize)> = which.iter().map(|i| tokens[*i]).collect();
        Step {
            batch: batch(&of),
            state: self.state.clone(),
            q: picked(&self.q),
            own: picked(&self.own),
            sinks: self.sinks.clone(),
            bias: self.bias.clone(),
            near: self.near.clone(),
            chosen: picked(&self.chosen),
        }
    }
}

/// Every token of a step has the same bits in the whole step, alone, and between two of the others.
pub(super) fn same_bits_in_any_company(shape: &Shape, sms: u32, tokens: &[(usize, usize)]) {
    let compiled = shape.compiled(&of_size(shape, sms));
    let whole = Step::new(shape, tokens, 11);
    let run = |step: &Step| run(shape, &compiled, step).0;
    let some = |which: &[usize]| run(&whole.only(tokens, which));
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

/// A machine with so many multiprocessors.
fn of_size(shape: &Shape, sms: u32) -> TargetSpec {
    let mut target = *shape.target();
    if let target::Arch::Gpu(gpu) = &mut target.arch {
        gpu.sms = sms;
    }
    target
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// Every sequence of a step, all its tokens side by side, has the same bits in the whole step, alone,
/// and between two of the others.
fn sequences_have_the_same_bits_in_any_company(shape: &Shape, sms: u32, parts: &[(usize, usize, usize)]) {
    let compiled = shape.compiled(&of_size(shape, sms));
    let tokens = prompts(parts);
    let whole = Step::new(shape, &tokens, 11);
    let all = run(shape, &compiled, &whole).0;
    let first = |i: usize| parts[..i].iter().map(|(.., n)| n).sum::<usize>();
    for i in 0..parts.len() {
        for others in [vec![i], vec![(i + 1) % parts.len(), i, (i + 2) % parts.len()]] {
            let which: Vec<usize> = others.iter().flat_map(|o| first(*o)..first(*o) + parts[*o].2).collect();
            let some = run(shape, &compiled, &whole.only(&tokens, &which)).0;
            for (row, token) in which.iter().enumerate().filter(|(_, t)| (first(i)..first(i + 1)).contains(*t)) {
                let same = bits(all.row(*token)) == bits(some.row(row));
                assert!(same, "{shape:?}: token {token}, {:?}, beside {others:?}", tokens[*token]);
            }
        }
    }
}

/// Also where a block's tokens are of several sequences, or see different parts of one.
#[test]
fn prefill_has_the_same_bits_in_any_company() {
    let parts = [(2, 143, 6), (0, 0, 3), (4, 40, 1), (1, 77, 1), (5, 29, 4), (3, 16, 1)];
    for window in [None, Some(20), Some(75)] {
        let shape = Shape { out: RowElem::F32, window, ..PROMPT };
        sequences_have_the_same_bits_in_any_company(&shape, 132, &parts);
        sequences_have_the_same_bits_in_any_company(&Shape { d: 80, window, target: "sm80", ..PROMPT }, 108, &parts);
    }
    let int8 = Shape { dtype: KvDType::Int8, d: 128, window: Some(33), ..PROMPT };
    sequences_have_the_same_bits_in_any_company(&int8, 132, &parts);
    sequences_have_the_same_bits_in_any_company(&Shape { d: 256, kv_heads: 1, ..PROMPT }, 132, &parts);
}

/// One-token sequences of a step of many tokens have the bits that they have in a small step, whether
/// their chunks are dealt to many teams or to one, and all others are right too.
#[test]
fn lone_tokens_have_the_bits_of_decoding() {
    let mut parts = vec![(0, 1400, 1), (1, 0, 1), (2, 299, 1), (3, 60, 40), (4, 128, 1), (5, 700, 1), (6, 15, 2)];
    parts.extend((7..40).map(|s| (s, 5 * s, 1)));
    let tokens = prompts(&parts);
    for (shape, sms) in [
        (Shape { out: RowElem::F32, ..PROMPT }, 5),
        (Shape { d: 128, dtype: KvDType::Bf16, window: Some(333), ..PROMPT }, 132),
        (Shape { target: "sm80", sinks: true, ..PROMPT }, 3),
        (Shape { dtype: KvDType::Int8, d: 128, kv_heads: 1, ..PROMPT }, 7),
        (Shape { d: 256, kv_heads: 1, group: 8, tile_m: 16, target: "sm86", ..PROMPT }, 4),
    ] {
        let step = Step::new(&shape, &tokens, 5);
        let small = Shape { tile_m: 1, ..shape };
        let target = of_size(&shape, sms);
        let [many, few] = [&shape, &small].map(|shape| run(shape, &shape.compiled(&target), &step).0);
        for (i, token) in tokens.iter().enumerate() {
            let lone = parts.iter().any(|(s, _, n)| *s == token.0 && *n == 1);
            assert!(!lone || bits(many.row(i)) == bits(few.row(i)), "{shape:?}: token {i}, {token:?}");
        }
        assert_ne!(many, few, "{shape:?}: prompts are multiplied otherwise");
    }
    check(&PROMPT, &[&tokens]);
}

/// The kernel that an invariant target has for steps of so many tokens taken together.
fn invariant(shape: &Shape, sms: u32, together: usize) -> Compiled {
    Shape { tile_m: together, ..*shape }.compiled(&of_size(shape, sms).invariant())
}

/// Products by tensor cores: as many for each page that is walked over, whatever the rows.
fn products(stats: &Stats) -> u64 {
    stats.classes.iter().filter(|(name, _)| name.starts_with("mma")).map(|(_, n)| n).sum()
}

/// For an invariant target one kernel decodes steps of any size, one token at a time or a few: all have the same bits
/// in the whole step, and in steps of some of the tokens of some sequences. By the kernel of prompts they have others.
#[test]
fn an_invariant_target_has_the_same_bits_in_any_pieces() {
    // In the last sequence but one, tokens after others see a chunk more; windows begin in any place of a page.
    let parts = [(0, 1400, 1), (1, 600, 2), (2, 0, 40), (3, 290, 1), (4, 120, 9), (5, 505, 30), (6, 15, 5)];
    let tokens = prompts(&parts);
    assert!(tokens.len() > 64, "more than steps that are decoded anyway");
    let halves: Vec<Vec<usize>> = (0..2).map(|r| (0..tokens.len()).filter(|i| i / 5 % 2 == r).collect()).collect();
    for (shape, sms) in [
        (DECODE, 6),
        (Shape { d: 128, dtype: KvDType::Bf16, group: 8, kv_heads: 1, window: Some(333), sinks: true, ..DECODE }, 132),
        (Shape { d: 128, dtype: KvDType::Int8, out: RowElem::F32, ..DECODE }, 7),
        (Shape { dtype: KvDType::Int8, group: 1, sinks: true, window: Some(50), ..DECODE }, 3),
        (Shape { d: 256, group: 2, kv_heads: 1, ..DECODE }, 6),
    ] {
        let [alone, together] = [1, 4].map(|n| invariant(&shape, sms, n));
        let whole = Step::new(&shape, &tokens, 9);
        let ((all, apart), (shared, at_once)) = (run(&shape, &alone, &whole), run(&shape, &together, &whole));
        let [fewer, many] = [&at_once, &apart].map(products);
        assert!(fewer * 4 < many * 3, "{shape:?}: {fewer} products, {many} by single tokens");
        for (token, at) in tokens.iter().enumerate() {
            assert!(bits(all.row(token)) == bits(shared.row(token)), "{shape:?}: token {token}, {at:?}, beside others");
        }
        for (which, kernel) in halves.iter().flat_map(|which| [(which, &alone), (which, &together)]) {
            let some = run(&shape, kernel, &whole.only(&tokens, which)).0;
            for (row, token) in which.iter().enumerate() {
                assert!(bits(all.row(*token)) == bits(some.row(row)), "{shape:?}: token {token}, {:?}", tokens[*token]);
            }
        }
        let prompt = Shape { tile_m: 32, ..shape };
        let other = run(&prompt, &prompt.compiled(&of_size(&prompt, sms)), &whole).0;
        assert_ne!(all, other, "{shape:?}: else every kernel would do");
    }
}
