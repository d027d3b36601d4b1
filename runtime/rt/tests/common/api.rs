//! The hand-made model with a tokenizer and a chat template, behind the C API.
#![allow(dead_code)]

use std::ffi::CStr;

use crate::common::*;
use llmcc_rt::capi::*;
use llmcc_rt::{Options, Status};

pub const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
    {"id":0,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
    {"id":5,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":null,"pre_tokenizer":null,"decoder":{"type":"Fuse"},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
        "pair":[{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
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
    let image = toy_image_from(toy_data("{\"name\":\"toy\"}", TOKENIZER, CONFIG).leak()).unwrap();
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
