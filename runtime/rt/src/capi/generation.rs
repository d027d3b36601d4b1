//! Generations: one token at a time, or a whole text with a callback.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handles::{CORPORA, GENERATIONS, MODELS, callback as in_callback};
use super::sequences::{Zeros, bias_from, sampling_from};
use super::types::*;
use super::{Model, Out, OutStruct, array, guard, guard_freeing, llmcc_model, null, owned, read_struct, utf8};
use crate::error::{Error, Result, Status};
use crate::generate::{Finish, GenParams, Generation, Images, Piece};
use crate::grammar::{Grammar, Language};
use crate::reserve::need;
use crate::rules::{Defaults, Rules};
use crate::sample::Sampling;
use crate::speculate::Guesses;
use crate::unload::Alive;

/// A generation under way, as C sees it: a number of [`GENERATIONS`].
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct llmcc_gen {
    _opaque: [u8; 0],
}

/// The object behind a generation handle.
pub struct Gen {
    pub(super) model: Arc<Model>,
    pub(super) state: Mutex<State>,
    _alive: Alive,
}

pub(super) struct State {
    /// Taken on drop.
    generation: Option<Generation>,
    last: Shown,
}

/// Memory of a piece that C reads.
pub(super) struct Shown {
    /// Its text, NUL-terminated.
    text: Vec<u8>,
    /// Its most probable tokens and their log-probabilities.
    top_tokens: Vec<i32>,
    top_logprobs: Vec<f64>,
    token: i32,
    logprob: f64,
}

impl Shown {
    /// That of a piece; `None`: no token, and no text.
    pub(super) fn new(piece: Option<Piece>) -> Shown {
        let token = piece.as_ref().map_or(-1, |p| p.token);
        let (text, logprob) = piece.map(|p| (p.text, p.logprob)).unwrap_or_default();
        let mut text = text.into_bytes();
        text.push(0);
        let top = logprob.as_ref().map_or(&[][..], |l| &l.top);
        Shown {
            text,
            top_tokens: top.iter().map(|t| t.token).collect(),
            top_logprobs: top.iter().map(|t| t.logprob).collect(),
            token,
            logprob: logprob.as_ref().map_or(0.0, |l| l.chosen),
        }
    }

    /// The piece, valid as long as this.
    pub(super) fn piece(&self, finish: Option<Finish>) -> llmcc_piece {
        llmcc_piece {
            size: size_of::<llmcc_piece>(),
            text: self.text.as_ptr().cast(),
            text_len: self.text.len() - 1,
            token: self.token,
            finish: finish.map_or(0, |f| f as i32),
            logprob: self.logprob,
            top_tokens: self.top_tokens.as_ptr(),
            top_logprobs: self.top_logprobs.as_ptr(),
            n_top: self.top_tokens.len(),
        }
    }
}

impl State {
    fn new(generation: Generation) -> State {
        State { generation: Some(generation), last: Shown::new(None) }
    }

    /// The generation, alive as long as its handle.
    pub(super) fn generation(&mut self) -> Result<&mut Generation> {
        self.generation.as_mut().ok_or_else(|| Error::new(Status::Internal, "the generation has been freed"))
    }

    /// Keeps the memory of a piece that C reads until the next one.
    pub(super) fn show(&mut self, piece: Option<Piece>) -> llmcc_piece {
        self.last = Shown::new(piece);
        self.last.piece(self.generation.as_ref().and_then(Generation::finish))
    }
}

impl Drop for Gen {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // (A fork has only copies of the sequence and of the engine, whose lock may be held for
        // ever.)
        if let Some(generation) = state.generation.take().filter(|_| !self.model.forked()) {
            // The sequence may have been freed by the caller already.
            let _ = generation.close(&mut self.model.engine());
        }
    }
}

impl Gen {
    fn new(model: &Arc<Model>, seq: Option<i32>, prompt: &[i32], params: GenParams) -> Result<Gen> {
        if model.text().is_some() && !params.no_text {
            // Read now, on a thread for such work, so that it is there when it is needed.
            model.tokenizer()?;
        }
        let generation = Generation::new(&mut model.engine(), model.text(), seq, prompt, params)?;
        Ok(Gen { model: model.clone(), state: Mutex::new(State::new(generation)), _alive: Alive::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece. The engine is released between the chunks of a long prompt.
    fn next(&self, state: &mut State) -> Result<Option<Piece>> {
        let generation = state.generation()?;
        generation.consult()?;
        let watch = self.model.watch();
        while generation.prefill(&mut self.model.engine())? {
            watch.check()?;
        }
        generation.next(&mut self.model.engine(), self.model.text())
    }

    fn stats(&self) -> Result<llmcc_gen_stats_t> {
        let mut state = self.state();
        let generation = state.generation()?;
        let (s, guesses) = (generation.stats(), generation.guessed());
        Ok(llmcc_gen_stats_t {
            size: size_of::<llmcc_gen_stats_t>(),
            prompt_tokens: s.prompt_tokens,
            reused_tokens: s.reused_tokens,
            generated_tokens: s.generated_tokens,
            prefill_ns: s.prefill_ns,
            decode_ns: s.decode_ns,
            finish: generation.finish().map_or(0, |f| f as i32),
            reserved: 0,
            guessed: guesses.guessed,
            accepted: guesses.accepted,
            guess_steps: guesses.steps,
        })
    }
}

/// Starts a generation.
///
/// # Safety
/// `model` is open, `prompt` has `n` elements, `params` is null or valid, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_gen_new(
    model: *const llmcc_model,
    seq: i32,
    prompt: *const i32,
    n: usize,
    params: *const llmcc_gen_params,
    out: *mut *mut llmcc_gen,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let out = Out::new(out, "out")?;
            let (model, prompt) = (MODELS.get(model)?, array(prompt, n, "prompt")?);
            need(8 * prompt.len())?;
            let flags = LLMCC_GEN_IGNORE_EOS
                | LLMCC_GEN_NO_TEXT
                | LLMCC_GEN_SHOW_SPECIAL
                | LLMCC_GEN_LOGPROBS
                | LLMCC_GEN_NO_DEFAULTS;
            let made = Gen::new(&model, (seq != -1).then_some(seq), prompt, gen_params(params, flags, &model)?)?;
            out.set(GENERATIONS.insert(Arc::new(made)).cast());
        }
        Ok(())
    })
}

/// Generates one token. After the last one, `token` is -1 and `finish` repeats the reason.
///
/// # Safety
/// `generation` is alive, `piece` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_gen_next(generation: *const llmcc_gen, piece: *mut llmcc_piece) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (generation, piece) = unsafe { (GENERATIONS.get(generation)?, OutStruct::new(piece)?) };
        let mut state = generation.state();
        let next = generation.next(&mut state)?;
        let value = state.show(next);
        piece.set(&value)
    })
}

/// The next token by a row of logits that the caller has. After the last one, `token` is -1 and
/// `finish` repeats the reason.
///
/// # Safety
/// `generation` is alive, `logits` has `n_logits` elements, `piece` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_gen_take(
    generation: *const llmcc_gen,
    logits: *const f32,
    n_logits: usize,
    piece: *mut llmcc_piece,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (generation, logits, piece) =
            unsafe { (GENERATIONS.get(generation)?, array(logits, n_logits, "logits")?, OutStruct::new(piece)?) };
        let (mut state, model) = (generation.state(), &generation.model);
        let next = state.generation()?.take(logits, &model.engine(), model.text())?;
        let value = state.show(next);
        piece.set(&value)
    })
}

/// Counts and times of a generation so far.
///
/// # Safety
/// `generation` is alive, `stats` valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_gen_stats(generation: *const llmcc_gen, stats: *mut llmcc_gen_stats_t) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (generation, stats) = unsafe { (GENERATIONS.get(generation)?, OutStruct::new(stats)?) };
        stats.set(&generation.stats()?)
    })
}

/// Frees a generation; null is fine.
///
/// # Safety
/// None: any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_gen_free(generation: *mut llmcc_gen) {
    guard_freeing(|| {
        GENERATIONS.close(generation, |_| ());
        Ok(())
    });
}

/// Continues a text, calling back with each piece.
///
/// # Safety
/// `model` is open, `prompt` has `len` bytes, `params` and `stats` are null or valid, `callback`
/// may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llmcc_generate(
    model: *const llmcc_model,
    prompt: *const c_char,
    len: usize,
    params: *const llmcc_gen_params,
    callback: llmcc_callback,
    user: *mut c_void,
    stats: *mut llmcc_gen_stats_t,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, prompt) = unsafe { (MODELS.get(model)?, utf8(prompt, len, "prompt")?) };
        // SAFETY: the caller's promise.
        let stats = unsafe { (!stats.is_null()).then(|| OutStruct::new(stats)).transpose()? };
        // SAFETY: the caller's promise.
        let (raw, params) = unsafe {
            let raw = read_struct(params)?.flags & LLMCC_GEN_RAW_PROMPT != 0;
            let flags = LLMCC_GEN_IGNORE_EOS | LLMCC_GEN_SHOW_SPECIAL | LLMCC_GEN_RAW_PROMPT | LLMCC_GEN_NO_DEFAULTS;
            (raw, gen_params(params, flags, &model)?)
        };
        params.sampling.check()?;
        let watch = model.watch();
        model.tokenizer()?;
        let own = owned(prompt)?;
        let tokens = model.with_text(prompt.len(), move |t| t.tokenizer()?.encode(&own, !raw))?;
        let generation = Gen::new(&model, None, &tokens, params)?;
        loop {
            model.check_open()?;
            watch.check()?;
            let Some(piece) = generation.next(&mut generation.state())? else { break };
            let Some(callback) = callback else { continue };
            let mut text = piece.text.into_bytes();
            text.push(0);
            // SAFETY: the caller's promise. No lock is held, so the callback may use the API.
            if in_callback(|| unsafe { callback(user, text.as_ptr().cast(), text.len() - 1, piece.token) }) != 0 {
                break;
            }
        }
        match stats {
            Some(stats) => stats.set(&generation.stats()?),
            None => Ok(()),
        }
    })
}

/// How tokens are chosen: as the structure says, or where it says nothing, as the model does.
fn with_defaults(c: &llmcc_sampling, zeros: Zeros, own: &Defaults) -> Result<Sampling> {
    // (1 is the value with which each of them is off.)
    let off = |x: f32| x == 0.0 || x == 1.0;
    let nothing = c.temperature == 0.0 && c.top_k == 0 && c.min_p == 0.0 && off(c.top_p) && off(c.repetition_penalty);
    if !nothing {
        // Nothing in the structure stands for this one.
        return Ok(Sampling { typical_p: own.sampling.typical_p, ..sampling_from(c, zeros)? });
    }
    let plain = sampling_from(c, zeros)?;
    let window = if plain.repetition_window == 0 { own.sampling.repetition_window } else { plain.repetition_window };
    Ok(Sampling { seed: plain.seed, repetition_window: window, ..own.sampling })
}

/// A function of the caller's that guesses, with its argument.
struct Guesser {
    guess: unsafe extern "C" fn(*mut c_void, *const i32, usize, *mut i32, usize) -> i32,
    user: *mut c_void,
}

// SAFETY: the caller promises that the function may be called by any thread that uses the generation.
unsafe impl Send for Guesser {}
// SAFETY: as above; a generation is used by one thread at a time.
unsafe impl Sync for Guesser {}

impl Guesser {
    fn propose(&self, tokens: &[i32], most: usize) -> Result<Vec<i32>> {
        let mut out = vec![0; most];
        // SAFETY: the caller's promise; the arrays have their lengths.
        let made = in_callback(|| unsafe {
            (self.guess)(self.user, tokens.as_ptr(), tokens.len(), out.as_mut_ptr(), out.len())
        });
        match usize::try_from(made) {
            Ok(n) if n <= most => {
                out.truncate(n);
                Ok(out)
            }
            Ok(n) => {
                Err(Error::invalid(format!("llmcc_gen_params.guess stored {n} tokens where there is room for {most}")))
            }
            Err(_) => Err(Error::invalid(format!("llmcc_gen_params.guess failed with {made}"))),
        }
    }
}

/// Where guesses come from.
fn guesses(c: &llmcc_gen_params) -> Result<Guesses> {
    if c.guess.is_some() != (c.guesses == LLMCC_GUESS_CALLER) {
        return Err(Error::invalid("llmcc_gen_params.guess goes with LLMCC_GUESS_CALLER, and that with a function"));
    }
    Ok(match (c.guesses, c.guess) {
        (LLMCC_GUESS_OWN, _) => Guesses::Own,
        (LLMCC_GUESS_NONE, _) => Guesses::None,
        (LLMCC_GUESS_HEADS, _) => Guesses::Heads,
        (LLMCC_GUESS_LOOKUP, _) => Guesses::Lookup,
        (LLMCC_GUESS_CORPUS, _) => Guesses::Corpus(CORPORA.get(c.guess_user.cast_const())?.corpus.clone()),
        (LLMCC_GUESS_JACOBI, _) => Guesses::Jacobi,
        (LLMCC_GUESS_LOOKAHEAD, _) => Guesses::Lookahead,
        (LLMCC_GUESS_CALLER, Some(guess)) => {
            let guesser = Guesser { guess, user: c.guess_user };
            Guesses::Caller(Arc::new(move |tokens: &[i32], most| guesser.propose(tokens, most)))
        }
        (unknown, _) => {
            return Err(Error::invalid(format!("llmcc_gen_params.guesses is {unknown}; use LLMCC_GUESS_*")));
        }
    })
}

/// A copy of a prompt's images.
///
/// # Safety
/// The arrays have their lengths.
unsafe fn images(c: &llmcc_gen_params) -> Result<Images> {
    // SAFETY: the caller's promise.
    let (rows, grids) = unsafe {
        (array(c.image_rows, c.n_image_rows, "image_rows")?, super::image::grids_of(c.image_grids, c.n_image_grids)?)
    };
    need(4 * rows.len())?;
    Ok(Images { rows: rows.to_vec(), grids })
}

/// The model's rules with those that the structure asks for.
///
/// # Safety
/// The arrays have their lengths.
unsafe fn rules(c: &llmcc_gen_params, own: &Defaults, vocab: usize) -> Result<Arc<Rules>> {
    for (name, value) in [("presence_penalty", c.presence_penalty), ("frequency_penalty", c.frequency_penalty)] {
        if !value.is_finite() {
            return Err(Error::invalid(format!("llmcc_gen_params.{name} is {value}; use a finite number")));
        }
    }
    if c.min_tokens == 0 && c.presence_penalty == 0.0 && c.frequency_penalty == 0.0 && c.n_bad == 0 {
        return Ok(own.rules.clone());
    }
    let mut rules = (*own.rules).clone();
    // SAFETY: the caller's promise.
    let lengths = unsafe { array(c.bad_lengths, c.n_bad, "bad_lengths")? };
    let all = lengths.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
    // SAFETY: the caller's promise.
    let mut words = unsafe { array(c.bad_words, all, "bad_words")? };
    need(64 * lengths.len() + 8 * all)?;
    for (i, length) in lengths.iter().enumerate() {
        let (word, rest) = words.split_at(*length);
        words = rest;
        let outside = |token: &&i32| !usize::try_from(**token).is_ok_and(|token| token < vocab);
        match (word, word.iter().find(outside)) {
            ([], _) => return Err(Error::invalid(format!("bad word {i} has no tokens; leave it out"))),
            (_, Some(token)) => {
                let message = format!("bad word {i} has token {token}, outside the vocabulary of {vocab}");
                return Err(Error::invalid(message));
            }
            (word, None) => rules.sequences.push((word.to_vec(), f32::NEG_INFINITY)),
        }
    }
    rules.min_new = rules.min_new.max(usize::try_from(c.min_tokens).unwrap_or(usize::MAX));
    (rules.presence, rules.frequency) = (c.presence_penalty, c.frequency_penalty);
    Ok(Arc::new(rules))
}

/// Most new tokens and the longest sequence: the caller's limit takes the place of both of the model's.
fn longest(c: &llmcc_gen_params, own: &Defaults) -> (usize, usize) {
    match (c.max_tokens, own.max_new_tokens) {
        (0, 0) => (0, own.max_length),
        (0, most) => (most, 0),
        (most, _) => (usize::try_from(most).unwrap_or(usize::MAX), 0),
    }
}

/// The form that the text has, compiled on a thread of the model's.
///
/// # Safety
/// The text has its length.
unsafe fn grammar(c: &llmcc_gen_params, model: &Model) -> Result<Option<Grammar>> {
    let language = match c.grammar_language {
        0 if c.grammar.is_null() => return Ok(None),
        LLMCC_GRAMMAR_JSON_SCHEMA => Language::JsonSchema,
        LLMCC_GRAMMAR_REGEX => Language::Regex,
        LLMCC_GRAMMAR_LARK => Language::Lark,
        LLMCC_GRAMMAR_CHOICES => Language::Choices,
        unknown => {
            let message = format!("llmcc_gen_params.grammar_language is {unknown}; use LLMCC_GRAMMAR_*");
            return Err(Error::invalid(message));
        }
    };
    if c.flags & LLMCC_GEN_NO_TEXT != 0 {
        return Err(Error::invalid("a grammar is of text, which LLMCC_GEN_NO_TEXT turns off; leave one out"));
    }
    // SAFETY: the caller's promise.
    let source = owned(unsafe { utf8(c.grammar, c.grammar_len, "grammar")? })?;
    model.tokenizer()?;
    model.with_text(source.len(), move |text| text.grammar(language, &source)).map(Some)
}

/// The C structure's meaning.
///
/// # Safety
/// `p` is null or valid, with valid arrays.
pub(super) unsafe fn gen_params(p: *const llmcc_gen_params, known_flags: u32, model: &Model) -> Result<GenParams> {
    // SAFETY: the caller's promise.
    unsafe {
        let c = read_struct(p)?;
        if c.flags & !known_flags != 0 {
            let message = format!(
                "llmcc_gen_params.flags has bits this function does not accept: {:#x}; clear them",
                c.flags & !known_flags
            );
            return Err(Error::invalid(message));
        }
        if c.reserved != 0 || c.reserved_1_4 != 0 || c.reserved_1_9 != 0 {
            return Err(Error::invalid("llmcc_gen_params.reserved must be zero"));
        }
        let since_1_4 = c.size >= offset_of!(llmcc_gen_params, guesses);
        let zeros = if since_1_4 { Zeros::Numbers } else { Zeros::Defaults };
        let logprobs = c.flags & LLMCC_GEN_LOGPROBS != 0;
        if c.top_logprobs > 0 && !logprobs {
            return Err(Error::invalid("llmcc_gen_params.top_logprobs needs the flag LLMCC_GEN_LOGPROBS"));
        }
        let (lists, mut stop) = (c.n_stop.saturating_add(c.n_stop_tokens).saturating_add(c.n_expected), Vec::new());
        need(lists.saturating_add(c.sampling.n_bias as usize).saturating_mul(64))?;
        for &text in array(c.stop, c.n_stop, "stop")? {
            if text.is_null() {
                return Err(null("a stop string"));
            }
            let bytes = CStr::from_ptr(text).to_bytes();
            need(2 * bytes.len())?;
            stop.push(utf8(bytes.as_ptr().cast(), bytes.len(), "a stop string")?.to_owned());
        }
        let none = Defaults::default();
        let own = if c.flags & LLMCC_GEN_NO_DEFAULTS == 0 { model.defaults() } else { &none };
        let no_text = c.flags & LLMCC_GEN_NO_TEXT != 0 || model.text().is_none();
        stop.extend(own.stop.iter().filter(|_| !no_text).cloned());
        let (max_tokens, max_length) = longest(&c, own);
        Ok(GenParams {
            max_tokens,
            max_length,
            sampling: with_defaults(&c.sampling, zeros, own)?,
            bias: bias_from(&c.sampling, model.vocab())?,
            rules: rules(&c, own, model.vocab())?,
            logprobs: logprobs.then_some(c.top_logprobs as usize),
            stop,
            stop_tokens: array(c.stop_tokens, c.n_stop_tokens, "stop_tokens")?.to_vec(),
            ignore_eos: c.flags & LLMCC_GEN_IGNORE_EOS != 0,
            no_text: c.flags & LLMCC_GEN_NO_TEXT != 0,
            show_special: c.flags & LLMCC_GEN_SHOW_SPECIAL != 0,
            adapter: c.adapter,
            guesses: guesses(&c)?,
            most_guesses: c.most_guesses as usize,
            expected: array(c.expected, c.n_expected, "expected")?.to_vec(),
            starts: model.defaults().starts.clone(),
            images: images(&c)?,
            grammar: grammar(&c, model)?,
        })
    }
}
