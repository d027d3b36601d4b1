//! How to generate.

use crate::Token;
use crate::adapter::Adapter;
use crate::capi::*;
use crate::error::{Error, Result, Status};
use crate::guesses::Guesses;
use crate::sys::flags;
use std::ffi::{CString, c_char};

/// How to choose a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0: always the most probable token.
    pub temperature: f32,
    /// Keep the k most probable tokens; 0: all.
    pub top_k: u32,
    /// Keep the fewest most probable tokens with this sum of probabilities; 1: all.
    pub top_p: f32,
    /// Drop tokens less probable than this fraction of the most probable one; 0: none.
    pub min_p: f32,
    /// Above 1 it makes tokens that were seen before less probable.
    pub repetition_penalty: f32,
    /// Tokens that count as seen; 0: all.
    pub repetition_window: u32,
    /// Equal seeds give equal choices, on every machine.
    pub seed: u64,
}

impl Sampling {
    /// Always the most probable token, whatever the model's own settings.
    pub const GREEDY: Sampling = Sampling { top_k: 1, ..Sampling::OWN };
    /// As the model's `generation_config.json` says; the most probable token if it says nothing.
    pub const OWN: Sampling = Sampling {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        repetition_window: 0,
        seed: 0,
    };

    fn raw(&self) -> llmcc_sampling {
        llmcc_sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            repetition_window: self.repetition_window,
            seed: self.seed,
            ..llmcc_sampling::default()
        }
    }
}

impl Default for Sampling {
    /// [`Sampling::OWN`].
    fn default() -> Sampling {
        Sampling::OWN
    }
}

/// Parameters of a generation. The default is the model's own settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// Tokens at most; 0: the model's limit, else until another reason ends it.
    pub max_tokens: u64,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// Texts that end the generation, and are not shown.
    pub stop: Vec<String>,
    /// Tokens that end it, besides the model's own.
    pub stop_tokens: Vec<Token>,
    /// Go on after the model's end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Ignore the model's `generation_config.json`.
    pub no_defaults: bool,
    /// Show special tokens in the text.
    pub show_special: bool,
    /// No text: for artifacts without a tokenizer.
    pub no_text: bool,
    /// Pieces have log-probabilities, and so many of the most probable tokens.
    pub logprobs: Option<u32>,
    /// Numbers added to the logits of tokens, before anything else; -infinity bans one.
    pub logit_bias: Vec<(Token, f32)>,
    /// The adapter of the generation's own sequence.
    pub adapter: Option<Adapter>,
    /// Where guesses of the next tokens come from.
    pub guesses: Guesses,
    /// Most guesses for a step; 0: as many as suit their source.
    pub most_guesses: u32,
    /// Rows of the prompt's images, one after the other, as [`crate::Model::image_rows`] makes them.
    pub images: Vec<f32>,
    /// Rows and columns of the tokens of each of these images, as [`crate::Model::image_grid`] says: for models whose
    /// images have sizes of their own.
    pub grids: Vec<[u32; 2]>,
    /// A token that ends texts is not chosen before so many tokens.
    pub min_tokens: u64,
    /// Taken from the logits of tokens that were generated.
    pub presence_penalty: f32,
    /// Taken from them for each time that they were generated.
    pub frequency_penalty: f32,
    /// Sequences of tokens that the text does not have.
    pub bad_words: Vec<Vec<Token>>,
    /// The form of the text.
    pub grammar: Option<Grammar>,
    /// Tokens that the text is expected to begin with, such as those of a generation that broke off elsewhere: guesses,
    /// many for a step, which change no token.
    pub expected: Vec<Token>,
}

/// The form of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// A JSON schema.
    JsonSchema(String),
    /// A regular expression that the whole text matches.
    Regex(String),
    /// A context-free grammar as Lark writes it.
    Lark(String),
    /// A JSON list of texts: the text is one of them.
    Choices(String),
}

impl Grammar {
    /// The language's number in the C API, and the source.
    fn raw(&self) -> (u32, &str) {
        match self {
            Grammar::JsonSchema(source) => (LLMCC_GRAMMAR_JSON_SCHEMA, source),
            Grammar::Regex(source) => (LLMCC_GRAMMAR_REGEX, source),
            Grammar::Lark(source) => (LLMCC_GRAMMAR_LARK, source),
            Grammar::Choices(source) => (LLMCC_GRAMMAR_CHOICES, source),
        }
    }
}

/// Parameters with the arrays that the C structure points to.
pub(crate) struct Held {
    pub(crate) raw: llmcc_gen_params,
    _stop: Vec<CString>,
    _bias: Vec<llmcc_logit_bias>,
    _pointers: Vec<*const c_char>,
    _bad: (Vec<Token>, Vec<usize>),
}

impl Params {
    /// The C structure; `self` must live as long.
    pub(crate) fn held(&self, own_sequence: bool) -> Result<Held> {
        let stop = self.stop.iter().map(|s| CString::new(s.as_str())).collect::<std::result::Result<Vec<_>, _>>();
        let stop = stop.map_err(|_| Error::new(Status::Invalid, "a text of `stop` contains a NUL"))?;
        let pointers: Vec<*const c_char> = stop.iter().map(|s| s.as_ptr()).collect();
        let bias: Vec<llmcc_logit_bias> =
            self.logit_bias.iter().map(|(token, value)| llmcc_logit_bias { token: *token, value: *value }).collect();
        let n_bias = u32::try_from(bias.len()).map_err(|_| Error::new(Status::Invalid, "`logit_bias` is too long"))?;
        let grammar = self.grammar.as_ref().map(Grammar::raw);
        let bad = (self.bad_words.concat(), self.bad_words.iter().map(Vec::len).collect::<Vec<usize>>());
        let mut raw = llmcc_gen_params {
            size: size_of::<llmcc_gen_params>(),
            max_tokens: self.max_tokens,
            sampling: llmcc_sampling { bias: bias.as_ptr(), n_bias, ..self.sampling.raw() },
            stop: pointers.as_ptr(),
            n_stop: pointers.len(),
            stop_tokens: self.stop_tokens.as_ptr(),
            n_stop_tokens: self.stop_tokens.len(),
            flags: flags([
                (self.ignore_eos, LLMCC_GEN_IGNORE_EOS),
                (self.no_text, LLMCC_GEN_NO_TEXT),
                (self.show_special, LLMCC_GEN_SHOW_SPECIAL),
                (self.logprobs.is_some(), LLMCC_GEN_LOGPROBS),
                (self.no_defaults, LLMCC_GEN_NO_DEFAULTS),
            ]),
            top_logprobs: self.logprobs.unwrap_or(0),
            adapter: self.adapter.filter(|_| own_sequence).map_or(0, |a| a.0),
            reserved: 0,
            reserved_1_4: 0,
            guesses: LLMCC_GUESS_OWN,
            most_guesses: self.most_guesses,
            guess: None,
            guess_user: std::ptr::null_mut(),
            image_rows: self.images.as_ptr(),
            n_image_rows: self.images.len(),
            image_grids: self.grids.as_ptr().cast(),
            n_image_grids: self.grids.len(),
            min_tokens: self.min_tokens,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            bad_words: bad.0.as_ptr(),
            bad_lengths: bad.1.as_ptr(),
            n_bad: bad.1.len(),
            grammar: grammar.map_or(std::ptr::null(), |(_, source)| source.as_ptr().cast()),
            grammar_len: grammar.map_or(0, |(_, source)| source.len()),
            grammar_language: grammar.map_or(0, |(language, _)| language),
            reserved_1_9: 0,
            expected: self.expected.as_ptr(),
            n_expected: self.expected.len(),
        };
        self.guesses.write(&mut raw);
        Ok(Held { raw, _stop: stop, _bias: bias, _pointers: pointers, _bad: bad })
    }
}
