//! Texts of a form: grammars, compiled for a vocabulary, and how far a text has come in one.
//!
//! `llguidance` compiles grammars (JSON schemas, regular expressions, Lark's, lists of texts) and says which tokens may
//! follow. It knows the vocabulary as a trie of the bytes of its tokens, which is built by the first grammar of a
//! model. Special tokens are no text: no grammar has them, and the tokens that end texts may come where it is complete.
//!
//! Grammars are compiled on threads of the model's own. Texts are followed on any thread: by `TokenParser`, since the
//! library's `Matcher` touches thread-local storage with a destructor ([`crate::unload`]).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, TokenParser};

use crate::error::{Error, Result, Status};
pub use crate::language::Language;

/// So many tokens or fewer may begin with the only byte that can follow.
const FEW: usize = 256;

/// The vocabulary of a model, for grammars.
pub struct Vocabulary {
    factory: ParserFactory,
}

/// A grammar, compiled for a vocabulary. Copies share it.
#[derive(Clone)]
pub struct Grammar {
    start: Arc<Mutex<TokenParser>>,
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grammar")
    }
}

impl Vocabulary {
    /// A vocabulary of `vocab` tokens. `word` gives the bytes of a token, and whether it is a special one; `ends` are
    /// the tokens that end texts.
    ///
    /// # Errors
    /// No token ends texts; `word` fails; the trie cannot be built.
    pub fn new(word: &dyn Fn(i32) -> Result<(Vec<u8>, bool)>, vocab: usize, ends: &[i32]) -> Result<Vocabulary> {
        let ends: Vec<u32> = ends.iter().filter_map(|t| u32::try_from(*t).ok()).collect();
        let Some(end) = ends.first() else {
            return Err(Error::invalid(
                "this model has no token that ends texts, so a grammar could not end them: give it one when it is \
                 compiled (eos_token_id in config.json)",
            ));
        };
        let marked = |token: i32| -> Result<Vec<u8>> {
            match word(token)? {
                (bytes, false) if !ends.contains(&(token as u32)) => Ok(bytes),
                // No text has it.
                (bytes, _) => Ok([&[TokTrie::SPECIAL_TOKEN_MARKER], bytes.as_slice()].concat()),
            }
        };
        let words = (0..vocab as i32).map(marked).collect::<Result<Vec<_>>>()?;
        let info = TokRxInfo::new(vocab as u32, *end);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|e| Error::invalid(format!("the vocabulary cannot serve grammars: {e}")))?;
        factory.limits_mut().verbose_errors = false;
        factory.quiet();
        Ok(Vocabulary { factory })
    }

    /// Compiles a grammar.
    ///
    /// # Errors
    /// It is none of its language, uses what is not supported, or is too large.
    pub fn grammar(&self, language: Language, source: &str) -> Result<Grammar> {
        let refused = |why: &dyn fmt::Display| Error::invalid(format!("the {language} is refused: {why}"));
        let json = || serde_json::from_str(source).map_err(|e| refused(&e));
        let grammar = match language {
            Language::JsonSchema => TopLevelGrammar::from_json_schema(with_few_blanks(json()?)),
            Language::Regex => TopLevelGrammar::from_regex(source),
            Language::Lark => TopLevelGrammar::from_lark(source.to_owned()),
            Language::Choices => TopLevelGrammar::from_lark(choices(&json()?).map_err(|e| refused(&e))?),
        };
        let mut start = self.factory.create_parser(grammar).map_err(|e| refused(&reason(&e.to_string())))?;
        if start.is_fresh() {
            start.start_without_prompt();
        }
        following(&mut start).map_err(|e| refused(&reason(&e)))?;
        Ok(Grammar { start: Arc::new(Mutex::new(start)) })
    }
}

/// A schema whose texts have, between two tokens of JSON, one line end with up to 32 blanks after it, or up to 8
/// blanks: models may write blanks without end.
fn with_few_blanks(mut schema: serde_json::Value) -> serde_json::Value {
    if let Some(members) = schema.as_object_mut() {
        let blanks = || serde_json::json!({ "whitespace_pattern": r"\x0D?\x0A[\x20\x09]{0,32}|[\x20\x09]{1,8}" });
        members.entry("x-guidance").or_insert_with(blanks);
    }
    schema
}

/// The tokens that may follow; those that end texts where the text is complete.
fn following(parser: &mut TokenParser) -> std::result::Result<SimpleVob, String> {
    match parser.stop_reason() {
        StopReason::NotStopped => parser.compute_mask().map_err(|e| e.to_string()),
        stop if stop.is_ok() => Ok(parser.token_env.tok_trie().eos_token_set()),
        stop => Err(parser.error_message().unwrap_or_else(|| format!("{stop:?}"))),
    }
}

/// A message of the library, in words.
fn reason(message: &str) -> &str {
    match message.contains("NoExtensionBias") {
        true => "no text of this vocabulary has this form",
        false => message.trim_end().trim_end_matches("<non-verbose/>").trim_end(),
    }
}

/// A grammar of some texts.
fn choices(list: &serde_json::Value) -> std::result::Result<String, String> {
    let texts = list.as_array().filter(|list| !list.is_empty()).ok_or("it is not a JSON list of one text or more")?;
    let quoted = |text: &serde_json::Value| match text.as_str() {
        Some("") => Err("an empty text is no choice".to_owned()),
        // (A string of Lark is one of JSON.)
        Some(_) => Ok(text.to_string()),
        None => Err(format!("{text} is not a text")),
    };
    let texts = texts.iter().map(quoted).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(format!("start: {}", texts.join(" | ")))
}

/// How far a text has come in a grammar. It follows any text, also back: guesses are texts that may be wrong.
pub struct Guide {
    start: Grammar,
    state: Mutex<State>,
}

struct State {
    parser: TokenParser,
    /// The tokens that it has taken.
    taken: Vec<i32>,
    /// The tokens that may follow.
    mask: Option<SimpleVob>,
    /// It did not take a token, and begins again.
    failed: bool,
}

impl Guide {
    /// At the beginning of a text.
    pub fn new(grammar: Grammar) -> Guide {
        let parser = grammar.fresh();
        Guide { start: grammar, state: Mutex::new(State { parser, taken: Vec::new(), mask: None, failed: false }) }
    }

    /// The logits after the tokens `text`, with those of tokens that may not follow at -infinity.
    ///
    /// # Errors
    /// Nothing that may follow has a finite logit; the grammar takes more work than it may.
    pub fn apply<'a>(&self, logits: Cow<'a, [f32]>, text: &[i32]) -> Result<Cow<'a, [f32]>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mask = state.following(&self.start, text).map_err(stuck)?;
        let mut row = logits.into_owned();
        match ban(&mut row, mask) {
            true => Ok(Cow::Owned(row)),
            false => Err(Error::new(
                Status::Invalid,
                "no token that the grammar allows here may be chosen: a bias, bad words or the model's own settings \
                 ban them all",
            )),
        }
    }

    /// Guesses of at most `most` tokens after the tokens `text`, where the grammar leaves but one way to go on: their
    /// bytes are certain, and not which tokens the model makes of them.
    pub fn forced(&self, text: &[i32], most: usize) -> Vec<i32> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Tokens that begin with the same byte are few; a text that cannot go on is reported by the choice.
        let few = state.following(&self.start, text).is_ok_and(|mask| mask.num_set() <= FEW);
        if !few || state.parser.stop_reason() != StopReason::NotStopped {
            return Vec::new();
        }
        let mut ahead = state.parser.clone();
        let bytes = ahead.force_bytes();
        let tokens = ahead.token_env.tok_trie().greedy_tokenize(&bytes);
        tokens.into_iter().take(most).map(|token| token as i32).collect()
    }
}

/// Bans the tokens that a mask leaves out. Returns whether one is left that may be chosen.
fn ban(row: &mut [f32], mask: &SimpleVob) -> bool {
    let mut left = false;
    let mut words = mask.as_slice().iter();
    for chunk in row.chunks_mut(u32::BITS as usize) {
        match words.next().copied().unwrap_or(0) {
            0 => chunk.fill(f32::NEG_INFINITY),
            word => {
                for (bit, x) in chunk.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *x = f32::NEG_INFINITY;
                    }
                }
                left = left || chunk.iter().any(|x| *x > f32::NEG_INFINITY || x.is_nan());
            }
        }
    }
    left
}

impl Grammar {
    fn fresh(&self) -> TokenParser {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl State {
    /// The tokens that may follow a text.
    fn following(&mut self, start: &Grammar, text: &[i32]) -> std::result::Result<&SimpleVob, String> {
        self.follow(start, text)?;
        if self.mask.is_none() {
            let mask = following(&mut self.parser);
            self.failed |= mask.is_err();
            self.mask = Some(mask?);
        }
        self.mask.as_ref().ok_or_else(|| "it has no mask".to_owned())
    }

    /// Goes to the end of a text.
    fn follow(&mut self, start: &Grammar, text: &[i32]) -> std::result::Result<(), String> {
        let same = self.taken.iter().zip(text).take_while(|(a, b)| a == b).count();
        let back = self.taken.len() - same;
        if back > 0 || self.failed {
            let went = !self.failed && self.parser.rollback(back).is_ok();
            self.taken.truncate(same);
            self.mask = None;
            if !went {
                self.parser = start.fresh();
                self.taken.clear();
            }
        }
        let more = &text[self.taken.len()..];
        if !more.is_empty() {
            (self.mask, self.failed) = (None, true);
            for token in more {
                self.parser.consume_token(*token as u32).map_err(|e| e.to_string())?;
            }
            self.parser.check_stop().map_err(|e| e.to_string())?;
            self.taken.extend_from_slice(more);
        }
        self.failed = false;
        Ok(())
    }
}

fn stuck(error: impl fmt::Display) -> Error {
    Error::invalid(format!("the text cannot go on in its grammar: {}", reason(&error.to_string())))
}
