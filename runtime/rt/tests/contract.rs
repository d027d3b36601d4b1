//! "A failed call changes nothing": every function of `llmcc.h` that can fail, with every wrong
//! argument there is.
#![cfg(feature = "text")]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::mem::{size_of, zeroed};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::api::*;
use crate::common::*;
use llmcc_rt::Options;
use llmcc_rt::Status::{self, *};
use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;

/// Everything that calls store results in.
#[repr(C)]
struct Outs {
    needed: usize,
    number: i32,
    token: i32,
    len: usize,
    model: *mut llmcc_model,
    generation: *mut llmcc_gen,
    ids: [i32; 8],
    text: [c_char; 8],
    logits: [f32; 2 * VOCAB],
    logprobs: [f64; 8],
    flags: u32,
    info: llmcc_model_info,
    entry: llmcc_entry_info,
    piece: llmcc_piece,
    stats: llmcc_gen_stats_t,
    tap: llmcc_tap_info,
    count: u64,
}

impl Outs {
    fn new() -> Outs {
        // SAFETY: integers, floats and pointers that nothing follows.
        unsafe {
            let mut outs: Outs = zeroed();
            (&raw mut outs).cast::<u8>().write_bytes(0x5a, size_of::<Outs>());
            outs.info.size = size_of::<llmcc_model_info>();
            outs.entry.size = size_of::<llmcc_entry_info>();
            outs.piece.size = size_of::<llmcc_piece>();
            outs.stats.size = size_of::<llmcc_gen_stats_t>();
            outs.tap.size = size_of::<llmcc_tap_info>();
            outs
        }
    }

    /// All bytes behind `needed`.
    fn bytes(&self) -> &[u8] {
        // SAFETY: every byte was written in `new`; fields have no padding between them that calls
        // could change.
        unsafe { &std::slice::from_raw_parts((&raw const *self).cast::<u8>(), size_of::<Outs>())[size_of::<usize>()..] }
    }
}

/// The arguments of the calls.
struct World {
    model: Handle,
    /// The same model with embeddings for logits.
    embedder: Handle,
    /// Whose tokens see later ones.
    encoder: Handle,
    /// The same model, whose only entry has a tap.
    tapped: Handle,
    /// A sequence of the encoder that has a token.
    encoded: i32,
    /// Holds tokens 1, 2, 3.
    seq: i32,
    /// A generation of the caller's sequence `gen_seq`, one token in.
    generation: *mut llmcc_gen,
    gen_seq: i32,
    freed_seq: i32,
    freed_gen: *mut llmcc_gen,
    closed: *mut llmcc_model,
}

impl World {
    fn new() -> World {
        let model = open(Options { threads: 1, max_tokens: 48, max_batch_tokens: 16, ..Options::default() });
        // SAFETY: valid arguments.
        unsafe {
            let (mut seq, mut gen_seq, mut freed_seq, mut generation, mut freed_gen) =
                (-1, -1, -1, null_mut(), null_mut());
            ok(llmcc_seq_new(model.0, &mut seq));
            ok(llmcc_step(model.0, &batch(&[1, 2, 3], &[seq; 3], &[]), null_mut(), 0));
            ok(llmcc_seq_new(model.0, &mut gen_seq));
            ok(llmcc_seq_new(model.0, &mut freed_seq));
            ok(llmcc_seq_free(model.0, freed_seq));
            let forever = llmcc_gen_params { flags: LLMCC_GEN_IGNORE_EOS, ..params() };
            ok(llmcc_gen_new(model.0, gen_seq, [1].as_ptr(), 1, &forever, &mut generation));
            let mut piece = llmcc_piece { size: size_of::<llmcc_piece>(), ..zeroed() };
            ok(llmcc_gen_next(generation, &mut piece));
            ok(llmcc_gen_new(model.0, -1, [1].as_ptr(), 1, &forever, &mut freed_gen));
            llmcc_gen_free(freed_gen);
            let other = open(Options { threads: 1, ..Options::default() });
            let closed = other.0;
            drop(other);
            let few = Options { threads: 1, max_tokens: 48, max_batch_tokens: 16, ..Options::default() };
            let (embedder, encoder, tapped) = (open_as(few, embeds), open_as(few, encodes), open_as(few, shows));
            let mut encoded = -1;
            ok(llmcc_seq_new(encoder.0, &mut encoded));
            ok(llmcc_step(encoder.0, &batch(&[1], &[encoded], &[]), null_mut(), 0));
            World { model, embedder, encoder, tapped, encoded, seq, generation, gen_seq, freed_seq, freed_gen, closed }
        }
    }

    /// All that calls could have changed.
    fn state(&self) -> (String, Vec<Vec<i32>>, u64) {
        // SAFETY: valid arguments.
        unsafe {
            let (mut text, mut n) = ([0 as c_char; 2000], 0);
            ok(llmcc_stats(self.model.0, text.as_mut_ptr(), text.len(), &mut n));
            let tokens = [self.seq, self.gen_seq].map(|seq| {
                let mut ids = vec![0; 64];
                ok(llmcc_seq_tokens(self.model.0, seq, ids.as_mut_ptr(), 64, &mut n));
                ids.truncate(n);
                ids
            });
            let mut stats = llmcc_gen_stats_t { size: size_of::<llmcc_gen_stats_t>(), ..zeroed() };
            ok(llmcc_gen_stats(self.generation, &mut stats));
            (CStr::from_ptr(text.as_ptr()).to_str().unwrap().to_owned(), tokens.to_vec(), stats.generated_tokens)
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: any value may be passed.
        unsafe { llmcc_gen_free(self.generation) }
    }
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn called(_: *mut c_void, _: *const c_char, _: usize, _: i32) -> i32 {
    CALLED.fetch_add(1, SeqCst);
    0
}

/// Function, failing argument, part of the message, the call.
type Row<'a> = (&'a str, Status, &'a str, Box<dyn Fn(&World, &mut Outs) -> i32 + 'a>);

macro_rules! row {
    ($function:ident, $status:expr, $part:expr, |$w:ident, $o:ident| ($($argument:expr),*)) => {
        // SAFETY: arguments are valid, or wrong in a way that must be noticed.
        (stringify!($function), $status, $part, Box::new(move |$w: &World, $o: &mut Outs| unsafe { let _ = (&$w, &$o); $function($($argument),*) }))
    };
}

#[path = "contract/choosing.rs"]
mod choosing;
#[path = "contract/embedding.rs"]
mod embedding;
#[path = "contract/engines.rs"]
mod engines;
#[path = "contract/generations.rs"]
mod generations;
#[path = "contract/judging.rs"]
mod judging;
#[path = "contract/sequences.rs"]
mod sequences;
#[path = "contract/taps.rs"]
mod taps;
#[path = "contract/trees.rs"]
mod trees;

/// Pointers into `text` at an odd address.
fn odd<T>(o: &mut Outs) -> *mut T {
    o.text.as_mut_ptr().wrapping_byte_add(1).cast()
}

/// A structure of size 0.
fn empty<T>() -> *mut T {
    static ZEROES: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];
    ZEROES.as_ptr().cast_mut().cast()
}

fn about_models<'a>() -> Vec<Row<'a>> {
    let options = |size, flags| llmcc_options { size, threads: 0, flags, max_tokens: 0, max_batch_tokens: 0 };
    let newer: &[usize; 8] = Box::leak(Box::new([64, 0, 0, 0, 0, 0, 0, 1]));
    vec![
        row!(llmcc_open, Invalid, "out is a null pointer", |_w, _o| (null(), null_mut())),
        row!(llmcc_open, Invalid, "out is misaligned", |_w, o| (null(), odd(o))),
        row!(llmcc_open, Invalid, "llmcc_options.size is 3", |_w, o| (&options(3, 0), &mut o.model)),
        row!(llmcc_open, Invalid, "unknown bits: 0x40", |_w, o| (
            &options(size_of::<llmcc_options>(), 64),
            &mut o.model
        )),
        row!(llmcc_open, Unsupported, "newer llmcc", |_w, o| (newer.as_ptr().cast(), &mut o.model)),
        row!(llmcc_open, Artifact, "bare llmcc runtime", |_w, o| (null(), &mut o.model)),
        row!(llmcc_info, Invalid, "model is a null", |_w, o| (null(), &mut o.info)),
        row!(llmcc_info, Invalid, "closed", |w, o| (w.closed, &mut o.info)),
        row!(llmcc_info, Invalid, "not an open handle", |_w, o| ((&raw const *o).cast(), &mut o.info)),
        row!(llmcc_info, Invalid, "llmcc_model_info is a null", |w, _o| (w.model.0, null_mut())),
        row!(llmcc_info, Invalid, "llmcc_model_info is misaligned", |w, o| (w.model.0, odd(o))),
        row!(llmcc_entry, Invalid, "model is a null", |_w, o| (null(), 0, &mut o.entry, null_mut(), 0, null_mut())),
        row!(llmcc_entry, Invalid, "closed", |w, o| (w.closed, 0, &mut o.entry, null_mut(), 0, null_mut())),
        row!(llmcc_entry, Invalid, "llmcc_entry_info is a null", |w, _o| (
            w.model.0,
            0,
            null_mut(),
            null_mut(),
            0,
            null_mut()
        )),
        row!(llmcc_entry, Invalid, "llmcc_entry_info is misaligned", |w, o| (
            w.model.0,
            0,
            odd(o),
            null_mut(),
            0,
            null_mut()
        )),
        row!(llmcc_entry, Invalid, "entry 1 does not exist: the model has 1", |w, o| (
            w.model.0,
            1,
            &mut o.entry,
            null_mut(),
            0,
            null_mut()
        )),
        row!(llmcc_entry, Buffer, "2 bytes", |w, o| (
            w.model.0,
            0,
            &mut o.entry,
            o.text.as_mut_ptr(),
            2,
            &mut o.needed
        )),
        row!(llmcc_stats, Invalid, "model is a null", |_w, o| (null(), o.text.as_mut_ptr(), 8, &mut o.needed)),
        row!(llmcc_stats, Invalid, "the buffer", |w, _o| (w.model.0, null_mut(), 0, null_mut())),
        row!(llmcc_stats, Buffer, "8 bytes", |w, o| (w.model.0, o.text.as_mut_ptr(), 8, &mut o.needed)),
        row!(llmcc_stats, Invalid, "misaligned", |w, o| (w.model.0, null_mut(), 0, odd(o))),
        row!(llmcc_interrupt, Invalid, "model is a null", |_w, _o| (null())),
        row!(llmcc_interrupt, Invalid, "closed", |w, _o| (w.closed)),
    ]
}

fn about_steps<'a>() -> Vec<Row<'a>> {
    fn step(w: &World, o: &mut Outs, capacity: usize, change: impl Fn(&mut llmcc_batch)) -> i32 {
        let (tokens, seqs, rows) = ([1, 2], [w.seq; 2], [1]);
        let mut batch = batch(&tokens, &seqs, &rows);
        change(&mut batch);
        // SAFETY: as for the rows.
        unsafe { llmcc_step(w.model.0, &batch, o.logits.as_mut_ptr(), capacity) }
    }
    macro_rules! step {
        ($status:expr, $part:expr, $change:expr) => {
            ("llmcc_step", $status, $part, Box::new(move |w: &World, o: &mut Outs| step(w, o, 2 * VOCAB, $change)))
        };
    }
    static LONG: [i32; 201] = [0; 201];
    static STRANGE: [i32; 2] = [1, 7];
    vec![
        row!(llmcc_step, Invalid, "model is a null", |_w, o| (null(), null(), o.logits.as_mut_ptr(), 0)),
        row!(llmcc_step, Invalid, "batch is a null", |w, o| (w.model.0, null(), o.logits.as_mut_ptr(), 0)),
        step!(Invalid, "llmcc_batch.size is 0", |b| b.size = 0),
        step!(Invalid, "batch.tokens is a null", |b| b.tokens = null()),
        step!(Invalid, "batch.seqs is a null", |b| b.seqs = null()),
        step!(Invalid, "batch.out_rows is a null", |b| b.out_rows = null()),
        step!(Invalid, "too long", |b| b.n_tokens = usize::MAX),
        step!(Invalid, "misaligned", |b| b.tokens = b.tokens.wrapping_byte_add(1)),
        step!(Invalid, "token 7 at index 1 is outside the vocabulary of 7", |b| b.tokens = STRANGE.as_ptr()),
        step!(Invalid, "sequence 7 ", |b| b.seqs = STRANGE.as_ptr()),
        step!(Invalid, "out_rows has token 1, but the step has 1", |b| b.n_tokens = 1),
        ("llmcc_step", Buffer, "room for 6 floats", Box::new(|w, o| step(w, o, VOCAB - 1, |_| ()))),
        row!(llmcc_step, Invalid, "logits is a null", |w, _o| (
            w.model.0,
            &batch(&[1], &[w.seq], &[0]),
            null_mut(),
            VOCAB
        )),
        row!(llmcc_step, Invalid, "logits is misaligned", |w, o| (
            w.model.0,
            &batch(&[1], &[w.seq], &[0]),
            odd(o),
            VOCAB
        )),
        // Longer than a chunk: it must be noticed before the first.
        row!(llmcc_step, CacheFull, "is full", |w, _o| (w.model.0, &batch(&[1; 40], &[w.seq; 40], &[]), null_mut(), 0)),
        row!(llmcc_step, ContextFull, "longest context", |w, _o| (
            w.model.0,
            &batch(&LONG, &[w.seq; 201], &[]),
            null_mut(),
            0
        )),
    ]
}

fn about_text<'a>() -> Vec<Row<'a>> {
    let s = |text: &'static CStr| text.as_ptr();
    vec![
        row!(llmcc_tokenize, Invalid, "model is a null", |_w, o| (
            null(),
            s(c"a"),
            1,
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tokenize, Invalid, "text is a null", |w, o| (
            w.model.0,
            null(),
            1,
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tokenize, Invalid, "not UTF-8", |w, o| (
            w.model.0,
            s(c"a\xff"),
            2,
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tokenize, Invalid, "unknown flags 0x8", |w, o| (
            w.model.0,
            s(c"a"),
            1,
            8,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tokenize, Invalid, "the buffer", |w, _o| (w.model.0, s(c"a"), 1, 0, null_mut(), 8, null_mut())),
        row!(llmcc_tokenize, Buffer, "2 are needed", |w, o| (
            w.model.0,
            s(c"ab"),
            2,
            0,
            o.ids.as_mut_ptr(),
            1,
            &mut o.needed
        )),
        row!(llmcc_detokenize, Invalid, "model is a null", |_w, o| (
            null(),
            [1].as_ptr(),
            1,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_detokenize, Invalid, "tokens is a null", |w, o| (
            w.model.0,
            null(),
            1,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_detokenize, Invalid, "token 7 at index 1 is outside the vocabulary of 7", |w, o| (
            w.model.0,
            [1, 7].as_ptr(),
            2,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_detokenize, Invalid, "token -1 at index 0", |w, o| (
            w.model.0,
            [-1].as_ptr(),
            1,
            0,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_detokenize, Invalid, "unknown flags 0x1", |w, o| (
            w.model.0,
            [1].as_ptr(),
            1,
            1,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_detokenize, Buffer, "2 are needed", |w, o| (
            w.model.0,
            [1].as_ptr(),
            1,
            0,
            o.text.as_mut_ptr(),
            1,
            &mut o.needed
        )),
        row!(llmcc_apply_chat_template, Invalid, "model is a null", |_w, o| (
            null(),
            s(c"[]"),
            2,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_apply_chat_template, Invalid, "json is a null", |w, o| (
            w.model.0,
            null(),
            2,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_apply_chat_template, Invalid, "not a JSON list", |w, o| (
            w.model.0,
            s(c"["),
            1,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_apply_chat_template, Buffer, "1 bytes", |w, o| (
            w.model.0,
            s(c"[]"),
            2,
            o.text.as_mut_ptr(),
            1,
            &mut o.needed
        )),
        row!(llmcc_token_piece, Invalid, "model is a null", |_w, o| (null(), 1, o.text.as_mut_ptr(), 8, &mut o.needed)),
        row!(llmcc_token_piece, Invalid, "token 7 is outside", |w, o| (
            w.model.0,
            7,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_token_piece, Invalid, "the buffer", |w, _o| (w.model.0, 1, null_mut(), 0, null_mut())),
        row!(llmcc_token_piece, Buffer, "1 bytes", |w, o| (w.model.0, 1, o.text.as_mut_ptr(), 1, &mut o.needed)),
        row!(llmcc_token_bytes, Invalid, "model is a null", |_w, o| (
            null(),
            1,
            o.text.as_mut_ptr().cast(),
            8,
            &mut o.needed
        )),
        row!(llmcc_token_bytes, Invalid, "token -1 is outside", |w, o| (
            w.model.0,
            -1,
            o.text.as_mut_ptr().cast(),
            8,
            &mut o.needed
        )),
        row!(llmcc_token_bytes, Buffer, "1 are needed", |w, o| (
            w.model.0,
            1,
            o.text.as_mut_ptr().cast(),
            0,
            &mut o.needed
        )),
        row!(llmcc_token_flags, Invalid, "model is a null", |_w, o| (null(), 1, &mut o.flags)),
        row!(llmcc_token_flags, Invalid, "token 7 is outside", |w, o| (w.model.0, 7, &mut o.flags)),
        row!(llmcc_token_flags, Invalid, "flags is a null", |w, _o| (w.model.0, 1, null_mut())),
        row!(llmcc_piece_token, Invalid, "model is a null", |_w, o| (null(), s(c"a"), 1, &mut o.token)),
        row!(llmcc_piece_token, Invalid, "piece is a null", |w, o| (w.model.0, null(), 1, &mut o.token)),
        row!(llmcc_piece_token, Invalid, "not UTF-8", |w, o| (w.model.0, s(c"\xff"), 1, &mut o.token)),
        row!(llmcc_piece_token, Invalid, "token is a null", |w, _o| (w.model.0, s(c"a"), 1, null_mut())),
        row!(llmcc_tokenizer_size, Invalid, "model is a null", |_w, o| (null(), &mut o.len)),
        row!(llmcc_tokenizer_size, Invalid, "n is misaligned", |w, o| (w.model.0, odd(o))),
        row!(llmcc_eos_tokens, Invalid, "model is a null", |_w, o| (null(), o.ids.as_mut_ptr(), 8, &mut o.needed)),
        row!(llmcc_eos_tokens, Invalid, "the buffer", |w, _o| (w.model.0, null_mut(), 8, null_mut())),
        row!(llmcc_eos_tokens, Buffer, "1 are needed", |w, o| (w.model.0, o.ids.as_mut_ptr(), 0, &mut o.needed)),
    ]
}

#[test]
fn a_failed_call_changes_nothing() {
    let world = World::new();
    let before = world.state();
    let tables = [
        about_models(),
        sequences::about_sequences(),
        sequences::about_adapters(),
        about_steps(),
        trees::about_trees(),
        trees::about_drafters(),
        trees::about_corpora(),
        trees::about_compression(),
        choosing::rows(),
        embedding::about_embedding(),
        taps::about_taps(),
        judging::about_judging(),
        about_text(),
        generations::about_generations(),
        engines::about_engines(),
    ];
    let mut seen = BTreeSet::new();
    for (function, status, part, call) in tables.into_iter().flatten() {
        let (mut outs, untouched) = (Outs::new(), Outs::new());
        let got = call(&world, &mut outs);
        let what = format!("{function}, expecting {part:?}: {}", last_error());
        assert_eq!(got, status as i32, "{what}");
        assert!(last_error().contains(part), "{what}");
        assert!(outs.bytes() == untouched.bytes(), "{what}: a result was stored");
        assert!(status == Buffer || outs.needed == untouched.needed, "{what}: a length was stored");
        assert_eq!(world.state(), before, "{what}");
        seen.insert(function.to_owned());
    }
    assert_eq!(CALLED.load(SeqCst), 0, "a callback ran");
    assert_eq!(seen, declared(), "functions of the header without a row here");
    // All is as usable as before.
    // SAFETY: valid arguments.
    unsafe {
        let mut piece = llmcc_piece { size: size_of::<llmcc_piece>(), ..zeroed() };
        ok(llmcc_gen_next(world.generation, &mut piece));
        assert!(piece.token >= 0);
    }
}

/// Functions of the header that return a status.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/llmcc.h")).unwrap();
    let name = |line: &str| Some(line.strip_prefix("llmcc_status ")?.split('(').next()?.to_owned());
    header.lines().filter_map(name).collect()
}
