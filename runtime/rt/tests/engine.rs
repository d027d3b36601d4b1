//! The engine on a hand-made model: partitioning, regimes, ragged batches, chunking, paging, forks,
//! failures.

use crate::common::served::{check_files, check_restarts, check_serving, check_warm};
use crate::common::speculated::{check_expectations, check_speculation, check_trees};

use crate::common::*;
use llmcc_rt::generate::{GenParams, Generation, Piece};
use llmcc_rt::{Batch, Error, Options, SeqId, Status};

#[test]
fn random_ragged_steps_match_the_reference() {
    for threads in [1, 2, 3, 7] {
        for max_batch_tokens in [0, 1, 5] {
            let mut engine =
                toy_engine(Options { threads, max_batch_tokens, max_tokens: 9 * CONTEXT + 800, ..Options::default() });
            check_random_steps(&mut engine, threads as u64 * 31 + max_batch_tokens as u64, 150);
        }
    }
}

#[test]
fn small_steps_run_alone_with_the_same_results() {
    let mut engine = toy_engine(Options { threads: 3, ..Options::default() });
    let seq = engine.kv_mut().seq_new().unwrap();
    let mut history = Vec::new();
    // 36 bytes of weights: steps of up to two tokens are below the limit.
    engine.set_solo_bytes(100);
    for n in [1, 2, 3, 1, 9, 2] {
        let tokens: Vec<i32> = (0..n).map(|i| (i + n) % VOCAB as i32).collect();
        history.extend(&tokens);
        let logits = step(&mut engine, &tokens, &vec![seq; tokens.len()], &[n as u32 - 1]).unwrap();
        assert_eq!(logits[0][..VOCAB - 1], expected(&history)[..]);
    }
}

#[test]
fn regimes_follow_the_number_of_tokens() {
    let mut engine = toy_engine(Options { threads: 2, ..Options::default() });
    let seq = engine.kv_mut().seq_new().unwrap();
    for (n, regime) in [(1, 1.), (4, 1.), (5, 2.), (3, 1.)] {
        let logits = step(&mut engine, &vec![1; n], &vec![seq; n], &[n as u32 - 1]).unwrap();
        assert_eq!(logits[0][VOCAB - 1], regime);
    }
}

#[test]
fn wrong_batches_change_nothing() {
    let mut engine = toy_engine(Options { max_tokens: 32, ..Options::default() });
    let seq = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1, 2], &[seq, seq], &[]).unwrap();
    type Case<'a> = (&'a [i32], &'a [SeqId], &'a [u32], Status);
    let failures: [Case; 7] = [
        (&[1, VOCAB as i32], &[seq, seq], &[0], Status::Invalid),
        (&[-1], &[seq], &[], Status::Invalid),
        (&[1], &[seq + 1], &[], Status::Invalid),
        (&[1, 1], &[seq], &[], Status::Invalid),
        (&[1], &[seq], &[1], Status::Invalid),
        (&[1; 31], &[seq; 31], &[0], Status::CacheFull),
        (&[1; 199], &[seq; 199], &[0], Status::ContextFull),
    ];
    for (tokens, seqs, out, status) in failures {
        assert_eq!(step(&mut engine, tokens, seqs, out).unwrap_err().status, status);
        assert_eq!(engine.kv().tokens(seq).unwrap(), [1, 2]);
        assert_eq!(engine.kv().used_pages(), 1);
    }
    // The empty step is fine, and the sequence still works.
    step(&mut engine, &[], &[], &[]).unwrap();
    let logits = step(&mut engine, &[3], &[seq], &[0]).unwrap();
    assert_eq!(logits[0][..VOCAB - 1], expected(&[1, 2, 3])[..]);
}

#[test]
fn hidden_states_are_of_models_that_leave_them() {
    let mut engine = toy_engine_as(Options::default(), |d| d.entry.outputs.count = 1);
    let seq = engine.kv_mut().seq_new().unwrap();
    let error = step_keeping(&mut engine, &[1], &[seq], &[]).unwrap_err();
    assert!(error.message.contains("does not return hidden states"), "{error}");
    assert_eq!(engine.kv().tokens(seq).unwrap(), &[] as &[i32]);
    let columns = changed(toy_data("{}", "", ""), |d| d.hidden.columns = 2);
    let buffer = changed(toy_data("{}", "", ""), |d| d.hidden.buffer = 2);
    for bad in [columns, buffer] {
        assert!(toy_image_from(&bad).err().unwrap().message.contains("output"));
    }
}

#[test]
fn profiles_count_every_kernel() {
    let mut engine = toy_engine(Options { threads: 2, profile: true, ..Options::default() });
    let seq = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1, 2], &[seq, seq], &[]).unwrap();
    step(&mut engine, &[3], &[seq], &[0]).unwrap();
    let json = engine.profile_json().unwrap();
    assert!(
        json.starts_with(
            "{\"batches\":2,\"tokens\":3,\"steps\":[{\"regime\":4,\"kernel\":\"embed\",\"layer\":0,\"calls\":2,"
        ),
        "{json}"
    );
    assert!(json.contains("\"kernel\":\"head_few\",\"layer\":-1,\"calls\":1,"), "{json}");
    assert!(toy_engine(Options::default()).profile_json().is_none());
}

#[test]
fn damaged_data_is_refused() {
    let good = toy_data("{\"a\":1}", "", "");
    assert!(toy_image_from(&good).is_ok());
    for len in [0, 7, 100, good.len() - 1] {
        assert_eq!(toy_image_from(&good[..len]).err().unwrap().status, Status::Artifact);
    }
    // Flipping any byte of the descriptor or the tables must never be undefined behaviour: either
    // refused, or still in bounds.
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            if let Err(error) = toy_image_from(&bad) {
                assert!(matches!(error.status, Status::Artifact | Status::Cpu), "{error}");
            }
        }
    }
}

/// "A failed call changes nothing": a token whose text cannot be made is not taken; the next try
/// finds the same one.
#[test]
fn a_token_that_cannot_be_spelled_is_not_taken() {
    let spelled = |ids: &[i32]| Ok(ids.iter().map(|id| format!("{id} ")).collect::<String>());
    let mut engine = toy_engine(Options { threads: 1, ..Options::default() });
    let params = || GenParams { max_tokens: 4, ..GenParams::default() };
    let mut whole = Generation::new(&mut engine, None, None, &[1, 2], params()).unwrap();
    let want: Vec<Piece> = (0..4).map(|_| whole.next_decoded(&mut engine, &spelled).unwrap().unwrap()).collect();
    let mut tried = Generation::new(&mut engine, None, None, &[1, 2], params()).unwrap();
    for piece in &want {
        let before = (tried.stats().generated_tokens, tried.finish());
        for failure in 0..2 {
            // The second decoding asks whether earlier data was known.
            let calls = std::cell::Cell::new(0);
            let broken = |ids: &[i32]| match calls.replace(calls.get() + 1) {
                n if n == failure => Err(Error::new(Status::Internal, "no text")),
                _ => spelled(ids),
            };
            let error = tried.next_decoded(&mut engine, &broken).unwrap_err();
            assert_eq!(error.message, "no text");
            assert_eq!((tried.stats().generated_tokens, tried.finish()), before);
        }
        assert_eq!(tried.next_decoded(&mut engine, &spelled).unwrap().as_ref(), Some(piece));
    }
    assert_eq!(tried.next_decoded(&mut engine, &spelled), Ok(None));
    assert_eq!(
        want.iter().map(|p| p.text.trim()).collect::<Vec<_>>(),
        want.iter().map(|p| p.token.to_string()).collect::<Vec<_>>()
    );
}

#[test]
fn trees_are_their_ways_alone() {
    for (threads, max_batch_tokens) in [(1, 7), (2, 200)] {
        check_trees(&mut toy_engine(Options { threads, max_batch_tokens, ..Options::default() }), threads as u64, 16);
    }
}

#[test]
fn guesses_change_no_text() {
    for (threads, max_batch_tokens) in [(1, 3), (2, 64)] {
        let mut engine = toy_engine(Options { threads, max_batch_tokens, ..Options::default() });
        assert!(check_speculation(&mut engine, max_batch_tokens as u64, 60) > 20);
    }
}

#[test]
fn texts_go_on_where_they_broke_off() {
    for (threads, max_batch_tokens, most) in [(1, 3, 1), (2, 64, 20)] {
        let mut engine = toy_engine(Options { threads, max_batch_tokens, ..Options::default() });
        assert!(check_expectations(&mut engine, max_batch_tokens as u64, 30) >= most);
    }
}

#[test]
fn requests_that_share_are_those_alone() {
    // The smallest cache has room for the longest request, and not for two.
    for (max_batch_tokens, max_tokens) in [(5, 2000), (64, 2000), (64, 176), (7, 176)] {
        let mut engine = toy_engine(Options { threads: 2, max_batch_tokens, max_tokens, ..Options::default() });
        let reused = check_serving(&mut engine, (max_batch_tokens + max_tokens) as u64, 40);
        assert!(reused > 100, "{reused}");
    }
}

#[test]
fn requests_go_on_from_any_length() {
    let mut engine = toy_engine(Options { threads: 1, max_batch_tokens: 16, max_tokens: 2000, ..Options::default() });
    check_warm(&mut engine, 2..70, 1);
}

#[test]
fn requests_go_on_from_files() {
    let mut engine = toy_engine(Options { threads: 1, max_batch_tokens: 16, max_tokens: 2000, ..Options::default() });
    // The last tokens of a sequence that do not fill a page are not in files.
    check_restarts(&mut engine, "toy", 2..70, 16);
    for max_tokens in [176, 2000] {
        let options = Options { threads: 2, max_batch_tokens: 9, max_tokens, ..Options::default() };
        let read = check_files(&mut toy_engine(options), "toy", max_tokens as u64, 30);
        assert!(read > 500, "{read}");
    }
}

#[test]
fn an_interrupted_step_is_taken_back() {
    for threads in [1, 3] {
        let mut engine = toy_engine(Options { threads, max_batch_tokens: 4, ..Options::default() });
        let seq = engine.kv_mut().seq_new().unwrap();
        step(&mut engine, &[1, 2], &[seq; 2], &[]).unwrap();
        // Rung when the first of three chunks is done.
        let (interrupts, mut rows) = (engine.interrupts().clone(), 0);
        let (tokens, all): (Vec<i32>, Vec<u32>) = (0..12).map(|i| (i % 5, i as u32)).unzip();
        let batch = Batch { tokens: &tokens, seqs: &[seq; 12], out_rows: &all, ..Batch::default() };
        let error = engine.step(&batch, &mut |_, _| (interrupts.ring(), rows += 1).1).unwrap_err();
        assert_eq!((error.status, rows), (Status::Interrupted, 4));
        assert_eq!(engine.kv().tokens(seq).unwrap(), [1, 2]);
        // The next one is another.
        let logits = step(&mut engine, &tokens, &[seq; 12], &[11]).unwrap();
        assert_eq!(logits[0][..VOCAB - 1], expected(&[&[1, 2], &tokens[..]].concat())[..]);
    }
}
