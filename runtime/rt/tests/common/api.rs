//! The C API as a program uses it, on the hand-made model with a small tokenizer.
#![allow(dead_code)]

use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::ptr::null_mut;

use llmcc_rt::capi::types::*;
use llmcc_rt::capi::*;
use llmcc_rt::{Options, Status};

use crate::common::*;

pub const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
    {"id":0,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
    {"id":5,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":null,"pre_tokenizer":null,"decoder":{"type":"Fuse"},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
        "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
        "special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
    "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,
        "byte_fallback":false,"vocab":{"<s>":0,"a":1,"b":2,"c":3,"d":4,"</s>":5,"e":6},"merges":[]}}"#;
pub const CONFIG: &str = r#"{"bos_token":"<s>","bos_token_id":0,"eos_token":"</s>","eos_token_ids":[5],"add_bos":true,
    "chat_template":"{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}d{% endif %}"}"#;

/// Closes the model at the end.
pub struct Handle(pub *mut llmcc_model);

// SAFETY: the API may be called from any thread.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: any value may be passed.
        unsafe { llmcc_close(self.0) }
    }
}

pub fn open(options: Options) -> Handle {
    open_as(options, |_| ())
}

/// The model after a change of its descriptor.
pub fn open_as(options: Options, change: impl FnOnce(&mut Descs)) -> Handle {
    let data = changed(toy_data("{\"name\":\"toy\"}", TOKENIZER, CONFIG), change);
    let image = toy_image_from(data.leak()).unwrap();
    Handle(into_handle(Model::new(vec![image], &options).unwrap()))
}

pub fn last_error() -> String {
    // SAFETY: never null, valid until the next failure.
    unsafe { CStr::from_ptr(llmcc_last_error()).to_str().unwrap().to_owned() }
}

pub fn ok(status: i32) {
    assert_eq!(status, 0, "{}", last_error());
}

pub fn fails(status: i32, expected: Status, part: &str) {
    assert_eq!(status, expected as i32, "{}", last_error());
    assert!(last_error().contains(part), "{}", last_error());
}

pub fn params() -> llmcc_gen_params {
    // SAFETY: all-zero is the default.
    let zero = unsafe { zeroed() };
    llmcc_gen_params { size: size_of::<llmcc_gen_params>(), sampling: llmcc_sampling::default(), ..zero }
}

pub fn batch(tokens: &[i32], seqs: &[i32], out_rows: &[u32]) -> llmcc_batch {
    let (n_tokens, n_out) = (tokens.len(), out_rows.len());
    llmcc_batch {
        size: size_of::<llmcc_batch>(),
        n_tokens,
        tokens: tokens.as_ptr(),
        seqs: seqs.as_ptr(),
        n_out,
        out_rows: out_rows.as_ptr(),
        hidden: std::ptr::null(),
        hidden_out: null_mut(),
        positions: std::ptr::null(),
    }
}

pub fn rows(tokens: &[i32], lengths: &[usize]) -> llmcc_embed_rows {
    llmcc_embed_rows {
        size: size_of::<llmcc_embed_rows>(),
        n_rows: lengths.len(),
        lengths: lengths.as_ptr(),
        tokens: tokens.as_ptr(),
        flags: 0,
        pool: 0,
        types: std::ptr::null(),
    }
}

pub fn piece() -> llmcc_piece {
    // SAFETY: all-zero is fine.
    llmcc_piece { size: size_of::<llmcc_piece>(), ..unsafe { zeroed() } }
}

/// Runs a generation to its end: tokens, text, reason, reused tokens.
pub fn generate(model: &Handle, seq: i32, prompt: &[i32], params: &llmcc_gen_params) -> (Vec<i32>, String, i32, u64) {
    // SAFETY: valid arguments throughout.
    unsafe {
        let mut generation = null_mut();
        ok(llmcc_gen_new(model.0, seq, prompt.as_ptr(), prompt.len(), params, &mut generation));
        let (mut tokens, mut text) = (Vec::new(), String::new());
        loop {
            let mut piece = piece();
            ok(llmcc_gen_next(generation, &mut piece));
            assert_eq!(CStr::from_ptr(piece.text).to_bytes().len(), piece.text_len);
            text += CStr::from_ptr(piece.text).to_str().unwrap();
            tokens.push(piece.token);
            if piece.finish != 0 {
                let mut stats: llmcc_gen_stats_t =
                    llmcc_gen_stats_t { size: size_of::<llmcc_gen_stats_t>(), ..zeroed() };
                ok(llmcc_gen_stats(generation, &mut stats));
                assert_eq!((stats.prompt_tokens, stats.generated_tokens), (prompt.len() as u64, tokens.len() as u64));
                let finish = piece.finish;
                ok(llmcc_gen_next(generation, &mut piece));
                assert_eq!((piece.token, piece.finish, piece.text_len), (-1, finish, 0));
                llmcc_gen_free(generation);
                return (tokens, text, finish, stats.reused_tokens);
            }
        }
    }
}
