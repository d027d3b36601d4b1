//! Structures of `include/llmcc.h`, field by field, for the runtime that implements the C API and
//! the command line that calls it; a test of the runtime compares their layout with the C
//! compiler's.
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_void};

/// Version of this API: the major one in the upper 16 bits changes when programs must be compiled
/// again, the minor one in the lower when something is added.
pub const LLMCC_ABI_VERSION: u32 = 1 << 16 | 12;

/// Options of `llmcc_open`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_options {
    /// `sizeof(llmcc_options)`.
    pub size: usize,
    /// Threads; 0: one per physical core.
    pub threads: u32,
    /// [`LLMCC_OPEN_PROFILE`], [`LLMCC_OPEN_PIN`], [`LLMCC_OPEN_PORTABLE`].
    pub flags: u32,
    /// Tokens of the KV cache; 0: automatic.
    pub max_tokens: u64,
    /// Tokens per step; 0: automatic.
    pub max_batch_tokens: u64,
}

/// Measure every kernel.
pub const LLMCC_OPEN_PROFILE: u32 = 1;
/// Keep each thread on a processor of its own.
pub const LLMCC_OPEN_PIN: u32 = 2;
/// The same bits on every processor.
pub const LLMCC_OPEN_PORTABLE: u32 = 4;

/// Facts about a model.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct llmcc_model_info {
    /// `sizeof(llmcc_model_info)`.
    pub size: usize,
    /// Vocabulary size.
    pub vocab: u64,
    /// Model width.
    pub hidden: u64,
    /// Attention layers.
    pub layers: u64,
    /// Longest sequence.
    pub max_context: u64,
    /// Bytes of weights.
    pub weights_bytes: u64,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Bytes of cache per token.
    pub kv_bytes_per_token: u64,
    /// Tokens the cache holds.
    pub max_tokens: u64,
    /// Largest step.
    pub max_batch_tokens: u64,
    /// Activations and scratch of the largest step.
    pub activation_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Isa level of the code.
    pub isa: u32,
    /// Beginning-of-sequence token, -1: none.
    pub bos_token: i32,
    /// [`LLMCC_HAS_TOKENIZER`], [`LLMCC_HAS_CHAT_TEMPLATE`], [`LLMCC_IS_NORMALIZED`], [`LLMCC_IS_WHOLE`],
    /// [`LLMCC_HAS_TYPES`], [`LLMCC_NEEDS_HIDDEN`], [`LLMCC_HAS_HIDDEN`],
    /// [`LLMCC_NEEDS_SOURCE`], [`LLMCC_HEARS`].
    pub flags: u32,
    /// Columns of the output.
    pub columns: u64,
    /// [`LLMCC_OUTPUT_LOGITS`], [`LLMCC_OUTPUT_EMBEDDING`], [`LLMCC_OUTPUT_SCORES`].
    pub output: u32,
    /// Entries of the model ([`llmcc_entry_info`]).
    pub entries: u32,
    /// Columns of the rows that `llmcc_embed` gives; 0: it refuses.
    pub embed_columns: u64,
    /// The token that stands for a row of an image, with [`LLMCC_SEES`]; -1: none. Since 1.8.
    pub image_token: i32,
    /// Zero.
    pub reserved: u32,
}

/// An entry of a model.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct llmcc_entry_info {
    /// `sizeof(llmcc_entry_info)`.
    pub size: usize,
    /// [`LLMCC_OUTPUT_LOGITS`], [`LLMCC_OUTPUT_EMBEDDING`], [`LLMCC_OUTPUT_SCORES`].
    pub output: u32,
    /// How the rows of a text become one ([`LLMCC_POOL_MEAN`] and others); 0: not at all.
    pub pool: u32,
    /// Columns of the output.
    pub columns: u64,
    /// [`LLMCC_IS_NORMALIZED`], [`LLMCC_IS_WHOLE`], [`LLMCC_HAS_TYPES`], [`LLMCC_NEEDS_HIDDEN`], [`LLMCC_HAS_HIDDEN`],
    /// [`LLMCC_NEEDS_SOURCE`].
    pub flags: u32,
    /// Types that a token may be of; 0: tokens have none.
    pub types: u32,
    /// Columns of the rows that come with tokens, with [`LLMCC_NEEDS_HIDDEN`]; 0: none do. Since 1.7.
    pub given: u64,
    /// Longest sequence of the entry, in tokens. Since 1.7.
    pub context: u64,
    /// Axes along which tokens have positions; 0: their places in sequences are all that counts. Since 1.8.
    pub axes: u64,
}

/// Clips of sound that a model reads.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct llmcc_audio_info {
    /// `sizeof(llmcc_audio_info)`.
    pub size: usize,
    /// Samples of a clip.
    pub samples: u64,
    /// Rows of the encoder that a clip becomes.
    pub rows: u64,
    /// Columns of a row.
    pub columns: u64,
    /// Samples per second.
    pub rate: u32,
    /// Zero.
    pub reserved: u32,
}

/// Axes along which tokens have positions, in entries where they do: time, height, width.
pub const LLMCC_AXES: u32 = 3;

/// Pooling of a text's rows: their mean.
pub const LLMCC_POOL_MEAN: u32 = 1;
/// The first token's row.
pub const LLMCC_POOL_FIRST: u32 = 2;
/// The last token's row.
pub const LLMCC_POOL_LAST: u32 = 3;
/// The largest of each column.
pub const LLMCC_POOL_MAX: u32 = 4;
/// The sum over the root of the number of rows.
pub const LLMCC_POOL_ROOT: u32 = 5;
/// A mean in which the first row weighs 1, the second 2, and so on.
pub const LLMCC_POOL_WEIGHTED: u32 = 6;

/// The artifact has a tokenizer.
pub const LLMCC_HAS_TOKENIZER: u32 = 1;
/// The artifact has a chat template.
pub const LLMCC_HAS_CHAT_TEMPLATE: u32 = 2;
/// Embeddings have length 1.
pub const LLMCC_IS_NORMALIZED: u32 = 4;
/// A sequence is computed in one step.
pub const LLMCC_IS_WHOLE: u32 = 8;
/// Tokens have types.
pub const LLMCC_HAS_TYPES: u32 = 16;
/// Tokens come with rows of the model that this one drafts for.
pub const LLMCC_NEEDS_HIDDEN: u32 = 32;
/// Steps leave the hidden states of their tokens.
pub const LLMCC_HAS_HIDDEN: u32 = 64;
/// Sequences have a source, which tokens attend to.
pub const LLMCC_NEEDS_SOURCE: u32 = 128;
/// The source is a clip of sound.
pub const LLMCC_HEARS: u32 = 256;
/// Prompts may have images.
pub const LLMCC_SEES: u32 = 512;

/// The model writes text.
pub const LLMCC_OUTPUT_LOGITS: u32 = 0;
/// It makes embeddings.
pub const LLMCC_OUTPUT_EMBEDDING: u32 = 1;
/// It gives scores of classes.
pub const LLMCC_OUTPUT_SCORES: u32 = 2;

/// A ragged batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_batch {
    /// `sizeof(llmcc_batch)`.
    pub size: usize,
    /// Tokens.
    pub n_tokens: usize,
    /// Token ids.
    pub tokens: *const i32,
    /// Sequence of each token.
    pub seqs: *const i32,
    /// Rows for which logits are wanted.
    pub n_out: usize,
    /// Token indices of these rows.
    pub out_rows: *const u32,
    /// A row of each token, `[n_tokens, given]` ([`llmcc_entry_info::given`]), with [`LLMCC_NEEDS_HIDDEN`]; null:
    /// none.
    pub hidden: *const f32,
    /// Where the hidden state of each token goes, `[n_tokens, hidden]`, with [`LLMCC_HAS_HIDDEN`]; null:
    /// nowhere.
    pub hidden_out: *mut f32,
    /// Positions of each token along the axes, `[n_tokens, axes]` ([`llmcc_entry_info::axes`]); null: along all of them
    /// one more than the largest before it in its sequence. Since 1.8.
    pub positions: *const i32,
}

/// Rows to embed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_embed_rows {
    /// `sizeof(llmcc_embed_rows)`.
    pub size: usize,
    /// Rows.
    pub n_rows: usize,
    /// Tokens of each row.
    pub lengths: *const usize,
    /// Token ids, one row after the other.
    pub tokens: *const i32,
    /// [`LLMCC_EMBED_NORMALIZE`], [`LLMCC_EMBED_RAW`] or neither.
    pub flags: u32,
    /// [`LLMCC_POOL_MEAN`] and others; 0: as the model says.
    pub pool: u32,
    /// Type of each token; null: 0.
    pub types: *const i32,
}

/// Results have length 1, whatever the model says.
pub const LLMCC_EMBED_NORMALIZE: u32 = 1;
/// Results are as they are, whatever the model says.
pub const LLMCC_EMBED_RAW: u32 = 2;

/// Inputs of products of a model.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct llmcc_tap_info {
    /// `sizeof(llmcc_tap_info)`.
    pub size: usize,
    /// Columns of an input.
    pub columns: u64,
    /// Weights that multiply it.
    pub n_weights: u64,
    /// Experts; 0: the products are the same for all tokens.
    pub experts: u32,
    /// Number of the function's call, mostly the layer's.
    pub call: u32,
}

/// Moments of the inputs of a tap, in arrays of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_moments {
    /// Number of the tap.
    pub tap: usize,
    /// Inputs, by expert.
    pub count: *mut u64,
    /// Sums of squares, by expert and column.
    pub squares: *mut f64,
    /// Least numbers, the same way.
    pub min: *mut f32,
    /// Largest numbers, the same way.
    pub max: *mut f32,
    /// Sums of products, by expert, column and column; null: not wanted.
    pub products: *mut f64,
}

/// Two texts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_pair {
    /// UTF-8.
    pub first: *const c_char,
    /// Bytes.
    pub first_len: usize,
    /// UTF-8.
    pub second: *const c_char,
    /// Bytes.
    pub second_len: usize,
}

/// Pairs that are too long for the model are cut, the longer text first.
pub const LLMCC_PAIR_TRUNCATE: u32 = 1;

/// A number added to the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct llmcc_logit_bias {
    /// Token id.
    pub token: i32,
    /// Added to its logit; -infinity bans it.
    pub value: f32,
}

/// How to choose a token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_sampling {
    /// 0: greedy.
    pub temperature: f32,
    /// 0: all.
    pub top_k: u32,
    /// 1: all.
    pub top_p: f32,
    /// 0: all.
    pub min_p: f32,
    /// 1: none.
    pub repetition_penalty: f32,
    /// 0: all.
    pub repetition_window: u32,
    /// Start of the random numbers.
    pub seed: u64,
    /// Added to logits before anything else.
    pub bias: *const llmcc_logit_bias,
    /// Number of these.
    pub n_bias: u32,
    /// Zero.
    pub reserved: u32,
}

impl Default for llmcc_sampling {
    /// `LLMCC_SAMPLING_INIT`: the most probable token.
    fn default() -> Self {
        llmcc_sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 0,
            seed: 0,
            bias: core::ptr::null(),
            n_bias: 0,
            reserved: 0,
        }
    }
}

/// Parameters of a generation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_gen_params {
    /// `sizeof(llmcc_gen_params)`.
    pub size: usize,
    /// 0: no limit.
    pub max_tokens: u64,
    /// Choice of tokens.
    pub sampling: llmcc_sampling,
    /// NUL-terminated UTF-8 texts that end the generation.
    pub stop: *const *const c_char,
    /// Number of these.
    pub n_stop: usize,
    /// Tokens that end the generation.
    pub stop_tokens: *const i32,
    /// Number of these.
    pub n_stop_tokens: usize,
    /// `LLMCC_GEN_*`.
    pub flags: u32,
    /// With [`LLMCC_GEN_LOGPROBS`]: so many of the most probable tokens, too.
    pub top_logprobs: u32,
    /// Adapter of the generation's own sequence; 0: none.
    pub adapter: i32,
    /// 0.
    pub reserved: u32,
    /// Must be 0; a structure that is large enough for this field is of version 1.4 or later, which
    /// gives zeros in `sampling` another meaning.
    pub reserved_1_4: u64,
    /// [`LLMCC_GUESS_OWN`] and others.
    pub guesses: u32,
    /// Most guesses for a step; 0: as many as suit their source.
    pub most_guesses: u32,
    /// With [`LLMCC_GUESS_CALLER`]: the function that guesses.
    pub guess: llmcc_guess,
    /// Its first argument; with [`LLMCC_GUESS_CORPUS`] the corpus.
    pub guess_user: *mut c_void,
    /// Rows of the prompt's images, `[hidden]` for each token that stands for one, with [`LLMCC_SEES`]; null: none.
    pub image_rows: *const f32,
    /// Floats of these.
    pub n_image_rows: usize,
    /// Rows and columns of each image's tokens, as `llmcc_image_grid` says; null: every image has as many tokens, in
    /// one row. Since 1.8.
    pub image_grids: *const u32,
    /// Images of these.
    pub n_image_grids: usize,
    /// Tokens before which the text does not end by a token of the model's. Since 1.9.
    pub min_tokens: u64,
    /// Taken from the logits of generated tokens.
    pub presence_penalty: f32,
    /// Taken from them for each time that they were generated.
    pub frequency_penalty: f32,
    /// Sequences of tokens that the text does not have, one after the other.
    pub bad_words: *const i32,
    /// Tokens of each.
    pub bad_lengths: *const usize,
    /// Number of these.
    pub n_bad: usize,
    /// A grammar of the text: UTF-8, `grammar_len` bytes; null: none.
    pub grammar: *const c_char,
    /// Bytes of it.
    pub grammar_len: usize,
    /// Its language: [`LLMCC_GRAMMAR_JSON_SCHEMA`] and others.
    pub grammar_language: u32,
    /// Zero.
    pub reserved_1_9: u32,
    /// Tokens that the text is expected to begin with: guesses, which change no token. Since 1.11.
    pub expected: *const i32,
    /// Number of these.
    pub n_expected: usize,
}

/// The grammar is a JSON schema.
pub const LLMCC_GRAMMAR_JSON_SCHEMA: u32 = 1;
/// The grammar is a regular expression.
pub const LLMCC_GRAMMAR_REGEX: u32 = 2;
/// The grammar is one of Lark.
pub const LLMCC_GRAMMAR_LARK: u32 = 3;
/// The grammar is a JSON list of texts.
pub const LLMCC_GRAMMAR_CHOICES: u32 = 4;

/// Guesses of draft heads where the model has some.
pub const LLMCC_GUESS_OWN: u32 = 0;
/// No guesses.
pub const LLMCC_GUESS_NONE: u32 = 1;
/// Guesses of draft heads, which the model must have.
pub const LLMCC_GUESS_HEADS: u32 = 2;
/// Guesses by what followed where the last tokens stood before.
pub const LLMCC_GUESS_LOOKUP: u32 = 3;
/// Guesses of the caller's function.
pub const LLMCC_GUESS_CALLER: u32 = 4;
/// Guesses by texts of the caller's, `guess_user`, else as [`LLMCC_GUESS_LOOKUP`].
pub const LLMCC_GUESS_CORPUS: u32 = 5;
/// Guesses by the model's predictions behind the last step's wrong guesses.
pub const LLMCC_GUESS_JACOBI: u32 = 6;
/// Guesses by n-grams of all these predictions.
pub const LLMCC_GUESS_LOOKAHEAD: u32 = 7;

/// Stores up to `capacity` tokens that may follow `tokens` in `out`; their number, or -1 for a failure.
pub type llmcc_guess = Option<
    unsafe extern "C" fn(user: *mut c_void, tokens: *const i32, n: usize, out: *mut i32, capacity: usize) -> i32,
>;

/// `llmcc_tokenize`: add the model's own start and end tokens.
pub const LLMCC_ADD_SPECIAL: u32 = 1;
/// `llmcc_detokenize`: show special tokens.
pub const LLMCC_SHOW_SPECIAL: u32 = 2;

/// `llmcc_tokenize`: the text has the prompt that it is to have.
pub const LLMCC_NO_PROMPT: u32 = 4;

/// Generate on after end-of-sequence tokens.
pub const LLMCC_GEN_IGNORE_EOS: u32 = 1;
/// Produce tokens only.
pub const LLMCC_GEN_NO_TEXT: u32 = 2;
/// Show special tokens in the text.
pub const LLMCC_GEN_SHOW_SPECIAL: u32 = 4;
/// `llmcc_generate`: the prompt comes from a chat template, add no special tokens.
pub const LLMCC_GEN_RAW_PROMPT: u32 = 8;
/// `llmcc_gen_new`: pieces have log-probabilities.
pub const LLMCC_GEN_LOGPROBS: u32 = 16;
/// Nothing of the model's `generation_config.json` counts.
pub const LLMCC_GEN_NO_DEFAULTS: u32 = 32;

/// The text leaves the token out, unless it is asked for.
pub const LLMCC_TOKEN_SPECIAL: u32 = 1;
/// The token is a single byte.
pub const LLMCC_TOKEN_BYTE: u32 = 2;
/// The token ends a generation.
pub const LLMCC_TOKEN_ENDS: u32 = 4;
/// The tokenizer has no such token.
pub const LLMCC_TOKEN_UNUSED: u32 = 8;

/// One generated token.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_piece {
    /// `sizeof(llmcc_piece)`.
    pub size: usize,
    /// UTF-8 text, NUL-terminated.
    pub text: *const c_char,
    /// Bytes of it.
    pub text_len: usize,
    /// Token id, -1 after the end.
    pub token: i32,
    /// 0 or the reason of the end.
    pub finish: i32,
    /// Log-probability of the token; 0 if not asked for.
    pub logprob: f64,
    /// The most probable tokens.
    pub top_tokens: *const i32,
    /// Their log-probabilities.
    pub top_logprobs: *const f64,
    /// How many there are.
    pub n_top: usize,
}

impl Default for llmcc_piece {
    /// No token yet.
    fn default() -> Self {
        llmcc_piece {
            size: size_of::<llmcc_piece>(),
            text: core::ptr::null(),
            text_len: 0,
            token: -1,
            finish: 0,
            logprob: 0.0,
            top_tokens: core::ptr::null(),
            top_logprobs: core::ptr::null(),
            n_top: 0,
        }
    }
}

/// Counts and times.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct llmcc_gen_stats_t {
    /// `sizeof(llmcc_gen_stats_t)`.
    pub size: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that were found in the cache.
    pub reused_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Time to the first token.
    pub prefill_ns: u64,
    /// Time of the others.
    pub decode_ns: u64,
    /// Reason of the end, 0 while under way.
    pub finish: i32,
    /// Zero.
    pub reserved: u32,
    /// Tokens that were guessed.
    pub guessed: u64,
    /// Guesses that became part of the text.
    pub accepted: u64,
    /// Steps that evaluated guesses.
    pub guess_steps: u64,
}

/// Called with each piece of text; a nonzero result stops the generation.
pub type llmcc_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char, len: usize, token: i32) -> i32>;

/// An engine shares nothing that it has computed between requests.
pub const LLMCC_ENGINE_NO_PREFIXES: u32 = 1;

/// Limits of an engine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_engine_options {
    /// `sizeof(llmcc_engine_options)`.
    pub size: usize,
    /// Most requests in a step; 0: 64.
    pub max_running: u32,
    /// `LLMCC_ENGINE_*`.
    pub flags: u32,
    /// Most requests beside these; 0: 4096.
    pub max_queued: u64,
    /// Nanoseconds between two tokens of a request that prompts of others may cause; 0: the engine's choice.
    pub target_ns: u64,
    /// Most bytes of pages that stay after their requests; 0: as many as the cache has.
    pub prefix_bytes: u64,
    /// A folder in which computed beginnings survive the process, UTF-8, `cache_dir_len` bytes; null: none. Since 1.10.
    pub cache_dir: *const c_char,
    /// Bytes of `cache_dir`.
    pub cache_dir_len: usize,
    /// Most bytes of the files there; 0: 8 GiB.
    pub cache_dir_bytes: u64,
}

impl Default for llmcc_engine_options {
    /// The engine's own choices.
    fn default() -> Self {
        llmcc_engine_options {
            size: size_of::<llmcc_engine_options>(),
            max_running: 0,
            flags: 0,
            max_queued: 0,
            target_ns: 0,
            prefix_bytes: 0,
            cache_dir: core::ptr::null(),
            cache_dir_len: 0,
            cache_dir_bytes: 0,
        }
    }
}

/// A request to an engine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_request {
    /// `sizeof(llmcc_request)`.
    pub size: usize,
    /// UTF-8, `len` bytes; null: `tokens` are the prompt.
    pub text: *const c_char,
    /// Bytes of `text`.
    pub len: usize,
    /// The prompt, the whole sequence from its first token.
    pub tokens: *const i32,
    /// Number of `tokens`.
    pub n_tokens: usize,
    /// Null: the model's defaults.
    pub params: *const llmcc_gen_params,
    /// Larger ones go first.
    pub priority: i32,
    /// Zero.
    pub reserved: u32,
    /// Nanoseconds from now after which the request ends; 0: never.
    pub timeout_ns: u64,
    /// Requests share computed tokens with those of the same number only.
    pub salt: u64,
}

impl Default for llmcc_request {
    /// No prompt.
    fn default() -> Self {
        llmcc_request {
            size: size_of::<llmcc_request>(),
            text: core::ptr::null(),
            len: 0,
            tokens: core::ptr::null(),
            n_tokens: 0,
            params: core::ptr::null(),
            priority: 0,
            reserved: 0,
            timeout_ns: 0,
            salt: 0,
        }
    }
}

/// Something that happened to a request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct llmcc_event {
    /// `sizeof(llmcc_event)`.
    pub size: usize,
    /// The request's number.
    pub request: u64,
    /// UTF-8 text, NUL-terminated.
    pub text: *const c_char,
    /// Bytes of it.
    pub text_len: usize,
    /// Token id; -1: none.
    pub token: i32,
    /// 0 or the reason of the text's end.
    pub finish: i32,
    /// Log-probability of the token; 0 if not asked for.
    pub logprob: f64,
    /// The most probable tokens.
    pub top_tokens: *const i32,
    /// Their log-probabilities.
    pub top_logprobs: *const f64,
    /// How many there are.
    pub n_top: usize,
    /// 1: the request's last event.
    pub ended: u32,
    /// Status of a request that failed; 0 for others.
    pub status: i32,
    /// Reason of a failure, NUL-terminated; empty for others.
    pub message: *const c_char,
    /// In the last event: tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of these that had been computed.
    pub reused_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Nanoseconds from the request's arrival until it took part in a step.
    pub waited_ns: u64,
    /// Nanoseconds from its arrival to its first token.
    pub first_token_ns: u64,
    /// Nanoseconds from its arrival to its end.
    pub total_ns: u64,
}

impl Default for llmcc_event {
    /// Nothing has happened.
    fn default() -> Self {
        llmcc_event {
            size: size_of::<llmcc_event>(),
            request: 0,
            text: core::ptr::null(),
            text_len: 0,
            token: -1,
            finish: 0,
            logprob: 0.0,
            top_tokens: core::ptr::null(),
            top_logprobs: core::ptr::null(),
            n_top: 0,
            ended: 0,
            status: 0,
            message: core::ptr::null(),
            prompt_tokens: 0,
            reused_tokens: 0,
            generated_tokens: 0,
            waited_ns: 0,
            first_token_ns: 0,
            total_ns: 0,
        }
    }
}
