//! How texts are cut before bytes are merged, as the models' own tokenizers do it.

/// A way to cut.
#[derive(Debug)]
pub(super) struct Cut {
    /// Its names in `tokenizer.ggml.pre` of GGUF files.
    pub names: &'static [&'static str],
    /// Each cuts out what it matches of what the ones before have left.
    pub patterns: &'static [&'static str],
    /// Characters are composed first (NFC).
    pub composed: bool,
    /// Words that are tokens are taken whole.
    pub whole_words: bool,
}

/// GPT-2's pattern.
const GPT2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// That of cl100k_base, with up to three digits together.
const LLAMA3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with each digit alone.
const QWEN2_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// o200k_base.
const GPT4O_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// DeepSeek-V3.
const DEEPSEEK3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

const PLAIN: Cut = Cut { names: &[], patterns: &[GPT2_WORDS], composed: false, whole_words: false };

/// GPT-2's.
pub(super) const GPT2: Cut = Cut {
    names: &[
        "gpt-2",
        "phi-2",
        "mpt",
        "olmo",
        "jais",
        "trillion",
        "granite-docling",
        "jina-es",
        "jina-de",
        "jina-v2-es",
        "jina-v2-de",
        "gigachat",
        "a.x-4.0",
        "mellum",
        "modern-bert",
        "exaone4",
    ],
    ..PLAIN
};

/// Llama 3's.
pub(super) const LLAMA3: Cut = Cut {
    names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
    patterns: &[LLAMA3_WORDS],
    whole_words: true,
    ..PLAIN
};

/// Qwen2's.
pub(super) const QWEN2: Cut = Cut {
    names: &["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"],
    patterns: &[QWEN2_WORDS],
    composed: true,
    ..PLAIN
};

/// All that are known.
pub(super) const CUTS: &[Cut] = &[
    GPT2,
    LLAMA3,
    QWEN2,
    Cut {
        names: &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        patterns: &[r"\p{N}", GPT2_WORDS],
        ..PLAIN
    },
    Cut { names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], patterns: &[LLAMA3_WORDS], ..PLAIN },
    Cut { names: &["stablelm2", "hunyuan", "solar-open", "grok-2"], patterns: &[QWEN2_WORDS], ..PLAIN },
    Cut {
        names: &["qwen35"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        composed: true,
        ..PLAIN
    },
    Cut {
        names: &["tekken"],
        patterns: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        whole_words: true,
        ..PLAIN
    },
    Cut { names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"], patterns: &[GPT4O_WORDS], ..PLAIN },
    Cut {
        names: &["deepseek-v3", "hunyuan-dense"],
        patterns: &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_WORDS],
        ..PLAIN
    },
    Cut {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        ..PLAIN
    },
    Cut {
        names: &["youtu"],
        patterns: &[
            r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        whole_words: true,
        ..PLAIN
    },
    Cut { names: &["falcon"], patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2_WORDS, "[0-9][0-9][0-9]"], ..PLAIN },
    Cut { names: &["bloom", "poro-chat", "gpt3-finnish"], patterns: &[r" ?[^(\s|.,!?…。，、।۔،)]+"], ..PLAIN },
    Cut { names: &["viking"], patterns: &[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"], ..PLAIN },
    Cut {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        patterns: &[
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    Cut {
        names: &["seed-coder"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ..PLAIN
    },
    Cut { names: &["tiny_aya", "cohere2moe"], patterns: &[r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O_WORDS], ..PLAIN },
    Cut { names: &["minicpm5"], patterns: &[r"\p{N}{1,3}", LLAMA3_WORDS], whole_words: true, ..PLAIN },
];

/// The way of this name.
pub(super) fn named(name: &str) -> Option<&'static Cut> {
    CUTS.iter().find(|cut| cut.names.contains(&name))
}
