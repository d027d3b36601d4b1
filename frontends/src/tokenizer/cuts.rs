//! How texts are cut before bytes are merged, as the models' own tokenizers do it.

/// A way to cut.
#[derive(Debug)]
pub(super) struct Cut {
    /// Its names in `tokenizer.ggml.pre` of GGUF files.
    pub names: &'static [&'static str],
    /// Each cuts its matches out of the rest the ones before have left.
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

/// Letters that have a case, as DeepSeek's first models list them.
const CASED_WORDS: &str = concat!(
    r"\s?[",
    r"\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}",
    r"\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}\x{386}",
    r"\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}",
    r"\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}",
    r"\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}",
    r"\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}",
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}",
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}",
    r"\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}",
    r"\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}-\x{2184}",
    r"\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3}\x{A640}-\x{A66D}",
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}",
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}",
    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
    r"\x{1E900}-\x{1E943}",
    r"]+",
);
/// Kimi K2: o200k_base with Chinese characters apart.
const KIMI_WORDS: &str = concat!(
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Jais 2: Llama 3's, but spaces by powers of two.
const JAIS2_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)",
    r"|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
);
/// Scripts without spaces between words, as AFMoE lists them.
const ASIAN_WORDS: &str = concat!(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}",
    r"\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}",
    r"\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+",
);
/// EXAONE with experts, words with the spaces between them. The files' own pattern has
/// `(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`, which matches the same here.
const PHRASES: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}(?:\p{L}|\p{M}| \p{L})*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
);

const PLAIN: Cut = Cut { names: &[], patterns: &[GPT2_WORDS], composed: false, whole_words: false };

/// Texts are not cut.
pub(super) const WHOLE: Cut = Cut { patterns: &[], ..PLAIN };

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
        "jina-v1-en",
        "jina-v2-code",
        "roberta-bpe",
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
    names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
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

/// Names of vocabularies that are merged as Gemma's are: without cutting words, over characters
/// with `\u{2581}` for spaces, and bytes where there is no token.
pub(super) const WHOLE_TEXTS: &[&str] = &["gemma4", "granite-embed-multi-311m", "sarvam-moe", LINES];

/// Vocabularies whose lines begin with a space, and where each space begins a word.
pub(super) const LINES: &str = "mmbert";

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
    Cut { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], patterns: &[LLAMA3_WORDS], ..PLAIN },
    Cut { names: &["glm4", "glm5"], patterns: &[LLAMA3_WORDS], whole_words: true, ..PLAIN },
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
    Cut { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], patterns: &[GPT4O_WORDS], ..PLAIN },
    Cut {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
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
    Cut {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            CASED_WORDS,
            r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ],
        ..PLAIN
    },
    // Words are not cut, and digits by threes from the last.
    Cut { names: &["superbpe"], patterns: &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"], ..PLAIN },
    Cut {
        names: &["chameleon"],
        patterns: &[
            r"<sentinel:[0-9]+>",
            r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2_WORDS,
        ],
        ..PLAIN
    },
    Cut { names: &["exaone-moe"], patterns: &[PHRASES], ..PLAIN },
    Cut { names: &["kimi-k2"], patterns: &[KIMI_WORDS], ..PLAIN },
    Cut { names: &["jais-2"], patterns: &[JAIS2_WORDS], ..PLAIN },
    Cut {
        names: &["spark2_5"],
        patterns: &[
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
            ),
            r"\p{N}",
        ],
        ..PLAIN
    },
    // Qwen2's, with Turkish endings behind apostrophes.
    Cut {
        names: &["ufakzeka"],
        patterns: &[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
        ..PLAIN
    },
    Cut { names: &["laguna"], patterns: &[r"[^\n]+|[\n]+", QWEN2_WORDS], ..PLAIN },
    Cut { names: &["granite-embed-multi-97m"], patterns: &[GPT4O_WORDS], whole_words: true, ..PLAIN },
    // Digits by threes from the last.
    Cut {
        names: &["afmoe"],
        patterns: &[r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN_WORDS, DEEPSEEK3_WORDS],
        ..PLAIN
    },
    // llama.cpp's default.
    Cut {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2_WORDS, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    Cut { names: &["minicpm5"], patterns: &[r"\p{N}{1,3}", LLAMA3_WORDS], whole_words: true, ..PLAIN },
];

/// The way of this name.
pub(super) fn named(name: &str) -> Option<&'static Cut> {
    CUTS.iter().find(|cut| cut.names.contains(&name))
}
