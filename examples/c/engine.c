/*
 * Requests that come and go, linked with an artifact:
 *
 *     make engine MODEL=/path/to/model.so && ./engine "Once upon a time" "import os"
 *
 * An engine serves all of them on a thread of the artifact's. Each text is the one that its prompt gives alone. Prints a text when its request has ended, and how
 * long that took. This program waits in poll(2), as one with sockets would.
 */
#include "llmcc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 32, MAX_TEXT = 4096 };

typedef struct {
    uint64_t number;
    const char *prompt;
    char text[MAX_TEXT];
    size_t length;
} job;

static void check(llmcc_status status)
{
    if (status == LLMCC_OK)
        return;
    fprintf(stderr, "error: %s\n", llmcc_last_error());
    exit(1);
}

/* Takes a token's text, or prints the whole at the end; returns whether the request has ended. */
static int take(job *j, const llmcc_event *event)
{
    size_t room = MAX_TEXT - 1 - j->length, length = event->text_len < room ? event->text_len : room;
    memcpy(j->text + j->length, event->text, length);
    j->length += length;
    if (!event->ended)
        return 0;
    printf("%s%s\n", j->prompt, j->text);
    if (event->status != LLMCC_OK)
        printf("(failed: %s)\n\n", event->message);
    else
        printf("(%llu tokens, the first after %.1f ms, all after %.1f ms)\n\n", (unsigned long long)event->generated_tokens, event->first_token_ns / 1e6, event->total_ns / 1e6);
    return 1;
}

int main(int argc, char **argv)
{
    llmcc_model *model;
    llmcc_engine *engine;
    check(llmcc_open(NULL, &model));
    check(llmcc_engine_open(model, NULL, &engine));
    size_t n = (size_t)argc - 1, running = n;
    job *jobs = calloc(n + 1, sizeof *jobs);
    if (!jobs)
        return fprintf(stderr, "out of memory\n"), 1;
    for (size_t i = 0; i < n; i++) {
        llmcc_gen_params params = LLMCC_GEN_PARAMS_INIT;
        params.max_tokens = 40;
        jobs[i].prompt = argv[i + 1];
        llmcc_request request = {.size = sizeof request, .text = argv[i + 1], .len = strlen(argv[i + 1]), .params = &params};
        check(llmcc_engine_submit(engine, &request, &jobs[i].number));
    }
    int32_t fd;
    check(llmcc_engine_fd(engine, &fd));
    while (running > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, -1) < 0)
            continue;
        llmcc_event events[EVENTS];
        size_t count;
        events[0].size = sizeof(llmcc_event);
        check(llmcc_engine_poll(engine, events, EVENTS, &count, 0));
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < n; j++)
                if (jobs[j].number == events[i].request)
                    running -= (size_t)take(&jobs[j], &events[i]);
    }
    free(jobs);
    llmcc_engine_close(engine);
    llmcc_close(model);
    return 0;
}
