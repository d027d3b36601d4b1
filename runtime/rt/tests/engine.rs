//! The engine on a hand-made model: partitioning, regimes, ragged batches, chunking, paging, forks, failures.

mod common;

use common::*;
use llmcc_rt::{Batch, Engine, Options, SeqId, Status};

/// A small deterministic generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn step(engine: &mut Engine, tokens: &[i32], seqs: &[SeqId], out_rows: &[u32]) -> llmcc_rt::Result<Vec<Vec<f32>>> {
    let mut logits = vec![Vec::new(); out_rows.len()];
    engine.step(&Batch { tokens, seqs, out_rows }, &mut |i, row| {
        assert!(logits[i].is_empty());
        logits[i] = row.to_vec();
    })?;
    Ok(logits)
}

fn check_random_steps(options: Options, steps: usize) {
    let mut engine = toy_engine(options);
    let mut rng = Rng(options.threads as u64 * 31 + options.max_batch_tokens as u64);
    let mut live: Vec<(SeqId, Vec<i32>)> = Vec::new();
    for _ in 0..steps {
        match rng.below(8) {
            0 | 1 if live.len() < 9 => live.push((engine.kv_mut().seq_new().unwrap(), Vec::new())),
            2 if !live.is_empty() => {
                let (seq, tokens) = live[rng.below(live.len())].clone();
                live.push((engine.kv_mut().fork(seq).unwrap(), tokens));
            }
            3 if !live.is_empty() => {
                let (seq, mut tokens) = live.swap_remove(rng.below(live.len()));
                tokens.truncate(rng.below(tokens.len() + 1));
                engine.kv_mut().truncate(seq, tokens.len()).unwrap();
                live.push((seq, tokens));
            }
            4 if live.len() > 4 => {
                let (seq, _) = live.swap_remove(rng.below(live.len()));
                engine.kv_mut().seq_free(seq).unwrap();
            }
            _ if live.is_empty() => {}
            _ => {
                let (mut tokens, mut seqs, mut want) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..rng.below(40) {
                    let at = rng.below(live.len());
                    let (seq, history) = &mut live[at];
                    if history.len() < CONTEXT {
                        history.push(rng.below(VOCAB) as i32);
                        tokens.push(history[history.len() - 1]);
                        seqs.push(*seq);
                        want.push(expected(history));
                    }
                }
                let out: Vec<u32> =
                    (0..if tokens.is_empty() { 0 } else { rng.below(12) }).map(|_| rng.below(tokens.len()) as u32).collect();
                let logits = step(&mut engine, &tokens, &seqs, &out).unwrap();
                for (row, got) in out.iter().zip(&logits) {
                    assert_eq!(got[..VOCAB - 1], want[*row as usize][..]);
                }
            }
        }
        for (seq, tokens) in &live {
            assert_eq!(engine.kv().tokens(*seq).unwrap(), tokens);
        }
    }
}

#[test]
fn random_ragged_steps_match_the_reference() {
    for threads in [1, 2, 3, 7] {
        for max_batch_tokens in [0, 1, 5] {
            check_random_steps(Options { threads, max_batch_tokens, max_tokens: 9 * CONTEXT + 800, ..Options::default() }, 150);
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
fn profiles_count_every_kernel() {
    let mut engine = toy_engine(Options { threads: 2, profile: true, ..Options::default() });
    let seq = engine.kv_mut().seq_new().unwrap();
    step(&mut engine, &[1, 2], &[seq, seq], &[]).unwrap();
    step(&mut engine, &[3], &[seq], &[0]).unwrap();
    let json = engine.profile_json().unwrap();
    assert!(
        json.starts_with("{\"batches\":2,\"tokens\":3,\"steps\":[{\"regime\":4,\"kernel\":\"embed\",\"layer\":0,\"calls\":2,"),
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
    // Flipping any byte of the descriptor or the tables must never be undefined behaviour: either refused, or still in bounds.
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
