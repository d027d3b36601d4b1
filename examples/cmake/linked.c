/* The model is linked like any library: it is there when the program starts. */
#include <llmcc.h>
#include <stdio.h>
#include <string.h>

static int32_t print_piece(void *user, const char *text, size_t len, int32_t token) {
    (void)user;
    (void)token;
    fwrite(text, 1, len, stdout);
    return ferror(stdout);
}

int main(int argc, char **argv) {
    const char *prompt = argc > 1 ? argv[1] : "def read_file(path):";
    llmcc_gen_params params = LLMCC_GEN_PARAMS_INIT;
    params.max_tokens = 40;
    params.sampling.top_k = 1; /* the most probable token */
    llmcc_model *model;
    if (llmcc_open(NULL, &model) != LLMCC_OK) {
        fprintf(stderr, "error: %s\n", llmcc_last_error());
        return 1;
    }
    llmcc_status status = llmcc_generate(model, prompt, strlen(prompt), &params, print_piece, NULL, NULL);
    putchar('\n');
    if (status != LLMCC_OK) fprintf(stderr, "error: %s\n", llmcc_last_error());
    llmcc_close(model);
    return status != LLMCC_OK;
}
