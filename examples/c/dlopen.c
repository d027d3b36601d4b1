/*
 * Tokens, logits and sequences, with an artifact chosen at run time:
 *
 *     make dlopen && ./dlopen /path/to/model.so "Once upon a time"
 *
 * One step evaluates the prompt; the sequence is then forked, and both branches decode side by side in the same batches: one always takes
 * the most probable token, the other samples.
 */
#include "llmcc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 30, MAX_PROMPT = 1024 };

/* The functions of the artifact, by their declarations in llmcc.h. */
#define FUNCTIONS(X) \
    X(llmcc_last_error) X(llmcc_open) X(llmcc_close) X(llmcc_info) X(llmcc_tokenize) X(llmcc_detokenize) \
    X(llmcc_seq_new) X(llmcc_seq_fork) X(llmcc_step) X(llmcc_sample)
#define DECLARE(name) static __typeof__(name) *p_##name;
FUNCTIONS(DECLARE)

static void check(llmcc_status status)
{
    if (status == LLMCC_OK)
        return;
    fprintf(stderr, "error: %s\n", p_llmcc_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: %s MODEL.so [PROMPT]\n", argv[0]), 2;
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";

    /* A name without a slash would be looked for among the system's libraries. */
    char *path = realpath(argv[1], NULL);
    if (!path)
        return perror(argv[1]), 1;
    /* Local, because every artifact defines the same names. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (!library)
        return fprintf(stderr, "%s\n", dlerror()), 1;
#define LOAD(name) \
    if (!(*(void **)&p_##name = dlsym(library, #name))) \
        return fprintf(stderr, "%s\n", dlerror()), 1;
    FUNCTIONS(LOAD)

    llmcc_options options = {.size = sizeof options, .max_tokens = 4096};
    llmcc_model *model;
    check(p_llmcc_open(&options, &model));
    llmcc_model_info info = {.size = sizeof info};
    check(p_llmcc_info(model, &info));
    size_t vocab = info.vocab;
    float *logits = malloc(2 * vocab * sizeof *logits);
    if (!logits)
        return fprintf(stderr, "out of memory\n"), 1;

    /* The prompt: one step, logits wanted after its last token only. */
    int32_t tokens[MAX_PROMPT], rows[MAX_PROMPT], seq[2];
    size_t n;
    check(p_llmcc_tokenize(model, prompt, strlen(prompt), LLMCC_ADD_SPECIAL, tokens, MAX_PROMPT, &n));
    if (n == 0)
        return fprintf(stderr, "the prompt has no tokens\n"), 1;
    check(p_llmcc_seq_new(model, &seq[0]));
    for (size_t i = 0; i < n; i++)
        rows[i] = seq[0];
    uint32_t last = (uint32_t)n - 1;
    llmcc_batch batch = {.size = sizeof batch, .n_tokens = n, .tokens = tokens, .seqs = rows, .n_out = 1, .out_rows = &last};
    check(p_llmcc_step(model, &batch, logits, vocab));

    /* Two branches from here; the cache of the prompt is shared. */
    check(p_llmcc_seq_fork(model, seq[0], &seq[1]));
    memcpy(logits + vocab, logits, vocab * sizeof *logits);
    llmcc_sampling sampling[2] = {LLMCC_SAMPLING_INIT, LLMCC_SAMPLING_INIT};
    sampling[1].temperature = 0.8f, sampling[1].top_k = 40, sampling[1].seed = 7;
    int32_t out[2][STEPS], next[2];
    const uint32_t both[2] = {0, 1};
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 2; i++) {
            check(p_llmcc_sample(logits + i * vocab, vocab, &sampling[i], NULL, 0, step, &next[i]));
            out[i][step] = next[i];
        }
        batch = (llmcc_batch){.size = sizeof batch, .n_tokens = 2, .tokens = next, .seqs = seq, .n_out = 2, .out_rows = both};
        check(p_llmcc_step(model, &batch, logits, 2 * vocab));
    }

    for (int i = 0; i < 2; i++) {
        char text[64 * STEPS];
        check(p_llmcc_detokenize(model, out[i], STEPS, 0, text, sizeof text, NULL));
        printf("%s: %s %s\n", i ? "sampled" : "greedy", prompt, text);
    }
    free(logits);
    p_llmcc_close(model);
    dlclose(library);
    return 0;
}
