//! Generating token by token: prompt, sampling, detokenization, stopping.

mod cursor;
mod given;
mod images;
mod origin;
mod params;
mod request;
mod round;
mod speller;

use std::collections::VecDeque;
use std::time::Instant;

use crate::candidates::Want;
use crate::engine::{Batch, Engine, Keep, STEP};
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;
use crate::reserve::need;
use crate::speculate::{Counts, Speculation};
use crate::stream::Decode;
use crate::text::Text;
use cursor::Cursor;
pub(crate) use images::{marked, tokens_of};
pub(crate) use origin::Most;
use origin::Origin;
pub(crate) use params::Choice;
pub use params::{Finish, GenParams, Images, Piece, TokenLogProbs};
use request::{Request, SoFar};
pub(crate) use round::Choices;
use speller::{Speller, Spelling};

/// A chosen token with its text, that is not part of the sequence yet.
pub(crate) struct Spelled {
    token: i32,
    logprob: Option<TokenLogProbs>,
    finish: Option<Finish>,
    text: Spelling,
}

/// Counts and times of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenStats {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that the sequence held already.
    pub reused_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Nanoseconds from the first evaluated prompt token to the first generated token.
    pub prefill_ns: u64,
    /// Nanoseconds spent on all further tokens.
    pub decode_ns: u64,
}

/// A generation under way: a request, the sequence that serves it, and the speller of its tokens.
pub struct Generation {
    request: Request,
    cursor: Cursor,
    speller: Speller,
    finish: Option<Finish>,
    stats: GenStats,
    speculation: Option<Speculation>,
    /// Guesses for the next step.
    guesses: Vec<i32>,
    /// Where they come from.
    origin: Origin,
    /// The text is as it was expected so far.
    as_expected: bool,
    /// How good expectations were.
    foreseen: Counts,
    /// Tokens of the history whose pieces nobody has taken.
    ready: VecDeque<Piece>,
    /// A step ends here if it would go further: others begin with as many tokens.
    border: usize,
}

impl Generation {
    /// Prepares to continue `prompt`, which is the *whole* sequence from its first token. In `seq`,
    /// if given, the tokens it already holds of the prompt are reused and others forgotten;
    /// otherwise a sequence of its own is used until [`Generation::close`]. A model that writes about sources
    /// writes about `prompt`, which is reused as a whole or not at all; one that writes about clips of sound goes on
    /// with `prompt`, and `seq` has its clip.
    ///
    /// # Errors
    /// A model without logits, empty or too long prompt, unknown token or sequence, bad parameters, stop strings without a
    /// tokenizer.
    pub fn new(
        engine: &mut Engine,
        text: Option<&Text>,
        seq: Option<SeqId>,
        prompt: &[i32],
        params: GenParams,
    ) -> Result<Generation> {
        engine.need_text()?;
        check_prompt(engine, prompt, &params.images.rows)?;
        let mut request = Request::new(engine, text, params)?;
        request.positions = images::positions(engine, prompt, &request.params.images.grids)?;
        let params = &request.params;
        let speculation = Speculation::new(engine, &params.guesses, params.most_guesses)?;
        let (seq, owned) = match seq {
            Some(_) if params.adapter != 0 => {
                return Err(Error::invalid(
                    "llmcc_gen_params.adapter applies to a generation's own sequence, but a sequence was given: \
                        use llmcc_seq_set_adapter",
                ));
            }
            Some(seq) => (seq, false),
            None => (engine.adapted_sequence(params.adapter)?, true),
        };
        let about = engine.has_source() && engine.source_columns() == 0;
        let (history, reused, evaluated) = match about {
            true => (first_tokens(engine, &params.starts)?, begin_about(engine, seq, prompt)?, 0),
            false => {
                let marked = marked(engine, prompt, &params.images.rows);
                let reused = begin_with(engine, seq, (&marked, prompt), &request.positions)?;
                (prompt.to_vec(), reused, reused)
            }
        };
        let stats =
            GenStats { prompt_tokens: prompt.len() as u64, reused_tokens: reused as u64, ..GenStats::default() };
        let speller = Speller::new(&history, params);
        request.source = about.then(|| prompt.to_vec());
        Ok(Generation {
            request,
            cursor: Cursor { seq, owned, history, evaluated },
            speller,
            finish: None,
            stats,
            speculation,
            guesses: Vec::new(),
            origin: Origin::default(),
            as_expected: true,
            foreseen: Counts::default(),
            ready: VecDeque::new(),
            border: 0,
        })
    }

    /// Evaluates one chunk of a prompt too long for one step. Returns whether there is more to do
    /// before [`Generation::next`]: between the chunks other users of the engine get their turn.
    pub fn prefill(&mut self, engine: &mut Engine) -> Result<bool> {
        if self.encode(engine)? {
            return Ok(true);
        }
        let chunk = engine.max_batch_tokens();
        if self.cursor.pending().len() <= chunk {
            return Ok(false);
        }
        let chunk = engine.step_of(self.pending(), chunk);
        let start = Instant::now();
        let kept = self.kept(engine, chunk);
        need(size_of::<f32>() * kept)?;
        let tokens = &self.cursor.pending()[..chunk];
        let hidden = self.images_of(engine, chunk)?;
        let positions = self.positions_of(engine, chunk, !hidden.is_empty())?;
        let seqs = vec![self.cursor.seq; chunk];
        let batch =
            Batch { tokens, seqs: &seqs, out_rows: &[], hidden: &hidden, positions: &positions, ..Batch::default() };
        let mut rows = Vec::with_capacity(kept);
        let mut keep = |_: usize, kept: &[f32]| rows.extend_from_slice(kept);
        let keep: Option<Keep> = if self.takes_rows() { Some(&mut keep) } else { None };
        if let Err(error) = engine.run_each(STEP, &batch, &mut |_, _| {}, keep) {
            self.cursor.resume(engine);
            return Err(error);
        }
        self.take_rows(engine, (self.cursor.evaluated, &rows))?;
        self.cursor.evaluated += chunk;
        self.stats.prefill_ns += start.elapsed().as_nanos() as u64;
        Ok(true)
    }

    /// Whether its source has to be read before its text goes on.
    pub(crate) fn lacks_source(&self, engine: &Engine) -> bool {
        let there = |source: &Vec<i32>| engine.has_encoded(self.cursor.seq, source).unwrap_or(true);
        self.finish.is_none() && self.request.source.as_ref().is_some_and(|source| !there(source))
    }

    /// Reads the source, if that is to be done. Returns whether it was.
    pub(crate) fn encode(&mut self, engine: &mut Engine) -> Result<bool> {
        if !self.lacks_source(engine) {
            return Ok(false);
        }
        let start = Instant::now();
        if let Some(source) = &self.request.source {
            engine.encode(self.cursor.seq, source)?;
        }
        self.cursor.evaluated = 0;
        self.stats.prefill_ns += start.elapsed().as_nanos() as u64;
        Ok(true)
    }

    /// The next token; `None` after the last. After an error (a full cache, say) it may be tried
    /// again.
    pub fn next(&mut self, engine: &mut Engine, text: Option<&Text>) -> Result<Option<Piece>> {
        self.next_spelled(engine, &|generation, choice, engine| generation.spell(choice, engine, text))
    }

    /// As [`Generation::next`], with a detokenizer of the caller's.
    pub fn next_decoded(&mut self, engine: &mut Engine, decode: &Decode) -> Result<Option<Piece>> {
        self.next_spelled(engine, &|generation, choice, engine| generation.spell_with(choice, engine, Some(decode)))
    }

    /// The next token by the logits after the last one, which the caller has from a step of his own, in a
    /// sequence of his own; `None` after the last. Nothing has changed after an error.
    pub fn take(&mut self, logits: &[f32], engine: &Engine, text: Option<&Text>) -> Result<Option<Piece>> {
        let vocab = self.request.vocab();
        need(12 * self.length() + 64 * vocab)?;
        if logits.len() != vocab {
            let message = format!("logits has {} elements, but the vocabulary has {vocab}", logits.len());
            return Err(Error::invalid(message));
        }
        if !self.ready.is_empty() || self.finish.is_some() {
            return Ok(self.take_ready());
        }
        let start = Instant::now();
        let choice = self.request.choose_by(logits, self.so_far(), &[])?;
        let next = self.spell(choice, engine, text)?;
        Ok(Some(self.accept(next, start)))
    }

    fn next_spelled(
        &mut self,
        engine: &mut Engine,
        spell: &dyn Fn(&Generation, Choice, &Engine) -> Result<Spelled>,
    ) -> Result<Option<Piece>> {
        if let Some(piece) = self.take_ready() {
            return Ok(Some(piece));
        }
        if self.finish.is_some() {
            return Ok(None);
        }
        while self.prefill(engine)? {}
        let start = Instant::now();
        let choices = self.evaluate(engine)?;
        self.accept_all(choices, engine, start, spell)?;
        Ok(self.take_ready())
    }

    /// The text of a chosen token, and whether it is the last. Nothing has changed when this fails.
    pub(crate) fn spell(&self, choice: Choice, engine: &Engine, text: Option<&Text>) -> Result<Spelled> {
        match text.filter(|_| !self.request.params.no_text) {
            None => self.spell_with(choice, engine, None),
            Some(text) => {
                let tokenizer = text.tokenizer()?;
                let show_special = self.request.params.show_special;
                self.spell_with(choice, engine, Some(&|ids| tokenizer.decode(ids, show_special)))
            }
        }
    }

    fn spell_with(&self, (token, logprob): Choice, engine: &Engine, decode: Option<&Decode>) -> Result<Spelled> {
        let finish = self.request.finish_after(self.so_far(), token, engine.kv().max_context());
        let text = self.speller.spell(token, (self.request.ends(token), finish.is_some()), decode)?;
        Ok(Spelled { token, logprob, finish, text })
    }

    /// Makes a token part of the sequence. The step for it began at `start`.
    pub(crate) fn accept(&mut self, next: Spelled, start: Instant) -> Piece {
        let first = self.stats.generated_tokens == 0;
        self.as_expected &= self.expected().first() == Some(&next.token);
        self.stats.generated_tokens += 1;
        self.cursor.history.push(next.token);
        let (text, hit) = self.speller.accept(next.text, next.finish.is_some());
        self.finish = if hit { Some(Finish::Text) } else { next.finish };
        let ns = start.elapsed().as_nanos() as u64;
        *(if first { &mut self.stats.prefill_ns } else { &mut self.stats.decode_ns }) += ns;
        Piece { token: next.token, text, finish: self.finish, logprob: next.logprob }
    }

    /// Sequence of this generation.
    pub fn seq(&self) -> SeqId {
        self.cursor.seq
    }

    /// Why it ended, if it has and all its pieces have been taken.
    pub fn finish(&self) -> Option<Finish> {
        self.finish.filter(|_| self.ready.is_empty())
    }

    /// Counts and times so far.
    pub fn stats(&self) -> GenStats {
        let generated_tokens = self.stats.generated_tokens - self.ready.len() as u64;
        GenStats { generated_tokens, ..self.stats }
    }

    /// How good guesses were so far, expected tokens included.
    pub fn guessed(&self) -> Counts {
        self.speculation.as_ref().map(Speculation::counts).unwrap_or_default() + self.foreseen
    }

    /// Frees the sequence if it is the generation's own.
    pub fn close(mut self, engine: &mut Engine) -> Result<()> {
        if self.cursor.owned {
            return engine.kv_mut().seq_free(self.cursor.seq);
        }
        self.speculation.as_mut().map_or(Ok(()), |s| s.restart(engine, self.cursor.seq))
    }

    /// Makes a given sequence the generation's own, which is freed with it.
    pub(crate) fn adopt(&mut self) {
        self.cursor.owned = true;
    }

    /// Ends the generation and hands over its own sequence, with the tokens that the model has seen.
    pub(crate) fn release(mut self, engine: &mut Engine) -> Result<SeqId> {
        let seq = self.cursor.seq;
        self.speculation.as_mut().map_or(Ok(()), |s| s.restart(engine, seq))?;
        Ok(seq)
    }

    /// Prompt and generated tokens.
    pub(crate) fn history(&self) -> &[i32] {
        &self.cursor.history
    }

    /// Lets a step end after the first `tokens` of the history, where states that are not pages are kept.
    pub(crate) fn end_step_at(&mut self, tokens: usize) {
        self.border = tokens;
    }

    /// The most pending tokens, up to `room`, that a step may have of it.
    pub(crate) fn part(&self, room: usize, engine: &Engine) -> usize {
        let whole = engine.step_of(self.pending(), room);
        match self.border.checked_sub(self.evaluated()) {
            Some(left) if 0 < left && left < whole => match engine.step_of(self.pending(), left) {
                0 => whole,
                part => part,
            },
            _ => whole,
        }
    }

    /// After a failed step: see [`Cursor::resume`].
    pub(crate) fn resume(&mut self, engine: &Engine) {
        self.cursor.resume(engine);
    }

    /// Fails if somebody else has changed the sequence.
    pub(crate) fn check_sequence(&self, engine: &Engine) -> Result<()> {
        self.cursor.check(engine)
    }

    /// Tokens that the model has not seen; at least one.
    pub(crate) fn pending(&self) -> &[i32] {
        self.cursor.pending()
    }

    /// Tokens that the model has seen.
    pub(crate) fn evaluated(&self) -> usize {
        self.cursor.evaluated
    }

    /// The text so far.
    fn so_far(&self) -> SoFar<'_> {
        SoFar { history: &self.cursor.history, generated: self.stats.generated_tokens }
    }

    /// The model has seen `count` of the pending tokens, after a step that began at `start`.
    pub(crate) fn advance(&mut self, count: usize, start: Instant) {
        self.cursor.evaluated += count;
        if !self.pending().is_empty() {
            self.stats.prefill_ns += start.elapsed().as_nanos() as u64;
        }
    }

    /// After a failed choice: leaves one token to evaluate, so that a further try is a step again.
    pub(crate) fn take_back(&mut self, engine: &mut Engine) -> Result<()> {
        self.guesses.clear();
        self.cursor.take_back(engine)
    }

    /// Gives the cache of the generation's own sequence back; its tokens will be evaluated again.
    /// Returns whether there was any.
    pub(crate) fn suspend(&mut self, engine: &mut Engine) -> Result<bool> {
        let suspended = self.cursor.suspend(engine)?;
        if suspended {
            self.guesses.clear();
        }
        Ok(suspended)
    }

    /// The request for the row of the next choice.
    pub(crate) fn want(&self, engine: &Engine) -> Want {
        self.request.want(engine)
    }
}

/// Prepares a sequence for a prompt: `prompt` as it lists it, of these `tokens`, at these positions where they have
/// some of their own. Returns how many of its tokens the sequence has.
fn begin_with(engine: &mut Engine, seq: SeqId, (prompt, tokens): (&[i32], &[i32]), positions: &[i32]) -> Result<usize> {
    let same = engine.kv().tokens(seq)?.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let same = engine.kv().agreeing(seq, positions, same)?;
    // The last prompt token is always evaluated: its logits are needed.
    let mut evaluated = engine.kv().reusable(seq, same.min(prompt.len() - 1))?;
    // (Where a window has moved on, nothing before is there.)
    loop {
        let whole = engine.step_of(tokens, evaluated);
        if whole == evaluated {
            break;
        }
        evaluated = engine.kv().reusable(seq, whole)?;
    }
    engine.cut_text(seq, evaluated)?;
    Ok(evaluated)
}

/// Prepares a sequence for a text about `source`. Returns how many of its tokens the sequence has: all or none.
fn begin_about(engine: &mut Engine, seq: SeqId, source: &[i32]) -> Result<usize> {
    if engine.has_encoded(seq, source)? {
        engine.kv_mut().truncate_track(seq, 0, 0)?;
        return Ok(source.len());
    }
    engine.kv_mut().truncate(seq, 0)?;
    Ok(0)
}

/// The tokens that a text about a source begins with.
fn first_tokens(engine: &Engine, starts: &[i32]) -> Result<Vec<i32>> {
    let vocab = engine.image().desc().vocab;
    match starts.iter().all(|t| *t >= 0 && (*t as u64) < vocab) && !starts.is_empty() {
        true => Ok(starts.to_vec()),
        false => Err(Error::artifact("the artifact does not say with which token its texts begin; compile it again")),
    }
}

/// Checks the tokens of a prompt, of a vocabulary of `vocab`.
pub(crate) fn check_tokens(prompt: &[i32], vocab: usize) -> Result<()> {
    if prompt.is_empty() {
        return Err(Error::invalid("the prompt has no tokens; give at least one (a beginning-of-sequence token, say)"));
    }
    if let Some((i, token)) = prompt.iter().enumerate().find(|(_, t)| **t < 0 || **t as usize >= vocab) {
        return Err(Error::invalid(format!("prompt token {token} at index {i} is outside the vocabulary of {vocab}")));
    }
    Ok(())
}

fn check_prompt(engine: &Engine, prompt: &[i32], images: &[f32]) -> Result<()> {
    check_tokens(prompt, engine.image().desc().vocab as usize)?;
    let context = engine.kv().max_context();
    if prompt.len() > context {
        let message = format!(
            "the prompt has {} tokens, more than the model's longest context of {context}; shorten it",
            prompt.len()
        );
        return Err(Error::new(Status::ContextFull, message));
    }
    images::check(engine, prompt, images)
}
