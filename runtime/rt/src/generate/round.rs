//! A step of a generation: the tokens that the model has not seen, with guesses behind them, and the choices after it.

use std::collections::VecDeque;
use std::time::Instant;

use super::origin::{Most, Origin};
use super::{Choice, Generation, Piece, Spelled};
use crate::engine::{Batch, Engine, Io, Keep, Row, STEP, Sink};
use crate::error::{Error, Result, Status};
use crate::reserve::need;
use crate::speculate::{Course, Guesses, MOST_GUESSES, Step};

/// The choices of a step in order: after the last known token, and after each guess that equals the choice before.
#[derive(Default)]
pub(crate) struct Choices {
    made: VecDeque<Choice>,
    failed: Option<Error>,
    /// The tokens of all choices, and of those that follow wrong guesses, where they are taken.
    predicted: Vec<i32>,
    /// Hidden states of the tokens of the step, guesses included, where they are taken.
    pub rows: Vec<f32>,
}

impl Choices {
    /// Row `i` of those that the generation asked for.
    pub fn judge(&mut self, generation: &Generation, i: usize, row: Row) {
        let guesses = &generation.guesses;
        let right = i == 0 || self.made.get(i - 1).is_some_and(|(token, _)| guesses.get(i - 1) == Some(token));
        if !right || self.failed.is_some() || self.made.len() != i {
            self.predict(generation, i, row);
            return;
        }
        match generation.request.choose(row, generation.so_far(), &guesses[..i]) {
            Ok(choice) => {
                if generation.takes_predictions() {
                    self.predicted.push(choice.0);
                }
                self.made.push_back(choice);
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// The choice by row `i`, behind a wrong guess, where it is taken.
    fn predict(&mut self, generation: &Generation, i: usize, row: Row) {
        if generation.takes_predictions()
            && self.predicted.len() == i
            && let Some(token) = generation.request.predict(row, generation.so_far(), &generation.guesses[..i])
        {
            self.predicted.push(token);
        }
    }

    /// The first choice.
    ///
    /// # Errors
    /// It could not be made.
    pub fn first(&mut self) -> Result<Choice> {
        self.made.pop_front().ok_or_else(|| {
            self.failed.take().unwrap_or_else(|| Error::new(Status::Internal, "the step produced no logits"))
        })
    }
}

impl Generation {
    /// Whether hidden states of all its tokens are wanted.
    pub(crate) fn takes_rows(&self) -> bool {
        self.speculation.as_ref().is_some_and(|s| s.takes_rows())
    }

    /// Whether choices behind wrong guesses are wanted.
    fn takes_predictions(&self) -> bool {
        self.speculation.as_ref().is_some_and(|s| s.takes_predictions())
    }

    /// Numbers of the hidden states that a step of so many tokens keeps, if they are wanted.
    pub(crate) fn kept(&self, engine: &Engine, tokens: usize) -> usize {
        if self.takes_rows() { tokens * engine.image().step().kept() } else { 0 }
    }

    /// Gives the guesser hidden states of the tokens from an index on.
    pub(super) fn take_rows(&mut self, engine: &mut Engine, rows: (usize, &[f32])) -> Result<()> {
        match &mut self.speculation {
            Some(speculation) => speculation.take_rows(engine, self.cursor.seq, rows, &self.cursor.history),
            None => Ok(()),
        }
    }

    /// The next piece of those that a step before has made.
    pub(crate) fn take_ready(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// Whether its next piece needs a step.
    pub(crate) fn steps(&self) -> bool {
        self.ready.is_empty() && self.finish.is_none()
    }

    /// Tokens of the history.
    pub(crate) fn length(&self) -> usize {
        self.cursor.history.len()
    }

    /// Takes hidden states of a step that chose nothing, whose tokens are the last that the model has seen.
    ///
    /// # Errors
    /// The machine fails.
    pub(crate) fn take_part(&mut self, engine: &mut Engine, rows: &[f32]) -> Result<()> {
        let width = engine.image().step().kept().max(1);
        self.take_rows(engine, (self.cursor.evaluated - rows.len() / width, rows))
    }

    /// Asks the caller's function for guesses, if there is one: before the engine is locked, which it may use.
    ///
    /// # Errors
    /// Those of the function.
    pub fn consult(&mut self) -> Result<()> {
        if !self.steps() || self.expects() {
            return Ok(());
        }
        let room = self.request.room(self.so_far());
        if let Some(speculation) = &mut self.speculation
            && let Some(guesses) = speculation.ask(&self.cursor.history, room)?
        {
            self.guess(guesses, Origin::Guesser);
        }
        Ok(())
    }

    /// Tokens that the caller expects next; none after one that was another.
    pub(super) fn expected(&self) -> &[i32] {
        let made = usize::try_from(self.stats.generated_tokens).unwrap_or(usize::MAX);
        let left = self.request.params.expected.get(made..).filter(|_| self.as_expected);
        left.unwrap_or_default()
    }

    /// Whether its next tokens are expected.
    pub(crate) fn expects(&self) -> bool {
        !self.expected().is_empty()
    }

    /// Makes guesses for the next step, of at most `most` tokens.
    ///
    /// # Errors
    /// The machine fails.
    pub(crate) fn propose(&mut self, engine: &mut Engine, most: Most) -> Result<()> {
        let expects = self.expects();
        let room = self.request.room(self.so_far()).min(if expects { most.expected } else { most.guesses });
        let room = room.min(engine.kv().max_context().saturating_sub(self.length()));
        self.guesses.truncate(room);
        // Where the sequence went back further than to the last token, the step sees the others again first.
        if self.pending().len() != 1 {
            self.guesses.clear();
            return Ok(());
        }
        if !self.guesses.is_empty() || room == 0 {
            return Ok(());
        }
        if expects {
            let expected: Vec<i32> = self.expected().iter().take(room).copied().collect();
            self.guess(expected, Origin::Expected);
            return Ok(());
        }
        let forced = self.request.forced(self.so_far(), room.min(MOST_GUESSES));
        if !forced.is_empty() {
            self.guess(forced, Origin::Form);
            return Ok(());
        }
        let Some(mut speculation) = self.speculation.take() else { return Ok(()) };
        let so_far = self.so_far();
        let choose = |row: Row, guesses: &[i32]| self.request.choose(row, so_far, guesses).map(|(token, _)| token);
        let course = Course { history: so_far.history, choose: &choose, want: self.want(engine) };
        let found = speculation.guess(engine, self.cursor.seq, &course, room);
        self.speculation = Some(speculation);
        self.guess(found?, Origin::Guesser);
        Ok(())
    }

    /// Takes guesses as far as they may be any.
    fn guess(&mut self, guesses: Vec<i32>, origin: Origin) {
        self.origin = origin;
        self.guesses = guesses.into_iter().take_while(|token| self.request.may_guess(*token)).collect();
    }

    /// Where its guesses come from.
    pub(crate) fn guesses_from(&self) -> &Guesses {
        &self.request.params.guesses
    }

    /// Guesses of the next step.
    pub(crate) fn guesses(&self) -> &[i32] {
        &self.guesses
    }

    /// Drops the guesses of the next step.
    pub(crate) fn drop_guesses(&mut self) {
        self.guesses.clear();
    }

    /// Makes sure that the sequence can go back to where it is now, should guesses be wrong.
    pub(crate) fn keep(&self, engine: &mut Engine) -> Result<()> {
        if !self.guesses.is_empty() && engine.kv().by_chunks(0) {
            engine.kv_mut().snapshot(self.cursor.seq)?;
        }
        Ok(())
    }

    /// Steps the model over the tokens it has not seen and guesses behind them.
    pub(super) fn evaluate(&mut self, engine: &mut Engine) -> Result<Choices> {
        // The list of tokens grows after the step.
        need(12 * self.length())?;
        self.check_sequence(engine)?;
        let room = engine.max_batch_tokens().saturating_sub(self.pending().len());
        self.propose(engine, Most { guesses: room, expected: room })?;
        match self.step(engine) {
            Err(error) if error.status == Status::CacheFull && !self.guesses.is_empty() => {
                self.guesses.clear();
                self.step(engine)
            }
            done => done,
        }
    }

    fn step(&mut self, engine: &mut Engine) -> Result<Choices> {
        let pending = self.pending().len();
        let kept = self.kept(engine, pending + self.guesses.len());
        need(size_of::<f32>() * kept)?;
        self.keep(engine)?;
        let tokens = [self.pending(), &self.guesses].concat();
        let out_rows: Vec<u32> = (pending as u32 - 1..tokens.len() as u32).collect();
        let seqs = vec![self.cursor.seq; tokens.len()];
        let hidden = self.images_of(engine, tokens.len())?;
        let positions = self.positions_of(engine, tokens.len(), !hidden.is_empty())?;
        let batch = Batch {
            tokens: &tokens,
            seqs: &seqs,
            out_rows: &out_rows,
            hidden: &hidden,
            positions: &positions,
            ..Batch::default()
        };
        let wants = vec![self.want(engine); out_rows.len()];
        let (mut choices, mut rows) = (Choices::default(), Vec::with_capacity(kept));
        let mut judge = |i: usize, row: Row| choices.judge(self, i, row);
        let mut keep = |_: usize, kept: &[f32]| rows.extend_from_slice(kept);
        let keep: Option<Keep> = if self.takes_rows() { Some(&mut keep) } else { None };
        let io = Io { batch: &batch, wants: &wants, rows: Sink::Each(&mut judge), keep, taps: None };
        if let Err(error) = engine.run(STEP, io) {
            self.resume(engine);
            return Err(error);
        }
        choices.rows = rows;
        self.cursor.evaluated = self.length();
        Ok(choices)
    }

    /// Makes the choices of a step that began at `start` part of the text, as far as it goes on. Their pieces are ready
    /// then.
    ///
    /// # Errors
    /// The first choice could not be made, or spelled: then nothing has changed.
    pub(super) fn accept_all(
        &mut self,
        mut choices: Choices,
        engine: &mut Engine,
        start: Instant,
        spell: &dyn Fn(&Generation, Choice, &Engine) -> Result<Spelled>,
    ) -> Result<()> {
        let first = choices.first().and_then(|choice| spell(self, choice, engine));
        match first {
            Ok(first) => self.accept_first(first, choices, engine, start, spell),
            Err(error) => {
                self.take_back(engine)?;
                Err(error)
            }
        }
    }

    /// [`Generation::accept_all`] after the first choice was spelled.
    ///
    /// # Errors
    /// The machine fails; the pieces are ready all the same.
    pub(crate) fn accept_first(
        &mut self,
        first: Spelled,
        choices: Choices,
        engine: &mut Engine,
        start: Instant,
        spell: &dyn Fn(&Generation, Choice, &Engine) -> Result<Spelled>,
    ) -> Result<()> {
        let Choices { made, rows, predicted, .. } = choices;
        let piece = self.accept(first, start);
        self.ready.push_back(piece);
        let mut accepted = 0;
        for choice in made {
            // A choice that cannot be spelled is made again by the next step, which reports it.
            let Some(next) = self.finish.is_none().then(|| spell(self, choice, engine).ok()).flatten() else { break };
            let piece = self.accept(next, start);
            self.ready.push_back(piece);
            accepted += 1;
        }
        if let Some(speculation) = &mut self.speculation {
            let (history, guesses) = (&self.cursor.history[..], &self.guesses[..]);
            speculation.take_predictions(&Step { history, guesses, predicted: &predicted, accepted });
        }
        self.settle(engine, accepted, &rows)
    }

    /// After a step with guesses: `accepted` became part of the text, and the others are taken back.
    fn settle(&mut self, engine: &mut Engine, accepted: usize, rows: &[f32]) -> Result<()> {
        let guessed = std::mem::take(&mut self.guesses).len();
        // The model has seen the history but for its last token.
        let right = self.length() - 1;
        let seen = self.cursor.cut(engine, right)?;
        let kept = self.cursor.evaluated;
        // (Guesses of the text's form say nothing about the guesser, nor does what is expected.)
        match (std::mem::take(&mut self.origin), &mut self.speculation) {
            (Origin::Guesser, Some(speculation)) => speculation.learn(guessed, accepted),
            (Origin::Expected, _) => self.foreseen.count(guessed, accepted),
            (Origin::Guesser, None) | (Origin::Form, _) => {}
        }
        if self.takes_rows() {
            // The last guess that was right may be where the text ends.
            let width = engine.image().step().kept().max(1);
            let first = seen - rows.len() / width;
            let known = kept.saturating_sub(first) * width;
            self.take_rows(engine, (first, &rows[..known]))?;
        }
        if self.finish.is_some() && !self.cursor.owned { self.catch_up(engine, right) } else { Ok(()) }
    }

    /// At the end of a text, evaluates tokens again that a state of fixed size forgot with wrong guesses: the caller's
    /// sequence has all but the last.
    fn catch_up(&mut self, engine: &mut Engine, right: usize) -> Result<()> {
        let tokens = &self.cursor.history[self.cursor.evaluated..right];
        if !tokens.is_empty() {
            let seqs = vec![self.cursor.seq; tokens.len()];
            let batch = Batch { tokens, seqs: &seqs, out_rows: &[], ..Batch::default() };
            engine.step(&batch, &mut |_, _| ())?;
            self.cursor.evaluated = right;
        }
        Ok(())
    }
}
