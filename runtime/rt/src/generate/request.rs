//! The request of a generation: how its tokens are chosen, and when it ends.

use std::borrow::Cow;

use super::params::{Choice, Finish, GenParams, TokenLogProbs};
use crate::candidates::{self, Want};
use crate::engine::{Engine, Row};
use crate::error::Result;
use crate::grammar::Guide;
use crate::logprob::LogProbs;
use crate::reserve::{need, need_for_now};
use crate::rules::Place;
use crate::sample::{Sampling, sample};
use crate::text::Text;

/// A checked request. It does not change while it is served: a choice depends on it, the text so far and the logits.
pub(crate) struct Request {
    pub params: GenParams,
    /// Tokens that end texts, of the model.
    eos: Vec<i32>,
    /// The prompt, where the model writes about it instead of going on with it.
    pub source: Option<Vec<i32>>,
    vocab: usize,
    /// The token that stands for rows of images.
    placeholder: Option<i32>,
    /// The form of the text.
    guide: Option<Guide>,
    /// Positions of the prompt's tokens along axes, where it has images and tokens have such; else nothing.
    pub positions: Vec<i32>,
}

/// The text so far: its tokens, and how many of them were generated.
#[derive(Clone, Copy)]
pub(crate) struct SoFar<'a> {
    pub history: &'a [i32],
    pub generated: u64,
}

impl Request {
    /// Checks a request.
    ///
    /// # Errors
    /// Bad parameters, stop strings without a tokenizer, a broken tokenizer.
    pub fn new(engine: &Engine, text: Option<&Text>, mut params: GenParams) -> Result<Request> {
        params.check(text.is_some())?;
        if let Some(text) = text.filter(|_| !params.no_text) {
            // A broken tokenizer is reported now, not after the first token.
            text.tokenizer()?;
        }
        let eos: Vec<i32> = match text {
            Some(text) if !params.ignore_eos => text.config().eos_ids().to_vec(),
            _ => Vec::new(),
        };
        let (vocab, placeholder) = (engine.image().desc().vocab as usize, engine.placeholder());
        let guide = params.grammar.take().map(Guide::new);
        Ok(Request { params, eos, source: None, vocab, placeholder, guide, positions: vec![] })
    }

    /// Tokens of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Whether a token may be a guess: one of the vocabulary that comes without a row of an image.
    pub fn may_guess(&self, token: i32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.vocab) && self.placeholder != Some(token)
    }

    /// Whether a token ends the text.
    pub fn ends(&self, token: i32) -> bool {
        self.eos.contains(&token) || self.params.stop_tokens.contains(&token)
    }

    /// Why the text ends with a token that is chosen after it, if it does; `context`: tokens of the longest sequence.
    pub fn finish_after(&self, so_far: SoFar, token: i32, context: usize) -> Option<Finish> {
        if self.ends(token) {
            return Some(Finish::Token);
        }
        if self.room(so_far) == 0 {
            return Some(Finish::Length);
        }
        (so_far.history.len() >= context).then_some(Finish::Context)
    }

    /// Tokens that may follow the next one.
    pub fn room(&self, so_far: SoFar) -> usize {
        let left = match self.params.max_tokens as u64 {
            0 => u64::MAX,
            most => most.saturating_sub(so_far.generated + 1),
        };
        let longest = match self.params.max_length {
            0 => usize::MAX,
            longest => longest.saturating_sub(so_far.history.len() + 1),
        };
        usize::try_from(left).unwrap_or(usize::MAX).min(longest)
    }

    /// The kind of row that the next choice needs.
    pub fn want(&self, engine: &Engine) -> Want {
        let changed = !self.params.bias.is_empty() || !self.params.rules.is_empty() || self.guide.is_some();
        if self.params.logprobs.is_some() || changed {
            return Want::Logits;
        }
        let (sampling, found) = (&self.params.sampling, engine.candidates());
        match candidates::want(sampling, found, self.vocab) {
            // The sum of all weights has that of a token that is never chosen.
            Want::Top { .. } if self.placeholder.is_some() && !candidates::alone(sampling, found) => Want::Logits,
            want => want,
        }
    }

    /// Chooses the token after the text and `guesses` from the row after the last of them.
    pub fn choose(&self, mut row: Row, so_far: SoFar, guesses: &[i32]) -> Result<Choice> {
        let draw = so_far.generated + guesses.len() as u64;
        if let Some(candidates) = row.candidates()
            && !self.placeholder.is_some_and(|token| candidates.have(token))
            && let history = so_far.with(guesses)
            && let Some(token) = candidates::choose(&candidates, &self.params.sampling, &history, self.vocab, draw)?
        {
            return Ok((token, None));
        }
        // A step chooses for many rows, one after the other.
        let _memory = need_for_now(64 * self.vocab)?;
        self.choose_by(row.values()?, so_far, guesses)
    }

    /// The choice after the text and guesses that are wrong, for other guesses. Where texts have a form, which wrong
    /// ones do not have, it is the most probable token. `None`: there is none.
    pub fn predict(&self, mut row: Row, so_far: SoFar, guesses: &[i32]) -> Option<i32> {
        match self.guide {
            None => self.choose(row, so_far, guesses).ok().map(|(token, _)| token),
            Some(_) => sample(row.values().ok()?, &Sampling::default(), &[], 0).ok(),
        }
    }

    /// The logits of tokens that texts have: the one that stands for rows of images is never chosen.
    fn written<'a>(&self, row: Cow<'a, [f32]>) -> Result<Cow<'a, [f32]>> {
        let Some(at) = self.placeholder.and_then(|token| usize::try_from(token).ok()) else { return Ok(row) };
        need(size_of_val(&*row))?;
        let mut row = row.into_owned();
        row.get_mut(at).into_iter().for_each(|x| *x = f32::NEG_INFINITY);
        Ok(Cow::Owned(row))
    }

    /// Guesses of at most `most` tokens after the text, where its form leaves but one way to go on.
    pub fn forced(&self, so_far: SoFar, most: usize) -> Vec<i32> {
        let Some(guide) = &self.guide else { return Vec::new() };
        guide.forced(generated(so_far.history, so_far.generated), most)
    }

    /// [`Request::choose`] by logits.
    pub fn choose_by(&self, logits: &[f32], so_far: SoFar, guesses: &[i32]) -> Result<Choice> {
        let draw = so_far.generated + guesses.len() as u64;
        let history = so_far.with(guesses);
        let place = Place { history: &history, generated: draw, ends: &self.eos, stops: &self.params.stop_tokens };
        let row = self.written(self.params.rules.apply(self.params.bias.apply(logits)?, place)?)?;
        let row = match &self.guide {
            Some(guide) => guide.apply(row, generated(&history, draw))?,
            None => row,
        };
        let token = sample(&row, &self.params.sampling, &history, draw)?;
        let logprob = match self.params.logprobs {
            None => None,
            Some(n) => {
                let all = LogProbs::new(logits)?;
                Some(TokenLogProbs { chosen: all.of(token).unwrap_or(f64::NEG_INFINITY), top: all.top(n) })
            }
        };
        Ok((token, logprob))
    }
}

/// The tokens that follow the prompt.
fn generated(history: &[i32], count: u64) -> &[i32] {
    &history[history.len() - (count as usize).min(history.len())..]
}

impl<'a> SoFar<'a> {
    /// The text with guesses behind it.
    fn with(self, guesses: &[i32]) -> Cow<'a, [i32]> {
        match guesses {
            [] => Cow::Borrowed(self.history),
            _ => Cow::Owned([self.history, guesses].concat()),
        }
    }
}
