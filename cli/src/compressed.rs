//! Prompts made shorter by a small model (LLMLingua, arXiv 2310.05736): the tokens that it foresees are left out, and
//! the rest is a text again, for a model with any tokenizer.

use crate::Error;
use crate::loaded::Model;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Makes prompts shorter.
pub struct Compressor {
    /// The model that scores tokens.
    pub model: Model,
    /// The share of tokens to keep.
    pub share: f64,
    /// Texts whose tokens are kept, wherever they stand.
    pub keep: Vec<String>,
    /// Whether tokens with digits are kept.
    pub digits: bool,
}

/// A message for a model, and the facts about its compression.
pub struct Message<'a> {
    /// Its text.
    pub text: Cow<'a, str>,
    /// Facts about its compression, if it was compressed.
    pub compression: Option<Compression>,
}

/// A compression.
pub struct Compression {
    with: String,
    tokens: usize,
    kept: usize,
    /// Texts that were left out, each of tokens that follow each other.
    dropped: Vec<String>,
    /// Mean self-information of tokens that were kept, and that were not, in nats.
    nats: [f64; 2],
}

impl<'a> Message<'a> {
    /// A message as it is.
    pub fn whole(text: &'a str) -> Message<'a> {
        Message { text: Cow::Borrowed(text), compression: None }
    }

    /// Says how it was compressed, if it was and that is `wanted`.
    pub fn said(&self, wanted: bool) {
        if let Some(c) = self.compression.as_ref().filter(|_| wanted) {
            let [kept, dropped] = c.nats;
            eprintln!(
                "{} of {} tokens of the prompt kept by {}: {kept:.2} nats each, {dropped:.2} of the others",
                c.kept, c.tokens, c.with
            );
        }
    }
}

impl Compression {
    /// As JSON.
    pub fn document(&self) -> Value {
        json!({ "with": self.with, "tokens": self.tokens, "kept": self.kept, "dropped": self.dropped })
    }
}

impl Compressor {
    /// Makes a text shorter. Its first and last token stay. A character leaves with any token that has a part of
    /// it.
    ///
    /// # Errors
    /// The small model has no tokenizer, or fails.
    pub fn compress(&self, text: &str) -> Result<Message<'static>, Error> {
        let bare = self.model.tokenize(text, false)?;
        let whole = self.model.tokenize(text, true)?;
        // Special tokens before the text are its context; those behind it are left away.
        let at = (0..=whole.len().saturating_sub(bare.len())).find(|at| whole[*at..].starts_with(&bare));
        let before = &whole[..at.unwrap_or(0)];
        let tokens = [before, &bare].concat();
        let mut keep = vec![true; before.len()];
        keep.extend(self.forced(&bare)?);
        let information = self.model.compress(&tokens, before.len(), self.share, &mut keep)?;
        let (keep, information) = (&keep[before.len()..], &information[before.len()..]);
        let kept: Vec<i32> = bare.iter().zip(keep).filter(|(_, kept)| **kept).map(|(token, _)| *token).collect();
        let mut short = self.model.detokenize(&kept)?;
        if !text.contains(char::REPLACEMENT_CHARACTER) {
            short.retain(|c| c != char::REPLACEMENT_CHARACTER);
        }
        // (A first token has no finite one.)
        let mean = |wanted: bool| {
            let own = information.iter().zip(keep).filter(|(nats, kept)| nats.is_finite() && **kept == wanted);
            let (sum, count) = own.fold((0.0, 0), |(sum, count), (nats, _)| (sum + f64::from(*nats), count + 1));
            if count == 0 { 0.0 } else { sum / f64::from(count) }
        };
        let compression = Compression {
            with: self.model.path().display().to_string(),
            tokens: bare.len(),
            kept: kept.len(),
            dropped: self.dropped(&bare, keep)?,
            nats: [mean(true), mean(false)],
        };
        Ok(Message { text: Cow::Owned(short), compression: Some(compression) })
    }

    /// The tokens that must be kept.
    fn forced(&self, tokens: &[i32]) -> Result<Vec<bool>, Error> {
        let spelled: Vec<Vec<u8>> = tokens.iter().map(|t| self.model.token_bytes(*t)).collect::<Result<_, _>>()?;
        let mut forced: Vec<bool> = spelled.iter().map(|b| self.digits && b.iter().any(u8::is_ascii_digit)).collect();
        forced.first_mut().into_iter().for_each(|first| *first = true);
        forced.last_mut().into_iter().for_each(|last| *last = true);
        let text = spelled.concat();
        for word in self.keep.iter().filter(|word| !word.is_empty()) {
            let places: Vec<usize> =
                text.windows(word.len()).enumerate().filter(|(_, w)| *w == word.as_bytes()).map(|(at, _)| at).collect();
            let (mut start, mut next) = (0, 0);
            for (own, forced) in spelled.iter().zip(&mut forced) {
                let end = start + own.len();
                // The first place that ends behind the token's start.
                while places.get(next).is_some_and(|at| at + word.len() <= start) {
                    next += 1;
                }
                *forced |= places.get(next).is_some_and(|at| *at < end);
                start = end;
            }
        }
        Ok(forced)
    }

    /// The texts of dropped tokens, each of those that follow each other.
    fn dropped(&self, tokens: &[i32], keep: &[bool]) -> Result<Vec<String>, Error> {
        let all: Vec<(i32, bool)> = tokens.iter().copied().zip(keep.iter().copied()).collect();
        let runs = all.chunk_by(|a, b| a.1 == b.1).filter(|run| !run[0].1);
        runs.map(|run| self.model.detokenize(&run.iter().map(|(token, _)| *token).collect::<Vec<_>>())).collect()
    }
}
