//! Vocabularies of checkpoints without a `tokenizer.json`: SentencePiece models, `vocab.json` with
//! `merges.txt`, `vocab.txt`, files of tiktoken and of Mistral. `tokenizer_class` in
//! `tokenizer_config.json`, or the kind of model, tells the tokenizer; the result is the same as
//! Transformers' for such a folder.

use super::byte_level::ByteLevel;
use super::classes::{self, BERTS, Class};
use super::cuts::{Cut, GPT2, LLAMA3, QWEN2, named};
use super::outside::{Files, Named, Wrong};
use super::post::{self, Around};
use super::sentencepiece::{self, Model};
use super::sentencepiece_classes::{self as spm, Of};
use super::tekken;
use super::tiktoken;
use super::token::Token;
use super::word_piece::WordPiece;
use serde_json::{Map, Value, json};

/// GPT-NeoX composes characters first.
const GPT_NEOX: Cut = Cut { composed: true, ..GPT2 };

/// Classes of tokenizers over bytes, and their tokens around texts.
const BYTE_LEVEL: &[(&[&str], &Cut, Option<&Around>)] = &[
    (&["GPT2Tokenizer", "CodeGenTokenizer"], &GPT2, None),
    (&["GPTNeoXTokenizer"], &GPT_NEOX, None),
    (&["RobertaTokenizer", "LongformerTokenizer", "BartTokenizer", "DebertaTokenizer"], &GPT2, Some(&post::ROBERTA)),
    (&["Qwen2Tokenizer"], &QWEN2, None),
];

/// The other class of WordPiece beside BERT's.
const MPNET: &str = "MPNetTokenizer";

/// The settings beside a vocabulary.
pub(super) struct Settings<'a> {
    /// The files that name tokens.
    pub files: Files<'a>,
    /// The name of the class.
    pub name: Option<&'a str>,
    /// The class.
    pub class: &'static Class,
    /// `model_type` of `config.json`.
    pub model: &'a str,
}

/// A `tokenizer.json` of another kind of file, still without the tokens that other files name.
pub(super) struct Made {
    pub json: Value,
    /// Tokens that the other files name.
    pub named: Named,
    pub class: &'static Class,
    /// The tokens around texts, unless the JSON gives them.
    pub around: Option<&'static Around>,
    /// Texts begin with BOS unless the settings say no.
    pub begins: bool,
}

/// The fault: of the vocabulary, or of a file beside it.
pub(super) enum Bad {
    Here(String),
    Beside(Wrong),
}

impl From<String> for Bad {
    fn from(what: String) -> Bad {
        Bad::Here(what)
    }
}

impl From<Wrong> for Bad {
    fn from(wrong: Wrong) -> Bad {
        Bad::Beside(wrong)
    }
}

impl<'a> Settings<'a> {
    /// The settings of a folder.
    pub fn new(files: Files<'a>, config: &'a Value) -> Settings<'a> {
        let name = classes::name(files.config, config);
        let model = config["model_type"].as_str().unwrap_or_default();
        Settings { files, name, class: classes::named(name), model }
    }

    fn named(&self) -> Result<Named, Wrong> {
        Named::read(&self.files, &[], self.class, None)
    }

    /// A `tokenizer.json` with the tokens that the files beside it name.
    pub fn made(&self, json: Value) -> Result<Made, Bad> {
        Ok(Made { json, named: self.named()?, class: self.class, around: None, begins: false })
    }
}

/// A SentencePiece model.
///
/// # Errors
/// The malformed or unknown part.
pub(super) fn pieces(file: &[u8], s: &Settings<'_>) -> Result<Made, Bad> {
    let config = s.files.config;
    // These are settings of Llama's class alone.
    let of_llama = ["legacy", "add_prefix_space"].iter().any(|key| config[*key].is_boolean());
    let name = s.name.or(of_llama.then_some("LlamaTokenizer"));
    let mut model = Model::read(file)?;
    let Some(pieces) = spm::named(name)? else {
        sentencepiece::rename(&mut model, &config["added_tokens_decoder"]);
        return s.made(sentencepiece::convert(&model)?);
    };
    let named = Named::read(&s.files, &[], classes::named(name), Some(spm::fixed(&model, name, config)))?;
    let json = pieces.json(&model, &Of { config, named: &named })?;
    let class = classes::named(name);
    Ok(Made { json, named, class, around: pieces.around, begins: pieces.begins })
}

/// `vocab.json` and `merges.txt`.
///
/// # Errors
/// The malformed or unknown part.
pub(super) fn byte_level(vocab: &[u8], merges: &[u8], s: &Settings<'_>) -> Result<Made, Bad> {
    let vocab: Map<String, Value> = serde_json::from_slice(vocab).map_err(|e| format!("no vocabulary: {e}"))?;
    let class = s.name.unwrap_or("GPT2Tokenizer");
    let (_, cut, around) = BYTE_LEVEL.iter().find(|(classes, ..)| classes.contains(&class)).ok_or_else(|| {
        let known: Vec<&str> = BYTE_LEVEL.iter().flat_map(|(classes, ..)| *classes).copied().collect();
        format!("`tokenizer_class` is {class:?}; supported with vocab.json are {}", known.join(", "))
    })?;
    let merges = std::str::from_utf8(merges).map_err(|_| "merges.txt is not UTF-8".to_string())?;
    let lines =
        merges.lines().enumerate().filter(|(i, line)| !(line.is_empty() || *i == 0 && line.starts_with("#version")));
    let pair = |(i, line): (usize, &str)| match line.split_once(' ') {
        Some((left, right)) => Ok(json!([left, right])),
        None => Err(format!("line {} of merges.txt is not a pair", i + 1)),
    };
    let merges = lines.map(pair).collect::<Result<Vec<_>, _>>()?;
    let prefix_space = s.files.config["add_prefix_space"].as_bool().unwrap_or(false);
    if prefix_space && cut.patterns != GPT2.patterns {
        return Err(format!("`add_prefix_space` is true, which {class} does not have").into());
    }
    let json = ByteLevel { vocab, merges, added: vec![], cut, prefix_space, around: None }.json();
    Ok(Made { around: *around, ..s.made(json)? })
}

/// `vocab.txt`: a token per line.
///
/// # Errors
/// The malformed or unknown part.
pub(super) fn word_piece(vocab: &[u8], s: &Settings<'_>) -> Result<Made, Bad> {
    let text = std::str::from_utf8(vocab).map_err(|_| "no UTF-8".to_string())?;
    let class = s.name.unwrap_or("BertTokenizer");
    if !BERTS.contains(&class) && class != MPNET {
        let supported = BERTS.join(", ");
        let what = format!("`tokenizer_class` is {class:?}; supported with vocab.txt are {supported}, {MPNET}");
        return Err(what.into());
    }
    // (A folder that names no class has BERT's.)
    let of = classes::named(Some(class));
    let named = Named::read(&s.files, &[], of, None)?;
    let said = |role: &str| match named.role(role) {
        Some(text) => Ok(text.to_string()),
        None => Err(format!("the settings say that there is no `{role}`, which {class} needs")),
    };
    let (first, last, unknown) = (said("cls_token")?, said("sep_token")?, said("unk_token")?);
    let config = s.files.config;
    let flag = |name: &str, default: bool| config[name].as_bool().unwrap_or(default);
    let json = WordPiece {
        tokens: text.lines().map(|line| line.trim_end_matches('\r').to_string()).collect(),
        unknown: &unknown,
        first: &first,
        last: &last,
        // Their roles name them.
        others: vec![],
        lowercase: flag("do_lower_case", true),
        strip_accents: config["strip_accents"].as_bool(),
        chinese: flag("tokenize_chinese_chars", true),
        twice: class == MPNET,
    }
    .json()?;
    Ok(Made { json, named, class: of, around: None, begins: false })
}

/// Number of tokens that Kimi's files have behind their vocabulary's.
const KIMI_RESERVED: usize = 256;

/// Whether a file is one of tiktoken: then its `tokenizer.json`. Texts are cut as by cl100k_base, with
/// words that are tokens whole (Llama 3), or as Kimi's are. Ids behind the vocabulary that have no token
/// are reserved.
///
/// # Errors
/// The malformed part.
pub(super) fn tiktoken(file: &[u8], s: &Settings<'_>) -> Option<Result<Made, Bad>> {
    let tokens = tiktoken::ranks(file)?;
    let kimi = s.model.starts_with("kimi") || s.name == Some("TikTokenTokenizer");
    let make = || {
        let named_here = s.named()?;
        let base = tokens.len();
        let mut added = named_here.behind(base)?;
        if kimi {
            added.resize_with(added.len().max(KIMI_RESERVED), || None);
        }
        let reserved = |i: usize| Token::plain(&format!("<|reserved_token_{}|>", base + i));
        let mut added: Vec<Token> =
            added.into_iter().enumerate().map(|(i, t)| t.unwrap_or_else(|| reserved(i))).collect();
        if added.is_empty() && base == 128_000 {
            added = tiktoken::llama3_specials().iter().map(|text| Token::plain(text)).collect();
        }
        let added = added.iter().enumerate().map(|(i, token)| token.entry((base + i) as u64)).collect();
        let cut = if kimi { named("kimi-k2").unwrap_or(&LLAMA3) } else { &LLAMA3 };
        let json = tiktoken::to_tokenizer_json(&tokens, added, cut)?;
        Ok(Made { json, named: named_here, class: s.class, around: None, begins: false })
    };
    Some(make())
}

/// `tekken.json` of Mistral.
///
/// # Errors
/// The malformed part.
pub(super) fn tekken(file: &[u8], s: &Settings<'_>) -> Result<Made, Bad> {
    let json = tekken::to_tokenizer_json(file)?;
    let mut named = s.named()?;
    for (role, text) in tekken::ROLES {
        named.default_role(role, text);
    }
    Ok(Made { json, named, class: s.class, around: None, begins: true })
}
