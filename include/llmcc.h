/*
 * llmcc.h: the C API of every artifact made by `llmcc compile`.
 *
 * An artifact is a shared object that holds one model: machine code, weights, tokenizer, and this API. Link with it, or open it with
 * dlopen; no other library is needed. Several artifacts may live in one process when they are opened with dlopen and RTLD_LOCAL.
 *
 *     llmcc_model *model;
 *     if (llmcc_open(NULL, &model) != LLMCC_OK) { puts(llmcc_last_error()); return 1; }
 *     llmcc_generate(model, "Once upon", 9, NULL, print_piece, NULL, NULL);
 *     llmcc_close(model);
 *
 * Conventions
 *  - Functions return LLMCC_OK (0) or another llmcc_status; llmcc_last_error() then gives the reason and the remedy.
 *    A failed call changes nothing: neither the model nor the memory its pointers refer to, except `*needed` when a buffer is too small.
 *    (Exceptions: callbacks that have been made, and after a fault of the machine itself the contents of `logits`.)
 *  - Structures start with `size`: set it to sizeof the structure, and every field you do not use to zero, which means the default
 *    (except for llmcc_sampling, which LLMCC_SAMPLING_INIT initialises).
 *    Later versions may append fields; programs compiled with an older header keep working.
 *  - Results of unknown length: pass a buffer and its capacity in elements. `*needed` (may be NULL) receives the length; a NULL buffer asks
 *    for the length only. A buffer too small gives LLMCC_E_BUFFER. Text results are UTF-8 and get a final NUL, which the length does not count but the capacity must.
 *  - Where the system refuses memory, a call fails with LLMCC_E_SYSTEM: each call reserves its memory before it begins. (This does not cover memory that
 *    the system promises and does not have, and then ends processes.)
 *  - Functions may be called from any thread; calls on one model wait for each other.
 *  - Handles are numbers that are looked up, not addresses. One that was closed or freed gives LLMCC_E_INVALID; closing or freeing it again, or NULL, does nothing.
 *  - The child of a fork has no models: handles of the parent give LLMCC_E_INVALID there (closing them does nothing). Open the model in the child; if another thread was inside this
 *    library when the process forked, only after exec.
 *  - dlclose leaves nothing in the process: no mapping, memory, thread, descriptor or key. Close all models, free all generations, and wait for calls of other threads before it.
 *    A file that was replaced under its old name (write another file and rename it, as `llmcc compile` does) is loaded anew after dlclose; while the old one is loaded, dlopen gives
 *    that one for the same path, and llmcc_open says so: open the new one by another spelling of its path.
 */
#ifndef LLMCC_H
#define LLMCC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version this header describes. Compatible when the upper 16 bits of llmcc_abi_version() are the same and the lower are not smaller. */
#define LLMCC_ABI_VERSION 0x0001000cu

typedef int32_t llmcc_status;
enum {
    LLMCC_OK = 0,
    LLMCC_E_INVALID = 1,      /* wrong argument: null pointer, unknown sequence, token outside the vocabulary, text that is not UTF-8... */
    LLMCC_E_ARTIFACT = 2,     /* no model inside, damaged, stripped, of another version, or its weights file is missing */
    LLMCC_E_CPU = 3,          /* this machine (its processor or GPU) cannot run the artifact's code */
    LLMCC_E_SYSTEM = 4,       /* the system refused memory, threads or a file */
    LLMCC_E_CONTEXT_FULL = 5, /* the model's longest context is reached */
    LLMCC_E_CACHE_FULL = 6,   /* all pages of the KV cache are in use */
    LLMCC_E_BUFFER = 7,       /* the buffer is too small */
    LLMCC_E_UNSUPPORTED = 8,  /* the artifact has no tokenizer or chat template, or is older than this header */
    LLMCC_E_TEMPLATE = 9,     /* the chat template refused the conversation or failed */
    LLMCC_E_NUMERIC = 10,     /* the logits hold NaN */
    LLMCC_E_INTERNAL = 11,    /* a bug in llmcc */
    LLMCC_E_INTERRUPTED = 12, /* llmcc_interrupt ended the call, or a request was cancelled */
    LLMCC_E_BUSY = 13,        /* the engine has as many requests as it may (since 1.9) */
    LLMCC_E_DEADLINE = 14     /* the request's time has passed (since 1.9) */
};

typedef struct llmcc_model llmcc_model; /* an open model: its threads, cache and sequences */
typedef struct llmcc_gen llmcc_gen;     /* a generation under way */

/* Version of the API in the artifact, and of the llmcc that made it. */
uint32_t llmcc_abi_version(void);
const char *llmcc_version(void);

/* The message of this thread's last failed call, up to 2047 bytes. Valid until the thread's next failure, or dlclose. Never NULL. */
const char *llmcc_last_error(void);

/* ---- model ---------------------------------------------------------------------------------------------------------- */

typedef struct llmcc_options {
    size_t size;
    uint32_t threads;          /* 0: one per physical core this process may use. Where the system gives fewer, llmcc_model_info.threads has the number.
                                  On a GPU this many threads, at most 8, copy between the host's memory and memory the GPU reads; 0: one per processor, at most 8. */
    uint32_t flags;            /* LLMCC_OPEN_* */
    uint64_t max_tokens;       /* tokens the KV cache holds for all sequences together; 0: the longest context, at least 16384, or as many as fit in
                                  half of the memory (the machine's, within the limits of control groups, RLIMIT_AS and RLIMIT_DATA). Memory is used as the
                                  cache fills, except on a GPU: there it is allocated at once, 0 means as many tokens as fit, and layers with a shorter
                                  sliding window than others have pages for the windows of max_tokens / 4096 sequences, at least 8. */
    uint64_t max_batch_tokens; /* tokens taken through the kernels at once, larger batches are cut; 0: 512, on a GPU 2048. Bounds the memory for
                                  activations. */
} llmcc_options;

enum {
    LLMCC_OPEN_PROFILE = 1, /* measure every kernel, see llmcc_stats; also switched on by LLMCC_PROFILE=1 in the environment */
    LLMCC_OPEN_PIN = 2,     /* each thread stays on a processor of its own, among those of the caller's affinity mask, one of each physical core first; the calling thread
                               only while it computes. For machines with nothing else to do; under other load the system places threads better. */
    LLMCC_OPEN_PORTABLE = 4 /* logits have the same bits on every processor. Without it only products of bf16 rows differ: processors with AMX sum them in
                               another order, several times as fast. */
};

/* Opens the model. `options` may be NULL. A model may be opened several times. An artifact made for several targets runs on a GPU if there is one it has
 * code for, else on the processor. In the environment, LLMCC_DEVICE=cpu or gpu insists on one of these, or LLMCC_DEVICE=x86-64-v3, say, on the
 * version for that level of processors; LLMCC_CUDA_DEVICE is the number of the GPU (0), and LLMCC_CUDA_LIBRARY the path of the driver's libcuda.so. */
llmcc_status llmcc_open(const llmcc_options *options, llmcc_model **out);

/* Ends the model's threads and frees its memory; NULL and closed handles are fine. Call it before dlclose. Calls of other threads on this model are waited for; an llmcc_generate among
 * them ends after its token, with LLMCC_E_INVALID. In a callback it does not wait: the model ends with the last call under way, this one included. Generations still alive keep the
 * model until they are freed. */
void llmcc_close(llmcc_model *model);

/* Ends the calls that other threads have under way on this model, within a kernel or so (some milliseconds; in text work, some 20): they fail with
 * LLMCC_E_INTERRUPTED and leave everything as a failed call does. Calls that begin later go on. For a thread that waits for signals, say; not for signal
 * handlers themselves. Work on text may continue in the background until it is done, and llmcc_close waits for it. On a GPU a step ends after its chunk. */
llmcc_status llmcc_interrupt(const llmcc_model *model);

typedef struct llmcc_model_info {
    size_t size;
    uint64_t vocab;              /* entries of the vocabulary */
    uint64_t hidden;             /* width */
    uint64_t layers;             /* attention layers */
    uint64_t max_context;        /* longest sequence, in tokens */
    uint64_t weights_bytes;
    uint64_t code_bytes;
    uint64_t kv_bytes_per_token; /* of all layers */
    uint64_t max_tokens;         /* tokens the KV cache holds */
    uint64_t max_batch_tokens;
    uint64_t activation_bytes;   /* for activations and scratch when a step has max_batch_tokens tokens and one row of logits */
    uint32_t threads;
    uint32_t isa;                /* 1: x86-64, 3: x86-64-v3, 4: x86-64-v4, 64: aarch64 */
    int32_t bos_token;           /* -1: none known */
    uint32_t flags;              /* LLMCC_HAS_*, LLMCC_IS_* */
    uint64_t columns;            /* floats in a row of the output: the vocabulary (logits), the size of an embedding, or the number of classes (scores) */
    uint32_t output;             /* LLMCC_OUTPUT_* */
    uint32_t entries;            /* computations that the artifact has: see llmcc_entry. The fields above are those of the first */
    uint64_t embed_columns;      /* floats in a row of llmcc_embed; 0: it refuses */
    int32_t image_token;         /* the token that stands for a row of an image, with LLMCC_SEES; -1: none (since 1.8) */
    uint32_t reserved;           /* 0 */
} llmcc_model_info;

enum {
    LLMCC_HAS_TOKENIZER = 1,
    LLMCC_HAS_CHAT_TEMPLATE = 2,
    LLMCC_IS_NORMALIZED = 4, /* llmcc_embed gives rows of length 1, unless it is told otherwise */
    LLMCC_IS_WHOLE = 8,      /* tokens see later ones: a sequence is computed in one step, and takes no tokens after it */
    LLMCC_HAS_TYPES = 16,    /* tokens have types (segments): one type in the first of two texts, another in the second */
    LLMCC_NEEDS_HIDDEN = 32, /* rows come with tokens: a draft head (llmcc compile --draft-head) takes hidden states of the model that it drafts for, an encoder frames or patches */
    LLMCC_HAS_HIDDEN = 64,   /* a draft head, or a model compiled with --hidden-states: steps leave their tokens' hidden states after the last norm, which draft heads take */
    LLMCC_NEEDS_SOURCE = 128, /* an encoder and a decoder: it writes a text about another one, the source (llmcc_seq_encode). Prompts of generations are sources (since 1.5) */
    LLMCC_HEARS = 256,       /* its source is a clip of sound (llmcc_seq_encode_audio): prompts of generations are the tokens that its text begins with (since 1.7) */
    LLMCC_SEES = 512         /* prompts may have images (llmcc compile --with-image): llmcc_image_prompt_of, llmcc_image_rows (since 1.7) */
};

/* Kinds of entries. A model whose entries all have logits refuses llmcc_embed; one whose first entry has none refuses generations and log-probabilities
 * (LLMCC_E_UNSUPPORTED). */
enum {
    LLMCC_OUTPUT_LOGITS = 0,    /* logits of the next token: it writes text */
    LLMCC_OUTPUT_EMBEDDING = 1, /* a vector for a text, near the vectors of texts of similar meaning */
    LLMCC_OUTPUT_SCORES = 2     /* a number for each class of a text, or of a pair of texts, before any softmax or sigmoid */
};

llmcc_status llmcc_info(const llmcc_model *model, llmcc_model_info *info);

/* How the rows of a text become one. */
enum {
    LLMCC_POOL_MEAN = 1,    /* their mean */
    LLMCC_POOL_FIRST = 2,   /* the first token's */
    LLMCC_POOL_LAST = 3,    /* the last token's */
    LLMCC_POOL_MAX = 4,     /* the largest of each column */
    LLMCC_POOL_ROOT = 5,    /* the sum over the root of their number */
    LLMCC_POOL_WEIGHTED = 6 /* a mean in which the first weighs 1, the second 2, and so on */
};

/* An entry: a computation over the weights and states of the model. The first one, `step`, appends tokens (llmcc_step, generations); llmcc_embed runs the
 * first whose output is pooled. */
typedef struct llmcc_entry_info {
    size_t size;
    uint32_t output;  /* LLMCC_OUTPUT_* */
    uint32_t pool;    /* LLMCC_POOL_*; 0: none */
    uint64_t columns; /* floats in a row of the output */
    uint32_t flags;   /* LLMCC_IS_NORMALIZED, LLMCC_IS_WHOLE, LLMCC_HAS_TYPES, LLMCC_NEEDS_HIDDEN, LLMCC_HAS_HIDDEN, LLMCC_NEEDS_SOURCE */
    uint32_t types;   /* types that a token may be of; 0: tokens have none */
    uint64_t given;   /* columns of the rows that come with tokens, with LLMCC_NEEDS_HIDDEN; 0: none do (since 1.7) */
    uint64_t context; /* longest sequence of the entry, in tokens (since 1.7) */
    uint64_t axes;    /* axes along which tokens have positions: 3 (time, height, width) in models that see images so, such as Qwen2-VL; 0: only their places count (since 1.8) */
} llmcc_entry_info;

#define LLMCC_AXES 3 /* llmcc_entry_info.axes, where it is not 0 */

/* Describes entry `index`, less than llmcc_model_info.entries, and stores its name as llmcc_detokenize stores a text, unless both `name` and `needed` are NULL. Since 1.5. */
llmcc_status llmcc_entry(const llmcc_model *model, uint32_t index, llmcc_entry_info *info, char *name, size_t capacity, size_t *needed);

/* The JSON manifest: source, options, formats, hashes. Valid while the model is open. NULL if `model` is no open model. */
const char *llmcc_manifest(const llmcc_model *model);

/* Memory in use and, when profiling, the time of every kernel, as JSON:
 * {"sequences", "kv_pages_used", "kv_bytes_used", "kv_tokens_max", "activation_bytes", "threads", "device": "CPU" or the GPU's name,
 *  "multiprocessors", "memory_bytes_per_second" (of the GPU at hand, as its driver says; 0 on a CPU), "device_bytes", "fetched_bytes" (results copied back from a GPU), "open_ns": {"all", "driver", "memory", "weights", "code"} (how long llmcc_open took; on a GPU also its
 *  parts: the start of the driver, allocating, copying weights, loading code, the last two side by side), "profile": null | {"batches", "tokens", "steps": [{"regime", "kernel", "layer", "calls", "ns"}]}} */
llmcc_status llmcc_stats(const llmcc_model *model, char *out, size_t capacity, size_t *needed);

/* ---- sequences and steps ---------------------------------------------------------------------------------------------- */

/* Sequences are numbers >= 0, each with its tokens and their cached keys and values. They count up: the number of a freed sequence is not used again before a thousand million others,
 * so its use is an error. */
llmcc_status llmcc_seq_new(const llmcc_model *model, int32_t *seq);
llmcc_status llmcc_seq_free(const llmcc_model *model, int32_t seq);
/* Forgets all tokens but the first `len`. With a sliding window: invalid unless the keys and values that the next token sees are still there, or `len` is 0.
 * With recurrent layers: invalid unless `len` is the present length or 0, or a snapshot of their state exists there. Snapshots are kept at the ends of the last two prompts (or
 * parts of a prompt) of more than one token, until other sequences need the room. */
llmcc_status llmcc_seq_truncate(const llmcc_model *model, int32_t seq, size_t len);
/* A second sequence with the same tokens. The cache is shared until they differ, so forking a long prompt costs nothing. */
llmcc_status llmcc_seq_fork(const llmcc_model *model, int32_t seq, int32_t *copy);

/* With LLMCC_NEEDS_SOURCE: gives a sequence its source, `n` tokens (1 to max_batch_tokens), which the tokens of later steps attend to. The sequence loses the tokens and the source that
 * it had; its tokens begin with those of its text (a start token, mostly). LLMCC_E_UNSUPPORTED: the model takes no source. Since 1.5. */
llmcc_status llmcc_seq_encode(const llmcc_model *model, int32_t seq, const int32_t *tokens, size_t n);

/* ---- sounds: models with LLMCC_HEARS, others refuse with LLMCC_E_UNSUPPORTED. Since 1.7 ---- */

typedef struct llmcc_audio_info {
    size_t size;
    uint64_t samples; /* of a clip: longer sounds are several clips */
    uint64_t rows;    /* of the encoder that a clip becomes */
    uint64_t columns; /* floats in such a row */
    uint32_t rate;    /* samples per second */
    uint32_t reserved;
} llmcc_audio_info;

llmcc_status llmcc_audio(const llmcc_model *model, llmcc_audio_info *info);

/* Samples at the model's rate, mostly from -1 to 1, of one channel: with `rate` 0, `data` has the `n` bytes of a WAV file (integers of 8, 16, 24 or 32 bits, or 32-bit floats; the mean of
 * its channels); else `n` floats, `rate` of which are a second. Stored as llmcc_tokenize stores tokens. */
llmcc_status llmcc_audio_samples(const llmcc_model *model, const void *data, size_t n, uint32_t rate, float *out, size_t capacity, size_t *needed);

/* Gives a sequence a clip as its source: at most llmcc_audio_info.samples samples, followed by silence. The sequence loses the tokens and the source that it had. */
llmcc_status llmcc_seq_encode_audio(const llmcc_model *model, int32_t seq, const float *samples, size_t n);

/* The same of rows of the encoder, `n` floats in all: of a program that makes spectrograms itself. */
llmcc_status llmcc_seq_encode_rows(const llmcc_model *model, int32_t seq, const float *rows, size_t n);

/* The tokens that the text about a sequence's clip begins with, for llmcc_gen_new with that sequence: stored as llmcc_tokenize stores tokens. `language` is a code such as "en"; empty: the
 * most probable one, if the model knows several (a step of the model). `task` is "transcribe", which an empty one means, too, or "translate". The sequence keeps its clip, and loses its tokens. */
llmcc_status llmcc_audio_prompt(const llmcc_model *model, int32_t seq, const char *language, size_t language_len, const char *task, size_t task_len, int32_t *out, size_t capacity,
                                size_t *needed);

/* Adapters that are loaded while the model runs. The artifact must have been compiled with `--lora-slots`, else LLMCC_E_UNSUPPORTED.
 *
 * `path` (UTF-8, `len` bytes): a folder that PEFT saved (adapter_config.json, adapter_model.safetensors), or its file of tensors. LoRA and rsLoRA of a rank up to the artifact's,
 * on modules that the artifact has room for; otherwise llmcc_last_error() names the obstacle. Factors are rounded to bf16. `*adapter` is the adapter's number until it is
 * unloaded: 1 or more. Loading waits for steps under way, and does not change results of other sequences. */
llmcc_status llmcc_adapter_load(const llmcc_model *model, const char *path, size_t len, int32_t *adapter);
/* Unloads an adapter. Invalid as long as a sequence uses it. Its number may be given to another adapter afterwards. */
llmcc_status llmcc_adapter_unload(const llmcc_model *model, int32_t adapter);
/* Gives a sequence without tokens an adapter; 0 (the default): none. Forks inherit it. Sequences with different adapters may be in one batch. */
llmcc_status llmcc_seq_set_adapter(const llmcc_model *model, int32_t seq, int32_t adapter);

llmcc_status llmcc_seq_len(const llmcc_model *model, int32_t seq, size_t *len);
llmcc_status llmcc_seq_tokens(const llmcc_model *model, int32_t seq, int32_t *out, size_t capacity, size_t *needed);

/* A sequence as bytes, for another process with the same artifact (its prompt is computed here, its text there), or for later. Since 1.10. Stored as llmcc_tokenize stores tokens; a NULL `out`
 * copies nothing. Its last page may have rows of sequences that had it before: give the bytes to nobody who may not see those. Sequences with an adapter or a source are LLMCC_E_UNSUPPORTED. */
llmcc_status llmcc_seq_save(const llmcc_model *model, int32_t seq, uint8_t *out, size_t capacity, size_t *needed);
/* A new sequence from such bytes. Damaged ones, and bytes of another artifact, are LLMCC_E_ARTIFACT. They are checked by a hash, which shows accidents and no intent: take them from where you
 * would take the artifact. */
llmcc_status llmcc_seq_load(const llmcc_model *model, const uint8_t *bytes, size_t len, int32_t *seq);

typedef struct llmcc_batch {
    size_t size;
    size_t n_tokens;
    const int32_t *tokens;    /* [n_tokens] */
    const int32_t *seqs;      /* [n_tokens] the sequence each token is appended to; its position is that sequence's length */
    size_t n_out;
    const uint32_t *out_rows; /* [n_out] indices of the tokens after which logits are needed, in any order */
    const float *hidden;      /* [n_tokens, given] (llmcc_entry_info) with LLMCC_NEEDS_HIDDEN, and only then. A draft head: with each token of index i + 1 the model's hidden state of token i */
    float *hidden_out;        /* [n_tokens, hidden] with LLMCC_HAS_HIDDEN: receives the hidden state of each token; may be NULL */
    const int32_t *positions; /* [n_tokens, axes] (llmcc_entry_info) positions of each token along the axes, 0 to 2^24; NULL: along all of them one more than the largest before it in its
                               * sequence, as in texts. A token's place in its sequence, which decides what it sees, is another matter (since 1.8) */
} llmcc_batch;

/* Appends tokens to any number of sequences at once: prompts, single tokens, or both mixed. Stores f32 logits [n_out, vocab] in `logits`, which
 * has room for `capacity` floats. A sequence's logits do not depend on the rest of the batch. (Models without logits give the rows [n_out, columns]
 * of single tokens that llmcc_embed pools.) With LLMCC_IS_WHOLE all sequences must be new, and all tokens at most max_batch_tokens. */
llmcc_status llmcc_step(const llmcc_model *model, const llmcc_batch *batch, float *logits, size_t capacity);
/* As llmcc_step, by entry `entry`: rows have its columns. An entry with states of its own (a draft head) appends to a list of tokens of its own in each sequence. Since 1.6. */
llmcc_status llmcc_run(const llmcc_model *model, uint32_t entry, const llmcc_batch *batch, float *rows, size_t capacity);
/* As llmcc_run, where tokens follow their sequences in several ways: `parents` [n_tokens] has the index of the token before each, an earlier one of the same sequence, or -1 for the
 * last token of the sequence. One step evaluates all ways, each in a copy of its sequence, so rows are bit for bit those of the way alone; the sequences stay as they are.
 * `branches` gets a new sequence for each token that no other follows, in the order of tokens, which has all tokens up to it: go on with one, and free the others. Tokens of several ways
 * are computed for each. `*needed` (may be NULL) receives the number of branches. Since 1.6. */
llmcc_status llmcc_run_tree(const llmcc_model *model, uint32_t entry, const llmcc_batch *batch, const int32_t *parents, float *rows, size_t capacity, int32_t *branches,
                            size_t n_branches, size_t *needed);

typedef struct llmcc_embed_rows {
    size_t size;
    size_t n_rows;
    const size_t *lengths; /* [n_rows] tokens of each row, at least 1 */
    const int32_t *tokens; /* one row after the other, with the special tokens that the model expects (LLMCC_ADD_SPECIAL) */
    uint32_t flags;        /* LLMCC_EMBED_*; 0: as the model says */
    uint32_t pool;         /* LLMCC_POOL_*; 0: as the model says */
    const int32_t *types;  /* type of each token, with LLMCC_HAS_TYPES; NULL: as the tokenizer gives a text alone, mostly all 0 */
} llmcc_embed_rows;

enum {
    LLMCC_EMBED_NORMALIZE = 1, /* rows of length 1 */
    LLMCC_EMBED_RAW = 2        /* rows as computed */
};

/* Embeddings, or scores of classes: stores a row of f32 for each row of tokens, [n_rows, embed_columns], in `out`, which has room for `capacity` floats. A row
 * does not depend on the others. No sequences are needed; the cache must have room for the longest row. With LLMCC_IS_WHOLE a row has at most
 * max_batch_tokens tokens. LLMCC_E_NUMERIC: a result is not finite. */
llmcc_status llmcc_embed(const llmcc_model *model, const llmcc_embed_rows *rows, float *out, size_t capacity);

/* ---- inputs of products: artifacts compiled with --tap. Since 1.6 ---- */

/* A tap: inputs that products of the model share. */
typedef struct llmcc_tap_info {
    size_t size;
    uint64_t columns;   /* of an input */
    uint64_t n_weights; /* weights that multiply it */
    uint32_t experts;   /* an input is for some of them; 0: the products are the same for all tokens */
    uint32_t call;      /* number of the function's call: taps ascend by it, those of a layer have the same */
} llmcc_tap_info;

/* The number of taps; 0: the artifact was compiled without --tap. */
llmcc_status llmcc_taps(const llmcc_model *model, size_t *n);
/* Describes tap `tap`, less than their number. */
llmcc_status llmcc_tap(const llmcc_model *model, size_t tap, llmcc_tap_info *info);
/* The name in the checkpoint of weight `weight` of a tap, as llmcc_detokenize stores a text, and the only expert that the weight belongs to; -1: it
 * belongs to none, or has the matrices of all experts. */
llmcc_status llmcc_tap_weight(const llmcc_model *model, size_t tap, size_t weight, int32_t *expert, char *name, size_t capacity, size_t *needed);

/* Moments of the inputs of a tap, in arrays of the caller, which are added to; E is 1 without experts. Where a count is 0, the least and largest numbers are
 * set; all sums must be 0 then. */
typedef struct llmcc_moments {
    size_t tap;
    uint64_t *count;  /* [E] inputs */
    double *squares;  /* [E, columns] sums of squares */
    float *min;       /* [E, columns] the least number of each column */
    float *max;       /* [E, columns] the largest */
    double *products; /* [E, columns, columns] sums of products of two columns; NULL: not wanted */
} llmcc_moments;

/* Runs rows of tokens as llmcc_embed does (flags and pool are 0), and adds each input of the taps to their moments, one after the other in f64: the sums depend
 * neither on threads nor on how rows are put together, only on the order of the tokens. Inputs are as the model computes them before any rounding to 8 bits. On
 * an error during the run the arrays may have been added to. LLMCC_E_NUMERIC: an input is not finite. */
llmcc_status llmcc_tap_moments(const llmcc_model *model, const llmcc_embed_rows *rows, const llmcc_moments *moments, size_t n_moments);

/* Two texts that a model compares: a query and a document, say. UTF-8. */
typedef struct llmcc_pair {
    const char *first;
    size_t first_len;
    const char *second;
    size_t second_len;
} llmcc_pair;

/* Tokens of a pair as the tokenizer puts its texts together for the model, with special tokens, and the tokens' types (0 without LLMCC_HAS_TYPES), as
 * llmcc_embed takes them. `most`: the most tokens, the longer text is cut first; 0: whole. `tokens` and `types` (which may be NULL) have `capacity`
 * elements each. */
llmcc_status llmcc_tokenize_pair(const llmcc_model *model, const llmcc_pair *pair, size_t most, int32_t *tokens, int32_t *types, size_t capacity,
                                 size_t *needed);

enum { LLMCC_PAIR_TRUNCATE = 1 /* cut pairs that are too long for the model, the longer text first; without it they are an error */ };

/* Scores of pairs by a model with LLMCC_OUTPUT_SCORES (cross-encoders, rerankers): stores [n, columns] floats in `out`, which has room for `capacity` floats: the
 * output of the head, before any activation. The application chooses the activation: rerankers with one class are often read through a sigmoid, 1 / (1 + exp(-x)),
 * which does not change their order; several classes that exclude each other through a softmax. A pair does not depend on the others. */
llmcc_status llmcc_score_pairs(const llmcc_model *model, const llmcc_pair *pairs, size_t n, uint32_t flags, float *out, size_t capacity);

/* A value added to the logit of a token; -INFINITY bans it. */
typedef struct llmcc_logit_bias {
    int32_t token;
    float value;
} llmcc_logit_bias;

/* How to choose a token. Begin with LLMCC_SAMPLING_INIT, which takes the most probable one, and change fields:
 *
 *     llmcc_sampling sampling = LLMCC_SAMPLING_INIT;
 *     sampling.temperature = 0.8f;
 *
 * The steps run in this order (that of Hugging Face Transformers): bias, repetition penalty, temperature, top-k, top-p, min-p.
 * A structure whose fields from temperature to repetition_window are all zero means LLMCC_SAMPLING_INIT. In llmcc_gen_params either means the settings of the
 * model's generation_config.json, if it has any (see there; top_k = 1 takes the most probable token in any case). In any other structure a zero is a value like others, so
 * that a top_p or repetition_penalty of 0 is LLMCC_E_INVALID. (Before 1.4 a 0 meant off; it still does in an llmcc_gen_params of the older size.)
 * Values that are out of range, infinite or NaN are LLMCC_E_INVALID. */
typedef struct llmcc_sampling {
    float temperature;          /* >= 0; 0: always the most probable token */
    uint32_t top_k;             /* keep the k most probable; 0: all */
    float top_p;                /* > 0, <= 1: keep the fewest most probable with this sum of probabilities, at least one; 1: all */
    float min_p;                /* >= 0, <= 1: drop tokens less probable than this fraction of the most probable; 0: none */
    float repetition_penalty;   /* > 0: above 1 it makes tokens seen before less probable; 1: off */
    uint32_t repetition_window; /* tokens that count as seen; 0: all */
    uint64_t seed;              /* equal seeds give equal choices, on every machine */
    const llmcc_logit_bias *bias; /* [n_bias] needed during the call only; a token listed twice gets both values */
    uint32_t n_bias;
    uint32_t reserved;          /* zero */
} llmcc_sampling;

#define LLMCC_SAMPLING_INIT {0.0f, 0, 1.0f, 0.0f, 1.0f, 0, 0, NULL, 0, 0}

/* Chooses a token from one row of logits. `sampling` may be NULL (greedy). `history` is the sequence so far, used by the repetition penalty.
 * `draw` numbers the choices of one seed: 0, 1, 2... */
llmcc_status llmcc_sample(const float *logits, size_t n_logits, const llmcc_sampling *sampling, const int32_t *history, size_t n_history,
                          uint64_t draw, int32_t *token);

/* Log-probabilities by one row of logits: log-softmax, natural logarithm, in f64. They belong to the model's own distribution, before bias, penalty,
 * temperature and filters. `logprobs` [n_tokens] receives the values for `tokens`; `top_tokens` and `top_logprobs` [n_top] the most probable tokens, the most
 * probable first, equal ones by id. Either count may be 0. LLMCC_E_NUMERIC: NaN or infinity among the logits, or all -infinity. */
llmcc_status llmcc_logprobs(const float *logits, size_t n_logits, const int32_t *tokens, size_t n_tokens, double *logprobs, size_t n_top,
                            int32_t *top_tokens, double *top_logprobs);
/* As llmcc_step, with such log-probabilities instead of logits: for `targets[i]` after token `batch.out_rows[i]`, in `logprobs` [n_out], and the most
 * probable tokens there in `top_tokens` and `top_logprobs` [n_out, n_top]. This scores a text without memory for all its logits. A row may occur
 * several times, with other targets. Where a row holds NaN or infinity, the results are NaN, and tokens -1. */
llmcc_status llmcc_step_logprobs(const llmcc_model *model, const llmcc_batch *batch, const int32_t *targets, double *logprobs, size_t n_top,
                                 int32_t *top_tokens, double *top_logprobs);

/* ---- text --------------------------------------------------------------------------------------------------------------- */

enum {
    LLMCC_ADD_SPECIAL = 1,  /* llmcc_tokenize */
    LLMCC_SHOW_SPECIAL = 2, /* llmcc_detokenize */
    LLMCC_NO_PROMPT = 4     /* llmcc_tokenize, with LLMCC_ADD_SPECIAL: the text already begins with its prompt (since 1.4) */
};

/* Tokens of UTF-8 text. LLMCC_ADD_SPECIAL adds the special tokens around a plain prompt (a beginning-of-sequence token, mostly), and before the text the default
 * prompt of an embedder. Its other prompts are in the manifest: put one before the text, and give LLMCC_NO_PROMPT. Special tokens written out in the text are recognised.
 * LLMCC_E_INVALID: the text has characters that the vocabulary has no tokens for, not even for bytes. */
llmcc_status llmcc_tokenize(const llmcc_model *model, const char *text, size_t len, uint32_t flags, int32_t *out, size_t capacity,
                            size_t *needed);
/* Text of tokens, each below the size of the vocabulary; bytes that are not UTF-8 become U+FFFD. */
llmcc_status llmcc_detokenize(const llmcc_model *model, const int32_t *tokens, size_t n, uint32_t flags, char *out, size_t capacity,
                              size_t *needed);
/* The prompt for a conversation, by the model's chat template. `json` is a list of messages [{"role": "user", "content": "Hi"}, ...] or an
 * object with "messages" and, optionally, "tools", "documents", "add_generation_prompt" (default true), "template" (a name), "chat_template" (a template
 * instead of the model's), "continue_final_message" (true: the last message stays open, and no new one begins) and any further variables. */
llmcc_status llmcc_apply_chat_template(const llmcc_model *model, const char *json, size_t len, char *out, size_t capacity, size_t *needed);
/* A token as the tokenizer's vocabulary writes it (words with the mark of their leading space, "<0x0A>"), and the token with a given piece (-1: none). The padding
 * tokens of a model's vocabulary have empty pieces. */
llmcc_status llmcc_token_piece(const llmcc_model *model, int32_t token, char *out, size_t capacity, size_t *needed);
llmcc_status llmcc_piece_token(const llmcc_model *model, const char *piece, size_t len, int32_t *token);
/* The bytes that a token adds in the middle of a text (" the", "\n"); for a special token its name. Without a final NUL: they may hold NUL, and need not be
 * whole characters. */
llmcc_status llmcc_token_bytes(const llmcc_model *model, int32_t token, uint8_t *out, size_t capacity, size_t *needed);
enum {
    LLMCC_TOKEN_SPECIAL = 1, /* shown with LLMCC_SHOW_SPECIAL only */
    LLMCC_TOKEN_BYTE = 2,    /* one byte, for bytes without another token */
    LLMCC_TOKEN_ENDS = 4,    /* ends a generation */
    LLMCC_TOKEN_UNUSED = 8   /* the tokenizer has no such token */
};
llmcc_status llmcc_token_flags(const llmcc_model *model, int32_t token, uint32_t *flags);
/* Entries of the tokenizer's vocabulary; the model's (llmcc_model_info.vocab) may be larger. */
llmcc_status llmcc_tokenizer_size(const llmcc_model *model, size_t *n);
/* Tokens that end a generation. */
llmcc_status llmcc_eos_tokens(const llmcc_model *model, int32_t *out, size_t capacity, size_t *needed);

/* ---- images: models with LLMCC_SEES, others refuse with LLMCC_E_UNSUPPORTED. Since 1.7 --------------------------------------- */

/* The rows of an image, floats, for llmcc_gen_params.image_rows. With `width` and `height` 0 `data` are the `n` bytes of a PNG, JPEG, WebP, GIF or BMP file, else pixels from the
 * upper left on, three bytes each (red, green, blue). Sizes, colours and orientation become what the model's image processor in Transformers makes of a file. With `out` NULL the
 * number of floats goes to `needed` (every image of a model has as many, or the file is read for its size). The same image has the same rows, whatever else runs. */
llmcc_status llmcc_image_rows(const llmcc_model *model, const void *data, size_t n, uint32_t width, uint32_t height, float *out, size_t capacity, size_t *needed);
/* The rows and columns of the tokens that stand for an image in a prompt, in `grid` [2]; `data` to `height` as above. Every image of some models has as many tokens, in one row. Since 1.8. */
llmcc_status llmcc_image_grid(const llmcc_model *model, const void *data, size_t n, uint32_t width, uint32_t height, uint32_t *grid);
/* A prompt (UTF-8, `len` bytes) with `images` images, in which the model's marker of each ("<image>", "<start_of_image>") has become the texts of the tokens that stand for its rows.
 * Where there are no markers the images come first. Prompts that a chat template made have markers. LLMCC_E_UNSUPPORTED: images of the model have sizes of their own, which the next
 * function takes. */
llmcc_status llmcc_image_prompt(const llmcc_model *model, const char *text, size_t len, size_t images, char *out, size_t capacity, size_t *needed);
/* The same of any model: `grids` [images, 2] says how many tokens each image has (llmcc_image_grid). Since 1.8. */
llmcc_status llmcc_image_prompt_of(const llmcc_model *model, const char *text, size_t len, const uint32_t *grids, size_t images, char *out, size_t capacity, size_t *needed);

/* ---- generation ----------------------------------------------------------------------------------------------------------- */

/* A checkpoint's generation_config.json is part of the artifact ("generation" in the manifest). If `sampling` has neutral values only (temperature,
 * top_k and min_p are 0, top_p and repetition_penalty 0 or 1), the model's values apply; if max_tokens is 0, so does the model's limit. Its other settings (suppress_tokens,
 * begin_suppress_tokens, bad_words_ids, sequence_bias, no_repeat_ngram_size, min_new_tokens, min_length, typical_p, stop_strings) apply in any case. top_k = 1 takes the most
 * probable token. LLMCC_GEN_NO_DEFAULTS ignores the file: neutral values then mean the most probable token. */
/* Stores up to `capacity` tokens that may follow `tokens` [n], the whole text so far, in `out`. Returns their number, or a negative number: then the call that asked fails
 * with LLMCC_E_INVALID. It must not use the generation that asks. */
typedef int32_t (*llmcc_guess)(void *user, const int32_t *tokens, size_t n, int32_t *out, size_t capacity);

typedef struct llmcc_gen_params {
    size_t size;
    uint64_t max_tokens;         /* 0: the model's limit, else until another reason ends it */
    llmcc_sampling sampling;
    const char *const *stop;     /* [n_stop] NUL-terminated texts that end the generation and are not shown */
    size_t n_stop;
    const int32_t *stop_tokens;  /* [n_stop_tokens] tokens that end it, besides the model's own */
    size_t n_stop_tokens;
    uint32_t flags;              /* LLMCC_GEN_* */
    uint32_t top_logprobs;       /* with LLMCC_GEN_LOGPROBS: also for this many of the most probable tokens */
    int32_t adapter;             /* adapter of the sequence made for the generation, 0: none; a given sequence has its own */
    uint32_t reserved;           /* 0 */
    uint64_t reserved_1_4;       /* 0. Its presence in `size` tells programs for 1.4 and later from older ones, where zeros in `sampling` had another meaning. */
    uint32_t guesses;            /* LLMCC_GUESS_*: guesses change the number of steps, and no token (since 1.6, as all below) */
    uint32_t most_guesses;       /* most guesses for a step, up to 31; 0: as many as suit their source */
    llmcc_guess guess;           /* with LLMCC_GUESS_CALLER. It and guess_user stay valid until the generation is freed */
    void *guess_user;            /* its first argument; with LLMCC_GUESS_CORPUS the corpus (llmcc_corpus_new) */
    const float *image_rows;     /* [n_image_rows] with LLMCC_SEES: the rows of the prompt's images, one after the other (llmcc_image_rows), as many as it has tokens that stand for them (since 1.7) */
    size_t n_image_rows;         /* floats */
    const uint32_t *image_grids; /* [n_image_grids, 2] rows and columns of each image's tokens (llmcc_image_grid): needed by models whose images have sizes of their own (since 1.8) */
    size_t n_image_grids;        /* images */
    uint64_t min_tokens;         /* an end-of-sequence or stop token is not chosen before so many tokens (since 1.9, as all below) */
    float presence_penalty;      /* taken from the logits of tokens that were generated, as in OpenAI's API; after the bias, before the repetition penalty */
    float frequency_penalty;     /* taken from them for each time that they were generated */
    const int32_t *bad_words;    /* [sum of bad_lengths] sequences of tokens that the text does not have, one after the other */
    const size_t *bad_lengths;   /* [n_bad] tokens of each */
    size_t n_bad;
    const char *grammar;         /* UTF-8, `grammar_len` bytes: the text has this form, and ends where it is complete; NULL: any text. Needs the tokenizer, and a token that ends texts */
    size_t grammar_len;
    uint32_t grammar_language;   /* LLMCC_GRAMMAR_* */
    uint32_t reserved_1_9;       /* 0 */
    const int32_t *expected;     /* [n_expected] tokens that the text is expected to begin with, such as those of a generation that broke off elsewhere: guesses, many for a step, which change no token (since 1.11) */
    size_t n_expected;
} llmcc_gen_params;

#define LLMCC_GEN_PARAMS_INIT {sizeof(llmcc_gen_params), 0, LLMCC_SAMPLING_INIT, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, NULL, 0, 0, 0.0f, 0.0f, NULL, NULL, 0, NULL, 0, 0, 0, NULL, 0}

/* Languages of grammars. Compiling one takes milliseconds, for the first of a model some hundred more; a token some ten microseconds. */
enum {
    LLMCC_GRAMMAR_JSON_SCHEMA = 1,
    LLMCC_GRAMMAR_REGEX = 2,   /* the whole text matches it */
    LLMCC_GRAMMAR_LARK = 3,    /* context-free, as Lark writes it: start: "yes" | "no" */
    LLMCC_GRAMMAR_CHOICES = 4  /* a JSON list of texts, one of which the text is */
};

/* Where guesses of the next tokens come from. One step evaluates all guesses, and a generation goes on with those that equal its own choices: tokens are the same, bit for bit,
 * in fewer steps. Where guesses are wrong, a generation soon guesses no more, and tries again now and then. */
enum {
    LLMCC_GUESS_OWN = 0,    /* the model's draft heads (llmcc compile --draft-head, --draft), if it has any */
    LLMCC_GUESS_NONE = 1,
    LLMCC_GUESS_HEADS = 2,  /* the model's draft heads, which it must have */
    LLMCC_GUESS_LOOKUP = 3, /* the text so far: what followed where its last tokens stood before */
    LLMCC_GUESS_CALLER = 4, /* `guess`: another model (llmcc_drafter_guess), or any function */
    LLMCC_GUESS_CORPUS = 5, /* texts of the caller's (`guess_user`: llmcc_corpus_new), and where these have nothing the text so far; since 1.12, as those below */
    LLMCC_GUESS_JACOBI = 6, /* the model's own predictions behind the last step's wrong guesses */
    LLMCC_GUESS_LOOKAHEAD = 7 /* n-grams of all these predictions */
};

enum {
    LLMCC_GEN_IGNORE_EOS = 1,   /* go on after end-of-sequence tokens */
    LLMCC_GEN_NO_TEXT = 2,      /* llmcc_gen_new: tokens only */
    LLMCC_GEN_SHOW_SPECIAL = 4, /* show special tokens in the text */
    LLMCC_GEN_RAW_PROMPT = 8,   /* llmcc_generate: the prompt is complete (made by a chat template, say), add no special tokens */
    LLMCC_GEN_LOGPROBS = 16,    /* llmcc_gen_new: pieces have log-probabilities */
    LLMCC_GEN_NO_DEFAULTS = 32  /* ignore the model's generation_config.json (since 1.4) */
};

typedef int32_t llmcc_finish;
enum {
    LLMCC_FINISH_NONE = 0,    /* not ended */
    LLMCC_FINISH_TOKEN = 1,   /* an end-of-sequence or stop token */
    LLMCC_FINISH_TEXT = 2,    /* a stop string */
    LLMCC_FINISH_LENGTH = 3,  /* max_tokens */
    LLMCC_FINISH_CONTEXT = 4  /* the model's longest context */
};

typedef struct llmcc_piece {
    size_t size;
    const char *text;    /* UTF-8, whole characters, NUL-terminated, may be empty; valid until the generation's next call */
    size_t text_len;
    int32_t token;       /* -1 when the generation had ended before, or (llmcc_gen_next_batch) has no token yet */
    llmcc_finish finish; /* not 0 on the last piece */
    double logprob;      /* with LLMCC_GEN_LOGPROBS, as llmcc_logprobs gives it */
    const int32_t *top_tokens;  /* [n_top] valid as long as `text` */
    const double *top_logprobs; /* [n_top] */
    size_t n_top;
} llmcc_piece;

typedef struct llmcc_gen_stats_t {
    size_t size;
    uint64_t prompt_tokens;
    uint64_t reused_tokens;    /* prompt tokens found in the sequence's cache */
    uint64_t generated_tokens;
    uint64_t prefill_ns;       /* until the first generated token */
    uint64_t decode_ns;        /* all further tokens */
    llmcc_finish finish;
    uint32_t reserved;
    uint64_t guessed;          /* tokens that were guessed (since 1.6) */
    uint64_t accepted;         /* guesses that became part of the text */
    uint64_t guess_steps;      /* steps that evaluated guesses */
} llmcc_gen_stats_t;

/* Starts a generation after `prompt`, the whole sequence from its first token. With `seq` >= 0 it uses that sequence: tokens of the prompt that
 * the sequence holds are not computed again, others are forgotten. So a conversation passes its growing prompt each turn, and pays only for the new tokens.
 * With LLMCC_NEW_SEQ the generation has a sequence of its own. `params` may be NULL: the model's defaults (see llmcc_gen_params), else greedy, until an end-of-sequence token. */
#define LLMCC_NEW_SEQ (-1)
llmcc_status llmcc_gen_new(const llmcc_model *model, int32_t seq, const int32_t *prompt, size_t n, const llmcc_gen_params *params,
                           llmcc_gen **out);
/* One more token. The first call evaluates the prompt. After a failure (a full cache, say) it may be called again. */
llmcc_status llmcc_gen_next(llmcc_gen *gen, llmcc_piece *piece);
/* As llmcc_gen_next, without a step: chooses the next token from the logits [n_logits] after the last one, which the caller has computed in another sequence. It may be called several
 * times after one step whose later tokens were guessed (draft heads): a guess is correct if this function chooses it. A later llmcc_gen_next evaluates, in the generation's own
 * sequence, all tokens that the sequence lacks. */
llmcc_status llmcc_gen_take(llmcc_gen *gen, const float *logits, size_t n_logits, llmcc_piece *piece);
/* One more token for each of several generations of one model, in one step: continuous batching. Between calls, ended generations may be left out and
 * new ones added. `gens` [n] are in order of priority, `pieces` [n] all have the same size. A generation that has no token yet gives token -1 and
 * finish 0: its prompt takes several steps (of max_batch_tokens), or waits for room in the cache. When the cache is full, the last generations with
 * sequences of their own release them and evaluate their tokens again later; LLMCC_E_CACHE_FULL means that not even one has room. Tokens are the
 * same, bit for bit, as from llmcc_gen_next. Free ended generations: they keep their cache until then. */
llmcc_status llmcc_gen_next_batch(llmcc_gen *const *gens, size_t n, llmcc_piece *pieces);
llmcc_status llmcc_gen_stats(const llmcc_gen *gen, llmcc_gen_stats_t *stats);
/* NULL and freed handles are fine. The caller's sequence stays, with all tokens but the last generated one. Waits for a call of another thread on this generation. */
void llmcc_gen_free(llmcc_gen *gen);

/* Called with every token; `text` is as in llmcc_piece. Return nonzero to stop. May call the API, also to close the model. Must not throw or longjmp. */
typedef int32_t (*llmcc_callback)(void *user, const char *text, size_t len, int32_t token);

/* A model that guesses for generations of another artifact with the same vocabulary, in a sequence of its own: pass llmcc_drafter_guess and the drafter as `guess` and
 * `guess_user` of the other's parameters. A drafter is for one generation at a time. Since 1.6. */
typedef struct llmcc_drafter llmcc_drafter;
llmcc_status llmcc_drafter_new(const llmcc_model *model, llmcc_drafter **out);
int32_t llmcc_drafter_guess(void *drafter, const int32_t *tokens, size_t n, int32_t *out, size_t capacity);
/* NULL and freed handles are fine. */
void llmcc_drafter_free(llmcc_drafter *drafter);

/* Texts that generations guess from: the tokens that most often followed the longest ending of a text, of 2 to 16 tokens, in `tokens` [n], where a negative number stands between two texts
 * (REST, arXiv 2311.08252). It is for any number of generations of the model, also of engines: pass it as `guess_user` with LLMCC_GUESS_CORPUS. Takes 8 bytes a token and the time to
 * sort them; up to 2^26 tokens (LLMCC_E_INVALID). Since 1.12. */
typedef struct llmcc_corpus llmcc_corpus;
llmcc_status llmcc_corpus_new(const llmcc_model *model, const int32_t *tokens, size_t n, llmcc_corpus **out);
/* NULL and freed handles are fine. Generations that guess from it go on. */
void llmcc_corpus_free(llmcc_corpus *corpus);

/* Prompts made shorter: decides which of `tokens` [n] to keep, so that the others, which this model foresees, are left out of the prompt of any model (LLMLingua, arXiv 2310.05736). The
 * first `context` tokens are kept and count as none of the text. In each segment of 200 tokens those with the most self-information are kept, each scored after the kept tokens before
 * the segment: at the end of a segment `share` (above 0, up to 1) of the text's tokens so far, to the nearest number. `keep` [n]: before, 1 for a token that must be kept, else 0; after,
 * 1 for each that is kept. `information` [n], or NULL: -ln p of each token in nats, infinite for a first one, 0 in the context. Other calls on the model wait. Since 1.12. */
llmcc_status llmcc_compress(const llmcc_model *model, const int32_t *tokens, size_t n, size_t context, double share, uint8_t *keep, float *information);

/* Text in, text out. `params`, `callback` and `stats` may be NULL. */
llmcc_status llmcc_generate(const llmcc_model *model, const char *prompt, size_t len, const llmcc_gen_params *params, llmcc_callback callback,
                            void *user, llmcc_gen_stats_t *stats);

/* ---- engine: many requests at once. Since 1.9 -------------------------------------------------------------------------------- */

/* An engine serves requests on a thread of this library. They join and leave between steps: each step takes the running requests one token further, and as much of new prompts as
 * leaves the time between two tokens short. A request's tokens depend on its prompt, parameters and seed alone: they are those of llmcc_gen_next, bit for bit (on CPUs), whatever else
 * runs, is cached, or takes their turn. Requests that begin with the same tokens compute them once; ended ones leave theirs to later ones, as long as the cache has room.
 *
 *     llmcc_engine *engine; uint64_t id; size_t n; llmcc_event event = {sizeof event};
 *     llmcc_engine_open(model, NULL, &engine);
 *     llmcc_request request = {sizeof request, "Once upon", 9};
 *     llmcc_engine_submit(engine, &request, &id);
 *     do { llmcc_engine_poll(engine, &event, 1, &n, -1); fputs(event.text, stdout); } while (!event.ended);
 *     llmcc_engine_close(engine);
 */
typedef struct llmcc_engine llmcc_engine;

enum { LLMCC_ENGINE_NO_PREFIXES = 1 /* every request computes its whole prompt, and leaves nothing */ };

typedef struct llmcc_engine_options {
    size_t size;
    uint32_t max_running;  /* most requests in a step; 0: 64 */
    uint32_t flags;        /* LLMCC_ENGINE_* */
    uint64_t max_queued;   /* most requests beside these, further ones are LLMCC_E_BUSY; 0: 4096 */
    uint64_t target_ns;    /* longest time between two tokens of a request that prompts of others may cause; 0: twice that of a step without prompts, or 50 ms if that is longer */
    uint64_t prefix_bytes; /* most bytes of pages that stay after their requests; 0: as many as the cache has room for */
    const char *cache_dir; /* a folder (UTF-8, `cache_dir_len` bytes) in which they survive the process, for this artifact and processor; NULL: none (since 1.10, as all below) */
    size_t cache_dir_len;
    uint64_t cache_dir_bytes; /* most bytes of the files there, those used longest ago go first; 0: 8 GiB */
} llmcc_engine_options;

typedef struct llmcc_request {
    size_t size;
    const char *text;               /* UTF-8, `len` bytes: the prompt, which gets the special tokens of a plain prompt without LLMCC_GEN_RAW_PROMPT; NULL: `tokens` */
    size_t len;
    const int32_t *tokens;          /* [n_tokens] the whole sequence from its first token */
    size_t n_tokens;
    const llmcc_gen_params *params; /* NULL: the model's defaults. All that is not LLMCC_GUESS_CALLER. Needed during the call only */
    int32_t priority;               /* requests of larger ones go first. Who waits for long rises */
    uint32_t reserved;              /* 0 */
    uint64_t timeout_ns;            /* the request ends with LLMCC_E_DEADLINE after so long; 0: never */
    uint64_t salt;                  /* computed tokens are shared among requests of the same number only: give tenants numbers that others cannot guess */
} llmcc_request;

/* A token of a request, or its end. */
typedef struct llmcc_event {
    size_t size;
    uint64_t request;           /* its number */
    const char *text;           /* as in llmcc_piece; valid until the engine's next llmcc_engine_poll, as all pointers here */
    size_t text_len;
    int32_t token;              /* -1: the request ended without a further one */
    llmcc_finish finish;        /* not 0 where the text is finished */
    double logprob;             /* with LLMCC_GEN_LOGPROBS */
    const int32_t *top_tokens;  /* [n_top] */
    const double *top_logprobs; /* [n_top] */
    size_t n_top;
    uint32_t ended;             /* 1: the last event of the request */
    llmcc_status status;        /* of a request that failed, was cancelled (LLMCC_E_INTERRUPTED) or too late; its tokens so far are right */
    const char *message;        /* the reason then */
    uint64_t prompt_tokens;     /* from here on in the last event only */
    uint64_t reused_tokens;     /* tokens of the prompt that others had computed */
    uint64_t generated_tokens;
    uint64_t waited_ns;         /* from its arrival until it first took part in a step */
    uint64_t first_token_ns;    /* to its first token */
    uint64_t total_ns;          /* to its end */
} llmcc_event;

/* `options` may be NULL. The model may have several users; each engine has its own queue. Close it before the model. */
llmcc_status llmcc_engine_open(const llmcc_model *model, const llmcc_engine_options *options, llmcc_engine **out);
/* Hands a request over, and stores its number in `id`. Wrong requests fail here; those that turn out too large for the cache end with LLMCC_E_CACHE_FULL. */
llmcc_status llmcc_engine_submit(llmcc_engine *engine, const llmcc_request *request, uint64_t *id);
/* Stores up to `capacity` events in `events`, in their order, and how many in `n`. Waits for the first one for up to `timeout_ns` (0: not at all; below 0: as long as it takes, or until
 * llmcc_interrupt or llmcc_engine_close ends the wait with LLMCC_E_INTERRUPTED). Set events[0].size; all others have the same. One thread at a time calls this. */
llmcc_status llmcc_engine_poll(llmcc_engine *engine, llmcc_event *events, size_t capacity, size_t *n, int64_t timeout_ns);
/* Ends a request after the step under way, if it has not ended. */
llmcc_status llmcc_engine_cancel(llmcc_engine *engine, uint64_t request);
/* Counts since the engine was opened, as JSON: requests running, waiting, submitted, finished, failed, cancelled, expired; steps and tokens in them; tokens of prompts, reused and generated
 * ones; kept sequences. More members may follow. */
llmcc_status llmcc_engine_stats(llmcc_engine *engine, char *out, size_t capacity, size_t *needed);
/* A descriptor for poll(2) and the like that is readable while there are events. It belongs to the engine. */
llmcc_status llmcc_engine_fd(llmcc_engine *engine, int32_t *fd);
/* Ends all requests, without further events. NULL and closed handles are fine. Waits for the step under way. */
void llmcc_engine_close(llmcc_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
