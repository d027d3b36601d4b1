//! From text to tokens and back: the tokenizer and chat template the compiler put into the
//! artifact.

mod adapter;

use std::sync::{Arc, OnceLock};

pub use adapter::read_adapter;

pub use llmcc_text::Config;
use llmcc_text::Template;

use crate::error::{Error, Result, Status};
use crate::grammar::{Grammar, Language};
use crate::image::Image;
use crate::rules::{Defaults, Rules};
use crate::sample::Sampling;

/// Everything a model knows about text. Tokenizer and template are parsed when first used.
pub struct Text {
    image: Arc<Image>,
    config: Config,
    tokenizer: OnceLock<Result<Tokenizer>>,
    template: OnceLock<Result<Template>>,
    #[cfg(feature = "grammar")]
    vocabulary: OnceLock<Result<crate::grammar::Vocabulary>>,
}

impl Text {
    /// The text side of `image`; `None` when it has no tokenizer.
    ///
    /// # Errors
    /// The configuration is not the JSON the compiler writes.
    pub fn new(image: &Arc<Image>) -> Result<Option<Text>> {
        if image.tokenizer().is_empty() {
            return Ok(None);
        }
        let config = Config::parse(image.text_config()).map_err(failed)?;
        let (tokenizer, template) = Default::default();
        Ok(Some(Text {
            image: image.clone(),
            config,
            tokenizer,
            template,
            #[cfg(feature = "grammar")]
            vocabulary: OnceLock::new(),
        }))
    }

    /// Special tokens and templates.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of `tokenizer.json`.
    pub fn tokenizer_bytes(&self) -> usize {
        self.image.tokenizer().len()
    }

    /// The tokenizer, parsed on first use.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        crate::desk::check()?;
        let made = self.tokenizer.get_or_init(|| {
            self.image.check_tokenizer()?;
            Tokenizer::new(self.image.tokenizer(), &self.config)
        });
        made.as_ref().map_err(Clone::clone)
    }

    /// There are no grammars in this runtime.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "grammar"))]
    pub fn grammar(&self, _: Language, _: &str) -> Result<Grammar> {
        Err(Error::new(Status::Unsupported, "this runtime was built without grammars (the feature `grammar`)"))
    }

    /// A grammar for texts of the model. The first one prepares the vocabulary.
    ///
    /// # Errors
    /// It is refused: see `Vocabulary::grammar`.
    #[cfg(feature = "grammar")]
    pub fn grammar(&self, language: Language, source: &str) -> Result<Grammar> {
        let vocab = self.image.desc().vocab as usize;
        let made = || {
            let tokenizer = self.tokenizer()?;
            let word = |token: i32| Ok((tokenizer.bytes(token)?, tokenizer.is_special(token)));
            crate::grammar::Vocabulary::new(&word, vocab, self.config.eos_ids())
        };
        self.vocabulary.get_or_init(made).as_ref().map_err(Clone::clone)?.grammar(language, source)
    }

    /// Types of tokens that are texts alone, of these lengths; `None` where all are 0.
    pub fn types_alone(&self, tokens: &[i32], lengths: &[usize]) -> Option<Vec<i32>> {
        let alone = self.config.types.as_ref()?;
        let (mut types, mut rest) = (vec![], tokens);
        for n in lengths {
            let (row, after) = rest.split_at((*n).min(rest.len()));
            alone.append(row, &mut types);
            rest = after;
        }
        Some(types)
    }

    /// The prompt for a conversation; see [`Template::render`].
    pub fn apply_template(&self, conversation: &str) -> Result<String> {
        let made = self.template.get_or_init(|| Template::new(&self.config, llmcc_text::local_time).map_err(failed));
        made.as_ref().map_err(Clone::clone)?.render(conversation).map_err(failed)
    }
}

/// Defaults of the generations of `image`, also where it has no tokenizer.
///
/// # Errors
/// The configuration is not the JSON the compiler writes.
pub fn defaults(image: &Image) -> Result<Defaults> {
    let Config { defaults: d, starts, .. } = Config::parse(image.text_config()).map_err(failed)?;
    let mut sampling = Sampling { temperature: d.temperature, typical_p: d.typical_p, ..Sampling::default() };
    sampling.top_k = d.top_k;
    let set = |to: &mut f32, value: f32| {
        if value > 0.0 {
            *to = value;
        }
    };
    set(&mut sampling.top_p, d.top_p);
    set(&mut sampling.min_p, d.min_p);
    set(&mut sampling.repetition_penalty, d.repetition_penalty);
    sampling.repetition_window = d.repetition_window;
    sampling.check()?;
    let never = d.bad_words_ids.into_iter().map(|word| (word, f32::NEG_INFINITY));
    let rules = Rules {
        sequences: d.sequence_bias.into_iter().chain(never).collect(),
        suppressed: d.suppress_tokens,
        suppressed_first: d.begin_suppress_tokens,
        no_repeat: d.no_repeat_ngram_size,
        min_new: d.min_new_tokens,
        min_length: d.min_length,
        // (Files of settings have none.)
        presence: 0.0,
        frequency: 0.0,
    };
    let (max_new_tokens, max_length) = (d.max_new_tokens, d.max_length);
    Ok(Defaults { sampling, rules: Arc::new(rules), max_new_tokens, max_length, stop: d.stop_strings, starts })
}

/// The model's tokenizer; see [`llmcc_text::Tokenizer`].
pub struct Tokenizer(llmcc_text::Tokenizer);

impl Tokenizer {
    /// Parses `tokenizer.json`.
    pub fn new(json: &str, config: &Config) -> Result<Tokenizer> {
        llmcc_text::Tokenizer::new(json, config).map(Tokenizer).map_err(failed)
    }

    /// Token ids of `text`, with `add_special` as a plain prompt.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        self.0.encode(text, add_special).map_err(failed)
    }

    /// The same of a text that has its prompt already.
    pub fn encode_whole(&self, text: &str, add_special: bool) -> Result<Vec<i32>> {
        self.0.encode_whole(text, add_special).map_err(failed)
    }

    /// Ids and types of two texts; see [`llmcc_text::Tokenizer::encode_pair`].
    pub fn encode_pair(&self, first: &str, second: &str, most: Option<usize>) -> Result<(Vec<i32>, Vec<i32>)> {
        self.0.encode_pair(first, second, most).map_err(failed)
    }

    /// Text of `ids`, all at once.
    pub fn decode(&self, ids: &[i32], show_special: bool) -> Result<String> {
        self.0.decode(ids, show_special).map_err(failed)
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    /// Id of the token written exactly `text`.
    pub fn token_id(&self, text: &str) -> Option<i32> {
        self.0.token_id(text)
    }

    /// The vocabulary's entry; see [`llmcc_text::Tokenizer::piece`].
    pub fn piece(&self, id: i32) -> Option<String> {
        self.0.piece(id)
    }

    /// Whether it is a special token.
    pub fn is_special(&self, id: i32) -> bool {
        self.0.is_special(id)
    }

    /// The byte that a token of byte fallback stands for.
    pub fn byte(&self, id: i32) -> Option<u8> {
        self.0.byte(id)
    }

    /// The bytes that a token adds to a text; see [`llmcc_text::Tokenizer::bytes`].
    pub fn bytes(&self, id: i32) -> Result<Vec<u8>> {
        self.0.bytes(id).map_err(failed)
    }
}

fn failed(error: llmcc_text::Error) -> Error {
    let status = match error.kind {
        llmcc_text::Kind::Invalid => Status::Invalid,
        llmcc_text::Kind::Damaged => Status::Artifact,
        llmcc_text::Kind::Unsupported => Status::Unsupported,
        llmcc_text::Kind::Template => Status::Template,
        llmcc_text::Kind::Internal => Status::Internal,
    };
    Error::new(status, error.message)
}

/// The error for artifacts without a tokenizer.
pub fn no_tokenizer() -> Error {
    Error::new(
        Status::Unsupported,
        "the artifact has no tokenizer (its checkpoint had no tokenizer.json); use tokens instead of text",
    )
}
