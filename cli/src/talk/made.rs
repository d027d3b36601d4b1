//! The result of a generation as a JSON document (`--json`).

use crate::compressed::Message;
use crate::loaded::{Generation, Piece};
use crate::{Error, stdout};
use serde_json::{Value, json};

/// Why generations end, by `LLMCC_FINISH_*` of the header.
const REASONS: [&str; 5] = ["stopped", "token", "text", "length", "context"];

/// The tokens of a generation so far, and their text.
pub struct Made {
    prompt: Option<String>,
    text: Option<String>,
    tokens: Vec<i32>,
    /// Facts about the prompt's compression.
    compression: Option<Value>,
}

impl Made {
    /// Nothing yet, after a prompt; without one, after token ids, tokens come without text.
    pub fn new(prompt: Option<&str>) -> Made {
        Made {
            prompt: prompt.map(str::to_owned),
            text: prompt.map(|_| String::new()),
            tokens: vec![],
            compression: None,
        }
    }

    /// Nothing yet, after a message.
    pub fn after(message: &Message) -> Made {
        let compression = message.compression.as_ref().map(|c| c.document());
        Made { compression, ..Made::new(Some(&message.text)) }
    }

    /// Adds a piece.
    pub fn add(&mut self, piece: &Piece) {
        if let Some(text) = &mut self.text {
            *text += &piece.text;
        }
        self.tokens.extend((piece.token >= 0).then_some(piece.token));
    }

    /// Adds pieces as they come, and prints them unless `quietly`, until the generation ends or is stopped.
    ///
    /// # Errors
    /// Errors of the artifact, or of the output.
    pub fn follow(
        &mut self,
        generation: &mut Generation,
        quietly: bool,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        for piece in generation {
            let piece = piece?;
            if !quietly {
                stdout::print(&piece.text)?;
            }
            self.add(&piece);
            if stopped() {
                break;
            }
        }
        Ok(())
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }

    /// Text and tokens.
    pub fn into_parts(self) -> (String, Vec<i32>) {
        (self.text.unwrap_or_default(), self.tokens)
    }

    /// The document on a line.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn line(&self, generation: &Generation) -> Result<String, Error> {
        Ok(format!("{}\n", self.document(generation)?))
    }

    /// Prompt, text, tokens, the reason of the end, counts and times.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn document(&self, generation: &Generation) -> Result<Value, Error> {
        let s = generation.stats()?;
        let finish = usize::try_from(s.finish).ok().and_then(|i| REASONS.get(i));
        let mut document = json!({
            "prompt": self.prompt,
            "text": self.text,
            "tokens": self.tokens,
            "finish": finish,
            "prompt_tokens": s.prompt_tokens,
            "reused_tokens": s.reused_tokens,
            "generated_tokens": s.generated_tokens,
            "prefill_seconds": s.prefill_ns as f64 * 1e-9,
            "decode_seconds": s.decode_ns as f64 * 1e-9,
        });
        if s.guessed > 0 {
            document["guesses"] = json!({ "made": s.guessed, "right": s.accepted, "steps": s.guess_steps });
        }
        if let Some(compression) = &self.compression {
            document["compression"] = compression.clone();
        }
        Ok(document)
    }
}
