/*
 * Many prompts at once, linked with an artifact:
 *
 *     make batch MODEL=/path/to/model.so && ./batch "Once upon a time" "import os"
 *
 * All generate side by side, one step of the model for a token of each, with room for MAX_RUNNING of them: where one ends, the next begins. Each text is
 * the one that its prompt gives alone. Prints the texts, and how probable the model found each (the mean log-probability of its tokens).
 */
#include "llmcc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNNING = 16, MAX_PROMPT = 1024, MAX_TEXT = 4096 };

typedef struct {
    llmcc_gen *gen; /* NULL: ended */
    char text[MAX_TEXT];
    size_t length, tokens;
    double logprob;
} job;

static void check(llmcc_status status)
{
    if (status == LLMCC_OK)
        return;
    fprintf(stderr, "error: %s\n", llmcc_last_error());
    exit(1);
}

/* Takes up to MAX_RUNNING of the jobs a step further; returns how many there were. */
static size_t step(job *jobs, size_t n)
{
    job *running[MAX_RUNNING];
    llmcc_gen *gens[MAX_RUNNING];
    llmcc_piece pieces[MAX_RUNNING];
    size_t count = 0;
    for (size_t i = 0; i < n && count < MAX_RUNNING; i++) {
        if (!jobs[i].gen)
            continue;
        running[count] = &jobs[i];
        gens[count] = jobs[i].gen;
        pieces[count++].size = sizeof(llmcc_piece);
    }
    check(llmcc_gen_next_batch(gens, count, pieces));
    for (size_t i = 0; i < count; i++) {
        job *j = running[i];
        size_t room = MAX_TEXT - 1 - j->length, length = pieces[i].text_len < room ? pieces[i].text_len : room;
        memcpy(j->text + j->length, pieces[i].text, length);
        j->length += length;
        if (pieces[i].token >= 0) { /* else its prompt is not yet evaluated */
            j->tokens++;
            j->logprob += pieces[i].logprob;
        }
        if (pieces[i].finish != LLMCC_FINISH_NONE) {
            llmcc_gen_free(j->gen);
            j->gen = NULL;
        }
    }
    return count;
}

int main(int argc, char **argv)
{
    llmcc_model *model;
    check(llmcc_open(NULL, &model));
    size_t n = (size_t)argc - 1;
    job *jobs = calloc(n + 1, sizeof *jobs);
    if (!jobs)
        return fprintf(stderr, "out of memory\n"), 1;
    for (size_t i = 0; i < n; i++) {
        int32_t tokens[MAX_PROMPT];
        size_t length;
        check(llmcc_tokenize(model, argv[i + 1], strlen(argv[i + 1]), LLMCC_ADD_SPECIAL, tokens, MAX_PROMPT, &length));
        llmcc_gen_params params = {.size = sizeof params, .max_tokens = 40, .flags = LLMCC_GEN_LOGPROBS};
        check(llmcc_gen_new(model, LLMCC_NEW_SEQ, tokens, length, &params, &jobs[i].gen));
    }
    while (step(jobs, n) > 0) {
    }
    for (size_t i = 0; i < n; i++)
        printf("%s%s\n(%zu tokens, mean log-probability %.3f)\n\n", argv[i + 1], jobs[i].text, jobs[i].tokens, jobs[i].logprob / (double)jobs[i].tokens);
    free(jobs);
    llmcc_close(model);
    return 0;
}
