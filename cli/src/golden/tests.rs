use super::steps::sequences;
use super::*;

fn computed(tokens: usize, logits: &[f32], columns: usize) -> Computed {
    Computed::new(&Step { entry: 0, columns, tokens: vec![0; tokens], seqs: vec![0; tokens], out_rows: vec![] }, logits)
}

/// The steps of a model with one entry.
fn steps(seed: u64, vocab: usize, max_context: usize, whole: bool) -> Vec<Step> {
    super::steps(seed, &Sizes { vocab, max_context, entries: vec![Shape { columns: vocab, whole, context: None }] })
}

/// Each entry has steps in sequences of its own, and the first has those that it would have alone.
#[test]
fn entries_have_steps_of_their_own() {
    let shape = |columns| Shape { columns, whole: false, context: None };
    let sizes = Sizes { vocab: 90, max_context: 99, entries: vec![shape(90), shape(40)] };
    let (all, alone) = (super::steps(3, &sizes), steps(3, 90, 99, false));
    assert_eq!(all[..5], alone[..]);
    let of_second = &all[5..];
    assert!(of_second.len() == 5 && of_second.iter().all(|s| (s.entry, s.columns) == (1, 40)));
    assert!(of_second.iter().all(|s| s.seqs.iter().all(|seq| (2..4).contains(seq))));
    assert_ne!(of_second[0].tokens, alone[0].tokens);
}

#[test]
fn steps_depend_on_the_seed_only_in_their_tokens() {
    let (a, b) = (steps(1, 1000, 4096, false), steps(2, 1000, 4096, false));
    assert_eq!(a, steps(1, 1000, 4096, false));
    let sizes: Vec<_> = a.iter().map(|s| s.tokens.len()).collect();
    assert_eq!(sizes, [40, 1, 1, 18, 2]);
    assert!(a.iter().zip(&b).all(|(a, b)| (&a.seqs, &a.out_rows) == (&b.seqs, &b.out_rows) && a.tokens != b.tokens));
    assert_eq!(a[0].out_rows, [0, 15, 16, 39]);
    assert_eq!(a[3].out_rows, [0, 9, 15, 16, 17]);
}

#[test]
fn short_contexts_cut_steps() {
    for context in 1..90 {
        let all = steps(7, 3, context, false);
        let mut lengths = vec![0; sequences(&all)];
        assert_eq!(lengths.len(), 2);
        for step in all {
            assert!(!step.tokens.is_empty() && !step.out_rows.is_empty());
            assert!(step.tokens.iter().all(|t| (0..3).contains(t)));
            step.seqs.iter().for_each(|s| lengths[*s] += 1);
        }
        assert!(lengths.iter().all(|n| (1..=context).contains(n)), "context {context}: {lengths:?}");
    }
}

/// Where sequences are whole, no step goes on with one of an earlier step.
#[test]
fn whole_sequences_are_in_one_step() {
    for context in 1..90 {
        let mut next = 0;
        for step in steps(7, 3, context, true) {
            let first = next;
            let runs = step.seqs.chunk_by(|a, b| a == b);
            runs.for_each(|run| {
                assert!(run[0] == next && run.len() <= context, "context {context}: {:?}", step.seqs);
                next += 1;
            });
            assert!(next > first);
            assert!(step.out_rows.contains(&(step.tokens.len() as u32 - 1)));
        }
        assert_eq!(next, 8, "context {context}");
    }
}

#[test]
fn entries_are_spread_and_exist() {
    assert_eq!(entries(5).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(entries(64).collect::<Vec<_>>(), (0..32).map(|j| 2 * j).collect::<Vec<_>>());
    assert!(entries(128_257).all(|e| e < 128_257));
}

#[test]
fn the_first_difference_is_named_with_values() {
    let steps = steps(0, 64, 4096, false);
    let logits: Vec<f32> = (0..128).map(|i| i as f32 - 0.5).collect();
    let want = vec![computed(1, &logits[..64], 64), computed(2, &logits, 64)];
    assert_eq!(difference(&want, &want, &steps), None);
    let mut other = logits.clone();
    other[64 + 10] = -3.25;
    let got = vec![want[0].clone(), computed(2, &other, 64)];
    let said = difference(&want, &got, &steps).expect("a difference");
    assert!(
        said.starts_with("step 2 of 2 (2 tokens): logit 10 after token")
            && said.ends_with("is -3.25, when compiled it was 73.5"),
        "{said}"
    );
    // An entry between those that are kept shows in the hash.
    other.clone_from(&logits);
    other[1] = 9.0;
    let got = vec![want[0].clone(), computed(2, &other, 64)];
    assert!(difference(&want, &got, &steps).expect("a difference").contains("in entries whose values are not kept"));
    assert!(difference(&want, &want[..1], &steps).expect("a difference").contains("other steps"));
}

#[test]
fn distances_are_relative_and_see_what_is_not_finite() {
    let same = Distance::of(&[3.0, 4.0], &[3.0, 4.0]);
    assert!(same.same_bits && same.finite && same.relative == 0.0);
    let off = Distance::of(&[3.0, 4.0], &[3.0, 3.5]);
    assert!(!off.same_bits && (off.relative - 0.1).abs() < 1e-9, "{off:?}");
    // JSON has no infinity: it must come back unchanged.
    for bad in [f32::NAN, f32::INFINITY] {
        let lost = Distance::of(&[3.0, 4.0], &[3.0, bad]);
        assert!(!lost.finite);
        assert_eq!(
            serde_json::from_str::<Distance>(&serde_json::to_string(&lost).expect("JSON")).expect("reads back"),
            lost
        );
    }
    let want = vec![computed(1, &[1.0, 2.0], 2)];
    assert!(Distance::between(&want, &want).expect("of the same steps").same_bits);
    assert_eq!(Distance::between(&want, &[]), None);
}
