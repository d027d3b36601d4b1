//! Classes of tokenizers in Transformers: their special tokens where a folder names none, and their
//! changes to named ones.

use super::token::{Flags, Token};
use serde_json::Value;

/// A role of a special token, and its text.
type Special = (&'static str, &'static str);

/// A class's changes to tokens that stand beside a vocabulary.
#[derive(Debug)]
pub(super) struct Class {
    /// Its names, without the ending of the fast ones.
    pub names: &'static [&'static str],
    /// Default special tokens, in the order of [`ROLES`]; then tokens of other roles.
    pub specials: &'static [Special],
    /// Further special tokens where none are named.
    pub extra: &'static [&'static str],
    /// The mask token takes the spaces before it.
    pub spaced: bool,
    /// All special tokens are added once more at the end.
    pub again: Again,
    /// It has the tokenizer of a `tokenizer.json` as it is there.
    pub as_it_is: bool,
}

/// How special tokens are added once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// They are not.
    Never,
    /// As plain texts, whatever their flags are.
    Plain,
    /// With their flags, as special ones.
    Flagged,
}

/// Roles of special tokens, in the order in which they are added.
pub(super) const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

const FAIRSEQ: &[Special] = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];
/// Classes of BERT's tokenizer.
pub(super) const BERTS: &[&str] = &[
    "BertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "MobileBertTokenizer",
    "ConvBertTokenizer",
    "SqueezeBertTokenizer",
];

const BERT: &[Special] = &[
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];
const ENDED: &[Special] =
    &[("bos_token", "<|endoftext|>"), ("eos_token", "<|endoftext|>"), ("unk_token", "<|endoftext|>")];
const PADDED: &[Special] = &[
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
    ("pad_token", "<|padding|>"),
];
const QWEN: &[Special] =
    &[("eos_token", "<|endoftext|>"), ("unk_token", "<|endoftext|>"), ("pad_token", "<|endoftext|>")];
const LLAMA: &[Special] = &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")];
const BRACKETS: &[Special] = &[
    ("bos_token", "[CLS]"),
    ("eos_token", "[SEP]"),
    ("unk_token", "<unk>"),
    ("sep_token", "[SEP]"),
    ("pad_token", "<pad>"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];
const DEBERTA: &[Special] = &[
    ("bos_token", "[CLS]"),
    ("eos_token", "[SEP]"),
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];

/// With the spaces before it.
const SPACED: Flags = Flags { lstrip: true, ..Flags::SPECIAL };

const fn class(names: &'static [&'static str], specials: &'static [Special]) -> Class {
    Class { names, specials, extra: &[], spaced: false, again: Again::Never, as_it_is: false }
}

/// Any class that is not known: it has the tokens that its files name.
pub(super) const ANY: Class = Class { as_it_is: true, ..class(&[], &[]) };

const CLASSES: &[Class] = &[
    class(&["LlamaTokenizer"], LLAMA),
    class(
        &["CodeLlamaTokenizer"],
        &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("prefix_token", "▁<PRE>"),
            ("middle_token", "▁<MID>"),
            ("suffix_token", "▁<SUF>"),
            ("eot_token", "▁<EOT>"),
            ("fill_token", "<FILL_ME>"),
        ],
    ),
    class(
        &["GemmaTokenizer"],
        &[
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
    ),
    class(&["T5Tokenizer"], &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")]),
    class(&["XLMRobertaTokenizer"], FAIRSEQ),
    Class {
        extra: &["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"],
        spaced: true,
        ..class(&["CamembertTokenizer"], FAIRSEQ)
    },
    Class { spaced: true, ..class(&["BarthezTokenizer"], FAIRSEQ) },
    class(&["AlbertTokenizer", "FNetTokenizer"], BRACKETS),
    Class { again: Again::Flagged, ..class(&["RemBertTokenizer"], BRACKETS) },
    Class {
        spaced: true,
        ..class(
            &["BigBirdTokenizer"],
            &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "[SEP]"),
                ("pad_token", "<pad>"),
                ("cls_token", "[CLS]"),
                ("mask_token", "[MASK]"),
            ],
        )
    },
    Class {
        extra: &["<eop>", "<eod>"],
        spaced: true,
        ..class(
            &["XLNetTokenizer"],
            &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "<sep>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<cls>"),
                ("mask_token", "<mask>"),
            ],
        )
    },
    class(&["DebertaV2Tokenizer", "DebertaTokenizer"], DEBERTA),
    Class {
        extra: &[
            "<madeupword0>",
            "<madeupword1>",
            "<madeupword2>",
            "<madeupword3>",
            "<madeupword4>",
            "<madeupword5>",
            "<madeupword6>",
        ],
        ..class(
            &["XGLMTokenizer"],
            &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
            ],
        )
    },
    Class {
        as_it_is: true,
        ..class(
            &["BertGenerationTokenizer"],
            &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "<::::>"),
                ("pad_token", "<pad>"),
            ],
        )
    },
    class(&["GPT2Tokenizer", "CodeGenTokenizer"], ENDED),
    class(&["GPTNeoXTokenizer"], PADDED),
    Class { again: Again::Plain, ..class(&["Qwen2Tokenizer"], QWEN) },
    class(&["Qwen3_5Tokenizer"], QWEN),
    class(&["RobertaTokenizer", "LongformerTokenizer", "BartTokenizer", "LEDTokenizer", "MvpTokenizer"], FAIRSEQ),
    Class {
        again: Again::Flagged,
        ..class(
            &["CohereTokenizer"],
            &[
                ("bos_token", "<BOS_TOKEN>"),
                ("eos_token", "<|END_OF_TURN_TOKEN|>"),
                ("unk_token", "<UNK>"),
                ("sep_token", "<SEP>"),
                ("pad_token", "<PAD>"),
                ("cls_token", "<CLS>"),
                ("mask_token", "<MASK_TOKEN>"),
            ],
        )
    },
    class(BERTS, BERT),
    Class {
        spaced: true,
        ..class(
            &["MPNetTokenizer"],
            &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "[UNK]"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
                ("mask_token", "<mask>"),
            ],
        )
    },
];

/// Classes by `model_type`, for folders that name none.
const OF_MODELS: &[(&str, &[&str])] = &[
    ("AlbertTokenizer", &["albert"]),
    (
        "BertTokenizer",
        &["bert", "distilbert", "electra", "ernie", "megatron-bert", "mobilebert", "nomic_bert", "squeezebert"],
    ),
    ("BertGenerationTokenizer", &["bert-generation"]),
    ("BigBirdTokenizer", &["big_bird"]),
    ("CamembertTokenizer", &["camembert"]),
    ("CodeLlamaTokenizer", &["code_llama"]),
    ("CohereTokenizer", &["cohere", "cohere2"]),
    ("DebertaTokenizer", &["deberta"]),
    ("DebertaV2Tokenizer", &["deberta-v2"]),
    ("GPT2Tokenizer", &["codegen", "dbrx", "emu3", "gpt2", "gpt_neo", "gptj", "jais2", "opt", "phi", "starcoder2"]),
    ("GPTNeoXTokenizer", &["falcon_mamba", "gpt_neox", "mamba", "mamba2", "mpt", "olmo", "olmoe", "rwkv", "xlstm"]),
    (
        "GemmaTokenizer",
        &["gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "recurrent_gemma", "zaya"],
    ),
    ("MPNetTokenizer", &["mpnet"]),
    (
        "Qwen2Tokenizer",
        &[
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_5_vl",
            "qwen3",
            "qwen3_moe",
            "qwen3_next",
            "qwen3_vl",
            "qwen3_vl_moe",
        ],
    ),
    ("Qwen3_5Tokenizer", &["qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp"]),
    ("RemBertTokenizer", &["rembert"]),
    ("RobertaTokenizer", &["data2vec-text", "ibert", "longformer", "roberta", "roberta-prelayernorm"]),
    ("T5Tokenizer", &["mt5", "switch_transformers", "t5"]),
    ("XGLMTokenizer", &["xglm"]),
    ("XLMRobertaTokenizer", &["gte", "jina_embeddings_v3", "xlm-roberta"]),
    ("XLNetTokenizer", &["xlnet"]),
];

/// The name of the class that a folder says, or that its model has; the former without the ending of the
/// fast ones.
pub(super) fn name<'a>(settings: &'a Value, config: &'a Value) -> Option<&'a str> {
    let said = settings["tokenizer_class"].as_str().or_else(|| config["tokenizer_class"].as_str());
    let plain = |name: &'a str| if name == "PreTrainedTokenizerFast" { name } else { strip(name) };
    said.map(plain).or_else(|| {
        let model = config["model_type"].as_str()?;
        OF_MODELS.iter().find(|(_, models)| models.contains(&model)).map(|(class, _)| *class)
    })
}

fn strip(name: &str) -> &str {
    name.strip_suffix("Fast").unwrap_or(name)
}

/// The class of a name.
pub(super) fn named(name: Option<&str>) -> &'static Class {
    let found = name.and_then(|name| CLASSES.iter().find(|c| c.names.contains(&name)));
    found.unwrap_or(&ANY)
}

impl Class {
    /// The token of a role where nothing is said.
    pub fn special(&self, role: &str) -> Option<Token> {
        let (_, text) = self.specials.iter().find(|(of, _)| *of == role)?;
        Some(self.met(role, Token::plain(text)))
    }

    /// A token of a role as the class has it.
    pub fn met(&self, role: &str, token: Token) -> Token {
        match token.flags {
            None if self.spaced && role == "mask_token" => Token { flags: Some(SPACED), ..token },
            _ => token,
        }
    }
}
