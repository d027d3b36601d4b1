//! Engines of the C API.
#![cfg(feature = "text")]

use crate::api;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use crate::api::*;
use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;
use llmcc_rt::{Options, Status};

/// Closes the engine at the end.
struct Opened(*mut llmcc_engine);

// SAFETY: the API may be called from any thread.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: any value may be passed.
        unsafe { llmcc_engine_close(self.0) }
    }
}

fn engine(model: &Handle, options: llmcc_engine_options) -> Opened {
    let mut out = null_mut();
    // SAFETY: valid arguments.
    ok(unsafe {
        llmcc_engine_open(model.0, &llmcc_engine_options { size: size_of_val(&options), ..options }, &mut out)
    });
    Opened(out)
}

fn submit(engine: &Opened, request: llmcc_request) -> (i32, u64) {
    let mut id = 0;
    // SAFETY: valid arguments.
    (unsafe { llmcc_engine_submit(engine.0, &request, &mut id) }, id)
}

fn of_tokens<'a>(tokens: &'a [i32], params: &'a llmcc_gen_params) -> llmcc_request {
    llmcc_request { tokens: tokens.as_ptr(), n_tokens: tokens.len(), params, ..llmcc_request::default() }
}

/// A request's tokens, text, reason, status and message.
#[derive(Default, Debug, PartialEq, Clone)]
struct Got {
    tokens: Vec<i32>,
    text: String,
    finish: i32,
    status: i32,
    message: String,
    reused: u64,
}

/// Takes events until so many requests have ended.
fn ends(engine: &Opened, mut count: usize) -> BTreeMap<u64, Got> {
    let mut all: BTreeMap<u64, Got> = BTreeMap::new();
    while count > 0 {
        let (mut events, mut n) = ([llmcc_event::default(); 3], 0);
        // SAFETY: valid arguments; texts are valid until the next call.
        unsafe {
            ok(llmcc_engine_poll(engine.0, events.as_mut_ptr(), events.len(), &mut n, -1));
            for event in &events[..n] {
                let got = all.entry(event.request).or_default();
                got.tokens.extend((event.token >= 0).then_some(event.token));
                got.text += CStr::from_ptr(event.text).to_str().unwrap();
                got.finish |= event.finish;
                if event.ended != 0 {
                    count -= 1;
                    got.status = event.status;
                    got.message = CStr::from_ptr(event.message).to_str().unwrap().to_owned();
                    got.reused = event.reused_tokens;
                    assert_eq!(event.generated_tokens, got.tokens.len() as u64);
                }
            }
        }
    }
    all
}

fn stats(engine: &Opened) -> serde_json::Value {
    let (mut buffer, mut n) = ([0 as c_char; 1000], 0);
    // SAFETY: valid arguments.
    unsafe {
        ok(llmcc_engine_stats(engine.0, buffer.as_mut_ptr(), buffer.len(), &mut n));
        serde_json::from_slice(std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), n)).unwrap()
    }
}

const NO_E: [llmcc_logit_bias; 1] = [llmcc_logit_bias { token: 6, value: f32::NEG_INFINITY }];

/// All letters come, until `max_tokens`.
fn random(seed: u64, max_tokens: u64) -> llmcc_gen_params {
    let mut p = llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS, max_tokens, ..params() };
    p.sampling = llmcc_sampling { temperature: 1e5, seed, bias: NO_E.as_ptr(), n_bias: 1, ..llmcc_sampling::default() };
    p
}

#[test]
fn requests_get_what_they_get_alone() {
    let model = open(Options { threads: 2, max_batch_tokens: 16, max_tokens: 2000, ..Options::default() });
    let prompts: Vec<Vec<i32>> = (0..24).map(|i| (0..1 + 5 * i).map(|j| (i / 8 + j) % 5).collect()).collect();
    let all: Vec<llmcc_gen_params> = (0..24).map(|i| random(i, 1 + 3 * i % 17)).collect();
    let alone: Vec<_> = prompts.iter().zip(&all).map(|(p, params)| generate(&model, -1, p, params)).collect();
    for max_running in [0, 3] {
        let engine = engine(&model, llmcc_engine_options { max_running, ..llmcc_engine_options::default() });
        let ids: Vec<u64> =
            prompts.iter().zip(&all).map(|(p, params)| submit(&engine, of_tokens(p, params)).1).collect();
        let got = ends(&engine, ids.len());
        for (id, alone) in ids.iter().zip(&alone) {
            let got = &got[id];
            assert_eq!((&got.tokens, &got.text, got.finish), (&alone.0, &alone.1, alone.2));
        }
        let stats = stats(&engine);
        assert_eq!((stats["finished"].as_u64(), stats["running"].as_u64()), (Some(24), Some(0)), "{stats}");
        assert!(stats["reused_tokens"].as_u64() > Some(100), "{stats}");
    }
}

#[test]
fn texts_are_prompts() {
    let model = open(Options::default());
    let engine = engine(&model, llmcc_engine_options::default());
    let p = random(3, 9);
    let text = "abc";
    let request = llmcc_request { text: text.as_ptr().cast(), len: 3, params: &p, ..llmcc_request::default() };
    let (status, id) = submit(&engine, request);
    ok(status);
    let got = ends(&engine, 1).remove(&id).unwrap();
    assert_eq!(got.tokens, generate(&model, -1, &[0, 1, 2, 3], &p).0);
    // Without the token that begins texts; and twice, which computes nothing again but the last token.
    let raw = llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS | LLMCC_GEN_RAW_PROMPT, ..p };
    for reused in [0, 2] {
        let (_, id) = submit(&engine, llmcc_request { params: &raw, ..request });
        let got = ends(&engine, 1).remove(&id).unwrap();
        assert_eq!((got.tokens, got.reused), (generate(&model, -1, &[1, 2, 3], &p).0, reused));
    }
    // Another tenant finds nothing.
    let (_, id) = submit(&engine, llmcc_request { params: &raw, salt: 1, ..request });
    assert_eq!(ends(&engine, 1)[&id].reused, 0);
}

#[test]
fn wrong_requests_are_refused_at_once() {
    let model = open(Options::default());
    let engine = engine(&model, llmcc_engine_options::default());
    let p = params();
    let fails = |request, part: &str| fails(submit(&engine, request).0, Status::Invalid, part);
    fails(of_tokens(&[], &p), "no tokens");
    fails(of_tokens(&[1, 7], &p), "token 7 at index 1 is outside the vocabulary of 7");
    fails(of_tokens(&[-1], &p), "token -1");
    fails(llmcc_request { text: c"a".as_ptr(), len: 1, ..of_tokens(&[1], &p) }, "a text and tokens");
    fails(llmcc_request { reserved: 1, ..of_tokens(&[1], &p) }, "reserved");
    fails(of_tokens(&[1], &llmcc_gen_params { guesses: 9, ..p }), "guesses is 9");
    let bad = llmcc_sampling { top_p: 2.0, temperature: 1.0, ..llmcc_sampling::default() };
    fails(of_tokens(&[1], &llmcc_gen_params { sampling: bad, ..p }), "top_p");
    // SAFETY: wrong arguments that the API checks.
    unsafe {
        let (mut id, mut n, mut event) = (0, 0, llmcc_event::default());
        let invalid = |status, part: &str| api::fails(status, Status::Invalid, part);
        invalid(llmcc_engine_submit(engine.0, null(), &mut id), "request is a null");
        invalid(llmcc_engine_submit(null(), &of_tokens(&[1], &p), &mut id), "engine is a null");
        invalid(llmcc_engine_poll(engine.0, &mut event, 0, &mut n, 0), "room for none");
        event.size = 12;
        invalid(llmcc_engine_poll(engine.0, &mut event, 1, &mut n, 0), "llmcc_event.size is 12");
        let mut out = null_mut();
        let options = llmcc_engine_options { size: size_of::<llmcc_engine_options>(), flags: 8, ..Default::default() };
        invalid(llmcc_engine_open(model.0, &options, &mut out), "unknown bits");
        llmcc_engine_close(null_mut());
    }
    // A prompt that is too long for the model ends with its reason; others go on.
    let (long, short) =
        (submit(&engine, of_tokens(&[1; 300], &p)).1, submit(&engine, of_tokens(&[1], &random(1, 3))).1);
    let got = ends(&engine, 2);
    assert_eq!((got[&long].status, got[&short].tokens.len()), (Status::ContextFull as i32, 3));
    assert!(got[&long].message.contains("300 tokens"), "{}", got[&long].message);
}

#[test]
fn queues_deadlines_and_cancellations() {
    let model = open(Options { threads: 1, max_tokens: 2000, ..Options::default() });
    let one = llmcc_engine_options { max_running: 1, max_queued: 2, ..Default::default() };
    let engine = engine(&model, one);
    let (p, prompt) = (random(1, 150), [1, 2, 3]);
    let late = llmcc_request { timeout_ns: 1, ..of_tokens(&prompt, &p) };
    // Requests come faster than they are served.
    let mut ids = vec![];
    let refused = loop {
        match submit(&engine, of_tokens(&prompt, &p)) {
            (0, id) => ids.push(id),
            (status, _) => break status,
        }
        assert!(ids.len() < 1000, "the queue is never full");
    };
    fails(refused, Status::Busy, "larger max_queued");
    let last = ids[ids.len() - 1];
    // SAFETY: any number may be passed.
    unsafe {
        ok(llmcc_engine_cancel(engine.0, last));
        ok(llmcc_engine_cancel(engine.0, 12345));
    }
    let late = loop {
        match submit(&engine, late) {
            (0, id) => break id,
            (status, _) => fails(status, Status::Busy, "larger max_queued"),
        }
    };
    let got = ends(&engine, ids.len() + 1);
    assert_eq!(got[&ids[0]].tokens, generate(&model, -1, &prompt, &p).0);
    assert_eq!(got[&last].status, Status::Interrupted as i32);
    assert_eq!((got[&late].status, got[&late].tokens.len()), (Status::Deadline as i32, 0));
    let stats = stats(&engine);
    assert_eq!((stats["cancelled"].as_u64(), stats["expired"].as_u64()), (Some(1), Some(1)), "{stats}");
}

#[test]
fn the_descriptor_is_readable_while_there_are_events() {
    let model = open(Options::default());
    let engine = engine(&model, llmcc_engine_options::default());
    let mut fd = -1;
    // SAFETY: valid arguments.
    let readable = |timeout| unsafe {
        ok(llmcc_engine_fd(engine.0, &mut fd));
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut polled, 1, timeout) == 1
    };
    let mut readable = readable;
    assert!(!readable(0));
    submit(&engine, of_tokens(&[1, 2], &random(1, 4)));
    assert!(readable(10_000));
    ends(&engine, 1);
    assert!(!readable(0));
}

#[test]
fn closing_ends_all() {
    let model = open(Options { max_tokens: 2000, ..Options::default() });
    let handle = model.0 as usize;
    let engine = engine(&model, llmcc_engine_options::default());
    for _ in 0..9 {
        submit(&engine, of_tokens(&[1, 2], &random(1, 190)));
    }
    std::thread::scope(|scope| {
        let engine = &engine;
        let poller = scope.spawn(move || {
            let (mut event, mut n) = (llmcc_event::default(), 0);
            loop {
                // SAFETY: valid arguments.
                let status = unsafe { llmcc_engine_poll(engine.0, &mut event, 1, &mut n, -1) };
                if status != 0 {
                    break (status, last_error());
                }
            }
        });
        // SAFETY: any value may be passed.
        unsafe { llmcc_engine_close(engine.0) };
        let (status, message) = poller.join().unwrap();
        assert!(status == Status::Interrupted as i32 || status == Status::Invalid as i32, "{message}");
    });
    let (mut buffer, mut n) = ([0 as c_char; 1000], 0);
    // SAFETY: valid arguments.
    let stats: serde_json::Value = unsafe {
        ok(llmcc_stats(handle as *const llmcc_model, buffer.as_mut_ptr(), 1000, &mut n));
        serde_json::from_slice(std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), n)).unwrap()
    };
    assert_eq!((stats["sequences"].as_u64(), stats["kv_pages_used"].as_u64()), (Some(0), Some(0)), "{stats}");
}

#[test]
fn a_closed_model_ends_requests() {
    let model = open(Options { max_tokens: 2000, ..Options::default() });
    let engine = engine(&model, llmcc_engine_options::default());
    let id = submit(&engine, of_tokens(&[1, 2], &random(1, 190))).1;
    drop(model);
    let got = ends(&engine, 1).remove(&id).unwrap();
    // (It may have ended before.)
    assert!(got.status == 0 && got.tokens.len() == 190 || got.message.contains("was closed"), "{got:?}");
}

/// Steps of other callers come between steps of the engine.
#[test]
fn others_use_the_model_meanwhile() {
    let model = open(Options { threads: 1, max_tokens: 4000, ..Options::default() });
    let engine = engine(&model, llmcc_engine_options { max_queued: 10_000, ..Default::default() });
    let p = random(1, 100);
    let expected = generate(&model, -1, &[1], &random(5, 40)).0;
    let ids: Vec<u64> = (0..200).map(|i| submit(&engine, of_tokens(&[1, i % 5], &p)).1).collect();
    std::thread::scope(|scope| {
        let own = scope.spawn(|| generate(&model, -1, &[1], &random(5, 40)).0);
        let got = ends(&engine, ids.len());
        assert!(got.values().all(|g| g.tokens.len() == 100));
        assert_eq!(own.join().unwrap(), expected);
    });
}
