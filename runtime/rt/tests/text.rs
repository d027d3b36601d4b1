//! Real tokenizers of the shared data: streamed text equals text decoded at once.
#![cfg(feature = "text")]

use std::path::{Path, PathBuf};

use llmcc_rt::stream::Detokenizer;
use llmcc_rt::text::{Config, Tokenizer};

const TEXTS: [&str; 5] = [
    "Once upon a time, there was a little girl named Lily.",
    "def f(x):\n    return x ** 2  # squares\n\n\n",
    "Grüße, 世界! नमस्ते 🙂👩‍👩‍👧‍👦 \u{a0} ﷺ",
    "  leading and trailing  ",
    "</s> <s> [INST] <|im_start|>",
];

fn tokenizers() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let files = [
        "tokenizers/phi3/tokenizer.json",
        "tokenizers/granite_code/tokenizer.json",
        "tokenizers/pythia_neox/20B_tokenizer.json",
    ];
    let found: Vec<_> = files.iter().map(|f| root.join(f)).filter(|p| p.exists()).collect();
    if found.is_empty() {
        eprintln!("skipped: no shared tokenizers");
    }
    found
}

#[test]
fn streaming_equals_decoding_at_once() {
    for path in tokenizers() {
        let json = std::fs::read_to_string(&path).unwrap();
        let tokenizer = Tokenizer::new(&json, &Config::default()).unwrap();
        for show in [false, true] {
            let decode = |ids: &[i32]| tokenizer.decode(ids, show);
            for text in TEXTS {
                let ids = tokenizer.encode(text, false).unwrap();
                for cut in [0, 1, ids.len() / 2] {
                    let mut stream = Detokenizer::new(&ids[..cut]);
                    let mut pieces: Vec<String> =
                        ids[cut..].iter().map(|&id| stream.push(id, &decode).unwrap()).collect();
                    pieces.push(stream.finish(&decode).unwrap());
                    let (whole, head) = (decode(&ids).unwrap(), decode(&ids[..cut]).unwrap());
                    // Cut inside a character, the head alone ends in U+FFFD.
                    let expected = whole.strip_prefix(head.trim_end_matches('\u{fffd}')).unwrap();
                    assert_eq!(pieces.concat(), expected, "{} {text:?} cut at {cut}", path.display());
                }
            }
        }
    }
}

#[test]
fn beginning_of_sequence_follows_the_configuration() {
    for path in tokenizers().into_iter().filter(|p| p.ends_with("phi3/tokenizer.json")) {
        let json = std::fs::read_to_string(&path).unwrap();
        let config = |add_bos| Config { bos_id: Some(1), bos_token: Some("<s>".into()), add_bos, ..Config::default() };
        let first = |add_bos, text: &str, special| {
            let ids = Tokenizer::new(&json, &config(add_bos)).unwrap().encode(text, special).unwrap();
            ids.iter().take_while(|&&id| id == 1).count()
        };
        assert_eq!((first(Some(true), "a", true), first(Some(false), "a", true)), (1, 0));
        assert_eq!((first(Some(true), "a", false), first(Some(false), "<s>a", true)), (0, 1));
    }
}

#[test]
fn broken_tokenizers_are_refused() {
    for json in ["", "{}", "{\"model\":{\"type\":\"BPE\",\"vocab\":3}}"] {
        let error = Tokenizer::new(json, &Config::default()).err().unwrap();
        assert!(error.message.contains("tokenizer cannot be read"), "{error}");
    }
}

/// Byte fallback, marks of leading spaces, words that continue: the bytes that single tokens add to
/// a text.
#[test]
fn single_tokens_have_bytes() {
    let tokenizer = |decoder: &str, vocab: &str| {
        let json = format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{{"id":0,"content":"<s>","single_word":false,"lstrip":false,
            "rstrip":false,"normalized":false,"special":true}}],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":{decoder},
            "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,
            "byte_fallback":true,"vocab":{vocab},"merges":[]}}}}"#
        );
        Tokenizer::new(&json, &Config::default()).unwrap()
    };
    let llama = tokenizer(
        r#"{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
            {"type":"Strip","content":" ","start":1,"stop":0}]}"#,
        r#"{"<s>":0,"<0x0A>":1,"<0xE2>":2,"▁the":3,"the":4,"▁":5}"#,
    );
    let bytes = |t: &Tokenizer, id| t.bytes(id).unwrap();
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6].map(|id| bytes(&llama, id)),
        [&b"<s>"[..], b"\n", b"\xe2", b" the", b"the", b" ", b""]
    );
    assert_eq!((llama.byte(1), llama.byte(2), llama.byte(3)), (Some(10), Some(0xe2), None));
    assert_eq!(
        (llama.is_special(0), llama.is_special(3), llama.piece(3).as_deref(), llama.piece(6)),
        (true, false, Some("▁the"), None)
    );
    let byte_level = tokenizer(
        r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}"#,
        r#"{"<s>":0,"Ġthe":1,"Ċ":2,"â":3,"<0x0A>":4,"日":5}"#,
    );
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|id| bytes(&byte_level, id)),
        [&b"<s>"[..], b" the", b"\n", b"\xe2", b"<0x0A>", "日".as_bytes()]
    );
    assert_eq!(byte_level.byte(4), None);
    let words =
        tokenizer(r###"{"type":"WordPiece","prefix":"##","cleanup":false}"###, r###"{"<s>":0,"the":1,"##se":2}"###);
    assert_eq!([1, 2].map(|id| bytes(&words, id)), [&b" the"[..], b"se"]);
    let plain = tokenizer("null", r#"{"<s>":0,"the":1}"#);
    assert_eq!(bytes(&plain, 1), b"the");
}

#[test]
fn the_bytes_of_tokens_are_the_text() {
    for path in tokenizers() {
        let json = std::fs::read_to_string(&path).unwrap();
        let tokenizer = Tokenizer::new(&json, &Config::default()).unwrap();
        // The last one holds special tokens, which may swallow the spaces around them.
        for text in &TEXTS[..4] {
            let ids = tokenizer.encode(text, false).unwrap();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.bytes(id).unwrap()).collect();
            // The space that SentencePiece puts before a text is among the bytes.
            let shown = String::from_utf8(bytes).unwrap();
            let prefix = if path.ends_with("phi3/tokenizer.json") { " " } else { "" };
            assert!(
                shown.strip_prefix(prefix) == Some(text) || shown == *text,
                "{}: {shown:?} {text:?}",
                path.display()
            );
            assert!(ids.iter().all(|&id| tokenizer.token_id(&tokenizer.piece(id).unwrap()) == Some(id)));
        }
    }
}
