//! Speculative decoding with a model's own draft heads (Leviathan et al., arXiv 2211.17192; heads as in arXiv
//! 2412.19437).
//!
//! Each round the heads guess some tokens, and one step of the model judges all of them. The
//! model's generation chooses its own token at each place, as it would without heads, and goes on
//! as long as the guesses equal its choices: so text and tokens are the same as without heads,
//! whatever these guess.

mod heads;
mod sequence;

use crate::Error;
use crate::loaded::{GenOptions, Generation, Model, Piece};
use heads::Guesser;
use llmcc_model::sys::llmcc_gen_stats_t;
use sequence::Judge;
use std::collections::VecDeque;
use std::time::Instant;

/// A model and its draft heads, which keep their sequences from one generation to the next.
pub struct Drafting<'a> {
    model: &'a Model,
    heads: &'a [Model],
    guesses: usize,
    /// Tokens that all heads have room for: they may be compiled for shorter contexts.
    reach: usize,
    state: Option<Course<'a>>,
}

/// Sequences of model and heads.
struct Course<'a> {
    target: Judge<'a>,
    heads: Guesser<'a>,
    /// Tokens that the model has seen.
    seen: Vec<i32>,
    adapter: i32,
}

/// How good guesses were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that were guessed.
    pub drafted: u64,
    /// Guessed tokens that are part of the text.
    pub accepted: u64,
    /// Steps of the model after the prompt.
    pub rounds: u64,
}

impl<'a> Drafting<'a> {
    /// A model with its heads in order; `guesses` tokens are guessed for a step, by default as many as there are
    /// heads. More are guessed by the last head from its own guesses.
    ///
    /// # Errors
    /// The model leaves no hidden states; an artifact that should be a head is none, or belongs to
    /// another model.
    pub fn new(model: &'a Model, heads: &'a [Model], guesses: Option<usize>) -> Result<Drafting<'a>, Error> {
        let fail = |of: &Model, message: String| Err(Error::Artifact { path: of.path().to_owned(), message });
        let info = model.info();
        if info.needs_hidden {
            return fail(model, "it is a draft head itself; give the model first, and the head with --draft".into());
        }
        if !info.keeps_hidden {
            let message = "it does not return hidden states, which draft heads need; compile it with --hidden-states";
            return fail(model, message.into());
        }
        for head in heads {
            let of = head.info();
            if !of.needs_hidden {
                return fail(
                    head,
                    "it is not a draft head; compile one from the model's checkpoint with --draft-head".into(),
                );
            }
            let its = model.path().display();
            let differs = if of.vocab != info.vocab {
                Some(format!("its vocabulary has {} tokens, {its} has {}", of.vocab, info.vocab))
            } else if of.hidden != info.hidden {
                Some(format!("its hidden states have {} columns, {its} has {}", of.hidden, info.hidden))
            } else {
                None
            };
            if let Some(differs) = differs {
                let message =
                    format!("it is the draft head of another model: {differs}; compile both from one checkpoint");
                return fail(head, message);
            }
        }
        let reach = heads.iter().map(|head| head.info().max_context).min().unwrap_or(0);
        Ok(Drafting { model, heads, guesses: guesses.unwrap_or(heads.len()), reach, state: None })
    }

    /// Starts a generation after `prompt`, the whole sequence from its first token. If it goes on
    /// where the one before ended, tokens that model and heads have seen are not computed again.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn generate(&mut self, prompt: &[i32], options: &GenOptions) -> Result<Drafted<'_, 'a>, Error> {
        let generation = self.model.generate(None, prompt, options)?;
        let goes_on =
            |s: &Course| s.adapter == options.adapter && prompt.len() > s.seen.len() && prompt.starts_with(&s.seen);
        let state = match self.state.take().filter(goes_on) {
            Some(state) => state,
            None => Course {
                target: Judge::new(self.model, options.adapter)?,
                heads: Guesser::new(self.heads)?,
                seen: vec![],
                adapter: options.adapter,
            },
        };
        let reused = state.seen.len();
        Ok(Drafted {
            state: self.state.insert(state),
            generation,
            guesses: self.guesses,
            tokens: prompt.to_vec(),
            room: (options.max_tokens as usize, self.model.info().max_context),
            reach: self.reach,
            pieces: VecDeque::new(),
            failed: false,
            counts: Counts::default(),
            times: llmcc_gen_stats_t {
                prompt_tokens: prompt.len() as u64,
                reused_tokens: reused as u64,
                ..llmcc_gen_stats_t::default()
            },
        })
    }
}

/// A generation with draft heads: an iterator of pieces.
pub struct Drafted<'d, 'a> {
    state: &'d mut Course<'a>,
    generation: Generation<'a>,
    guesses: usize,
    /// Prompt and generated tokens.
    tokens: Vec<i32>,
    /// Most tokens that are made (0: any number), and that the model has seen.
    room: (usize, usize),
    /// Tokens that all heads have room for.
    reach: usize,
    /// Made by the last step, and not taken yet.
    pieces: VecDeque<Piece>,
    failed: bool,
    counts: Counts,
    times: llmcc_gen_stats_t,
}

impl Iterator for Drafted<'_, '_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.pieces.is_empty() && !self.failed && !self.generation.ended() {
            let (start, first) = (Instant::now(), self.made() == 0);
            let done = if first { self.first() } else { self.round() };
            *(if first { &mut self.times.prefill_ns } else { &mut self.times.decode_ns }) +=
                start.elapsed().as_nanos() as u64;
            if let Err(e) = done {
                self.failed = true;
                return Some(Err(e));
            }
        }
        self.pieces.pop_front().map(Ok)
    }
}

impl Drafted<'_, '_> {
    /// Counts and times so far.
    pub fn stats(&self) -> llmcc_gen_stats_t {
        llmcc_gen_stats_t { generated_tokens: self.made() as u64, ..self.times }
    }

    /// Why the generation has ended, if it has (`LLMCC_FINISH_*`).
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn finish(&self) -> Result<i32, Error> {
        Ok(self.generation.stats()?.finish)
    }

    /// How good guesses were so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Tokens that were made.
    fn made(&self) -> usize {
        self.tokens.len() - self.times.prompt_tokens as usize
    }

    /// Evaluates the prompt, and makes the first token.
    fn first(&mut self) -> Result<(), Error> {
        let new = &self.tokens[self.state.seen.len()..];
        let logits = self.state.target.append(new)?;
        self.state.seen.extend(new);
        self.draw(&logits).map(|_| ())
    }

    /// Guesses, and makes at least one token in one step.
    fn round(&mut self) -> Result<(), Error> {
        let (most, context) = self.room;
        let seen = self.state.seen.len();
        let left = if most == 0 { usize::MAX } else { most - self.made() };
        // A step makes one more token than there are correct guesses, and the context must have
        // room for all its tokens.
        let room = context.saturating_sub(seen + 1).min((self.reach + 1).saturating_sub(seen));
        let n = self.guesses.min(left - 1).min(room);
        let guessed = match n {
            0 => vec![],
            n => self.state.heads.guess(&mut self.state.target, &self.tokens, n)?,
        };
        let last = self.tokens[seen..].iter().copied();
        let judged: Vec<i32> = last.chain(guessed.iter().copied()).collect();
        let logits = self.state.target.look(&judged)?;
        let (before, mut right) = (self.tokens.len(), 0);
        for row in logits.chunks_exact(logits.len() / judged.len()) {
            let token = self.draw(row)?;
            if token.is_none() || token != guessed.get(right).copied() {
                break;
            }
            right += 1;
        }
        let kept = &judged[..=right];
        self.state.target.keep(kept);
        self.state.seen.extend(kept);
        // The last guess that was right may be where the text ends.
        let accepted = self.tokens[before..].iter().zip(&guessed).take_while(|(a, b)| a == b).count();
        self.counts.drafted += guessed.len() as u64;
        self.counts.accepted += accepted as u64;
        self.counts.rounds += 1;
        Ok(())
    }

    /// Chooses a token by a row of logits; nothing if it is the last.
    fn draw(&mut self, logits: &[f32]) -> Result<Option<i32>, Error> {
        let piece = self.generation.choose(logits)?;
        let token = piece.token;
        self.tokens.push(token);
        self.pieces.push_back(piece);
        Ok((!self.generation.ended()).then_some(token))
    }
}
