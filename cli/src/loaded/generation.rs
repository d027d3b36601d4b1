//! Generations of an open model.

use super::{Corpus, Model};
use crate::Error;
use llmcc_model::sys::*;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::rc::Rc;

/// Minor version of the API since which models have defaults of generations.
const HAS_DEFAULTS: u32 = 4;

/// How to generate.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct GenOptions {
    pub max_tokens: u32,
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub repetition_window: u32,
    pub seed: u64,
    pub stop: Vec<String>,
    pub ignore_eos: bool,
    /// Token ids only: for artifacts without a tokenizer.
    pub no_text: bool,
    /// Adapter of the generation's own sequence; 0: none.
    pub adapter: i32,
    /// Where guesses of the next tokens come from.
    pub guesses: Guesses,
    /// Most guesses for a step; 0: as many as suit their source.
    pub most_guesses: u32,
    /// The model's own settings (`generation_config.json`) count, but for those that are given here: without
    /// `max_tokens` its limit holds, too.
    pub defaults: bool,
    /// Rows of the prompt's images, one after the other.
    pub images: Vec<f32>,
    /// Rows and columns of the tokens of each of them.
    pub grids: Vec<[u32; 2]>,
    /// The form of the text.
    pub form: Option<Form>,
}

/// A form of texts.
#[derive(Clone, Debug)]
pub struct Form {
    /// `LLMCC_GRAMMAR_*`.
    pub language: u32,
    /// The schema, expression, grammar, or JSON list of texts.
    pub source: String,
}

impl Default for GenOptions {
    /// The most probable tokens, without end.
    fn default() -> GenOptions {
        GenOptions {
            max_tokens: 0,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 0,
            seed: 0,
            stop: vec![],
            ignore_eos: false,
            no_text: false,
            adapter: 0,
            guesses: Guesses::Own,
            most_guesses: 0,
            defaults: false,
            images: vec![],
            grids: vec![],
            form: None,
        }
    }
}

/// Where guesses of the next tokens come from; they change no token.
#[derive(Clone, Debug)]
pub enum Guesses {
    /// From the model's draft heads, if it has any.
    Own,
    /// Nowhere.
    None,
    /// From the text so far.
    Lookup,
    /// From texts.
    Corpus(Rc<Corpus>),
    /// From the model's own predictions behind wrong guesses.
    Jacobi,
    /// From n-grams of these predictions.
    Lookahead,
    /// From another model.
    Model(Rc<Drafter>),
}

/// A model that guesses for another one.
pub struct Drafter {
    handle: *mut RawDrafter,
    /// Open as long as the handle.
    model: Model,
}

impl Drafter {
    /// A drafter of a model, in a sequence of its own.
    ///
    /// # Errors
    /// Errors of the artifact: it writes no text.
    pub fn new(model: Model) -> Result<Drafter, Error> {
        let mut handle = ptr::null_mut();
        // SAFETY: the model is open, the handle is written.
        model.check(unsafe { (model.api.llmcc_drafter_new)(model.model, &mut handle) })?;
        Ok(Drafter { handle, model })
    }

    /// Why it refuses tokens of a model with another vocabulary; `None` where both have as many tokens.
    pub fn differs(&self, model: &Model) -> Option<String> {
        let (own, other) = (self.model.info.vocab, model.info.vocab);
        (own < other).then(|| format!("its vocabulary has {own} tokens, the model's {other}: both need one tokenizer"))
    }
}

impl Drop for Drafter {
    fn drop(&mut self) {
        // SAFETY: freed once, before the model is closed.
        unsafe { (self.model.api.llmcc_drafter_free)(self.handle) }
    }
}

impl std::fmt::Debug for Drafter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drafter").finish_non_exhaustive()
    }
}

impl GenOptions {
    /// The source of guesses with its function and argument.
    fn guesses(&self) -> (u32, llmcc_guess, *mut c_void) {
        match &self.guesses {
            Guesses::Own => (LLMCC_GUESS_OWN, None, ptr::null_mut()),
            Guesses::None => (LLMCC_GUESS_NONE, None, ptr::null_mut()),
            Guesses::Lookup => (LLMCC_GUESS_LOOKUP, None, ptr::null_mut()),
            Guesses::Corpus(corpus) => (LLMCC_GUESS_CORPUS, None, corpus.handle),
            Guesses::Jacobi => (LLMCC_GUESS_JACOBI, None, ptr::null_mut()),
            Guesses::Lookahead => (LLMCC_GUESS_LOOKAHEAD, None, ptr::null_mut()),
            Guesses::Model(drafter) => {
                (LLMCC_GUESS_CALLER, Some(drafter.model.api.llmcc_drafter_guess), drafter.handle)
            }
        }
    }

    pub(super) fn sampling(&self) -> llmcc_sampling {
        llmcc_sampling {
            temperature: self.temperature,
            // Zeros would ask for the model's own way of choosing.
            top_k: if self.defaults && self.temperature == 0.0 { 1 } else { self.top_k },
            // 0 keeps one token, as the smallest share does, while in C it may be a field forgotten.
            top_p: if self.top_p == 0.0 { f32::MIN_POSITIVE } else { self.top_p },
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            repetition_window: self.repetition_window,
            seed: self.seed,
            ..llmcc_sampling::default()
        }
    }
}

impl Model {
    /// Chooses a token from one row of logits as `options` say; `history` is the sequence so far,
    /// `draw` numbers the choices of one seed.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn sample(&self, logits: &[f32], options: &GenOptions, history: &[i32], draw: u64) -> Result<i32, Error> {
        let (sampling, mut token) = (options.sampling(), -1);
        // SAFETY: arrays have the lengths stated.
        self.check(unsafe {
            (self.api.llmcc_sample)(
                logits.as_ptr(),
                logits.len(),
                &sampling,
                history.as_ptr(),
                history.len(),
                draw,
                &mut token,
            )
        })?;
        Ok(token)
    }

    /// Starts a generation after `prompt`, in sequence `seq` if given (whose cached prefix is
    /// reused), else in one of its own.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn generate(&self, seq: Option<i32>, prompt: &[i32], options: &GenOptions) -> Result<Generation<'_>, Error> {
        let stop: Result<Vec<CString>, _> = options.stop.iter().map(|s| CString::new(s.as_str())).collect();
        let stop = stop.map_err(|_| Error::Usage("a stop text must not contain NUL".into()))?;
        let pointers: Vec<*const c_char> = stop.iter().map(|s| s.as_ptr()).collect();
        let (guesses, guess, guess_user) = options.guesses();
        let params = llmcc_gen_params {
            size: size_of::<llmcc_gen_params>(),
            max_tokens: options.max_tokens.into(),
            sampling: options.sampling(),
            stop: pointers.as_ptr(),
            n_stop: pointers.len(),
            stop_tokens: ptr::null(),
            n_stop_tokens: 0,
            flags: if options.ignore_eos { LLMCC_GEN_IGNORE_EOS } else { 0 }
                | if options.no_text { LLMCC_GEN_NO_TEXT } else { 0 }
                | if options.defaults || self.minor < HAS_DEFAULTS { 0 } else { LLMCC_GEN_NO_DEFAULTS },
            top_logprobs: 0,
            adapter: if seq.is_none() { options.adapter } else { 0 },
            reserved: 0,
            reserved_1_4: 0,
            guesses,
            most_guesses: options.most_guesses,
            guess,
            guess_user,
            image_rows: options.images.as_ptr(),
            n_image_rows: options.images.len(),
            image_grids: options.grids.as_ptr().cast(),
            n_image_grids: options.grids.len(),
            min_tokens: 0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            bad_words: ptr::null(),
            bad_lengths: ptr::null(),
            n_bad: 0,
            grammar: options.form.as_ref().map_or(ptr::null(), |form| form.source.as_ptr().cast()),
            grammar_len: options.form.as_ref().map_or(0, |form| form.source.len()),
            grammar_language: options.form.as_ref().map_or(0, |form| form.language),
            reserved_1_9: 0,
            expected: ptr::null(),
            n_expected: 0,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: all arrays live through the call, which copies them.
        self.check(unsafe {
            (self.api.llmcc_gen_new)(self.model, seq.unwrap_or(-1), prompt.as_ptr(), prompt.len(), &params, &mut handle)
        })?;
        Ok(Generation { model: self, handle, ended: false, _guesses: options.guesses.clone() })
    }
}

/// A generation under way: an iterator of pieces.
pub struct Generation<'a> {
    model: &'a Model,
    handle: *mut RawGeneration,
    ended: bool,
    /// Their model is open as long as the handle.
    _guesses: Guesses,
}

/// One generated token and the text that became complete with it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Token; -1 if none.
    pub token: i32,
    /// Text.
    pub text: String,
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        // SAFETY: the generation is alive, the piece valid.
        Some(self.piece(|handle, piece| unsafe { (self.model.api.llmcc_gen_next)(handle, piece) }))
    }
}

impl Generation<'_> {
    /// The next piece by the row of logits after the last one, of a step in another sequence; there must be one.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn choose(&mut self, logits: &[f32]) -> Result<Piece, Error> {
        let (row, n) = (logits.as_ptr(), logits.len());
        // SAFETY: the generation is alive, the row has its length, the piece is valid.
        self.piece(|handle, piece| unsafe { (self.model.api.llmcc_gen_take)(handle, row, n, piece) })
    }

    /// Whether the last piece has come.
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn piece(&mut self, next: impl Fn(*mut RawGeneration, *mut llmcc_piece) -> RawStatus) -> Result<Piece, Error> {
        let mut piece = llmcc_piece::default();
        if let Err(e) = self.model.check(next(self.handle, &mut piece)) {
            self.ended = true;
            return Err(e);
        }
        self.ended = piece.finish != 0;
        let text = if piece.text.is_null() {
            String::new()
        } else {
            // SAFETY: `text_len` bytes, valid until the next call.
            String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(piece.text.cast::<u8>(), piece.text_len) })
                .into_owned()
        };
        Ok(Piece { token: piece.token, text })
    }

    /// Counts and times so far.
    ///
    /// # Errors
    /// Errors of the artifact.
    pub fn stats(&self) -> Result<llmcc_gen_stats_t, Error> {
        let mut stats = llmcc_gen_stats_t { size: size_of::<llmcc_gen_stats_t>(), ..llmcc_gen_stats_t::default() };
        // SAFETY: as in `next`.
        self.model.check(unsafe { (self.model.api.llmcc_gen_stats)(self.handle, &mut stats) })?;
        Ok(stats)
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { (self.model.api.llmcc_gen_free)(self.handle) }
    }
}
