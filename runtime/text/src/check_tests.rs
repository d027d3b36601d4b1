//! Files that made the crate panic, hang or take all memory.

use serde_json::{Value, json};

use super::*;

/// A tokenizer that is fine.
fn plain() -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    })
}

fn with(path: &str, value: Value) -> Vec<u8> {
    let mut file = plain();
    *file.pointer_mut(path).unwrap() = value;
    serde_json::to_vec(&file).unwrap()
}

/// The message for a file that the check must refuse.
fn refused(path: &str, value: Value) -> String {
    tokenizer(&with(path, value.clone())).expect_err(&value.to_string())
}

/// The file passes, and works.
fn fine(path: &str, value: Value) {
    let bytes = with(path, value);
    assert_eq!(tokenizer(&bytes), Ok(vec![]));
    trial(&bytes).unwrap();
}

#[test]
fn files_that_would_panic_are_refused() {
    assert!(refused("/pre_tokenizer", json!({"type": "FixedLength", "length": 0})).contains("length"));
    fine("/pre_tokenizer", json!({"type": "FixedLength", "length": 3}));

    let template =
        |single: Value| json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}});
    let (a, b) = (json!({"Sequence": {"id": "A", "type_id": 0}}), json!({"Sequence": {"id": "B", "type_id": 0}}));
    assert!(
        refused("/post_processor", template(json!([{"SpecialToken": {"id": "<s>", "type_id": 0}}, a]))).contains("<s>")
    );
    assert!(refused("/post_processor", template(json!([b]))).contains("sequence A"));
    assert!(refused("/post_processor", template(json!([a, a]))).contains("once"));
    fine("/post_processor", template(json!([a])));
    let two = json!({"type": "Sequence", "processors": [template(json!([a])), template(json!([a]))]});
    assert!(refused("/post_processor", two).contains("second"));
    let uneven = json!({"type": "TemplateProcessing", "single": [a], "pair": [], "special_tokens": {"x": {"id": "x", "ids": [1], "tokens": []}}});
    assert!(refused("/post_processor", uneven).contains("as many"));

    let prefix = |merges: Value| json!({"type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0, "b": 1, "##b": 2, "ab": 3}, "merges": merges});
    assert!(refused("/model", prefix(json!(["a b"]))).contains("##"));
    fine("/model", prefix(json!(["a ##b"])));
    // The merged text is longer than any token.
    assert!(
        refused("/model", json!({"type": "BPE", "vocab": {"aa": 0, "bb": 1}, "merges": [["aa", "bb"]]}))
            .contains("aabb")
    );

    assert!(refused("/decoder", json!({"type": "Strip", "content": "a", "start": 0, "stop": 2})).contains("stop"));
    for not_an_object in [json!(3), json!([]), json!("x")] {
        refused("/decoder", not_an_object);
    }
}

#[test]
fn character_maps_are_walked() {
    let map = |text: &str| json!({"type": "Precompiled", "precompiled_charsmap": text});
    for bad in ["", "AAAAAA==", "AAAA", "BAAAAAAAAAA=", "////fw==", "?", "BAAAAP////8="] {
        assert!(refused("/normalizer", map(bad)).contains("precompiled_charsmap"), "{bad}");
    }
    // One block of zeros: no node has children.
    let mut empty = 1024u32.to_le_bytes().to_vec();
    empty.resize(1028, 0);
    assert_eq!(charsmap::growth(&crate::base64::encode(&empty)), Ok(1));
    fine("/normalizer", map(&crate::base64::encode(&empty)));
    // `a` leads to the unit at the index; a unit is `label | has leaf | offset << 10`.
    let leaf = |index: u32, texts: &[u8]| {
        let mut units = vec![0u32; 512];
        units[usize::from(b'a')] = u32::from(b'a') | 1 << 8 | 256 << 10;
        units[usize::from(b'a') ^ 256] = index | 1 << 31;
        let mut map = 2048u32.to_le_bytes().to_vec();
        map.extend(units.iter().flat_map(|u| u.to_le_bytes()));
        map.extend(texts);
        crate::base64::encode(&map)
    };
    assert_eq!(charsmap::growth(&leaf(0, b"bcd\0")), Ok(3));
    fine("/normalizer", map(&leaf(0, b"bcd\0")));
    assert!(refused("/normalizer", map(&leaf(9, b"bcd\0"))).contains("outside the texts"));
    assert!(refused("/normalizer", map(&leaf(1, "é\0".as_bytes()))).contains("outside the texts"));
    assert!(refused("/normalizer", map(&leaf(0, &[b'x'; 1000]))).contains("a text can grow more than"));
}

#[test]
fn growth_is_bounded() {
    let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let bomb: Vec<Value> = (0..40).map(|_| replace("a", "aa")).collect();
    assert!(
        refused("/normalizer", json!({"type": "Sequence", "normalizers": bomb})).contains("a text can grow more than")
    );
    assert!(refused("/normalizer", replace("", "x")).contains("empty"));
    let many: Vec<Value> = (0..100).map(|_| replace("a", "b")).collect();
    assert!(refused("/normalizer", json!({"type": "Sequence", "normalizers": many})).contains("more than 64"));
    let decoders: Vec<Value> = (0..40).map(|_| replace("a", "aa")).collect();
    assert!(
        refused("/decoder", json!({"type": "Sequence", "decoders": decoders})).contains("a text can grow more than")
    );
    fine(
        "/normalizer",
        json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"), {"type": "NFKC"}]}),
    );
    let long = "x".repeat(5000);
    assert!(
        refused("/model", json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [long, -1.0]]}))
            .contains("vocab[1]")
    );
}

#[test]
fn expressions_that_explode_are_refused() {
    let split =
        |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    for bad in [r"(a+)+(?!b)", r"(?:(?:a*)*)(?=b)", r"((a|b)+c?){2,}\1", r"(x[a)]+)*+"] {
        assert!(refused("/pre_tokenizer", split(bad)).contains("exponential"), "{bad}");
    }
    // Expressions of GPT-2, Llama 3, DeepSeek; and one that automata take.
    for good in [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"\d{1,3}(?=(?:\d{3})*\b)",
        r"(?:[a-z]+ )+",
    ] {
        fine("/pre_tokenizer", split(good));
    }
}

#[test]
fn randomness_is_found_and_removed() {
    let bytes = with("/model/dropout", json!(0.5));
    assert_eq!(tokenizer(&bytes), Ok(vec!["dropout"]));
    let fixed = deterministic(&bytes, &["dropout"]).unwrap().unwrap();
    assert_eq!(tokenizer(&fixed), Ok(vec![]));
    assert_eq!(deterministic(&fixed, &[]).unwrap(), None);
    let limits = with("/truncation", json!({"max_length": 1, "strategy": "LongestFirst", "stride": 3}));
    assert!(deterministic(&limits, &[]).unwrap().is_some());
}

/// Every real tokenizer of the shared data passes.
#[test]
fn real_tokenizers_pass() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/tokenizers");
    let Ok(folders) = std::fs::read_dir(&dir) else {
        eprintln!("skipped: no shared tokenizers");
        return;
    };
    let mut checked = 0;
    for folder in folders.flatten().filter(|f| f.path().is_dir()) {
        for file in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with("tokenizer.json") || name.starts_with("bpe_bytelevel") {
                let bytes = std::fs::read(file.path()).unwrap();
                tokenizer(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
                trial(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
                checked += 1;
            }
        }
    }
    assert!(checked >= 3, "{checked}");
}
