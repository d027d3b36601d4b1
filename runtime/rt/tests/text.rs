//! Real tokenizers of the shared data: what streams out is what decoding at once gives.
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
    let files = ["tokenizers/phi3/tokenizer.json", "tokenizers/granite_code/tokenizer.json", "tokenizers/pythia_neox/20B_tokenizer.json"];
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
                    let mut pieces: Vec<String> = ids[cut..].iter().map(|&id| stream.push(id, &decode).unwrap()).collect();
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
