/*
 * Bits of logits, then a text: logits MODEL.so TOKENS PROMPT
 *
 * Prints the logits of a step of 37 tokens and of 5 steps of one token, in hexadecimal, then (if the model has a tokenizer and PROMPT is
 * not empty) the greedy text of TOKENS tokens after PROMPT.
 */
#include "llmcc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 37, STEPS = 5 };

#define FUNCTIONS(X) \
    X(llmcc_last_error) X(llmcc_open) X(llmcc_close) X(llmcc_info) X(llmcc_seq_new) X(llmcc_step) X(llmcc_generate)
#define DECLARE(name) static __typeof__(name) *p_##name;
FUNCTIONS(DECLARE)

static void check(llmcc_status status)
{
    if (status == LLMCC_OK)
        return;
    fprintf(stderr, "error: %s\n", p_llmcc_last_error());
    exit(1);
}

static void print(const float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        printf("%08x%c", bits, i % 16 == 15 || i + 1 == n ? '\n' : ' ');
    }
}

static int32_t show(void *user, const char *text, size_t len, int32_t token)
{
    (void)token;
    fwrite(text, 1, len, (FILE *)user);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return fprintf(stderr, "usage: %s MODEL.so TOKENS PROMPT\n", argv[0]), 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fprintf(stderr, "%s\n", dlerror()), 1;
#define LOAD(name) \
    if (!(*(void **)&p_##name = dlsym(library, #name))) \
        return fprintf(stderr, "%s\n", dlerror()), 1;
    FUNCTIONS(LOAD)

    llmcc_options options = {.size = sizeof options, .max_tokens = 1024, .threads = 2};
    llmcc_model *model;
    check(p_llmcc_open(&options, &model));
    llmcc_model_info info = {.size = sizeof info};
    check(p_llmcc_info(model, &info));
    printf("isa %u\n", info.isa);
    float *logits = malloc(PROMPT * info.vocab * sizeof *logits);
    if (!logits)
        return fprintf(stderr, "out of memory\n"), 1;
    int32_t tokens[PROMPT], seqs[PROMPT], seq;
    uint32_t rows[PROMPT];
    check(p_llmcc_seq_new(model, &seq));
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)((i * 7919u + 3) % info.vocab), seqs[i] = seq, rows[i] = (uint32_t)i;
    llmcc_batch batch = {.size = sizeof batch, .n_tokens = PROMPT, .tokens = tokens, .seqs = seqs, .n_out = PROMPT, .out_rows = rows};
    check(p_llmcc_step(model, &batch, logits, PROMPT * info.vocab));
    print(logits, PROMPT * info.vocab);
    for (int step = 0; step < STEPS; step++) {
        tokens[0] = (int32_t)((step * 104729u + 11) % info.vocab);
        batch = (llmcc_batch){.size = sizeof batch, .n_tokens = 1, .tokens = tokens, .seqs = seqs, .n_out = 1, .out_rows = rows};
        check(p_llmcc_step(model, &batch, logits, info.vocab));
        print(logits, info.vocab);
    }
    if (argv[3][0]) {
        llmcc_gen_params params = LLMCC_GEN_PARAMS_INIT;
        params.max_tokens = (uint64_t)atoi(argv[2]);
        check(p_llmcc_generate(model, argv[3], strlen(argv[3]), &params, show, stdout, NULL));
        printf("\n");
    }
    free(logits);
    p_llmcc_close(model);
    return dlclose(library);
}
