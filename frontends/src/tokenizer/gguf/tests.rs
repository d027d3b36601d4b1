use super::*;
use llmcc_text::alphabet::character;
use tokenizers::Tokenizer;

/// A file with these settings of its vocabulary, and others.
fn file(settings: &[(&str, Value)], others: &[(&str, &str)]) -> Metadata {
    let settings = settings.iter().map(|(name, value)| (key(name), value.clone()));
    settings.chain(others.iter().map(|(key, text)| ((*key).to_string(), Value::Text((*text).into())))).collect()
}

fn texts(all: &[&str]) -> Value {
    Value::List(all.iter().map(|text| Value::Text((*text).into())).collect())
}

fn numbers(all: &[i64]) -> Value {
    let one = |n: &i64| u64::try_from(*n).map_or(Value::Signed(*n), Value::Unsigned);
    Value::List(all.iter().map(one).collect())
}

fn said(text: &str) -> Value {
    Value::Text(text.into())
}

/// Names of the tokens of a text.
fn cut(metadata: &Metadata, text: &str) -> Vec<String> {
    let json = tokenizer_json(metadata).unwrap().unwrap();
    let tokenizer: Tokenizer = json.to_string().parse().unwrap();
    let ids = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    ids.into_iter().map(|id| tokenizer.id_to_token(id).unwrap()).collect()
}

/// Tokens of all bytes and others, with the types of these.
fn bytes(others: &[(&'static str, i64)]) -> (Vec<String>, Vec<i64>) {
    let mut tokens: Vec<String> = (0..=255).map(|b| character(b).to_string()).collect();
    tokens.extend(others.iter().map(|(text, _)| (*text).to_string()));
    (tokens, std::iter::repeat_n(1, 256).chain(others.iter().map(|(_, kind)| *kind)).collect())
}

/// A vocabulary of bytes and others.
fn byte_level(others: &[(&'static str, i64)], settings: &[(&str, Value)]) -> Metadata {
    let (tokens, types) = bytes(others);
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let own = [
        ("model", said("gpt2")),
        ("tokens", texts(&tokens)),
        ("token_type", numbers(&types)),
        ("merges", texts(&["h i"])),
    ];
    file(&[&own[..], settings].concat(), &[])
}

/// A vocabulary of SentencePiece with all bytes and a few pieces, then others.
fn pieces(others: &[(&str, i64)], types: bool, settings: &[(&str, Value)], about: &[(&str, &str)]) -> Metadata {
    let hex: Vec<String> = (0..=255).map(|b| format!("<0x{b:02X}>")).collect();
    let words = ["▁", "a", "b", "h", "i", "▁a", "hi", "▁hi", "\n"];
    let tokens = ["<unk>", "<s>", "</s>"].into_iter().chain(hex.iter().map(String::as_str)).chain(words);
    let tokens: Vec<&str> = tokens.chain(others.iter().map(|(text, _)| *text)).collect();
    let kinds = [2, 3, 3].into_iter().chain([6; 256]).chain([1; 9]).chain(others.iter().map(|(_, kind)| *kind));
    let scores = (0..tokens.len()).map(|i| Value::Float(i as f64 - 300.0)).collect();
    let mut own = vec![("model", said("llama")), ("tokens", texts(&tokens)), ("scores", Value::List(scores))];
    if types {
        own.push(("token_type", numbers(&kinds.collect::<Vec<_>>())));
    }
    file(&[&own[..], settings].concat(), about)
}

/// Whether texts begin with BOS says the pre-tokenizer's name, where the file does not.
#[test]
fn begins_and_ends_of_texts() {
    let around = |metadata: &Metadata| {
        let settings = settings(metadata);
        (settings["add_bos_token"].as_bool(), settings["add_eos_token"].as_bool())
    };
    let flags = |pre: &str, said_bos: Option<bool>| {
        let bos = said_bos.map(|said| ("add_bos_token", Value::Bool(said)));
        let all: Vec<_> = [("pre", said(pre))].into_iter().chain(bos).collect();
        around(&byte_level(&[], &all))
    };
    let with_bos = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon";
    for pre in with_bos.split_whitespace() {
        assert_eq!(flags(pre, None), (Some(true), Some(false)), "{pre}");
        assert_eq!(flags(pre, Some(false)), (Some(false), Some(false)), "{pre}");
    }
    for pre in ["gpt-2", "qwen2", "default", "minicpm5", "gpt-4o"] {
        assert_eq!(flags(pre, None), (Some(false), Some(false)), "{pre}");
        assert_eq!(flags(pre, Some(true)), (Some(true), Some(false)), "{pre}");
    }
    assert_eq!(flags("granite-embed-multi-311m", Some(false)), (Some(true), Some(false)));
    assert_eq!(around(&pieces(&[], true, &[], &[])), (Some(true), Some(false)));
    let of = |kind: &str| around(&file(&[("model", said(kind)), ("tokens", texts(&["a", "b"]))], &[]));
    assert_eq!(of("t5"), (Some(false), Some(true)));
    assert_eq!(of("bert"), (None, None));
    assert_eq!(of("rwkv"), (None, None));
    assert_eq!(of("gemma4"), (Some(true), Some(false)));
}

#[test]
fn usual_ids_of_special_tokens() {
    let tokens = |metadata: &Metadata| {
        let settings = settings(metadata);
        ["bos_token", "eos_token", "unk_token", "pad_token"].map(|name| settings[name].as_str().map(String::from))
    };
    let some = |all: [&str; 4]| all.map(|text| (!text.is_empty()).then(|| text.to_string()));
    assert_eq!(tokens(&pieces(&[], true, &[], &[])), some(["<s>", "</s>", "<unk>", ""]));
    // Those that are of no token are none.
    let id = |n: u64| [("bos_token_id", Value::Unsigned(n)), ("padding_token_id", Value::Unsigned(n))];
    assert_eq!(tokens(&pieces(&[], true, &id(1 << 40), &[])), some(["<s>", "</s>", "<unk>", ""]));
    assert_eq!(tokens(&pieces(&[], true, &id(2), &[])), some(["</s>", "</s>", "<unk>", "</s>"]));
    let t5 = file(&[("model", said("t5")), ("tokens", texts(&["<pad>", "</s>", "<unk>", "▁a"]))], &[]);
    assert_eq!(tokens(&t5), some(["", "</s>", "<unk>", "<pad>"]));
    assert_eq!(tokens(&byte_level(&[("<|endoftext|>", 3)], &[])), some(["", "", "", ""]));
}

/// Tokens that end a text are known by their texts, with the exceptions of gpt-oss, Solar Open and
/// Gemma 4.
#[test]
fn ends_by_their_texts() {
    let ends = |others: &[(&'static str, i64)], settings: &[(&str, Value)]| {
        let metadata = byte_level(others, settings);
        let v = Vocabulary::read(&metadata).unwrap().unwrap();
        let generation = generation(&metadata);
        let ids = generation["eos_token_id"].as_array().unwrap();
        let all: Vec<String> = ids.iter().map(|id| v.tokens[id.as_u64().unwrap() as usize].to_string()).collect();
        all.join(" ")
    };
    let eos = |n: u64| [("eos_token_id", Value::Unsigned(n))];
    assert_eq!(
        ends(&[("</x>", 3), ("<|eot_id|>", 3), ("<|eom_id|>", 3), ("<|x|>", 3)], &eos(256)),
        "</x> <|eot_id|> <|eom_id|>"
    );
    assert_eq!(ends(&[("<|endoftext|>", 3), ("<|end|>", 1), ("<|user|>", 3)], &eos(256)), "<|endoftext|> <|end|>");
    let harmony = [("<|return|>", 3), ("<|end|>", 3), ("<|call|>", 3), ("<|start|>", 3)];
    assert_eq!(ends(&harmony, &eos(256)), "<|return|> <|call|>");
    assert_eq!(ends(&[("<|flush|>", 3), ("<|end|>", 3), ("<|calls|>", 3)], &eos(256)), "<|flush|> <|calls|>");
    assert_eq!(ends(&[("<turn|>", 3), ("</s>", 1), ("<|tool_response>", 3)], &[]), "<turn|> <|tool_response>");
    assert_eq!(
        ends(&[("[PAD]", 3), ("<|file_sep|>", 3), ("<|repo_name|>", 3)], &[]),
        "[PAD] <|file_sep|> <|repo_name|>"
    );
    let said = [("eot_token_id", Value::Unsigned(257)), ("fim_pad_token_id", Value::Unsigned(258))];
    assert_eq!(ends(&[("x", 3), ("y", 3), ("z", 3), ("[PAD]", 3)], &said), "y z");
    // They are cut out of texts whatever type they have; parts of messages that are written are no special ones.
    let json = tokenizer_json(&byte_level(&[("<|im_end|>", 1), ("<|channel|>", 3)], &[])).unwrap().unwrap();
    let added = json["added_tokens"].as_array().unwrap();
    let flags: Vec<_> = added.iter().map(|t| (t["content"].as_str().unwrap(), t["special"] == true)).collect();
    assert_eq!(flags, [("<|im_end|>", true), ("<|channel|>", false)]);
}

#[test]
fn tokens_that_take_white_space() {
    let turn = "<|user|>\n hi<|end|>\n";
    let of = |name: &str| {
        let metadata = pieces(&[("<|user|>", 3), ("<|end|>", 4)], true, &[], &[("general.name", name)]);
        cut(&metadata, turn).join(" ")
    };
    assert_eq!(of("Phi-3-mini-4k-instruct"), "<|user|> ▁hi <|end|>");
    assert_eq!(of("Phi3 medium"), "<|user|> ▁hi <|end|>");
    assert_eq!(of("Other"), "<|user|> ▁ \n ▁hi <|end|> ▁ \n");
    let strips = |pre: &str, arch: &str, name: &str| {
        let metadata = byte_level(&[("<mask>", 3), ("[MASK]", 3)], &[("pre", said(pre))]);
        let about = [("general.architecture", arch), ("general.name", name)];
        let metadata = metadata.into_iter().chain(file(&[], &about)).collect();
        let json = tokenizer_json(&metadata).unwrap().unwrap();
        [0, 1].map(|i| json["added_tokens"][i]["lstrip"] == true)
    };
    assert_eq!(strips("jina-v2-de", "jina-bert-v2", "x"), [true, false]);
    assert_eq!(strips("gpt-2", "jina-bert-v3", "x"), [true, false]);
    assert_eq!(strips("gpt-2", "nomic-bert-moe", "x"), [true, false]);
    assert_eq!(strips("gpt-2", "modern-bert", "Modern-BERT base"), [false, true]);
    assert_eq!(strips("gpt-2", "llama", "x"), [false, false]);
}

/// Without types bytes are found by their texts; types that nobody knows are words; empty tokens are none.
#[test]
fn types_of_tokens() {
    for typed in [true, false] {
        let metadata = pieces(&[], typed, &[], &[]);
        assert_eq!(cut(&metadata, "ab\té"), ["▁a", "b", "<0x09>", "<0xC3>", "<0xA9>"], "{typed}");
    }
    for kind in [0, 7, -1] {
        assert_eq!(cut(&pieces(&[("▁hia", kind)], true, &[], &[]), "hia"), ["▁hia"], "{kind}");
    }
    let empty = byte_level(&[("", 1), ("", 1), ("hi", 1)], &[]);
    assert_eq!(cut(&empty, "hi"), ["hi"]);
    let more = [("token_type", numbers(&[1; 300])), ("scores", numbers(&[0; 300]))];
    assert!(tokenizer_json(&pieces(&[], false, &more, &[])).is_ok());
    for kind in ["none", "no_vocab"] {
        assert_eq!(tokenizer_json(&file(&[("model", said(kind))], &[])), Ok(None));
    }
}

/// Lists that were cut off are refused, by their keys.
#[test]
fn lists_that_are_too_short() {
    let error = |metadata: &Metadata| tokenizer_json(metadata).unwrap_err();
    let scores = |list: Value| error(&pieces(&[], true, &[("scores", list)], &[]));
    let cut_off = "`tokenizer.ggml.scores` has 134 numbers for 268 tokens";
    assert_eq!(scores(numbers(&[0; 134])), cut_off);
    assert_eq!(scores(texts(&["a"; 268])), "`tokenizer.ggml.scores` is no list of numbers");
    assert_eq!(
        scores(Value::List(vec![Value::Float(f64::NAN); 268])),
        "`tokenizer.ggml.scores` has NaN for token 0, no finite number"
    );
    let types = error(&pieces(&[], false, &[("token_type", numbers(&[1; 100]))], &[]));
    assert_eq!(types, "`tokenizer.ggml.token_type` has 100 numbers for 268 tokens");
    let words = ["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh", "ii"].map(|text| (text, 1));
    let merges: Vec<String> = words.iter().map(|(text, _)| format!("{} {}", &text[..1], &text[1..])).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    let of = |merges: &[&str]| tokenizer_json(&byte_level(&words, &[("merges", texts(merges))]));
    assert!(of(&merges).is_ok() && of(&merges[..2]).is_ok());
    assert_eq!(
        of(&merges[..1]).unwrap_err(),
        "the 1 pairs of `tokenizer.ggml.merges` make none of 8 of the 9 tokens of several characters"
    );
    let mut missing = byte_level(&words, &[]);
    missing.remove("tokenizer.ggml.merges");
    assert_eq!(error(&missing), "`tokenizer.ggml.merges` is missing, without which no text makes 9 of the tokens");
}

/// In mmBERT, lines begin with a space, and each space begins a word.
#[test]
fn words_of_lines() {
    let tokens = ["<unk>", "a", "b", "\u{2581}", "\u{2581}a", "a\u{2581}", "\n", "\n\n"];
    let settings = [
        ("model", said("gpt2")),
        ("pre", said("mmbert")),
        ("tokens", texts(&tokens)),
        ("merges", texts(&["\u{2581} a", "a \u{2581}", "\n \n"])),
    ];
    let metadata = file(&settings, &[]);
    assert_eq!(cut(&metadata, "a a\n\nba"), ["\u{2581}a", "\u{2581}a", "\n\n", "\u{2581}", "b", "a"]);
    assert_eq!(cut(&metadata, " ab"), ["\u{2581}a", "b"]);
}

/// Files say how texts are cleaned for WordPiece; letters lose their accents as they are made small.
#[test]
fn words_of_bert() {
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hi", "▁Hi", "▁cafe", "▁café"];
    let of = |settings: &[(&str, bool)]| {
        let flags = settings.iter().map(|(name, on)| (*name, Value::Bool(*on)));
        let own =
            [("model", said("bert")), ("tokens", texts(&tokens)), ("token_type", numbers(&[3, 3, 3, 3, 1, 1, 1, 1]))];
        cut(&file(&own.into_iter().chain(flags).collect::<Vec<_>>(), &[]), "Hi café").join(" ")
    };
    let (lower, strip) = ("normalizer.lowercase", "normalizer.strip_accents");
    assert_eq!(of(&[]), "hi cafe");
    assert_eq!(of(&[(lower, true), (strip, false)]), "hi café");
    assert_eq!(of(&[(lower, false)]), "Hi café");
    assert_eq!(of(&[(lower, false), (strip, true)]), "Hi cafe");
}

/// Settings of sampling stand where `generation_config.json` has them.
#[test]
fn settings_of_sampling() {
    let mut metadata = byte_level(&[], &[("suppress_tokens", numbers(&[3, -1, 999]))]);
    for (name, value) in [("temp", Value::Float(0.5)), ("top_k", Value::Unsigned(20)), ("min_p", said("x"))] {
        metadata.insert(format!("general.sampling.{name}"), value);
    }
    let all = generation(&metadata);
    assert_eq!(all, json!({ "eos_token_id": [], "suppress_tokens": [3], "temperature": 0.5, "top_k": 20 }));
}

#[test]
fn what_is_missing_is_said() {
    assert_eq!(warnings(&byte_level(&[], &[("pre", said("gpt-2"))])), Vec::<String>::new());
    assert!(warnings(&byte_level(&[], &[]))[0].starts_with("`tokenizer.ggml.pre` is missing"));
    let mut metadata = pieces(&[], true, &[], &[]);
    assert_eq!(warnings(&metadata), Vec::<String>::new());
    metadata.remove("tokenizer.ggml.scores");
    assert!(warnings(&metadata)[0].starts_with("`tokenizer.ggml.scores` is missing"));
    assert!(tokenizer_json(&metadata).is_ok());
}
