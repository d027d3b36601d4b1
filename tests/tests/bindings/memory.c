/*
 * memory ARTIFACT [ADAPTER]: calls every function of the API where the system has little memory: in a child for each limit of its address space. Every call must come back, with
 * success or an error that says so. Prints how many children saw errors, and how many none; ends with 1 where one died.
 */
#define _GNU_SOURCE
#include "llmcc.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(library, #name)

/* When the limit begins: before the model is opened, before text is used, after that. */
enum { OPEN, TEXT, USED, MOMENTS };

static int failures;
static int strange;

static int check(const char *what, llmcc_status status, const char *message)
{
    if (status == LLMCC_OK)
        return 1;
    failures++;
    /* What a model without classes says; a cache that cannot grow. */
    if (status != LLMCC_E_SYSTEM && status != LLMCC_E_CACHE_FULL && status != LLMCC_E_UNSUPPORTED && status != LLMCC_E_INVALID && status != LLMCC_E_BUFFER) {
        fprintf(stderr, "%s: status %d: %s\n", what, status, message);
        strange++;
    }
    return 0;
}

static void limit(size_t more)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        _exit(4);
    fclose(file);
    struct rlimit l = {pages * 4096 + more, pages * 4096 + more};
    if (setrlimit(RLIMIT_AS, &l) != 0)
        _exit(4);
}

static int32_t ids[4096];
static float logits[2 * 65536];
static char text[1 << 16];
static char prompt[1 << 15];

static void calls(void *library, int moment, size_t more, const char *adapter_path)
{
    LOAD(llmcc_open); LOAD(llmcc_close); LOAD(llmcc_info); LOAD(llmcc_stats); LOAD(llmcc_manifest); LOAD(llmcc_last_error);
    LOAD(llmcc_seq_new); LOAD(llmcc_seq_free); LOAD(llmcc_seq_fork); LOAD(llmcc_seq_truncate); LOAD(llmcc_seq_len); LOAD(llmcc_seq_tokens); LOAD(llmcc_seq_save); LOAD(llmcc_seq_load); LOAD(llmcc_seq_set_adapter);
    LOAD(llmcc_adapter_load); LOAD(llmcc_adapter_unload); LOAD(llmcc_step); LOAD(llmcc_embed); LOAD(llmcc_tokenize_pair); LOAD(llmcc_score_pairs);
    LOAD(llmcc_sample); LOAD(llmcc_logprobs); LOAD(llmcc_step_logprobs); LOAD(llmcc_tokenize); LOAD(llmcc_detokenize); LOAD(llmcc_apply_chat_template);
    LOAD(llmcc_token_piece); LOAD(llmcc_piece_token); LOAD(llmcc_token_bytes); LOAD(llmcc_token_flags); LOAD(llmcc_tokenizer_size); LOAD(llmcc_eos_tokens);
    LOAD(llmcc_gen_new); LOAD(llmcc_gen_next); LOAD(llmcc_gen_take); LOAD(llmcc_gen_next_batch); LOAD(llmcc_gen_stats); LOAD(llmcc_gen_free); LOAD(llmcc_generate);
    LOAD(llmcc_interrupt);
#define CALL(f, ...) check(#f, p_##f(__VA_ARGS__), p_llmcc_last_error())
    llmcc_model *m = NULL;
    llmcc_options options = {.size = sizeof options, .threads = 2, .max_tokens = 2048};
    size_t n = 0, len = strlen(prompt);
    if (moment == OPEN)
        limit(more);
    if (!CALL(llmcc_open, &options, &m))
        return;
    if (moment == TEXT)
        limit(more);
    CALL(llmcc_tokenize, m, "Once", 4, 0, ids, 4096, &n);
    if (moment == USED)
        limit(more);
    llmcc_model_info info = {.size = sizeof info};
    CALL(llmcc_info, m, &info);
    CALL(llmcc_stats, m, text, sizeof text, &n);
    p_llmcc_manifest(m);
    CALL(llmcc_tokenize, m, prompt, len, LLMCC_ADD_SPECIAL, NULL, 0, &n);
    CALL(llmcc_tokenize, m, "Once upon a time", 16, LLMCC_ADD_SPECIAL, ids, 4096, &n);
    for (int i = 0; i < 600; i++)
        ids[i] = i % 200 + 10;
    CALL(llmcc_detokenize, m, ids, 8, 0, text, sizeof text, &n);
    CALL(llmcc_detokenize, m, ids, 600, LLMCC_SHOW_SPECIAL, text, sizeof text, &n);
    const char *chat = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
    CALL(llmcc_apply_chat_template, m, chat, strlen(chat), text, sizeof text, &n);
    int32_t token = -1, piece_of = -1;
    uint32_t flags;
    CALL(llmcc_token_piece, m, 20, text, sizeof text, &n);
    CALL(llmcc_piece_token, m, "a", 1, &piece_of);
    CALL(llmcc_token_bytes, m, 20, (uint8_t *)text, sizeof text, &n);
    CALL(llmcc_token_flags, m, 20, &flags);
    CALL(llmcc_tokenizer_size, m, &n);
    CALL(llmcc_eos_tokens, m, ids + 4000, 90, &n);
    int32_t seqs[600], seq = -1, copy = -1;
    CALL(llmcc_seq_new, m, &seq);
    for (int i = 0; i < 600; i++)
        seqs[i] = seq;
    uint32_t last[2] = {599, 0};
    llmcc_batch batch = {.size = sizeof batch, .n_tokens = 600, .tokens = ids, .seqs = seqs, .n_out = 1, .out_rows = last};
    size_t context = info.max_context ? info.max_context : 600;
    if (context < 600)
        batch.n_tokens = context / 2, last[0] = (uint32_t)batch.n_tokens - 1;
    CALL(llmcc_step, m, &batch, logits, sizeof logits / 4);
    CALL(llmcc_seq_fork, m, seq, &copy);
    CALL(llmcc_seq_len, m, seq, &n);
    CALL(llmcc_seq_tokens, m, seq, ids + 2000, 2000, &n);
    size_t bytes = 0;
    CALL(llmcc_seq_save, m, seq, NULL, 0, &bytes);
    uint8_t *saved = malloc(bytes + 1);
    if (saved && CALL(llmcc_seq_save, m, seq, saved, bytes, &bytes))
        CALL(llmcc_seq_load, m, saved, bytes, &copy);
    free(saved);
    for (int i = 0; i < 40; i++)
        CALL(llmcc_seq_fork, m, seq, &copy);
    int32_t target = 5, tops[4], one = ids[0];
    double logprob, top_logprobs[4];
    batch.n_tokens = 1, batch.tokens = &one, batch.seqs = &copy, last[0] = 0;
    CALL(llmcc_step_logprobs, m, &batch, &target, &logprob, 4, tops, top_logprobs);
    llmcc_sampling sampling = LLMCC_SAMPLING_INIT;
    sampling.temperature = 1, sampling.top_p = 0.9f, sampling.repetition_penalty = 1.1f;
    size_t vocab = info.vocab ? info.vocab : 512;
    CALL(llmcc_sample, logits, vocab, &sampling, ids, 100, 0, &token);
    CALL(llmcc_logprobs, logits, vocab, &target, 1, &logprob, 4, tops, top_logprobs);
    CALL(llmcc_seq_truncate, m, seq, 0);
    llmcc_gen_params params = LLMCC_GEN_PARAMS_INIT;
    params.max_tokens = 8, params.flags = LLMCC_GEN_IGNORE_EOS | LLMCC_GEN_LOGPROBS, params.top_logprobs = 3;
    llmcc_gen *gens[3] = {NULL, NULL, NULL};
    llmcc_piece piece = {.size = sizeof piece}, pieces[3];
    for (int i = 0; i < 3; i++) {
        CALL(llmcc_gen_new, m, LLMCC_NEW_SEQ, ids, 20 + i, &params, &gens[i]);
        pieces[i].size = sizeof piece;
    }
    CALL(llmcc_gen_next, gens[0], &piece);
    CALL(llmcc_gen_take, gens[0], logits, vocab, &piece);
    CALL(llmcc_gen_next_batch, gens, 3, pieces);
    llmcc_gen_stats_t stats = {.size = sizeof stats};
    CALL(llmcc_gen_stats, gens[0], &stats);
    CALL(llmcc_generate, m, "Once upon", 9, NULL, NULL, NULL, NULL);
    for (int i = 0; i < 3; i++)
        p_llmcc_gen_free(gens[i]);
    const size_t lengths[2] = {3, 4};
    llmcc_embed_rows rows = {.size = sizeof rows, .n_rows = 2, .lengths = lengths, .tokens = ids};
    CALL(llmcc_embed, m, &rows, logits, sizeof logits / 4);
    llmcc_pair pair = {"a", 1, "b", 1};
    CALL(llmcc_tokenize_pair, m, &pair, 0, ids, NULL, 4096, &n);
    CALL(llmcc_score_pairs, m, &pair, 1, 0, logits, sizeof logits / 4);
    int32_t adapter = 0;
    if (adapter_path)
        CALL(llmcc_adapter_load, m, adapter_path, strlen(adapter_path), &adapter);
    CALL(llmcc_seq_set_adapter, m, seq, adapter);
    CALL(llmcc_seq_free, m, seq);
    CALL(llmcc_adapter_unload, m, adapter);
    CALL(llmcc_interrupt, m);
    p_llmcc_close(m);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    for (size_t i = 0; i + 6 < sizeof prompt; i += 6)
        memcpy(prompt + i, "word; ", 6);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fprintf(stderr, "%s\n", dlerror()), 2;
    int saw = 0, none = 0, died = 0;
    for (int moment = OPEN; moment < MOMENTS; moment++) {
        /* Small steps first. */
        for (size_t more = 0; more < (64u << 20); more += more < (4u << 20) ? 192u << 10 : more / 6) {
            pid_t child = fork();
            if (child == 0) {
                calls(library, moment, more, argc > 2 ? argv[2] : NULL);
                _exit(strange ? 3 : failures ? 1 : 0);
            }
            int status = 0;
            waitpid(child, &status, 0);
            if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
                fprintf(stderr, "moment %d, %zu bytes: %s %d\n", moment, more, WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
                died++;
            } else if (WEXITSTATUS(status)) {
                saw++;
            } else {
                none++;
            }
        }
    }
    printf("errors in %d, none in %d, died %d\n", saw, none, died);
    return died ? 1 : 0;
}
