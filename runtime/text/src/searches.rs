//! Searches that give up.
//!
//! `fancy-regex` matches look-around and the like by backtracking, and ends a search with an error
//! after so many steps. The `tokenizers` crate takes that error for "no further match": the rest of
//! the text would be one piece, without a word. So such expressions are matched here, or tried here
//! before the crate matches them.

use fancy_regex::{Regex, RegexBuilder};
use std::cell::Cell;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizer, PreTokenizerWrapper, Tokenizer};

use crate::check::backtracks;
use crate::{Error, Kind, Result};

/// Steps of a search; the crate's has a million. (Some seconds.)
const STEPS: usize = 1 << 26;

/// Expression of the pre-tokenizer `ByteLevel`.
pub(crate) const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// An expression.
pub(crate) struct Search(Regex);

impl Search {
    /// With more steps than the crate's; `None`: it is malformed.
    pub fn new(expression: &str) -> Option<Search> {
        RegexBuilder::new(expression).backtrack_limit(STEPS).build().ok().map(Search)
    }

    /// Matches in a text, up to a search that gives up.
    pub fn matches<'t>(&'t self, text: &'t str, gave_up: &'t Cell<bool>) -> impl Iterator<Item = (usize, usize)> + 't {
        self.0.find_iter(text).map_while(|found| match found {
            Ok(found) => Some((found.start(), found.end())),
            Err(_) => {
                gave_up.set(true);
                None
            }
        })
    }
}

/// The error for a text on which a search gives up.
pub(crate) fn gives_up() -> Error {
    let message = "the tokenizer's regular expression takes too many steps on this text and gives up; give the text in \
                   shorter parts, cut at line breaks";
    Error::new(Kind::Invalid, message)
}

/// The expression of a pre-tokenizer that backtracks.
fn expression(step: &PreTokenizerWrapper) -> Option<&str> {
    use tokenizers::pre_tokenizers::split::SplitPattern;
    match step {
        PreTokenizerWrapper::Split(split) => match &split.pattern {
            SplitPattern::Regex(regex) if backtracks(regex) => Some(regex),
            _ => None,
        },
        PreTokenizerWrapper::ByteLevel(bytes) if bytes.use_regex => Some(WORDS),
        _ => None,
    }
}

/// Whether a search of a tokenizer can give up.
pub(crate) fn can_give_up(tokenizer: &Tokenizer) -> bool {
    steps(tokenizer).iter().any(|step| expression(step).is_some())
}

/// A tokenizer's pre-tokenizers, in their order.
pub(crate) fn steps(tokenizer: &Tokenizer) -> Vec<&PreTokenizerWrapper> {
    let mut open: Vec<&PreTokenizerWrapper> = tokenizer.get_pre_tokenizer().into_iter().collect();
    let mut steps = vec![];
    while let Some(step) = open.pop() {
        match step {
            PreTokenizerWrapper::Sequence(all) => open.extend(all.as_ref().iter().rev()),
            one => steps.push(one),
        }
    }
    steps
}

/// The pre-tokenizers' expressions that can give up, with the crate's number of steps.
pub(crate) struct Trial(Vec<Option<Regex>>);

impl Trial {
    pub fn of(tokenizer: &Tokenizer) -> Trial {
        Trial(steps(tokenizer).iter().map(|step| Regex::new(expression(step)?).ok()).collect())
    }

    /// Checks that no search of the crate's gives up on a text.
    ///
    /// # Errors
    /// [`Kind::Invalid`]: one does.
    pub fn check(&self, tokenizer: &Tokenizer, text: &str) -> Result<()> {
        let refused = |e| Error::new(Kind::Invalid, format!("the tokenizer refused the text: {e}"));
        let mut pieces = tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
        for (step, regex) in steps(tokenizer).into_iter().zip(&self.0) {
            if let Some(regex) = regex {
                let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
                for (piece, _, tokens) in splits {
                    if tokens.is_none() && regex.find_iter(piece).any(|found| found.is_err()) {
                        return Err(gives_up());
                    }
                }
            }
            step.pre_tokenize(&mut pieces).map_err(refused)?;
        }
        Ok(())
    }
}
