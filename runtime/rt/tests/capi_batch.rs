//! The C API for evaluation: several generations at once, logit bias, log-probabilities, single
//! tokens.
#![cfg(feature = "text")]

use std::ffi::c_char;
use std::ptr::{null, null_mut};

use crate::api::*;
use crate::common::*;
use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;
use llmcc_rt::{Options, Status};

/// Never the last token, whose logit tells the size of the step.
const NO_E: [llmcc_logit_bias; 1] = [llmcc_logit_bias { token: 6, value: f32::NEG_INFINITY }];

/// All letters come, until `max_tokens`.
fn random(seed: u64, max_tokens: u64) -> llmcc_gen_params {
    let mut p = llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS, max_tokens, ..params() };
    p.sampling = llmcc_sampling { temperature: 1e5, seed, bias: NO_E.as_ptr(), n_bias: 1, ..llmcc_sampling::default() };
    p
}

fn prompt(i: usize) -> Vec<i32> {
    (0..1 + 7 * i).map(|j| ((i + j) % 5) as i32).collect()
}

unsafe fn text_of(piece: &llmcc_piece) -> &str {
    // SAFETY: valid until the generation's next call.
    unsafe { std::str::from_utf8(std::slice::from_raw_parts(piece.text.cast(), piece.text_len)).unwrap() }
}

/// Takes all generations to their ends: tokens, text, reason; and how often one that had begun had
/// to wait.
fn together(gens: &[*mut llmcc_gen]) -> (Vec<(Vec<i32>, String, i32)>, usize) {
    let mut out = vec![(Vec::new(), String::new(), 0); gens.len()];
    let mut waits = 0;
    for _ in 0..10_000 {
        let alive: Vec<usize> = (0..gens.len()).filter(|&i| out[i].2 == 0).collect();
        if alive.is_empty() {
            return (out, waits);
        }
        let handles: Vec<*mut llmcc_gen> = alive.iter().map(|&i| gens[i]).collect();
        let mut pieces = vec![piece(); alive.len()];
        // SAFETY: valid arguments.
        unsafe {
            ok(llmcc_gen_next_batch(handles.as_ptr(), handles.len(), pieces.as_mut_ptr()));
            for (&i, piece) in alive.iter().zip(&pieces) {
                let (tokens, text, finish) = &mut out[i];
                waits += usize::from(piece.token < 0 && !tokens.is_empty());
                assert!(piece.token >= 0 || (piece.finish == 0 && piece.text_len == 0));
                tokens.extend((piece.token >= 0).then_some(piece.token));
                *text += text_of(piece);
                *finish = piece.finish;
                if *finish != 0 {
                    llmcc_gen_free(gens[i]);
                }
            }
        }
    }
    panic!("no end");
}

fn start(model: &Handle, seq: i32, prompt: &[i32], params: &llmcc_gen_params) -> *mut llmcc_gen {
    let mut out = null_mut();
    // SAFETY: valid arguments.
    ok(unsafe { llmcc_gen_new(model.0, seq, prompt.as_ptr(), prompt.len(), params, &mut out) });
    out
}

#[test]
fn batches_generate_what_each_generates_alone() {
    let roomy = open(Options { threads: 2, max_batch_tokens: 8, ..Options::default() });
    let lengths = [60, 3, 80, 70, 1, 90];
    let alone: Vec<_> = (0..6).map(|i| generate(&roomy, -1, &prompt(i), &random(i as u64, lengths[i]))).collect();
    assert!(alone.iter().zip(lengths).all(|(a, n)| a.0.len() == n as usize && a.2 == 3));
    // The cache holds 1000 tokens, or hardly the longest of them.
    for (max_tokens, most_waits) in [(1000, 0), (144, usize::MAX)] {
        let model = open(Options { threads: 2, max_batch_tokens: 8, max_tokens, ..Options::default() });
        let gens: Vec<_> = (0..6).map(|i| start(&model, -1, &prompt(i), &random(i as u64, lengths[i]))).collect();
        let (got, waits) = together(&gens);
        for (got, alone) in got.iter().zip(&alone) {
            assert_eq!((&got.0, &got.1, got.2), (&alone.0, &alone.1, alone.2));
        }
        assert!(waits <= most_waits && (most_waits == 0 || waits > 0), "{waits}");
        let mut n = 0;
        let mut buffer = [0 as c_char; 1000];
        // SAFETY: valid arguments.
        unsafe {
            ok(llmcc_stats(model.0, buffer.as_mut_ptr(), 1000, &mut n));
            let stats = std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), n);
            let stats: serde_json::Value = serde_json::from_slice(stats).unwrap();
            assert_eq!((stats["sequences"].as_u64(), stats["kv_pages_used"].as_u64()), (Some(0), Some(0)));
        }
    }
}

#[test]
fn without_room_for_one_the_cache_is_full() {
    let model = open(Options { threads: 1, max_tokens: 48, max_batch_tokens: 16, ..Options::default() });
    let alone = open(Options { threads: 1, ..Options::default() });
    let expected = generate(&alone, -1, &[1; 20], &random(1, 12)).0;
    // SAFETY: valid arguments.
    unsafe {
        let mut seq = -1;
        ok(llmcc_seq_new(model.0, &mut seq));
        ok(llmcc_step(model.0, &batch(&[1; 20], &[seq; 20], &[]), null_mut(), 0));
        // One page is left.
        let gens = [start(&model, -1, &[1; 20], &random(1, 12))];
        let mut pieces = [piece()];
        let status = (0..4).map(|_| llmcc_gen_next_batch(gens.as_ptr(), 1, pieces.as_mut_ptr())).find(|s| *s != 0);
        fails(status.unwrap(), Status::CacheFull, "larger max_tokens");
        ok(llmcc_seq_free(model.0, seq));
        assert_eq!(together(&gens).0[0].0, expected);
        // Two sequences of the caller's, which nobody may take pages from: the first goes on alone.
        let mut seqs = [-1; 2];
        seqs.iter_mut().for_each(|s| ok(llmcc_seq_new(model.0, s)));
        let gens = seqs.map(|s| start(&model, s, &[1; 20], &random(1, 12)));
        let mut tokens = [Vec::new(), Vec::new()];
        for _ in 0..40 {
            let mut pieces = [piece(), piece()];
            if llmcc_gen_next_batch(gens.as_ptr(), 2, pieces.as_mut_ptr()) != 0 {
                break;
            }
            tokens.iter_mut().zip(pieces).for_each(|(t, p)| t.extend((p.token >= 0).then_some(p.token)));
        }
        assert_eq!(tokens[0], expected);
        gens.iter().for_each(|g| llmcc_gen_free(*g));
    }
}

#[test]
fn bad_batches_change_nothing() {
    let (model, other) = (open(Options::default()), open(Options::default()));
    let expected = generate(&model, -1, &[1, 2], &random(3, 5)).0;
    let gens = [start(&model, -1, &[1, 2], &random(3, 5)), start(&model, -1, &[1, 2], &random(3, 5))];
    let foreign = start(&other, -1, &[1, 2], &random(3, 5));
    // SAFETY: valid arguments, or such as must be noticed.
    unsafe {
        let next = |gens: &[*mut llmcc_gen], pieces: &mut [llmcc_piece]| {
            llmcc_gen_next_batch(gens.as_ptr(), gens.len(), pieces.as_mut_ptr())
        };
        let mut two = [piece(), piece()];
        fails(next(&[gens[0], gens[0]], &mut two), Status::Invalid, "generations 0 and 1 are the same; give each once");
        fails(next(&[gens[0], foreign], &mut two), Status::Invalid, "another model");
        fails(next(&[gens[0], null_mut()], &mut two), Status::Invalid, "null pointer");
        fails(llmcc_gen_next_batch(gens.as_ptr(), 2, null_mut()), Status::Invalid, "pieces is a null");
        two[1].size = 40;
        fails(next(&gens, &mut two), Status::Invalid, "pieces[1].size is 40");
        two[0].size = 0;
        fails(next(&gens, &mut two), Status::Invalid, "llmcc_piece.size is 0");
        let mut seq = -1;
        ok(llmcc_seq_new(model.0, &mut seq));
        let same = [start(&model, seq, &[1], &params()), start(&model, seq, &[1], &params())];
        fails(next(&same, &mut [piece(), piece()]), Status::Invalid, "two generations use sequence");
        same.iter().for_each(|g| llmcc_gen_free(*g));
        ok(llmcc_gen_next_batch(null(), 0, null_mut()));
        // Pieces of an older caller's size.
        let mut old = [0u64; 10];
        (old[0], old[5]) = (40, 40);
        ok(llmcc_gen_next_batch(gens.as_ptr(), 2, old.as_mut_ptr().cast()));
        assert_eq!([old[3] as i32, old[8] as i32], [expected[0]; 2]);
        let (rest, _) = together(&gens);
        assert!(rest.iter().all(|r| r.0 == expected[1..]));
        llmcc_gen_free(foreign);
    }
}

/// One of the batch bans every token: none gets one, and the others go on as if nothing had
/// happened.
#[test]
fn a_failed_choice_takes_no_token_from_the_others() {
    let model = open(Options { threads: 1, ..Options::default() });
    let expected = generate(&model, -1, &[1, 2], &random(3, 5)).0;
    let banned: Vec<llmcc_logit_bias> =
        (0..7).map(|token| llmcc_logit_bias { token, value: f32::NEG_INFINITY }).collect();
    let mut bad = random(3, 5);
    (bad.sampling.bias, bad.sampling.n_bias) = (banned.as_ptr(), 7);
    let gens = [start(&model, -1, &[1, 2], &random(3, 5)), start(&model, -1, &[1, 2], &bad)];
    // SAFETY: valid arguments.
    unsafe {
        let mut pieces = [piece(), piece()];
        for _ in 0..3 {
            let status = llmcc_gen_next_batch(gens.as_ptr(), 2, pieces.as_mut_ptr());
            fails(status, Status::Invalid, "generation 1: the logit bias bans every token");
        }
        assert_eq!(together(&gens[..1]).0[0].0, expected);
        llmcc_gen_free(gens[1]);
    }
}

#[test]
fn a_bias_is_added_before_the_choice() {
    let model = open(Options { threads: 1, ..Options::default() });
    // Greedy: after [0] all logits but the last are 0, and that is 1.
    assert_eq!(generate(&model, -1, &[0], &llmcc_gen_params { max_tokens: 1, ..params() }).0, [6]);
    for (token, value, chosen) in [(3, 1.5, 3), (3, 0.5, 6), (6, f32::NEG_INFINITY, 0)] {
        let bias = [llmcc_logit_bias { token, value }];
        let mut p = llmcc_gen_params { max_tokens: 1, ..params() };
        (p.sampling.bias, p.sampling.n_bias) = (bias.as_ptr(), 1);
        assert_eq!(generate(&model, -1, &[0], &p).0, [chosen]);
        let (logits, mut got) = ([0f32, 0., 0., 0., 0., 0., 1.], -1);
        // SAFETY: valid arguments.
        ok(unsafe { llmcc_sample(logits.as_ptr(), 7, &p.sampling, null(), 0, 0, &mut got) });
        assert_eq!(got, chosen);
    }
    let mut generation = null_mut();
    for (entry, part) in [
        ((7, 1.0), "token 7, outside the vocabulary of 7"),
        ((-1, 1.0), "token -1"),
        ((1, f32::NAN), "use a finite number"),
    ] {
        let bias = [llmcc_logit_bias { token: entry.0, value: entry.1 }];
        let mut p = params();
        (p.sampling.bias, p.sampling.n_bias) = (bias.as_ptr(), 1);
        // SAFETY: the call must reject the bad argument.
        fails(unsafe { llmcc_gen_new(model.0, -1, [0].as_ptr(), 1, &p, &mut generation) }, Status::Invalid, part);
        p.sampling.bias = null();
        // SAFETY: as above.
        fails(
            unsafe { llmcc_gen_new(model.0, -1, [0].as_ptr(), 1, &p, &mut generation) },
            Status::Invalid,
            "bias is a null pointer",
        );
    }
}

#[test]
fn log_probabilities_are_those_of_the_logits() {
    let model = open(Options { threads: 2, ..Options::default() });
    // SAFETY: valid arguments, or such as must be noticed.
    unsafe {
        let (mut a, mut b) = (-1, -1);
        ok(llmcc_seq_new(model.0, &mut a));
        ok(llmcc_seq_new(model.0, &mut b));
        // Token 0 only: all logits are 0 but the last.
        let seqs = [a; 3];
        let step = batch(&[0, 0, 0], &seqs, &[2, 0, 2]);
        let (mut p, mut tokens, mut top) = ([9f64; 3], [9; 6], [9f64; 6]);
        ok(llmcc_step_logprobs(
            model.0,
            &step,
            [6, 1, 1].as_ptr(),
            p.as_mut_ptr(),
            2,
            tokens.as_mut_ptr(),
            top.as_mut_ptr(),
        ));
        let sum = (1f64.exp() + 6.0).ln();
        for (x, y) in [(p[0], 1.0 - sum), (p[1], -sum), (p[2], -sum)] {
            assert!((x - y).abs() < 1e-14, "{x} {y}");
        }
        assert_eq!(tokens, [6, 0, 6, 0, 6, 0]);
        assert_eq!([top[0], top[2], top[5]], [p[0], p[0], p[1]]);
        // The same from the row itself.
        let mut logits = [0f32; VOCAB];
        ok(llmcc_step(model.0, &batch(&[0, 0, 0], &[b, b, b], &[2]), logits.as_mut_ptr(), VOCAB));
        let (mut q, mut row_tokens, mut row_top) = ([0f64; 2], [0; 2], [0f64; 2]);
        ok(llmcc_logprobs(
            logits.as_ptr(),
            VOCAB,
            [6, 1].as_ptr(),
            2,
            q.as_mut_ptr(),
            2,
            row_tokens.as_mut_ptr(),
            row_top.as_mut_ptr(),
        ));
        assert_eq!((q, row_tokens, row_top), ([p[0], p[2]], [6, 0], [top[0], top[1]]));
        // Errors.
        let none = null_mut::<f64>();
        fails(
            llmcc_logprobs(logits.as_ptr(), VOCAB, [7].as_ptr(), 1, q.as_mut_ptr(), 0, null_mut(), none),
            Status::Invalid,
            "token 7",
        );
        fails(
            llmcc_logprobs(logits.as_ptr(), VOCAB, [1].as_ptr(), 1, none, 0, null_mut(), none),
            Status::Invalid,
            "logprobs is a null",
        );
        fails(
            llmcc_logprobs(logits.as_ptr(), VOCAB, null(), 0, none, 1, null_mut(), none),
            Status::Invalid,
            "top_tokens",
        );
        fails(
            llmcc_logprobs(logits.as_ptr(), VOCAB, null(), 0, none, 8, null_mut(), none),
            Status::Invalid,
            "n_top is 8",
        );
        fails(llmcc_logprobs([f32::NAN].as_ptr(), 1, null(), 0, none, 0, null_mut(), none), Status::Numeric, "NaN");
        let out = p.as_mut_ptr();
        fails(
            llmcc_step_logprobs(model.0, &step, [6, 1, 7].as_ptr(), out, 0, null_mut(), none),
            Status::Invalid,
            "token 7",
        );
        fails(
            llmcc_step_logprobs(model.0, &step, null(), out, 0, null_mut(), none),
            Status::Invalid,
            "targets is a null",
        );
        fails(
            llmcc_step_logprobs(model.0, &step, [1; 3].as_ptr(), none, 0, null_mut(), none),
            Status::Invalid,
            "logprobs is a null",
        );
        let mut len = 0;
        ok(llmcc_seq_len(model.0, a, &mut len));
        assert_eq!(len, 3, "a failed step changed its sequence");
    }
}

#[test]
fn generations_tell_log_probabilities() {
    let model = open(Options { threads: 1, ..Options::default() });
    let mut p = random(5, 6);
    (p.flags, p.top_logprobs) = (p.flags | LLMCC_GEN_LOGPROBS, 3);
    // SAFETY: valid arguments.
    unsafe {
        let generation = start(&model, -1, &[1, 2], &p);
        let mut history = vec![1, 2];
        for _ in 0..6 {
            let mut piece = piece();
            ok(llmcc_gen_next(generation, &mut piece));
            // The model's own distribution, in which the banned token counts; it is the last of the
            // row, so a small step reveals it.
            let mut logits = expected(&history);
            logits.push(1.0);
            let (mut want, mut tokens, mut top) = (0.0, [0; 3], [0.0; 3]);
            ok(llmcc_logprobs(
                logits.as_ptr(),
                VOCAB,
                &piece.token,
                1,
                &mut want,
                3,
                tokens.as_mut_ptr(),
                top.as_mut_ptr(),
            ));
            assert_eq!((piece.logprob, piece.n_top), (want, 3));
            assert_eq!(std::slice::from_raw_parts(piece.top_tokens, 3), tokens);
            assert_eq!(std::slice::from_raw_parts(piece.top_logprobs, 3), top);
            history.push(piece.token);
        }
        llmcc_gen_free(generation);
        let mut generation = null_mut();
        p.flags &= !LLMCC_GEN_LOGPROBS;
        fails(
            llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, &p, &mut generation),
            Status::Invalid,
            "needs the flag LLMCC_GEN_LOGPROBS",
        );
    }
}

#[test]
fn single_tokens() {
    let model = open(Options::default());
    // SAFETY: valid arguments, or such as must be noticed.
    unsafe {
        let (mut text, mut bytes, mut n, mut token, mut flags) = ([1 as c_char; 8], [1u8; 8], 0, 0, 0);
        for (id, name, kind) in
            [(0, "<s>", LLMCC_TOKEN_SPECIAL), (3, "c", 0), (5, "</s>", LLMCC_TOKEN_SPECIAL | LLMCC_TOKEN_ENDS)]
        {
            ok(llmcc_token_piece(model.0, id, text.as_mut_ptr(), 8, &mut n));
            assert_eq!(std::ffi::CStr::from_ptr(text.as_ptr()).to_str().unwrap(), name);
            ok(llmcc_token_bytes(model.0, id, bytes.as_mut_ptr(), 8, &mut n));
            assert_eq!(&bytes[..n], name.as_bytes());
            ok(llmcc_token_flags(model.0, id, &mut flags));
            assert_eq!(flags, kind);
            ok(llmcc_piece_token(model.0, name.as_ptr().cast(), name.len(), &mut token));
            assert_eq!(token, id);
        }
        ok(llmcc_piece_token(model.0, c"zz".as_ptr(), 2, &mut token));
        assert_eq!(token, -1);
        ok(llmcc_tokenizer_size(model.0, &mut n));
        assert_eq!(n, 7);
        fails(llmcc_token_bytes(model.0, 5, bytes.as_mut_ptr(), 3, &mut n), Status::Buffer, "4 are needed");
        for bad in [-1, 7, i32::MIN] {
            fails(
                llmcc_token_piece(model.0, bad, text.as_mut_ptr(), 8, &mut n),
                Status::Invalid,
                "outside the vocabulary of 7",
            );
            fails(llmcc_token_flags(model.0, bad, &mut flags), Status::Invalid, "outside the vocabulary of 7");
        }
        fails(llmcc_tokenizer_size(model.0, null_mut()), Status::Invalid, "n is a null");
        fails(llmcc_token_flags(model.0, 1, null_mut()), Status::Invalid, "flags is a null");
    }
}
