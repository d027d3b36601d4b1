//! Generations: iterators of pieces of text.

use crate::Token;
use crate::capi::*;
use crate::error::{Error, Result, Status};
use crate::guesses::Drafter;
use crate::model::Model;
use crate::params::Params;
use crate::sys::{RawGeneration, RawStatus};
use std::ptr;
use std::sync::atomic::Ordering;

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// An end-of-sequence or stop token.
    Token,
    /// A stop text.
    Text,
    /// The largest number of tokens.
    Length,
    /// The model's longest context.
    Context,
}

impl Finish {
    pub(crate) fn of(code: i32) -> Option<Finish> {
        match code {
            0 => None,
            1 => Some(Finish::Token),
            2 => Some(Finish::Text),
            3 => Some(Finish::Length),
            _ => Some(Finish::Context),
        }
    }
}

/// A generated token, and the text that is complete with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The token.
    pub token: Token,
    /// Whole characters; may be empty.
    pub text: String,
    /// On the last piece: why it is the last.
    pub finish: Option<Finish>,
    /// With [`Params::logprobs`], the token's log-probability.
    pub logprob: f64,
    /// With [`Params::logprobs`], the most probable tokens with their log-probabilities.
    pub top: Vec<(Token, f64)>,
}

/// Counts and times of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that were in the sequence's cache.
    pub reused_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Nanoseconds until the first generated token.
    pub prefill_ns: u64,
    /// Nanoseconds of all further tokens.
    pub decode_ns: u64,
    /// Tokens that were guessed.
    pub guessed: u64,
    /// Guesses that became part of the text.
    pub accepted: u64,
    /// Steps that evaluated guesses.
    pub guess_steps: u64,
}

/// A generation under way: an iterator of [`Piece`]s. It ends after the last piece, or after an error.
pub struct Generation<'m> {
    model: &'m Model,
    handle: *mut RawGeneration,
    ended: bool,
    /// Guesses until the generation is freed.
    _drafter: Option<Drafter>,
}

// SAFETY: the C API may be called from any thread, and all that changes a generation needs `&mut`.
unsafe impl Send for Generation<'_> {}
// SAFETY: as above.
unsafe impl Sync for Generation<'_> {}

impl Model {
    /// Generates after `prompt`, in a sequence of its own.
    ///
    /// # Errors
    /// An empty prompt, a token outside the vocabulary, a model that writes no text.
    pub fn generate(&self, prompt: &[Token], params: &Params) -> Result<Generation<'_>> {
        Generation::start(self, -1, prompt, params)
    }
}

impl<'m> Generation<'m> {
    /// Starts one in sequence `seq`; -1: in one of its own.
    pub(crate) fn start(model: &'m Model, seq: i32, prompt: &[Token], params: &Params) -> Result<Generation<'m>> {
        let held = params.held(seq < 0)?;
        let mut handle = ptr::null_mut();
        // SAFETY: all arrays live through the call, which copies them.
        model.check(unsafe {
            let (start, n) = (prompt.as_ptr(), prompt.len());
            (model.api().llmcc_gen_new)(model.handle(), seq, start, n, &held.raw, &mut handle)
        })?;
        model.generations().fetch_add(1, Ordering::SeqCst);
        Ok(Generation { model, handle, ended: false, _drafter: params.guesses.drafter() })
    }

    /// The next piece; `None` after the last one. After an error (a full cache, say) it may be called
    /// again, when there is room.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn advance(&mut self) -> Result<Option<Piece>> {
        let model = self.model;
        // SAFETY: the generation is alive, the piece valid.
        self.piece(|handle, piece| unsafe { (model.api().llmcc_gen_next)(handle, piece) })
    }

    /// The next piece by a row of logits that the caller has computed in another sequence.
    ///
    /// # Errors
    /// No row of logits of this model.
    pub fn take(&mut self, logits: &[f32]) -> Result<Option<Piece>> {
        let model = self.model;
        // SAFETY: the generation is alive, the row has its length, the piece is valid.
        self.piece(|handle, piece| unsafe {
            (model.api().llmcc_gen_take)(handle, logits.as_ptr(), logits.len(), piece)
        })
    }

    fn piece(&mut self, call: impl Fn(*mut RawGeneration, *mut llmcc_piece) -> RawStatus) -> Result<Option<Piece>> {
        if self.finished() {
            return Ok(None);
        }
        let mut raw = llmcc_piece::default();
        self.model.check(call(self.handle, &mut raw))?;
        self.ended = raw.finish != 0;
        // SAFETY: the call has filled it, and the generation was not called since.
        Ok(Some(unsafe { piece(&raw) }))
    }

    /// Whether the last piece has come.
    pub fn finished(&self) -> bool {
        self.ended
    }

    /// Counts and times so far.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn stats(&self) -> Result<Stats> {
        let mut raw = llmcc_gen_stats_t { size: size_of::<llmcc_gen_stats_t>(), ..llmcc_gen_stats_t::default() };
        // SAFETY: the generation is alive, `raw` is valid.
        self.model.check(unsafe { (self.model.api().llmcc_gen_stats)(self.handle, &mut raw) })?;
        Ok(Stats {
            prompt_tokens: raw.prompt_tokens,
            reused_tokens: raw.reused_tokens,
            generated_tokens: raw.generated_tokens,
            prefill_ns: raw.prefill_ns,
            decode_ns: raw.decode_ns,
            guessed: raw.guessed,
            accepted: raw.accepted,
            guess_steps: raw.guess_steps,
        })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        // Else a loop that passes over errors would never end.
        self.ended |= matches!(next, Some(Err(_)));
        next
    }
}

impl std::iter::FusedIterator for Generation<'_> {}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { (self.model.api().llmcc_gen_free)(self.handle) };
        self.model.generations().fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// The next piece of each generation, in one step of the model they all belong to: continuous
/// batching. Between calls, generations may be left out or added. `None`: this one has ended, or has
/// no token yet, because its prompt takes several steps or waits for room in the cache. The tokens are
/// those that [`Generation::advance`] gives.
///
/// # Errors
/// Generations of several models; errors of the artifact.
pub fn next_of_each(generations: &mut [&mut Generation<'_>]) -> Result<Vec<Option<Piece>>> {
    let Some(first) = generations.first() else { return Ok(vec![]) };
    let model = first.model;
    if generations.iter().any(|g| !ptr::eq(g.model, model)) {
        return Err(Error::new(Status::Invalid, "the generations are of several models; call it for each model"));
    }
    let running: Vec<usize> = (0..generations.len()).filter(|i| !generations[*i].finished()).collect();
    let handles: Vec<*mut RawGeneration> = running.iter().map(|i| generations[*i].handle).collect();
    let mut raw = vec![llmcc_piece::default(); handles.len()];
    if !handles.is_empty() {
        let (start, n) = (handles.as_ptr(), handles.len());
        // SAFETY: the generations are alive and borrowed, so no two are the same; there is a piece for each.
        model.check(unsafe { (model.api().llmcc_gen_next_batch)(start, n, raw.as_mut_ptr()) })?;
    }
    let mut pieces = vec![None; generations.len()];
    for (i, raw) in running.into_iter().zip(&raw) {
        generations[i].ended = raw.finish != 0;
        if raw.token >= 0 || raw.finish != 0 {
            // SAFETY: the call has filled it, and the generation was not called since.
            pieces[i] = Some(unsafe { piece(raw) });
        }
    }
    Ok(pieces)
}

/// # Safety
/// A call has filled it, and its generation was not called since.
unsafe fn piece(raw: &llmcc_piece) -> Piece {
    // SAFETY: as promised, each array has its length.
    let (text, tokens, logprobs) = unsafe {
        (
            slice(raw.text.cast::<u8>(), raw.text_len),
            slice(raw.top_tokens, raw.n_top),
            slice(raw.top_logprobs, raw.n_top),
        )
    };
    Piece {
        token: raw.token,
        text: String::from_utf8_lossy(text).into_owned(),
        finish: Finish::of(raw.finish),
        logprob: raw.logprob,
        top: tokens.iter().copied().zip(logprobs.iter().copied()).collect(),
    }
}

/// # Safety
/// `start` is null, or has `n` elements, which stay as they are as long as the slice is used.
pub(crate) unsafe fn slice<'a, T>(start: *const T, n: usize) -> &'a [T] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { std::slice::from_raw_parts(start, n) }
}
