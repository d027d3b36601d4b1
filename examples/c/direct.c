/*
 * Text in, text out, linked directly with an artifact:
 *
 *     make direct MODEL=/path/to/model.so && ./direct "Once upon a time"
 *
 * The program needs nothing but the .so: model, tokenizer and runtime are inside.
 */
#include "llmcc.h"

#include <stdio.h>
#include <string.h>

/* Called with each piece of text as soon as it is known. */
static int32_t show(void *user, const char *text, size_t len, int32_t token)
{
    (void)token;
    fwrite(text, 1, len, (FILE *)user);
    fflush((FILE *)user);
    return 0; /* go on */
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, llmcc_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 1 ? argv[1] : "Once upon a time";

    /* NULL options: a thread per core, a cache for one sequence of the longest context. */
    llmcc_model *model;
    if (llmcc_open(NULL, &model) != LLMCC_OK)
        return failed("cannot open the model");

    /* Tokens are chosen as the model says (its generation_config.json), else greedily. At most 100, ended by a blank line. */
    const char *stop[] = {"\n\n"};
    llmcc_gen_params params = LLMCC_GEN_PARAMS_INIT;
    params.max_tokens = 100, params.stop = stop, params.n_stop = 1;
    if (argc > 2) { /* any second argument: sample instead */
        params.sampling.temperature = 0.8f;
        params.sampling.top_p = 0.95f;
        params.sampling.seed = 1;
    }

    printf("%s", prompt);
    llmcc_gen_stats_t stats = {.size = sizeof stats};
    if (llmcc_generate(model, prompt, strlen(prompt), &params, show, stdout, &stats) != LLMCC_OK) {
        llmcc_close(model);
        return failed("cannot generate");
    }
    fprintf(stderr, "\n\n%llu tokens, first after %.1f ms, then %.1f per second\n", (unsigned long long)stats.generated_tokens,
            stats.prefill_ns / 1e6, stats.generated_tokens > 1 ? (stats.generated_tokens - 1) * 1e9 / stats.decode_ns : 0.0);
    llmcc_close(model);
    return 0;
}
