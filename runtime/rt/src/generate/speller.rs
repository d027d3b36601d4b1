//! The text of generated tokens: pieces of whole characters, up to a stop string.

use super::params::GenParams;
use crate::error::Result;
use crate::stream::{Decode, Detokenizer, StopStrings};

/// Spells the tokens of a generation.
pub(crate) struct Speller {
    detokenizer: Detokenizer,
    stop: StopStrings,
    show_special: bool,
}

/// The text of a token that is not part of the sequence yet.
pub(crate) struct Spelling {
    text: String,
    /// After it.
    detokenizer: Detokenizer,
}

impl Speller {
    /// Spells what follows these tokens.
    pub fn new(history: &[i32], params: &GenParams) -> Speller {
        Speller {
            detokenizer: Detokenizer::new(history),
            stop: StopStrings::new(&params.stop),
            show_special: params.show_special,
        }
    }

    /// The text of the next token; `ends`: it is one that ends texts, `last`: none follows. Without `decode` there is
    /// no text. Nothing has changed when this fails.
    pub fn spell(&self, token: i32, (ends, last): (bool, bool), decode: Option<&Decode>) -> Result<Spelling> {
        let (mut detokenizer, mut text) = (self.detokenizer.clone(), String::new());
        if let Some(decode) = decode {
            if !ends || self.show_special {
                text = detokenizer.push(token, decode)?;
            }
            if last {
                text += &detokenizer.finish(decode)?;
            }
        }
        Ok(Spelling { text, detokenizer })
    }

    /// Makes a token's text part of the whole. Returns the part of it that can be shown now, and whether a stop string
    /// ends the text; `last`: no token follows.
    pub fn accept(&mut self, next: Spelling, last: bool) -> (String, bool) {
        self.detokenizer = next.detokenizer;
        let (mut text, hit) = self.stop.push(&next.text);
        if last && !hit {
            text += &self.stop.finish();
        }
        (text, hit)
    }
}
