//! The parameters of a generation, and the pieces that it gives.

use std::sync::Arc;

use crate::bias::Bias;
use crate::error::{Error, Result};
use crate::grammar::Grammar;
use crate::logprob::LogProb;
use crate::rules::Rules;
use crate::sample::Sampling;
use crate::speculate::Guesses;
use crate::text::no_tokenizer;

/// When to stop and how to choose.
#[derive(Clone, Debug, Default)]
pub struct GenParams {
    /// Most tokens to generate; 0: until another reason ends it.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Bias added to logits first.
    pub bias: Bias,
    /// Rules of the model's own settings, applied to logits first.
    pub rules: Arc<Rules>,
    /// Longest sequence, the prompt included; 0: the model's.
    pub max_length: usize,
    /// Pieces carry the log-probability of their token, and of this many of the most probable ones.
    pub logprobs: Option<usize>,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// Tokens that end the generation, besides the model's end-of-sequence tokens.
    pub stop_tokens: Vec<i32>,
    /// Generate on after end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Produce no text, only tokens.
    pub no_text: bool,
    /// Show special tokens in the text.
    pub show_special: bool,
    /// Adapter of a sequence of its own; 0: none.
    pub adapter: i32,
    /// Where guesses of the next tokens come from. They change no token.
    pub guesses: Guesses,
    /// Most guesses for a step; 0: as many as suit the guesser.
    pub most_guesses: usize,
    /// Tokens that the text is expected to begin with: guesses of its first steps, which change no token.
    pub expected: Vec<i32>,
    /// Tokens that a text about a source begins with.
    pub starts: Vec<i32>,
    /// The prompt's images.
    pub images: Images,
    /// The form of the text.
    pub grammar: Option<Grammar>,
}

impl GenParams {
    /// Checks the parameters that need no model but for whether it has a tokenizer.
    ///
    /// # Errors
    /// Sampling out of range; stop strings without text; a grammar whose end is passed over.
    pub fn check(&self, has_tokenizer: bool) -> Result<()> {
        self.sampling.check()?;
        if self.grammar.is_some() && self.ignore_eos {
            return Err(Error::invalid(
                "a grammar ends its texts by a token that ends texts, which LLMCC_GEN_IGNORE_EOS passes over: leave \
                 one out",
            ));
        }
        if !has_tokenizer && !self.stop.is_empty() {
            return Err(no_tokenizer());
        }
        if self.no_text && !self.stop.is_empty() {
            return Err(Error::invalid("stop strings need text, which LLMCC_GEN_NO_TEXT turns off; use stop tokens"));
        }
        Ok(())
    }
}

/// The images of a prompt.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// Their rows, one for each token that stands for one, in their order.
    pub rows: Vec<f32>,
    /// Rows and columns of the tokens of each image, of a model whose tokens have positions along axes.
    pub grids: Vec<[u32; 2]>,
}

/// Why a generation ended (`llmcc_finish` in `llmcc.h`).
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends sequences or that the caller named.
    Token = 1,
    /// A stop string.
    Text = 2,
    /// `max_tokens` were generated.
    Length = 3,
    /// The sequence reached the model's longest context.
    Context = 4,
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its id.
    pub token: i32,
    /// The text it completes; may be empty, or hold the text of several tokens.
    pub text: String,
    /// Set on the last piece.
    pub finish: Option<Finish>,
    /// How probable the token was, if that was asked for.
    pub logprob: Option<TokenLogProbs>,
}

/// Log-probabilities at one position, of the model's own distribution: before bias, penalty,
/// temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogProbs {
    /// Log-probability of the chosen token.
    pub chosen: f64,
    /// The most probable tokens, the most probable first.
    pub top: Vec<LogProb>,
}

/// A token that was chosen, but is not part of the sequence yet.
pub(crate) type Choice = (i32, Option<TokenLogProbs>);
