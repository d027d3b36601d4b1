//! The tokens of a GGUF file with their types, and the tokens that have a role: from the file, else
//! llama.cpp's defaults (`llama-vocab.cpp`).

use crate::checkpoint::gguf::{Metadata, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Types of tokens, as SentencePiece numbers them.
pub(super) const NORMAL: u64 = 1;
pub(super) const UNKNOWN: u64 = 2;
pub(super) const CONTROL: u64 = 3;
pub(super) const USER_DEFINED: u64 = 4;
pub(super) const UNUSED: u64 = 5;
pub(super) const BYTE: u64 = 6;

/// Texts of tokens that end a model's text, whatever a file says of them.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// A token of code infilling: the ends of its keys, its texts, and whether it ends a model's text.
type Filling = (&'static [&'static str], &'static [&'static str], bool);

/// Tokens of code that is filled in.
const FILLING: &[Filling] = &[
    (
        &["fim_pre", "prefix"],
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        &["fim_suf", "suffix"],
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        &["fim_mid", "middle"],
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    (&["fim_pad"], &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (&["fim_rep"], &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    (&["fim_sep"], &["<|file_sep|>"], true),
];

/// Parts of gpt-oss's messages, which are written out.
const WRITTEN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// The token that ends PLaMo's texts.
const PLAMO: &str = "<|plamo:eos|>";

/// The key of a setting of the vocabulary.
pub(super) fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

/// A setting that is a text.
pub(super) fn text<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a str> {
    metadata.get(&key(name)).and_then(Value::text)
}

/// A setting that is a truth value.
pub(super) fn flag(metadata: &Metadata, name: &str) -> Option<bool> {
    metadata.get(&key(name)).and_then(Value::flag)
}

/// A list that may be missing.
///
/// # Errors
/// It is there, and no list.
pub(super) fn list<'a>(metadata: &'a Metadata, name: &str) -> Result<Option<&'a [Value]>, String> {
    let Some(value) = metadata.get(&key(name)) else { return Ok(None) };
    value.list().map(Some).ok_or_else(|| format!("`{}` is no list", key(name)))
}

/// A vocabulary.
pub(super) struct Vocabulary<'a> {
    pub metadata: &'a Metadata,
    /// `tokenizer.ggml.model`.
    pub kind: &'a str,
    /// By id; none is empty.
    pub tokens: Vec<Cow<'a, str>>,
    /// Type of each token.
    pub types: Vec<u64>,
    /// Whether the file has types of tokens.
    pub typed: bool,
    /// Ids of the tokens that end a model's text.
    pub ends: BTreeSet<usize>,
}

impl<'a> Vocabulary<'a> {
    /// The vocabulary of a file; `None` if it has none.
    ///
    /// # Errors
    /// Says which key is malformed.
    pub fn read(metadata: &'a Metadata) -> Result<Option<Vocabulary<'a>>, String> {
        let kind = text(metadata, "model").filter(|kind| !["none", "no_vocab"].contains(kind));
        let Some(kind) = kind else { return Ok(None) };
        let given = list(metadata, "tokens")?.unwrap_or_default();
        let token = |(i, v): (usize, &'a Value)| match v.text()? {
            "" => Some(Cow::Owned(format!("[EMPTY_{i}]"))),
            text => Some(Cow::Borrowed(text)),
        };
        let tokens: Option<Vec<Cow<str>>> = given.iter().enumerate().map(token).collect();
        let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) else {
            return Err(format!("`{}` is missing or no list of texts", key("tokens")));
        };
        let (types, typed) = types(metadata, tokens.len())?;
        let mut vocabulary = Vocabulary { metadata, kind, tokens, types, typed, ends: BTreeSet::new() };
        vocabulary.find_special();
        Ok(Some(vocabulary))
    }

    /// `tokenizer.ggml.pre`, or llama.cpp's default.
    pub fn pre(&self) -> &'a str {
        match self.kind {
            "gemma4" => "gemma4",
            _ => text(self.metadata, "pre").filter(|pre| !pre.is_empty()).unwrap_or("default"),
        }
    }

    /// The id of the token of a role, as a file says it; failing that, the one that llama.cpp takes for vocabularies
    /// of this kind.
    pub fn id(&self, role: &str) -> Option<usize> {
        self.said(role).or_else(|| self.usual(role)).filter(|id| *id < self.tokens.len())
    }

    /// The token of a role.
    pub fn role(&self, role: &str) -> Option<&str> {
        self.tokens.get(self.id(role)?).map(AsRef::as_ref)
    }

    /// The id of the token of a role that the file says, where there is such a token.
    pub fn said(&self, role: &str) -> Option<usize> {
        let id = self.metadata.get(&key(&format!("{role}_token_id")))?.unsigned()?;
        usize::try_from(id).ok().filter(|id| *id < self.tokens.len())
    }

    /// The id of the token of a role where nothing is said.
    fn usual(&self, role: &str) -> Option<usize> {
        match (self.kind, role) {
            ("llama", "unknown") | ("t5" | "bert", "padding") => Some(0),
            ("llama", "bos") | ("t5", "eos") => Some(1),
            ("llama", "eos") | ("t5", "unknown") => Some(2),
            ("bert", "unknown") => Some(100),
            ("bert", "bos") => Some(101),
            ("bert", "seperator") => Some(102),
            ("bert", "mask") => Some(103),
            ("gpt2" | "whitespace", "bos") if ["chatglm-bpe", "glm4", "glm5"].contains(&self.pre()) => None,
            // Falcon's, which is a word of other vocabularies.
            ("gpt2" | "whitespace", "bos" | "eos") => Some(11).filter(|id| self.types.get(*id) == Some(&CONTROL)),
            _ => None,
        }
    }

    /// Whether a text begins with BOS and ends with EOS; `None` where the tokens around texts do
    /// not depend on it.
    pub fn around(&self) -> Option<[bool; 2]> {
        let said = ["add_bos_token", "add_eos_token"].map(|name| flag(self.metadata, name));
        let usual = match self.kind {
            "llama" => [true, false],
            "t5" => [false, true],
            "bert" | "rwkv" => return None,
            // Whatever is said, as llama.cpp does: files of Gemma 4 say no.
            _ if ALWAYS_BOS.contains(&self.pre()) => return Some([true, said[1].unwrap_or(false)]),
            _ => [BEGIN_WITH_BOS.contains(&self.pre()), false],
        };
        Some([said[0].unwrap_or(usual[0]), said[1].unwrap_or(usual[1])])
    }

    /// Gives the tokens that are known by their texts their types, and finds the ones that end a
    /// model's text.
    fn find_special(&mut self) {
        let filling = FILLING.iter().flat_map(|(_, texts, _)| *texts);
        let known: BTreeSet<&str> = filling.chain(ENDS).chain(WRITTEN).chain(&[PLAMO]).copied().collect();
        let id = |(i, token): (usize, &Cow<str>)| Some((*known.get(token.as_ref())?, i));
        let ids: BTreeMap<&str, usize> = self.tokens.iter().enumerate().filter_map(id).collect();
        let find = |text: &&str| ids.get(*text).copied();
        for (roles, texts, end) in FILLING {
            let said = roles.iter().rev().find_map(|role| self.said(role));
            let found = if said.is_none() { texts.iter().filter_map(find).min() } else { None };
            found.iter().for_each(|id| self.types[*id] = CONTROL);
            self.ends.extend(said.or(found).filter(|_| *end));
        }
        for id in ENDS.iter().filter_map(find) {
            self.types[id] = CONTROL;
            self.ends.insert(id);
        }
        WRITTEN.iter().filter_map(find).for_each(|id| self.types[id] = USER_DEFINED);
        let of_roles = [self.id("eos"), self.id("eot"), self.id("eom")];
        self.ends.extend(of_roles.into_iter().flatten());
        // It ends one of several messages of an answer there (gpt-oss, Solar Open).
        let any = |texts: &[&str]| texts.iter().any(|text| find(text).is_some());
        let several = any(&["<|call|>", "<|calls|>"]) && any(&["<|return|>", "<|flush|>"]);
        if let Some(end) = find(&"<|end|>").filter(|_| several) {
            self.ends.remove(&end);
            self.types[end] = USER_DEFINED;
        }
        // A word there (Gemma 4, PLaMo).
        let plamo = find(&PLAMO).filter(|id| self.ends.contains(id));
        if let Some(end) = find(&"</s>").filter(|_| plamo.is_some() || find(&"<|tool_response>").is_some()) {
            self.ends.remove(&end);
            self.types[end] = NORMAL;
        }
    }
}

/// Names of `tokenizer.ggml.pre` whose texts begin with BOS.
const BEGIN_WITH_BOS: &[&str] = &[
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "tekken",
    "chameleon",
];

/// Names whose texts begin with BOS whatever the file says.
const ALWAYS_BOS: &[&str] = &["gemma4", "granite-embed-multi-311m"];

/// The type of each token, and whether the file has them. Those that nobody knows are words.
fn types(metadata: &Metadata, tokens: usize) -> Result<(Vec<u64>, bool), String> {
    let Some(given) = list(metadata, "token_type")? else { return Ok((vec![NORMAL; tokens], false)) };
    if given.len() < tokens {
        return Err(format!("`{}` has {} numbers for {tokens} tokens", key("token_type"), given.len()));
    }
    let known = |v: &Value| v.number().map(|_| v.unsigned().filter(|n| (NORMAL..=BYTE).contains(n)).unwrap_or(NORMAL));
    let types: Option<Vec<u64>> = given.iter().take(tokens).map(known).collect();
    types.map(|types| (types, true)).ok_or_else(|| format!("`{}` is no list of numbers", key("token_type")))
}
