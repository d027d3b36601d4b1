//! The C API on the hand-made model: values, errors, generation, threads.
#![cfg(feature = "text")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::api::*;
use crate::common::*;
use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;
use llmcc_rt::{Options, Status};

/// A sequence goes on in another process where it was saved. `next`: its logits after one more token, 3.
unsafe fn saved_and_loaded(model: &Handle, seq: i32, next: &[f32]) {
    let other = open(Options { threads: 1, max_tokens: 64, ..Options::default() });
    // SAFETY: valid arguments.
    unsafe {
        let (mut needed, mut back, mut logits) = (0, -1, [0f32; VOCAB]);
        ok(llmcc_seq_save(model.0, seq, null_mut(), 0, &mut needed));
        let mut bytes = vec![0u8; needed];
        ok(llmcc_seq_save(model.0, seq, bytes.as_mut_ptr(), needed, &mut needed));
        ok(llmcc_seq_load(other.0, bytes.as_ptr(), needed, &mut back));
        ok(llmcc_step(other.0, &batch(&[3], &[back], &[0]), logits.as_mut_ptr(), VOCAB));
        assert_eq!(logits[..VOCAB - 1], next[..]);
        bytes[needed / 2] ^= 1;
        fails(llmcc_seq_load(other.0, bytes.as_ptr(), needed, &mut back), Status::Artifact, "damaged");
        fails(llmcc_seq_load(other.0, bytes.as_ptr(), needed - 1, &mut back), Status::Artifact, "damaged");
    }
}

#[test]
fn steps_and_sequences() {
    let model = open(Options { threads: 2, max_tokens: 64, ..Options::default() });
    // SAFETY: valid arguments, or null ones that must be noticed.
    unsafe {
        let (mut a, mut b, mut len) = (-1, -1, 0);
        ok(llmcc_seq_new(model.0, &mut a));
        ok(llmcc_step(model.0, &batch(&[1, 2], &[a, a], &[]), null_mut(), 0));
        ok(llmcc_seq_fork(model.0, a, &mut b));
        let mut logits = [0f32; 2 * VOCAB];
        ok(llmcc_step(model.0, &batch(&[3, 4], &[a, b], &[1, 0]), logits.as_mut_ptr(), logits.len()));
        assert_eq!(logits[..VOCAB - 1], expected(&[1, 2, 4])[..]);
        assert_eq!(logits[VOCAB..2 * VOCAB - 1], expected(&[1, 2, 3])[..]);
        saved_and_loaded(&model, a, &expected(&[1, 2, 3, 3]));
        ok(llmcc_seq_truncate(model.0, b, 1));
        ok(llmcc_seq_len(model.0, b, &mut len));
        assert_eq!(len, 1);
        let mut tokens = [0; 3];
        ok(llmcc_seq_tokens(model.0, a, tokens.as_mut_ptr(), 3, &mut len));
        assert_eq!((tokens, len), ([1, 2, 3], 3));
        fails(llmcc_seq_tokens(model.0, a, tokens.as_mut_ptr(), 2, &mut len), Status::Buffer, "3 are needed");
        fails(
            llmcc_step(model.0, &batch(&[3], &[a], &[0]), logits.as_mut_ptr(), VOCAB - 1),
            Status::Buffer,
            "1 rows of 7",
        );
        fails(llmcc_step(model.0, &batch(&[3], &[a], &[0]), null_mut(), VOCAB), Status::Invalid, "logits is a null");
        fails(llmcc_step(model.0, &batch(&[7], &[a], &[]), null_mut(), 0), Status::Invalid, "outside the vocabulary");
        fails(
            llmcc_step(model.0, &batch(&[1; 80], &[b; 80], &[]), null_mut(), 0),
            Status::CacheFull,
            "larger max_tokens",
        );
        ok(llmcc_seq_free(model.0, b));
        fails(llmcc_seq_free(model.0, b), Status::Invalid, "already freed");
        fails(llmcc_seq_len(model.0, 77, &mut len), Status::Invalid, "does not exist");
    }
}

#[test]
fn null_pointers_and_bad_sizes_are_noticed() {
    let model = open(Options::default());
    // SAFETY: null pointers must be noticed.
    unsafe {
        let mut out = null_mut();
        fails(llmcc_open(null(), null_mut()), Status::Invalid, "out is a null pointer");
        fails(llmcc_open(null(), &mut out), Status::Artifact, "bare llmcc runtime");
        fails(llmcc_info(null(), null_mut()), Status::Invalid, "model is a null");
        fails(llmcc_info(model.0, null_mut()), Status::Invalid, "llmcc_model_info is a null");
        fails(llmcc_step(model.0, null(), null_mut(), 0), Status::Invalid, "batch is a null");
        fails(llmcc_gen_next(null(), null_mut()), Status::Invalid, "gen is a null");
        fails(
            llmcc_generate(model.0, null(), 4, null(), None, null_mut(), null_mut()),
            Status::Invalid,
            "prompt is a null",
        );
        fails(
            llmcc_tokenize(model.0, c"x".as_ptr(), 1, 8, null_mut(), 0, null_mut()),
            Status::Invalid,
            "unknown flags",
        );
        let mut info: llmcc_model_info = zeroed();
        fails(llmcc_info(model.0, &mut info), Status::Invalid, "sizeof(llmcc_model_info)");
        // A caller with an older, shorter structure gets the fields that fit; one with a newer one
        // is understood if the rest is zero.
        info.size = 16;
        info.hidden = 99;
        ok(llmcc_info(model.0, &mut info));
        assert_eq!((info.vocab, info.hidden), (VOCAB as u64, 99));
        let mut newer = [0u64; 20];
        newer[0] = 160;
        ok(llmcc_info(model.0, newer.as_mut_ptr().cast()));
        newer[0] = 160;
        newer[19] = 1;
        fails(llmcc_open(newer.as_ptr().cast(), &mut out), Status::Unsupported, "newer llmcc");
        llmcc_close(null_mut());
        llmcc_gen_free(null_mut());
        assert!(llmcc_manifest(null()).is_null());
    }
}

#[test]
fn descriptions() {
    let model = open(Options { threads: 2, max_tokens: 1000, max_batch_tokens: 8, ..Options::default() });
    // SAFETY: valid arguments.
    unsafe {
        let mut info = llmcc_model_info { size: size_of::<llmcc_model_info>(), ..zeroed() };
        ok(llmcc_info(model.0, &mut info));
        assert_eq!(
            (info.vocab, info.max_context, info.layers, info.threads, info.bos_token),
            (VOCAB as u64, CONTEXT as u64, 2, 2, 0)
        );
        assert_eq!((info.kv_bytes_per_token, info.max_tokens, info.max_batch_tokens), (16, 1008, 8));
        assert_eq!(info.flags, LLMCC_HAS_TOKENIZER | LLMCC_HAS_CHAT_TEMPLATE | LLMCC_HAS_HIDDEN);
        assert_eq!(CStr::from_ptr(llmcc_manifest(model.0)), c"{\"name\":\"toy\"}");
        let (mut eos, mut n) = ([0; 4], 0);
        ok(llmcc_eos_tokens(model.0, eos.as_mut_ptr(), 4, &mut n));
        assert_eq!((eos[0], n), (5, 1));
        let mut buffer = [0 as c_char; 1000];
        ok(llmcc_stats(model.0, buffer.as_mut_ptr(), 1000, &mut n));
        let stats: serde_json::Value = serde_json::from_str(CStr::from_ptr(buffer.as_ptr()).to_str().unwrap()).unwrap();
        assert_eq!((stats["sequences"].as_u64(), stats["profile"].is_null()), (Some(0), true));
    }
}

#[test]
fn text_and_templates() {
    let model = open(Options::default());
    // SAFETY: valid arguments.
    unsafe {
        let (mut ids, mut n) = ([0; 8], 0);
        ok(llmcc_tokenize(model.0, c"abe".as_ptr(), 3, LLMCC_ADD_SPECIAL, ids.as_mut_ptr(), 8, &mut n));
        assert_eq!(ids[..n], [0, 1, 2, 6]);
        ok(llmcc_tokenize(model.0, c"a</s>".as_ptr(), 5, 0, ids.as_mut_ptr(), 8, &mut n));
        assert_eq!(ids[..n], [1, 5]);
        ok(llmcc_tokenize(model.0, c"abcd".as_ptr(), 4, 0, null_mut(), 0, &mut n));
        assert_eq!(n, 4);
        fails(llmcc_tokenize(model.0, c"\xff".as_ptr(), 1, 0, null_mut(), 0, &mut n), Status::Invalid, "not UTF-8");
        let mut text = [1 as c_char; 16];
        ok(llmcc_detokenize(model.0, [0, 3, 4].as_ptr(), 3, 0, text.as_mut_ptr(), 3, &mut n));
        assert_eq!((CStr::from_ptr(text.as_ptr()), n), (c"cd", 2));
        ok(llmcc_detokenize(model.0, [0, 3].as_ptr(), 2, LLMCC_SHOW_SPECIAL, text.as_mut_ptr(), 16, &mut n));
        assert_eq!(CStr::from_ptr(text.as_ptr()), c"<s>c");
        fails(
            llmcc_detokenize(model.0, [3, 4].as_ptr(), 2, 0, text.as_mut_ptr(), 2, &mut n),
            Status::Buffer,
            "3 are needed",
        );
        let json = r#"[{"role":"user","content":"ab"}]"#;
        ok(llmcc_apply_chat_template(model.0, json.as_ptr().cast(), json.len(), text.as_mut_ptr(), 16, &mut n));
        assert_eq!(CStr::from_ptr(text.as_ptr()), c"<s>abd");
    }
}

#[test]
fn generations_end_for_each_reason() {
    let model = open(Options { threads: 1, max_batch_tokens: 3, ..Options::default() });
    // Greedy: zeros give 'e', anything else gives the end token.
    assert_eq!(generate(&model, -1, &[0], &params()), (vec![6, 5], "e".into(), 1, 0));
    let eos = llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS | LLMCC_GEN_SHOW_SPECIAL, max_tokens: 3, ..params() };
    assert_eq!(generate(&model, -1, &[0; 5], &eos), (vec![6, 5, 5], "e</s></s>".into(), 3, 0));
    let stop_tokens = [6];
    let stop = llmcc_gen_params { stop_tokens: stop_tokens.as_ptr(), n_stop_tokens: 1, ..params() };
    assert_eq!(generate(&model, -1, &[0], &stop), (vec![6], String::new(), 1, 0));
    // Nearly uniform draws, so that all letters come.
    let mut random = llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS, ..params() };
    random.sampling.temperature = 1e7;
    random.sampling.seed = 11;
    let (tokens, text, finish, _) = generate(&model, -1, &[1; 7], &random);
    // The context holds 200; the last token need not fit.
    assert_eq!((tokens.len(), finish), (CONTEXT - 7 + 1, 4));
    assert_eq!(generate(&model, -1, &[1; 7], &random).0, tokens, "a seed is not reproducible");
    let first = text.find("ab").unwrap();
    let stops = [c"zz".as_ptr(), c"ab".as_ptr()];
    let stopped = llmcc_gen_params { stop: stops.as_ptr(), n_stop: 2, ..random };
    let (_, short, finish, _) = generate(&model, -1, &[1; 7], &stopped);
    assert_eq!((short.as_str(), finish), (&text[..first], 2));
    // SAFETY: valid arguments, and null ones.
    unsafe {
        let mut generation = null_mut();
        fails(llmcc_gen_new(model.0, -1, null(), 0, null(), &mut generation), Status::Invalid, "no tokens");
        fails(llmcc_gen_new(model.0, -1, [9].as_ptr(), 1, null(), &mut generation), Status::Invalid, "vocabulary");
        fails(llmcc_gen_new(model.0, 3, [1].as_ptr(), 1, null(), &mut generation), Status::Invalid, "sequence 3");
        fails(
            llmcc_gen_new(model.0, -1, [0; 201].as_ptr(), 201, null(), &mut generation),
            Status::ContextFull,
            "shorten",
        );
        let bad = llmcc_gen_params { flags: 64, ..params() };
        fails(llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, &bad, &mut generation), Status::Invalid, "0x40");
        assert!(generation.is_null());
        let mut seq = -1;
        ok(llmcc_seq_new(model.0, &mut seq));
        ok(llmcc_gen_new(model.0, seq, [0].as_ptr(), 1, null(), &mut generation));
        ok(llmcc_seq_free(model.0, seq));
        fails(llmcc_gen_next(generation, &mut piece()), Status::Invalid, "does not exist");
        llmcc_gen_free(generation);
    }
}

#[test]
fn a_conversation_reuses_its_sequence() {
    let model = open(Options { threads: 1, ..Options::default() });
    // SAFETY: valid arguments.
    unsafe {
        let (mut seq, mut len) = (-1, 0);
        ok(llmcc_seq_new(model.0, &mut seq));
        let short = llmcc_gen_params { max_tokens: 2, flags: LLMCC_GEN_IGNORE_EOS, ..params() };
        assert_eq!(generate(&model, seq, &[0, 0, 0], &short), (vec![6, 5], "e".into(), 3, 0));
        ok(llmcc_seq_len(model.0, seq, &mut len));
        assert_eq!(len, 4, "all tokens but the last generated one");
        let (tokens, _, _, reused) = generate(&model, seq, &[0, 0, 0, 6, 5, 1], &short);
        assert_eq!((tokens, reused), (vec![5, 5], 4));
        // Another continuation: differing tokens are forgotten.
        assert_eq!(generate(&model, seq, &[0, 0, 0, 0], &short), (vec![6, 5], "e".into(), 3, 3));
        // The same again: the last token is computed again.
        assert_eq!(generate(&model, seq, &[0, 0, 0], &short).3, 2);
    }
}

unsafe extern "C" fn collect(user: *mut c_void, text: *const c_char, len: usize, token: i32) -> i32 {
    // SAFETY: `user` is the Vec passed below.
    unsafe {
        let out = &mut *user.cast::<Vec<(String, i32)>>();
        assert_eq!(CStr::from_ptr(text).to_bytes().len(), len);
        out.push((CStr::from_ptr(text).to_str().unwrap().to_owned(), token));
        i32::from(out.len() == 3)
    }
}

#[test]
fn text_generation_calls_back() {
    let model = open(Options::default());
    let mut out: Vec<(String, i32)> = Vec::new();
    // SAFETY: valid arguments.
    unsafe {
        let user = (&raw mut out).cast();
        ok(llmcc_generate(model.0, c"".as_ptr(), 0, null(), Some(collect), user, null_mut()));
        assert_eq!(out, [("e".into(), 6), (String::new(), 5)]);
        out.clear();
        let long = llmcc_gen_params {
            flags: LLMCC_GEN_IGNORE_EOS | LLMCC_GEN_SHOW_SPECIAL | LLMCC_GEN_RAW_PROMPT,
            ..params()
        };
        let mut stats = llmcc_gen_stats_t { size: size_of::<llmcc_gen_stats_t>(), ..zeroed() };
        ok(llmcc_generate(model.0, c"ab".as_ptr(), 2, &long, Some(collect), (&raw mut out).cast(), &mut stats));
        assert_eq!((out.len(), stats.prompt_tokens, stats.finish), (3, 2, 0), "a nonzero result stops");
        ok(llmcc_generate(model.0, c"ab".as_ptr(), 2, null(), None, null_mut(), null_mut()));
    }
}

#[test]
fn sampling_from_c() {
    let mut token = -1;
    let logits = [0.0, 3.0, 1.0];
    // SAFETY: valid arguments, and null ones.
    unsafe {
        ok(llmcc_sample(logits.as_ptr(), 3, null(), null(), 0, 0, &mut token));
        assert_eq!(token, 1);
        // A structure of zeros takes the most probable token; so does the smallest share, at any temperature.
        ok(llmcc_sample(logits.as_ptr(), 3, &zeroed(), [1].as_ptr(), 1, 0, &mut token));
        assert_eq!(token, 1);
        let share = llmcc_sampling { temperature: 1e9, top_p: f32::from_bits(1), ..llmcc_sampling::default() };
        for draw in 0..50 {
            ok(llmcc_sample(logits.as_ptr(), 3, &share, null(), 0, draw, &mut token));
            assert_eq!(token, 1);
        }
        let mut sampling = llmcc_sampling { repetition_penalty: 100.0, ..llmcc_sampling::default() };
        ok(llmcc_sample(logits.as_ptr(), 3, &sampling, [1].as_ptr(), 1, 0, &mut token));
        assert_eq!(token, 2);
        sampling.repetition_penalty = 0.0;
        sampling.temperature = 1.0;
        fails(
            llmcc_sample(logits.as_ptr(), 3, &sampling, null(), 0, 0, &mut token),
            Status::Invalid,
            "LLMCC_SAMPLING_INIT",
        );
        sampling.repetition_penalty = 1.0;
        sampling.top_p = 2.0;
        fails(llmcc_sample(logits.as_ptr(), 3, &sampling, null(), 0, 0, &mut token), Status::Invalid, "top_p is 2");
        fails(llmcc_sample([f32::NAN].as_ptr(), 1, null(), null(), 0, 0, &mut token), Status::Numeric, "NaN");
        fails(llmcc_sample(logits.as_ptr(), 3, null(), null(), 0, 0, null_mut()), Status::Invalid, "token is a null");
    }
}

#[test]
fn many_threads_share_one_model() {
    let model = open(Options { threads: 2, max_batch_tokens: 4, max_tokens: 20 * CONTEXT, ..Options::default() });
    let alone = generate(&model, -1, &[0; 9], &params());
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for i in 0..6 {
            let (model, alone, done) = (&model, &alone, &done);
            scope.spawn(move || {
                for _ in 0..30 {
                    assert_eq!(generate(model, -1, &[0; 9], &params()), *alone);
                    // SAFETY: valid arguments.
                    unsafe {
                        let mut seq = -1;
                        ok(llmcc_seq_new(model.0, &mut seq));
                        let mut logits = [0f32; VOCAB];
                        let tokens = [i, 1, 2, 3, 4, i];
                        ok(llmcc_step(model.0, &batch(&tokens, &[seq; 6], &[5]), logits.as_mut_ptr(), VOCAB));
                        assert_eq!(logits[..VOCAB - 1], expected(&tokens)[..]);
                        ok(llmcc_seq_free(model.0, seq));
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 6);
}

#[test]
fn generations_outlive_their_model() {
    // SAFETY: valid arguments.
    unsafe {
        let model = open(Options { threads: 2, ..Options::default() });
        let mut generation = null_mut();
        ok(llmcc_gen_new(model.0, -1, [0].as_ptr(), 1, null(), &mut generation));
        drop(model);
        let mut piece = piece();
        ok(llmcc_gen_next(generation, &mut piece));
        assert_eq!(piece.token, 6);
        llmcc_gen_free(generation);
    }
}

/// Tokens taken from rows of logits equal the tokens of steps, whatever ends a generation; then
/// steps go on.
#[test]
fn tokens_are_taken_by_rows_of_logits() {
    let model = open(Options { threads: 1, ..Options::default() });
    let sampled = llmcc_sampling { temperature: 0.7, seed: 5, repetition_penalty: 1.2, ..llmcc_sampling::default() };
    let plain = llmcc_sampling::default();
    for (sampling, max_tokens, flags) in [
        (plain, 0, 0),
        (plain, 5, LLMCC_GEN_IGNORE_EOS),
        (sampled, 9, LLMCC_GEN_IGNORE_EOS),
        (plain, 0, LLMCC_GEN_IGNORE_EOS),
    ] {
        let params = llmcc_gen_params { max_tokens, sampling, flags: flags | LLMCC_GEN_LOGPROBS, ..params() };
        let prompt = [2, 5, 1];
        let next = |p: *mut llmcc_gen, piece: &mut llmcc_piece| {
            // SAFETY: valid arguments.
            unsafe { ok(llmcc_gen_next(p, piece)) };
            (piece.token, piece.finish, piece.logprob.to_bits())
        };
        // SAFETY: valid arguments.
        unsafe {
            let mut gens = [null_mut(); 2];
            for g in &mut gens {
                ok(llmcc_gen_new(model.0, -1, prompt.as_ptr(), 3, &params, g));
            }
            let (mut seq, mut new, mut logits, mut piece) = (-1, prompt.to_vec(), vec![0f32; VOCAB], piece());
            ok(llmcc_seq_new(model.0, &mut seq));
            let (mut n, mut finish) = (0, 0);
            while finish == 0 {
                let seqs = vec![seq; new.len()];
                ok(llmcc_step(model.0, &batch(&new, &seqs, &[new.len() as u32 - 1]), logits.as_mut_ptr(), VOCAB));
                ok(llmcc_gen_take(gens[1], logits.as_ptr(), VOCAB, &mut piece));
                let taken = (piece.token, piece.finish, piece.logprob.to_bits());
                assert_eq!(taken, next(gens[0], &mut piece), "token {n} of at most {max_tokens}");
                (n, finish, new) = (n + 1, taken.1, vec![taken.0]);
                // Now and then a step in the generation's own sequence, which has seen nothing so far.
                if n % 4 == 0 && finish == 0 {
                    let taken = next(gens[1], &mut piece);
                    assert_eq!(taken, next(gens[0], &mut piece));
                    (n, finish) = (n + 1, taken.1);
                    new.push(taken.0);
                }
            }
            assert!(n > 3 || flags == 0, "{n}");
            ok(llmcc_gen_take(gens[1], logits.as_ptr(), VOCAB, &mut piece));
            assert_eq!((piece.token, piece.finish), (-1, finish));
            gens.iter().for_each(|g| llmcc_gen_free(*g));
            ok(llmcc_seq_free(model.0, seq));
        }
    }
}

/// Programs for a header before 1.4 leave fields of `llmcc_sampling` zero that they do not need.
#[test]
fn zeros_of_older_programs_are_defaults() {
    let model = open(Options { threads: 1, ..Options::default() });
    let now = llmcc_gen_params { max_tokens: 6, flags: LLMCC_GEN_IGNORE_EOS, ..params() };
    let mut random = now;
    (random.sampling.temperature, random.sampling.seed) = (1e7, 3);
    let mut older = random;
    (older.sampling.top_p, older.sampling.repetition_penalty) = (0.0, 0.0);
    let mut generation = null_mut();
    // SAFETY: valid arguments.
    let status = unsafe { llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, &older, &mut generation) };
    fails(status, Status::Invalid, "top_p is 0");
    older.size = std::mem::offset_of!(llmcc_gen_params, reserved_1_4);
    assert_eq!(generate(&model, -1, &[1], &older).0, generate(&model, -1, &[1], &random).0);
}

#[test]
fn another_thread_interrupts_a_call() {
    let few = Options { threads: 2, max_batch_tokens: 16, max_tokens: 400, ..Options::default() };
    let (model, done) = (open_as(few, embeds), AtomicUsize::new(0));
    let handle = model.0 as usize;
    let (lengths, tokens) = (vec![8usize; 20_000], vec![1; 160_000]);
    let rows = llmcc_embed_rows {
        size: size_of::<llmcc_embed_rows>(),
        n_rows: lengths.len(),
        lengths: lengths.as_ptr(),
        tokens: tokens.as_ptr(),
        flags: 0,
        pool: 0,
        types: null(),
    };
    let mut out = vec![0f32; VOCAB * lengths.len()];
    std::thread::scope(|s| {
        s.spawn(|| {
            while done.load(Ordering::SeqCst) == 0 {
                // SAFETY: any handle may be passed.
                ok(unsafe { llmcc_interrupt(handle as *const llmcc_model) });
                std::thread::yield_now();
            }
        });
        // SAFETY: valid arguments.
        let status = unsafe { llmcc_embed(model.0, &rows, out.as_mut_ptr(), out.len()) };
        done.store(1, Ordering::SeqCst);
        fails(status, Status::Interrupted, "llmcc_interrupt ended the call");
    });
    // No sequence is left, and the next call is another.
    let mut few = rows;
    few.n_rows = 3;
    // SAFETY: valid arguments.
    ok(unsafe { llmcc_embed(model.0, &few, out.as_mut_ptr(), out.len()) });
    // SAFETY: any value may be passed.
    fails(unsafe { llmcc_interrupt(null()) }, Status::Invalid, "model is a null");
}

/// Generations go on with a corpus that has been freed, and their text is that without; a freed one is noticed.
#[test]
fn corpora_change_no_text() {
    let model = open(Options::default());
    let warm = llmcc_sampling { temperature: 60.0, seed: 4, ..llmcc_sampling::default() };
    let p = llmcc_gen_params { max_tokens: 60, sampling: warm, flags: LLMCC_GEN_IGNORE_EOS, ..params() };
    let plain = generate(&model, -1, &[1, 2], &p);
    let mut corpus = null_mut();
    let texts = [&[1, 2][..], &plain.0, &[-1, 3]].concat();
    // SAFETY: valid arguments, but for the freed corpus, which is a number.
    unsafe {
        ok(llmcc_corpus_new(model.0, texts.as_ptr(), texts.len(), &mut corpus));
        let guessed = llmcc_gen_params { guesses: LLMCC_GUESS_CORPUS, guess_user: corpus.cast(), ..p };
        assert_eq!(generate(&model, -1, &[1, 2], &guessed), plain);
        let mut generation = null_mut();
        ok(llmcc_gen_new(model.0, -1, [1, 2].as_ptr(), 2, &guessed, &mut generation));
        llmcc_corpus_free(corpus);
        llmcc_corpus_free(corpus);
        let mut tokens = vec![];
        while tokens.len() < plain.0.len() {
            let mut piece = piece();
            ok(llmcc_gen_next(generation, &mut piece));
            tokens.push(piece.token);
        }
        let mut stats = llmcc_gen_stats_t { size: size_of::<llmcc_gen_stats_t>(), ..zeroed() };
        ok(llmcc_gen_stats(generation, &mut stats));
        assert_eq!(tokens, plain.0);
        assert!(stats.accepted > 40 && stats.guess_steps < 12, "{} in {}", stats.accepted, stats.guess_steps);
        llmcc_gen_free(generation);
        let gone = llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, &guessed, &mut generation);
        fails(gone, Status::Invalid, "corpus is not an open handle");
        llmcc_corpus_free(null_mut());
    }
}

/// C gets the method's mask and self-information; forced tokens stay.
#[test]
fn prompts_are_compressed() {
    let model = open(Options::default());
    let tokens: Vec<i32> = (0..41).map(|i| (i * i + i / 3) % 6).collect();
    let (mut keep, mut nats) = ([0u8; 41], [0f32; 41]);
    (keep[0], keep[7]) = (1, 1);
    // SAFETY: the arrays have their lengths.
    unsafe {
        ok(llmcc_compress(model.0, tokens.as_ptr(), 41, 1, 0.25, keep.as_mut_ptr(), nats.as_mut_ptr()));
    }
    assert_eq!((keep[0], keep[7], nats[0]), (1, 1, 0.0));
    assert_eq!(keep.iter().filter(|k| **k == 1).count(), 1 + 10);
    let dropped = (1..41).filter(|i| keep[*i] == 0).map(|i| nats[i]).fold(0.0, f32::max);
    let kept = (1..41).filter(|i| keep[*i] == 1 && *i != 7).map(|i| nats[i]).fold(f32::INFINITY, f32::min);
    assert!(dropped <= kept, "{dropped} {kept}");
    // SAFETY: as above.
    unsafe { ok(llmcc_compress(model.0, null(), 0, 0, 0.5, null_mut(), null_mut())) };
}
