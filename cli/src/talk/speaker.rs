//! Generations, and what is said of them.

use crate::Error;
use crate::compressed::{Compressor, Message};
use crate::loaded::{GenOptions, Generation, Model};
use llmcc_model::sys::llmcc_gen_stats_t;

/// The model and sequence of generations.
pub struct Speaker<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sequence of a conversation.
    pub seq: Option<i32>,
    /// The tokens of the conversation that it was given last.
    pub seen: Vec<i32>,
    /// How messages are made shorter.
    pub compressor: Option<&'a Compressor>,
}

impl<'a> Speaker<'a> {
    /// The message that the model is given for a text.
    ///
    /// # Errors
    /// Errors of the compressor's artifact.
    pub fn message<'t>(&self, text: &'t str) -> Result<Message<'t>, Error> {
        self.compressor.map_or_else(|| Ok(Message::whole(text)), |compressor| compressor.compress(text))
    }

    /// Starts a generation after a prompt.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn generate(&mut self, prompt: &[i32], options: &GenOptions) -> Result<Generation<'a>, Error> {
        self.model.generate(self.seq, prompt, options)
    }

    /// Evaluates all of a long prompt but its last tokens, piece by piece, as long as `go_on` says so; whether it did
    /// to the end.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn prefill(&mut self, prompt: &[i32], options: &GenOptions, go_on: &dyn Fn() -> bool) -> Result<bool, Error> {
        if self.seq.is_none() {
            return Ok(true);
        }
        if self.model.info().needs_source {
            // A source is read as a whole.
            return Ok(go_on());
        }
        let piece = self.model.info().max_batch_tokens.max(1);
        let known = self.seen.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        // A token of each piece is chosen, and forgotten.
        let one = GenOptions { max_tokens: 1, no_text: true, adapter: options.adapter, ..GenOptions::default() };
        for end in (known + piece..prompt.len()).step_by(piece) {
            if !go_on() {
                return Ok(false);
            }
            self.model.generate(self.seq, &prompt[..end], &one)?.try_for_each(|piece| piece.map(|_| ()))?;
            self.seen = prompt[..end].to_vec();
        }
        Ok(go_on())
    }
}

/// Says counts and times of a generation, if that is `wanted`.
///
/// # Errors
/// Errors of the artifact.
pub fn stats(generation: &Generation, wanted: bool) -> Result<(), Error> {
    if !wanted {
        return Ok(());
    }
    said(&generation.stats()?);
    Ok(())
}

/// Says counts and times.
pub fn said(s: &llmcc_gen_stats_t) {
    let rate = |n: u64, ns: u64| if ns == 0 { 0.0 } else { n as f64 / (ns as f64 * 1e-9) };
    eprintln!(
        "{} prompt tokens ({} from the cache) in {:.1} ms; {} tokens generated, {:.1} tokens/s",
        s.prompt_tokens,
        s.reused_tokens,
        s.prefill_ns as f64 * 1e-6,
        s.generated_tokens,
        rate(s.generated_tokens.saturating_sub(1), s.decode_ns)
    );
    if s.guessed > 0 {
        let share = 100.0 * s.accepted as f64 / s.guessed as f64;
        eprintln!("{} of {} guesses were right ({share:.1} %), in {} steps", s.accepted, s.guessed, s.guess_steps);
    }
}
